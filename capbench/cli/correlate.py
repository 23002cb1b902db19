"""``capbench correlate``: run a study and print how well each metric agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import Given, with_groups
from capbench.cli.report import ExplanationsOption, ReportOption, explaining, write_page
from capbench.cli.study_flags import StatisticsFlags, StudyFlags, find_study_of_flags
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.studies.all_protocols import SensitivityResult
    from capbench.studies.item_scores import Collector
    from capbench.studies.plan import Plan
    from capbench.studies.results import StudyResult
    from capbench.studies.run import SlowPart
    from capbench.studies.study import Study

__all__ = ["correlate"]


@with_groups
def correlate(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file, or the name of one that comes with capbench."),
    ] = None,
    flags: StudyFlags,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for CSV, JSON, Markdown and LaTeX. A study file: results/NAME."
        ),
    ] = None,
    escape_formulas: common.EscapeOption = False,
    statistics: StatisticsFlags,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="Leave this metric, label or column out; repeatable."),
    ] = None,
    all_protocols: Annotated[
        bool,
        typer.Option(
            "--all-protocols",
            help="Every protocol of the data sets: how the ranking of metrics depends on it. With --compare also which "
            "changes of rank are significant.",
        ),
    ] = False,
    no_by_source: Annotated[
        bool,
        typer.Option("--no-by-source", help="Leave out the tables by source or domain (Composite's three thirds)."),
    ] = False,
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help="With --out or a study file: also items.json.gz, captions with ratings and scores, for "
            "'capbench report'.",
        ),
    ] = False,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Correlate metrics with human judgements, and compare with published tables.

    With a study file everything is in the file. Without one, --dataset and --metric make a quick study; their
    defaults are all metrics (with --scores, the files alone) and, of Flickr8k Expert and CrowdFlower, Composite,
    PASCAL-50S, FOIL, THumB, Nebula, Polaris and what you imported, the judgements whose files are here. Flags for
    intervals and tests, --option, --features, --model, --scores and --without go with both, and take the place of what
    the file says. DATASET@GROUP is one group of a data set's items, DATASET:VERSION one of its versions.

    What takes long is said before it begins. SPICE parses every caption once in its life; the metrics that need no
    parses are scored before that, and their numbers so far go to stderr.

    Exit code 1: done, but something is missing (listed): data files, features, what a metric waits for, or a number
    that is undefined.

    Example: capbench correlate configs/tiger-table1.yaml

    Example: capbench correlate configs/tiger-table1.yaml --without spice

    Example: capbench correlate -d flickr8k-expert -m all --bootstrap 1000 --compare permutation

    Example: capbench correlate -d composite -p all-references/correctness-tau-b -m cider -m meteor

    Example: capbench correlate -d composite@8k -m cider -m meteor

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all --compare permutation
    """
    from dataclasses import replace

    from capbench.core.files import check_writable
    from capbench.reports.markup import write_result
    from capbench.reports.sensitivity import write_sensitivity

    if escape_formulas and study is None and out is None:
        raise UsageError("--escape-formulas is for CSV files", hint="Add --out DIR, or leave it out")
    if items and study is None and out is None:
        raise UsageError("--items writes a file beside the results", hint="Add --out DIR, or leave it out")
    if report is not None:
        check_writable(report)
    elif explanations is not None:
        raise UsageError("--explanations is for the page of --report", hint="Add --report FILE, or leave it out")
    if out is not None:
        common.check_out_folder(out)
    collector = _collector(report, items)
    root = given.root()
    wanted = replace(find_study_of_flags(study, flags, statistics, given, root), without=tuple(without or ()))
    if all_protocols:
        _check_all_protocols(study, flags, statistics)
        sensitivity, plan = _all_protocols(wanted, root, collector, cache=given.cache, json_output=json_output)
        if out is not None:
            _tell(write_sensitivity(sensitivity, out, escape_formulas=escape_formulas))
            _write_items(collector, out, items)
        _write_report(report, sensitivity.result, collector, plan, explanations)
        _leave_if_missing(sensitivity.result)
        return
    if study is not None:
        out = out or Path("results") / wanted.name
    result, plan = _run(wanted, root, out, collector, cache=given.cache, json_output=json_output)
    _print(result, json_output=json_output, by_source=not no_by_source)
    if out is not None:
        _tell(write_result(result, out, escape_formulas=escape_formulas, by_source=not no_by_source))
        _write_items(collector, out, items)
    _write_report(report, result, collector, plan, explanations)
    _leave_if_missing(result)


