"""``capbench correlate``: run a study and print how well each metric agrees with human judgements.

With ``--references-curve``: human agreement against the number of references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from capbench.cli import common
from capbench.cli.options import OptionGroup, ScoringInputs, Target, with_groups
from capbench.cli.report import ExplanationsOption, ReportOption, write_report
from capbench.cli.study_flags import LeftOut, SentinelsOption, StatisticsFlags, StudyFlags
from capbench.core.errors import UsageError, require

if TYPE_CHECKING:
    from capbench.studies.all_protocols import SensitivityResult
    from capbench.studies.item_scores import Collector
    from capbench.studies.references import CurvePoint, ReferenceCurves
    from capbench.studies.results import StudyResult


@dataclass(frozen=True)
class CurveFlags(OptionGroup):
    """Numbers of references, and groups of items."""

    counts: Annotated[
        str | None,
        typer.Option("--counts", metavar="LIST", help="Numbers of references: 1,2,5 or 1-50. Default: 1,2,5,10,… all."),
    ] = None
    draws: Annotated[
        int | None, typer.Option("--draws", min=1, max=10_000, help="Random orders of the references. Default: 5.")
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="Also show this group of pairs or items (MM); repeatable."),
    ] = None


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
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for CSV, JSON, Markdown and LaTeX. Default for studies: results/NAME, on the sample "
            "results/sample/NAME.",
        ),
    ] = None,
    escape_formulas: common.EscapeOption = False,
    statistics: StatisticsFlags,
    left_out: LeftOut,
    all_protocols: Annotated[
        bool,
        typer.Option(
            "--all-protocols",
            help="Rank the metrics under every protocol of the data sets.",
        ),
    ] = False,
    by_source: Annotated[
        bool,
        typer.Option("--by-source", help="Also a table by source, domain or kind of pairs for each protocol."),
    ] = False,
    details: common.DetailsOption = False,
    digits: common.DigitsOption = None,
    sentinels: SentinelsOption = None,
    references_curve: Annotated[
        bool,
        typer.Option("--references-curve", help="Instead: measure agreement against the number of references."),
    ] = False,
    curve: CurveFlags,
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help="With --out or a study file: also write items.json.gz for 'capbench figure report'.",
        ),
    ] = False,
    cite: common.CiteOption = False,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Correlate metrics with human judgements.

    A study file defines data sets, metrics and published tables; --dataset restricts it to some of its data sets.
    Without one, --dataset and --metric define a quick
    study; by default it has all metrics (with --scores, only the score files) and all installed judgements. Other
    options apply to both and override the study file. DATASET@GROUP is one group of a data set's items,
    DATASET:VERSION one of its versions.

    On your own judgements (a file or an imported data set), the metrics are ranked with intervals and tests, and a
    sentence names the best one and how many images would separate it from the next that is not computed from it.

    Exit code 1: done, but something is missing (listed): data files, features, requirements of a metric, or a value of
    an undefined statistic.

    Example: capbench correlate configs/tiger-table1.yaml

    Example: capbench correlate configs/tiger-table1.yaml --without spice -d flickr8k-expert

    Example: capbench correlate -d flickr8k-expert -m all --bootstrap --compare permutation

    Example: capbench correlate -d composite -p all-references/correctness-tau-b -m cider,meteor

    Example: capbench correlate -d composite@8k -m cider,meteor

    Example: capbench correlate -d ratings.csv -m all

    Example: capbench correlate -d ratings.csv -m meteor,cider --columns image=file,candidate=text

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all --compare permutation

    Example: capbench correlate --references-curve -d pascal-50s -m meteor,cider --counts 1,2,5,10,20,50 --group MM
    """
    from capbench.api.agreement import StudyRequest, plan_agreement
    from capbench.core.files import check_writable
    from capbench.datasets.root import results_folder

    if references_curve:
        others = asdict(replace(statistics, seed=None)) | {
            "all_protocols": all_protocols,
            "by_source": by_source,
            "details": details,
        }
        others["compare"] = others.pop("test")
        others |= {"report": report, "explanations": explanations, "items": items, "sentinels": sentinels}
        others |= {"cite": cite, "digits": digits, "details": details, "by_source": by_source}
        common.refuse_options(others, "does not apply to --references-curve")
        _references(
            study,
            flags.metric,
            _curve_target(flags),
            curve,
            seed=statistics.seed,
            out=out,
            escape_formulas=escape_formulas,
            left_out=left_out,
            inputs=inputs,
            json_output=json_output,
        )
        return
    common.refuse_options(
        asdict(curve), "requires --references-curve", code="missing-option", hint="Add --references-curve, or omit it"
    )
    if json_output or all_protocols:
        common.refuse_options({"cite": cite}, f"does not apply to {'--json' if json_output else '--all-protocols'}")
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
        without=left_out.names,
        all_protocols=all_protocols,
        sentinels=sentinels,
    )
    planned = plan_agreement(request, inputs.values(), common.caller(json_output=json_output))
    plan, collector = planned.plan, _collector(report, items)
    for_page_only = report is not None and sentinels is None and not (all_protocols or plan.study.sentinels)
    if for_page_only:
        planned = replace(planned, plan=replace(plan, study=replace(plan.study, sentinels=True)))
    if study is not None:
        out = out or results_folder(plan.study.name, sample=plan.on_sample)
    if out is not None:
        check_writable(out / "results.json")
    if plan.on_sample and plan.study.published and not json_output:
        print("published numbers are omitted: they were measured on real judgements, not on this sample")
    result: StudyResult
    if all_protocols:
        sensitivity = planned.run_all_protocols(collector)
        result = sensitivity.result
        _print_all_protocols(sensitivity, json_output=json_output)
        written = []
        if out is not None:
            from capbench.reports.sensitivity import write_sensitivity

            written = write_sensitivity(sensitivity, out, escape_formulas=escape_formulas)
    else:
        from capbench.reports.table import TableStyle
        from capbench.reports.terminal import print_result

        result = measured = planned.run(collector)
        if for_page_only:
            measured = measured.model_copy(update={"sentinels": ()})
        if json_output:
            common.print_json(measured.model_dump(mode="json"))
        else:
            style = TableStyle(digits=digits)
            print_result(measured, common.out(), by_source=by_source, details=details, style=style)
        numbers = common.count(len(measured.cells) - len(measured.undefined), "number")
        common.note(f"{numbers} in {measured.seconds['total']:.1f} s")
        if cite:
            print(f"\n{measured.cite()}", end="")
        written = []
        if out is not None:
            written = measured.write(out, escape_formulas=escape_formulas, by_source=by_source)
    for path in written:
        common.note(f"wrote {path}")
    if out is not None:
        _write_items(collector, out, items)
    write_report(report, result, collector, plan, explanations, written=out is not None)
    common.leave_if_missing(result)


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


