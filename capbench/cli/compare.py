"""``capbench compare``: test whether one metric agrees better with human judgements than another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from capbench.cli import common
from capbench.cli.options import ScoringInputs, Target, with_groups
from capbench.cli.report import ExplanationsOption, ReportOption, explaining, write_page
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.comparing import Comparison

__all__ = ["compare"]

_Test = Literal["permutation", "bootstrap", "williams", "steiger", "mcnemar"]


@with_groups
def compare(
    *,
    metric: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METRIC METRIC...",
            help="Two or more metrics, or columns of --scores.",
            show_default=False,
        ),
    ] = None,
    target: Target,
    test: Annotated[_Test, typer.Option("--test", help="Test of each pair.")] = "permutation",
    correction: Annotated[
        common.Correction, typer.Option("--correction", help="Correction for the number of pairs.")
    ] = "holm",
    resamples: Annotated[
        int | None,
        typer.Option("--resamples", min=100, help="Resamples and permutations. Default: 1,000 and 10,000."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of resamples and permutations.")] = 0,
    unit: Annotated[common.Unit, typer.Option("--unit", help="Unit of resampling.")] = "image",
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Test whether metrics differ in human agreement.

    Prints 95 % bootstrap intervals over images, and one sentence for each pair of metrics. See docs/statistics.md.

    Example: capbench compare cider meteor --dataset flickr8k-expert

    Example: capbench compare bleu-4 rouge-l meteor cider -d pascal-50s --correction bh

    Example: capbench compare cider meteor -d composite --report cider-meteor.html
    """
    from capbench.api.comparing import compare_judged
    from capbench.core.files import check_writable
    from capbench.studies.study import TestSettings

    if report is not None:
        check_writable(report)
    elif explanations is not None:
        raise UsageError(
            "--explanations requires --report", code="missing-option", hint="Add --report FILE, or omit --explanations"
        )
    made = compare_judged(
        metric or [],
        target.dataset,
        target.protocol,
        inputs.values(),
        TestSettings(test, correction, resamples=resamples, seed=seed, unit=unit),
        common.caller(json_output=json_output, no_metric="Name two or more, or pass --scores FILE"),
    )
    if json_output:
        common.print_json(made.result.as_json())
    else:
        from capbench.reports.compare import print_comparison

        print_comparison(made.result, made.judged.protocol.statistic, common.out())
    if report is not None:
        _write_report(made, report, inputs.image_root, explanations)
    if made.result.incomplete:
        raise typer.Exit(1)


def _write_report(made: Comparison, report: Path, image_root: Path | None, explanations: int | None) -> None:
    from capbench.reports.page import ReportSource
    from capbench.studies.item_scores import Collector

    judged, collector = made.judged, Collector()
    collector(judged.protocol, made.scored, made.scored.tables, judged.rows)
    source = ReportSource(made.as_study(), collector.tables)
    source = explaining(source, judged.requests, judged.resources, explanations)
    write_page([source], report, judged.root, image_root=image_root, explanations=explanations)