def _collector(report: Path | None, items: bool) -> Collector | None:
    """What keeps the items behind the numbers, where somebody wants them."""
    if report is None and not items:
        return None
    from capbench.studies.item_scores import Collector

    return Collector()


def _write_items(collector: Collector | None, out: Path, wanted: bool) -> None:
    """The items beside the results; those of an earlier run belong to other numbers and are removed."""
    from capbench.studies.item_scores import ITEMS_FILE, write_items

    path = out / ITEMS_FILE
    if collector is not None and wanted:
        write_items(collector.tables, path)
        _tell([path])
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


def _run(
    study: Study, root: DataRoot, out: Path | None, keep: Collector | None, *, cache: bool, json_output: bool
) -> tuple[StudyResult, Plan]:
    """Plan, say on which data, and run."""
    from capbench.api.resolve import resolve_study
    from capbench.core.files import check_writable
    from capbench.studies.run import run_plan

    plan = resolve_study(study, root, common.caller())
    if out is not None:
        check_writable(out / "results.json")
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    if plan.on_sample and study.published and not json_output:
        print("published numbers are left out: they were measured on the real judgements, not on this sample")
    result = run_plan(plan, common.progress, cache=cache, announce=_announce, preview=_preview, keep=keep)
    return result, plan


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


def _tell(written: list[Path]) -> None:
    for path in written:
        common.note(f"wrote {path}")


def _check_all_protocols(study: str | None, flags: StudyFlags, statistics: StatisticsFlags) -> None:
    """Raise UsageError for what does not go with ``--all-protocols``."""
    if study is not None or flags.protocol:
        raise UsageError(
            "--all-protocols takes every protocol of the data sets, not a choice of them",
            hint="Give --dataset and --metric with it, without a study file and --protocol",
        )
    if statistics.bootstrap:
        raise UsageError(
            "--all-protocols ranks metrics without intervals, so --bootstrap changes nothing",
            hint="Leave --bootstrap out; --compare tests which changes of rank are real",
        )


def _announce(slow: SlowPart) -> None:
    """Say what takes long, and how to do without."""
    from capbench.core.progress import words

    what = "; ".join(f"{w.subject} {len(w.units):,} {w.unit} first, {words(w.seconds)}" for w in slow.works)
    flags = " ".join(f"--without {label}" for label in slow.labels)
    common.note(f"{what}; leave it out with {flags}")


def _preview(result: StudyResult) -> None:
    """Show on stderr what is known before slow work begins."""
    from capbench.reports.terminal import print_tables

    common.note("so far:")
    print_tables(result, common.err())


def _leave_if_missing(result: StudyResult) -> None:
    """Exit code 1 if something is missing that the user did not leave out, or undefined."""
    if result.undefined or any(not missing.left_out for missing in result.missing):
        raise typer.Exit(1)


def _all_protocols(
    study: Study, root: DataRoot, keep: Collector | None, *, cache: bool, json_output: bool
) -> tuple[SensitivityResult, Plan]:
    from capbench.reports.sensitivity import print_sensitivity
    from capbench.studies.all_protocols import plan_all_protocols, run_all_protocols

    plan = plan_all_protocols(study, root)
    for line in plan.notes:
        common.note(line)
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    sensitivity = run_all_protocols(plan, common.progress, cache=cache, announce=_announce, keep=keep)
    if json_output:
        common.print_json(sensitivity.model_dump(mode="json"))
    else:
        print_sensitivity(sensitivity, common.out())
    protocols = sum(len(data.protocols) for data in sensitivity.datasets)
    common.note(f"{protocols} protocols in {sensitivity.result.seconds['total']:.1f} s")
    return sensitivity, plan