def _print_all_protocols(sensitivity: SensitivityResult, *, json_output: bool) -> None:
    from capbench.reports.sensitivity import print_sensitivity

    if json_output:
        common.print_json(sensitivity.model_dump(mode="json"))
    else:
        print_sensitivity(sensitivity, common.out())
    protocols = sum(len(data.protocols) for data in sensitivity.datasets)
    common.note(f"{protocols} protocols in {sensitivity.result.seconds['total']:.1f} s")


@dataclass(frozen=True)
class CurveTarget(Target):
    """Judgements with many references."""

    dataset: Annotated[
        str, typer.Option("--dataset", "-d", metavar="NAME", help="Data set, or a file of judgements.")
    ] = "pascal-50s"
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", "-p", metavar="ID", help="Protocol. Default: the usual one with all references."),
    ] = None


def _curve_target(flags: StudyFlags) -> CurveTarget:
    """The data set and protocol of a curve. Raises UsageError if there are several."""
    for argument, values in (("dataset", flags.dataset), ("protocol", flags.protocol)):
        if values and len(values) > 1:
            raise UsageError(
                f"--references-curve takes one --{argument}, not {len(values)}",
                code="too-many",
                value=values[1],
                hint="Name one",
            )
    dataset = flags.dataset[0] if flags.dataset else CurveTarget.dataset
    return CurveTarget(dataset, flags.protocol[0] if flags.protocol else None)


