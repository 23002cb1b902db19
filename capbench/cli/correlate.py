"""``capbench correlate``: run a study and print how well each metric agrees with human judgements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import ScoringInputs, with_groups
from capbench.cli.report import ExplanationsOption, ReportOption, explaining, write_page
from capbench.cli.study_flags import StatisticsFlags, StudyFlags
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.studies.all_protocols import SensitivityResult
    from capbench.studies.item_scores import Collector
    from capbench.studies.plan import Plan
    from capbench.studies.results import StudyResult

__all__ = ["correlate"]


@with_groups
def correlate(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file, or the name of a shipped one."),
    ] = None,
    flags: StudyFlags,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for CSV, JSON, Markdown and LaTeX. Default for studies: results/NAME."
        ),
    ] = None,
    escape_formulas: common.EscapeOption = False,
    statistics: StatisticsFlags,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="Leave out this metric, label or column; repeatable."),
    ] = None,
    all_protocols: Annotated[
        bool,
        typer.Option(
            "--all-protocols",
            help="Rank the metrics under every protocol of the data sets.",
        ),
    ] = False,
    no_by_source: Annotated[
        bool,
        typer.Option("--no-by-source", help="Omit the tables by source or domain."),
    ] = False,
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help="With --out or a study file: also write items.json.gz for 'capbench report'.",
        ),
    ] = False,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Correlate metrics with human judgements.

    A study file defines data sets, metrics and published tables. Without one, --dataset and --metric define a quick
    study; by default it has all metrics (with --scores, only the score files) and all installed judgements. Other
    options apply to both and override the study file. DATASET@GROUP is one group of a data set's items,
    DATASET:VERSION one of its versions.

    On your own judgements (a file or an imported data set), the metrics are ranked with intervals and tests, and a
    sentence names the best one and how many images would separate the first two.

    Exit code 1: done, but something is missing (listed): data files, features, requirements of a metric, or a value of
    an undefined statistic.

    Example: capbench correlate configs/tiger-table1.yaml

    Example: capbench correlate configs/tiger-table1.yaml --without spice

    Example: capbench correlate -d flickr8k-expert -m all --bootstrap 1000 --compare permutation

    Example: capbench correlate -d composite -p all-references/correctness-tau-b -m cider -m meteor

    Example: capbench correlate -d composite@8k -m cider -m meteor

    Example: capbench correlate -d ratings.csv -m all

    Example: capbench correlate -d ratings.csv -m meteor -m cider --columns image=file,candidate=text

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all --compare permutation
    """
    from capbench.api.agreement import StudyRequest, plan_agreement
    from capbench.core.files import check_writable
    from capbench.reports.sensitivity import write_sensitivity

    if escape_formulas and study is None and out is None:
        raise UsageError("--escape-formulas requires --out", code="missing-option", hint="Add --out DIR, or omit it")
    if items and study is None and out is None:
        raise UsageError("--items requires --out", code="missing-option", hint="Add --out DIR, or omit --items")
    if report is not None:
        check_writable(report)
    elif explanations is not None:
        raise UsageError(
            "--explanations requires --report", code="missing-option", hint="Add --report FILE, or omit --explanations"
        )
    if out is not None:
        common.check_out_folder(out)
    request = StudyRequest(
        study=study,
        datasets=flags.dataset,
        metrics=flags.metric or (),
        protocols=flags.protocol,
        statistics=statistics.choice(),
        without=without or (),
        all_protocols=all_protocols,
    )
    planned = plan_agreement(request, inputs.values(), common.caller(json_output=json_output))
    plan, collector = planned.plan, _collector(report, items)
    if study is not None:
        out = out or Path("results") / plan.study.name
    if out is not None:
        check_writable(out / "results.json")
    if plan.on_sample and plan.study.published and not json_output:
        print("published numbers are omitted: they were measured on real judgements, not on this sample")
    result: StudyResult
    if all_protocols:
        sensitivity = planned.run_all_protocols(collector)
        result = sensitivity.result
        _print_all_protocols(sensitivity, json_output=json_output)
        written = [] if out is None else write_sensitivity(sensitivity, out, escape_formulas=escape_formulas)
    else:
        result = measured = planned.run(collector)
        _print(result, json_output=json_output, by_source=not no_by_source)
        written = []
        if out is not None:
            written = measured.write(out, escape_formulas=escape_formulas, by_source=not no_by_source)
    for path in written:
        common.note(f"wrote {path}")
    if out is not None:
        _write_items(collector, out, items)
    _write_report(report, result, collector, plan, explanations)
    _leave_if_missing(result)


def _collector(report: Path | None, items: bool) -> Collector | None:
    """The collector of items for ``--report`` and ``--items``; None without them."""
    if report is None and not items:
        return None
    from capbench.studies.item_scores import Collector

    return Collector()


def _write_items(collector: Collector | None, out: Path, wanted: bool) -> None:
    """Write the items next to the results; remove those of an earlier run, which belong to other results."""
    from capbench.studies.item_scores import ITEMS_FILE, write_items

    path = out / ITEMS_FILE
    if collector is not None and wanted:
        write_items(collector.tables, path)
        common.note(f"wrote {path}")
    else:
        path.unlink(missing_ok=True)


def _write_report(
    report: Path | None, result: StudyResult, collector: Collector | None, plan: Plan, explanations: int | None
) -> None:
    if report is None or collector is None:
        return
    from capbench.reports.page import ReportSource

    source = explaining(ReportSource(result, collector.tables), plan.requests, plan.resources, explanations)
    images = None if plan.study.images is None else Path(plan.study.images)
    write_page([source], report, plan.root, image_root=images, explanations=explanations)


def _print(result: StudyResult, *, json_output: bool, by_source: bool) -> None:
    from capbench.reports.terminal import print_result

    if json_output:
        common.print_json(result.model_dump(mode="json"))
    else:
        print_result(result, common.out(), by_source=by_source)
    cached = sum(result.cached.values())
    common.note(
        f"{common.count(len(result.cells) - len(result.undefined), 'number')} in {result.seconds['total']:.1f} s"
        + (f"; {cached:,} scores came from the cache" if cached else "")
    )


def _print_all_protocols(sensitivity: SensitivityResult, *, json_output: bool) -> None:
    from capbench.reports.sensitivity import print_sensitivity

    if json_output:
        common.print_json(sensitivity.model_dump(mode="json"))
    else:
        print_sensitivity(sensitivity, common.out())
    protocols = sum(len(data.protocols) for data in sensitivity.datasets)
    common.note(f"{protocols} protocols in {sensitivity.result.seconds['total']:.1f} s")


def _leave_if_missing(result: StudyResult) -> None:
    """Exit code 1 if something is missing that the user did not leave out, or undefined."""
    if result.undefined or any(not missing.left_out for missing in result.missing):
        raise typer.Exit(1)
