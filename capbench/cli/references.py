"""``capbench references``: measure human agreement against the number of references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from capbench.cli import common
from capbench.cli.options import FigureLook, ScoringInputs, Target, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import UsageError, require

if TYPE_CHECKING:
    from capbench.studies.references import CurvePoint, ReferenceCurves

__all__ = ["parse_counts", "references", "show"]


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


@with_groups
def references(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'curves', or the name of a shipped one."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric; repeatable. Default: bleu-4, rouge-l, cider."),
    ] = None,
    target: CurveTarget,
    counts: Annotated[
        str | None,
        typer.Option("--counts", metavar="LIST", help="Numbers of references: 1,2,5 or 1-50. Default: 1,2,5,10,… all."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", min=1, max=10_000, help="Random orders of the references. Default: 5.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the orders. Default: 0.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="Also show this group of pairs or items (MM); repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for curves.json, .csv, .png and .svg. Default for studies: results/NAME.",
        ),
    ] = None,
    chosen: FigureLook,
    escape_formulas: common.EscapeOption = False,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Measure agreement against the number of references.

    Prints mean ± sd over random orders of each image's references, of which the first 1, 2, … are used. 0 references
    are possible for reference-free metrics. Options override a study file (TIGEr, Figure 5; FAIEr, Figure 4).

    Exit code 1: requirements of a metric are missing (listed).

    Example: capbench references faier-figure4

    Example: capbench references -d pascal-50s -m meteor -m cider --counts 1,2,5,10,20,50 --group MM --out curves
    """
    from capbench.api.references import CurveRequest, compute_curves

    if escape_formulas and out is None and study is None:
        raise UsageError("--escape-formulas requires --out", code="missing-option", hint="Add --out DIR, or omit it")
    if chosen != FigureLook() and out is None and study is None:
        raise UsageError(
            "--title, --size, --font-size and --format require --out", code="missing-option", hint="Add --out DIR"
        )
    if out is not None or study is not None:
        require("matplotlib", purpose="the figure of the curves")
    chosen.endings(())
    chosen.look()
    if out is not None:
        common.check_out_folder(out)
    usual = study is not None and target.dataset == CurveTarget.dataset
    request = CurveRequest(
        study=study,
        dataset=None if usual else target.dataset,
        metrics=metric or (),
        protocol=target.protocol,
        counts=None if counts is None else parse_counts(counts),
        draws=draws,
        seed=seed,
        without=left_out.names,
    )

    def each(study_name: str, curves: ReferenceCurves) -> None:
        folder = out
        if study is not None:
            folder = (out or Path("results") / study_name) / curves.protocol.replace("/", ".")
        elif json_output:
            common.print_json(curves.model_dump(mode="json"))
        show(curves, group or [], folder, escape_formulas=escape_formulas, chosen=chosen, printed=not json_output)

    found = compute_curves(request, inputs.values(), common.caller(json_output=json_output), each)
    if json_output and study is not None:
        common.print_json(found.to_list())
    for title, reason in found.missing.items():
        common.note(f"{title} {reason}")
    if found.missing:
        raise typer.Exit(1)


def show(
    curves: ReferenceCurves,
    group: Sequence[str],
    out: Path | None,
    *,
    escape_formulas: bool,
    chosen: FigureLook,
    printed: bool = True,
) -> None:
    """Print curves, and write their files.

    Args:
        curves: the curves.
        group: groups to show in addition to all items.
        out: folder of the files, None for none.
        escape_formulas: True to escape formulas in the CSV file.
        chosen: appearance of the picture.
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
        _print(curves, groups)
    common.note(f"{len(curves.points):,} points in {curves.seconds:.1f} s")
    if out is not None:
        from capbench.reports.compare import PICTURES, write_curves

        written = write_curves(
            curves,
            out,
            groups,
            escape_formulas=escape_formulas,
            look=chosen.look(),
            endings=chosen.endings(PICTURES),
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


def _print(swept: ReferenceCurves, groups: tuple[str, ...]) -> None:
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