def _references(
    study: str | None,
    metric: list[str] | None,
    target: CurveTarget,
    curve: CurveFlags,
    *,
    seed: int | None,
    out: Path | None,
    escape_formulas: bool,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: bool,
) -> None:
    """Measure agreement against the number of references; options override a study file."""
    from capbench.api.references import compute_curves
    from capbench.datasets.root import results_folder

    if escape_formulas and out is None and study is None:
        raise UsageError("--escape-formulas requires --out", code="missing-option", hint="Add --out DIR, or omit it")
    if out is not None or study is not None:
        require("matplotlib", purpose="the figure of the curves")
    if out is not None:
        common.check_out_folder(out)
    usual = study is not None and target.dataset == CurveTarget.dataset
    counts = None if curve.counts is None else parse_counts(curve.counts)
    changes = {"counts": counts, "draws": curve.draws, "seed": seed}

    def each(study_name: str, curves: ReferenceCurves) -> None:
        folder = out
        if study is not None:
            folder = (out or results_folder(study_name, sample=curves.sample)) / curves.protocol.replace("/", ".")
        elif json_output:
            common.print_json(curves.model_dump(mode="json"))
        _show_curves(curves, curve.group or [], folder, escape_formulas=escape_formulas, printed=not json_output)

    found = compute_curves(
        study,
        None if usual else target.dataset,
        metric or (),
        target.protocol,
        changes,
        left_out.names,
        inputs.values(),
        common.caller(json_output=json_output),
        each,
    )
    if json_output and study is not None:
        common.print_json(found.model_dump(mode="json")["curves"])
    for title, reason in found.missing.items():
        common.note(f"{title} {reason}")
    if found.missing:
        raise typer.Exit(1)


def _show_curves(
    curves: ReferenceCurves,
    group: Sequence[str],
    out: Path | None,
    *,
    escape_formulas: bool,
    printed: bool = True,
) -> None:
    """Print curves, and write their files.

    Args:
        curves: the curves.
        group: groups to show in addition to all items.
        out: folder of the files, None for none.
        escape_formulas: True to escape formulas in the CSV file.
        printed: True to print the curves.

    Raises:
        UsageError: an unknown group, or a file cannot be written.
    """
    groups = ("", *group)
    for name in groups:
        if name and name not in curves.groups:
            raise UsageError(
                f"--group {name}: unknown group",
                code="unknown-name",
                value=name,
                hint=f"Choices: {', '.join(curves.groups) or 'none'}",
            )
    if printed:
        _print_curves(curves, groups)
    common.note(f"{len(curves.points):,} points in {curves.seconds:.1f} s")
    if out is not None:
        from capbench.reports.compare import write_curves

        written = write_curves(
            curves,
            out,
            groups,
            escape_formulas=escape_formulas,
        )
        for path in written:
            common.note(f"wrote {path}")


def parse_counts(text: str) -> tuple[int, ...]:
    """Numbers from a list of numbers and ranges: ``1,2,5-8`` → (1, 2, 5, 6, 7, 8).

    Raises:
        UsageError: the text is not such a list.
    """
    numbers: set[int] = set()

    def refuse(entry: str, problem: str, code: str) -> NoReturn:
        message = f"--counts {text}: '{entry}' {problem}"
        raise UsageError(message, code=code, value=entry, hint="Example: 1,2,5,10 or 1-50")

    for entry in map(str.strip, text.split(",")):
        low, dash, high = entry.partition("-")
        if len(low + high) > 8 and (low + high).isdecimal():
            refuse(entry, "is too large", "out-of-range")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            refuse(entry, "is not a number", "not-a-number")
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 100_000:
            refuse(entry, "is not a range", "out-of-range")
        numbers.update(range(int(low), last + 1))
    return tuple(sorted(numbers))


def _print_curves(swept: ReferenceCurves, groups: tuple[str, ...]) -> None:
    from rich import box
    from rich.table import Table

    from capbench.core.records import signature_lines
    from capbench.datasets.protocol import with_version

    console = common.out()
    for group in groups:
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{swept.statistic}, {group or 'all'}")
        shown.title_justify = "left"
        shown.add_column("references", justify="right")
        columns = swept.columns
        for title in columns.values():
            shown.add_column(title, justify="right")
        curves = [{p.count: p for p in swept.curve(metric, column, group)} for metric, column in columns]
        for count in swept.counts:
            shown.add_row(str(count), *(_number(curve.get(count), swept.kind) for curve in curves))
        console.print(shown)
    console.print(
        f"{with_version(swept.protocol, swept.version)}: {swept.n_items:,} items; "
        f"mean ± sd of {swept.draws} random orders, seed {swept.seed}",
        style="dim",
        markup=False,
        soft_wrap=True,
    )
    for line in (*swept.notes, *signature_lines(swept.signatures)):
        console.print(line, style="dim", markup=False, soft_wrap=True)


def _number(point: CurvePoint | None, kind: str) -> str:
    if point is None:
        return "–"
    scale, digits = (100, 2) if kind == "accuracy" else (1, 4)
    spread = "" if point.sd is None else f" ± {scale * point.sd:.{digits}f}"
    return f"{scale * point.mean:.{digits}f}{spread}"
