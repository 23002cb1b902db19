"""``capbench compare``: is one metric better than another, or is the difference chance?"""

from __future__ import annotations

from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.given import Given, Target, open_judged
from capbench.cli.groups import with_groups
from capbench.cli.reporting import ExplanationsOption, ReportOption, explaining, write_page
from capbench.errors import UsageError

__all__ = ["compare"]

_TESTS = ("permutation", "bootstrap", "williams", "steiger", "mcnemar")
_CORRECTIONS = ("holm", "bh", "none")


@with_groups
def compare(
    *,
    metric: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METRIC METRIC...",
            help="Two metrics or more; columns of --scores may be named, too.",
            show_default=False,
        ),
    ] = None,
    target: Target,
    test: Annotated[str, typer.Option("--test", help=f"One of {', '.join(_TESTS)}.")] = "permutation",
    correction: Annotated[
        str, typer.Option("--correction", help=f"For the number of pairs: {', '.join(_CORRECTIONS)}.")
    ] = "holm",
    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Resamples and permutations.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the resamples and permutations.")] = 0,
    unit: Annotated[str, typer.Option("--unit", help=f"What is resampled: {', '.join(common.UNITS)}.")] = "image",
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Test whether metrics differ in how well they agree with people, and say it in one sentence a pair.

    Intervals are 95 % bootstrap intervals over images, because ratings of one image depend on each other. The default
    test swaps the two metrics' scores image by image (PERM-BOTH, Deutsch et al. 2021). See docs/statistics.md.

    Example: capbench compare cider meteor --dataset flickr8k-expert

    Example: capbench compare bleu-4 rouge-l meteor cider -d pascal-50s --correction bh

    Example: capbench compare cider meteor -d composite --report cider-meteor.html
    """
    from dataclasses import replace

    from capbench.analyses.comparing import compare_scored, score_all
    from capbench.files import check_writable
    from capbench.studies.settings import TestSettings

    for name, value, choices in (
        ("--test", test, _TESTS),
        ("--correction", correction, _CORRECTIONS),
        ("--unit", unit, common.UNITS),
    ):
        common.check_choice(name, value, choices)
    if report is not None:
        check_writable(report)
    elif explanations is not None:
        raise UsageError("--explanations is for the page of --report", hint="Add --report FILE, or leave it out")
    judged = open_judged(
        metric or [],
        target,
        given,
        one_alone=UsageError("one metric alone cannot be compared", hint="Name two or more"),
        json_output=json_output,
    )
    settings = TestSettings(
        test,  # type: ignore[arg-type]  # checked above, as are the next two
        correction,  # type: ignore[arg-type]
        resamples=resamples,
        seed=seed,
        unit=unit,  # type: ignore[arg-type]
    )
    scored = score_all(
        judged.dataset,
        judged.protocol,
        judged.requests,
        judged.resources,
        cache=given.cache,
        progress=common.progress,
    )
    rows = [row for request in judged.requests for row in request.rows]
    comparison = replace(compare_scored(judged.protocol, scored, rows, settings), sample=judged.sample)
    used = comparison.table.resamples
    if used is not None and used > resamples:
        pairs = len(comparison.table.pairs)
        common.note(f"{used:,} permutations or resamples were tested with: {resamples:,} are too few for {pairs} pairs")
    if json_output:
        common.print_json(comparison.as_json())
    else:
        from capbench.reports.comparing import print_comparison

        print_comparison(comparison, judged.protocol.statistic, common.out())
    if report is not None:
        from capbench.analyses.comparison_results import comparison_result
        from capbench.reports.report import ReportSource
        from capbench.studies.item_scores import Collector

        collector = Collector()
        collector(judged.protocol, scored, scored.tables, rows)
        result = comparison_result(comparison, judged.protocol, scored, rows)
        source = ReportSource(result, collector.tables)
        source = explaining(source, judged.requests, judged.resources, explanations)
        write_page([source], report, given.root(), explanations=explanations)
