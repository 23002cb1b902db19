"""``capbench references``: how much does a metric's agreement with people depend on the number of references?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import FigureLook, Given, Target, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import CapbenchError, UsageError

if TYPE_CHECKING:
    from capbench.studies.references import CurvePoint, ReferenceCurves

__all__ = ["parse_counts", "references", "run_study", "show"]


@dataclass(frozen=True)
class CurveTarget(Target):
    """Judgements with many references."""

    dataset: Annotated[
        str, typer.Option("--dataset", "-d", metavar="NAME", help="Data set, or a file of judgements.")
    ] = "pascal-50s"
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol", "-p", metavar="ID", help="Protocol. Default: the literature's, with all references."
        ),
    ] = None


@with_groups
def references(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'curves', or one that comes with capbench."),
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
        typer.Option("--group", metavar="NAME", help="Also draw this group of pairs or items (MM); repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for curves.json, curves.csv, curves.png and curves.svg. A study file: a folder for each "
            "protocol in results/NAME.",
        ),
    ] = None,
    chosen: FigureLook,
    escape_formulas: common.EscapeOption = False,
    left_out: LeftOut,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Show agreement with people against the number of references, mean ± sd over random draws.

    A draw is a random order of an image's references, of which the first 1, 2, … are taken. All numbers of references
    together cost little more than one scoring. 0 references are for metrics that can do without.
    TIGEr's Figure 5 is PASCAL-50S with 1 to 50 references; FAIEr's Figure 4 is Composite and Flickr8k with 0 to 5.

    With a study file everything is in the file; --features and --model, --counts, --draws and --seed take the place of
    what it says. A metric that waits for something is left out and named, with exit code 1.

    Example: capbench references faier-figure4

    Example: capbench references -d pascal-50s -m meteor -m cider --counts 1,2,5,10,20,50 --group MM --out curves
    """
    from capbench.api.resolve import resolve_judged
    from capbench.studies.references import curve_protocol, reference_curves

    if given.scores:
        raise UsageError(
            "--scores: numbers of references are taken by scoring again, which a file of scores cannot do",
            hint="Leave --scores out",
        )
    if escape_formulas and out is None and study is None:
        raise UsageError("--escape-formulas is for CSV files", hint="Add --out DIR, or leave it out")
    if chosen != FigureLook() and out is None and study is None:
        raise UsageError("--title, --size, --font-size and --format are for the picture", hint="Add --out DIR")
    chosen.endings(())
    chosen.look()
    numbers = None if counts is None else parse_counts(counts)
    if out is not None:
        common.check_out_folder(out)
    left_out.refuse_without_study(study)
    if study is not None:
        if metric or target != CurveTarget():
            raise UsageError(
                "a study file and flags that define a study were given together",
                hint="Change the study file, or leave it out and use flags alone",
            )
        run_study(study, given, left_out, numbers, draws, seed, group or [], out, escape_formulas, chosen, json_output)
        return
    judged = resolve_judged(
        metric or ["bleu-4", "rouge-l", "cider"],
        target.dataset,
        target.protocol,
        given.values(),
        common.caller(json_output=json_output),
        find_protocol=curve_protocol,
    )
    with common.progress("scoring", None) as step:
        curves = reference_curves(
            judged.dataset,
            judged.protocol,
            judged.requests,
            counts=numbers,
            draws=5 if draws is None else draws,
            seed=seed or 0,
            resources=judged.resources,
            cache=judged.cache,
            sample=judged.sample,
            progress=step,
        )
    if json_output:
        common.print_json(curves.model_dump(mode="json"))
    show(curves, group or [], out, escape_formulas=escape_formulas, chosen=chosen, printed=not json_output)


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
        group: groups that are shown beside all.
        out: folder of the files, None for none.
        escape_formulas: for the CSV file.
        chosen: how the picture looks.
        printed: whether they are printed.

    Raises:
        UsageError: there is no such group, or a file cannot be written.
    """
    groups = ("", *group)
    for name in groups:
        if name and name not in curves.groups:
            raise UsageError(
                f"--group {name}: there is no such group", hint=f"Choices: {', '.join(curves.groups) or 'none'}"
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
        UsageError: it is no such list.
    """
    numbers: set[int] = set()
    for entry in text.split(","):
        low, dash, high = entry.strip().partition("-")
        if len(low + high) > 8 and (low + high).isdecimal():
            raise UsageError(f"--counts {text}: '{entry.strip()}' is too large", hint="Example: 1,2,5,10 or 1-50")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise UsageError(f"--counts {text}: '{entry.strip()}' is no number", hint="Example: 1,2,5,10 or 1-50")
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 100_000:
            raise UsageError(f"--counts {text}: '{entry.strip()}' is no range", hint="Example: 1-50")
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
        f"mean ± sd of {swept.draws} draws, seed {swept.seed}",
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


# ``capbench references STUDY``: curves over the number of references for every protocol of a study file.


def run_study(
    study: str,
    given: Given,
    left_out: LeftOut,
    counts: tuple[int, ...] | None,
    draws: int | None,
    seed: int | None,
    group: Sequence[str],
    out: Path | None,
    escape_formulas: bool,
    chosen: FigureLook,
    json_output: bool,
) -> None:
    """Compute, print and write the curves of each protocol.

    A metric that cannot be computed, and a protocol whose files are not there, are named and left out.

    Args:
        study: the study file, or the name of one.
        given: features, weights and the data folder.
        left_out: metrics that are left out.
        counts: numbers of references in place of the file's; None for those.
        draws: likewise.
        seed: likewise.
        group: groups that are shown beside all.
        out: folder of the results; None for ``results/NAME``.
        escape_formulas: for CSV files.
        chosen: how pictures look.
        json_output: whether the curves are printed as JSON.

    Raises:
        Exit: something is missing (exit code 1).
        CapbenchError: the study does not fit, or a statistic is undefined.
    """
    from capbench.api.resolve import resolve_task, study_of_task
    from capbench.studies.judged import judge
    from capbench.studies.references import reference_curves
    from capbench.studies.tasks import CurveTask

    root = given.root()
    planned, task = study_of_task(study, CurveTask, given.values(), left_out.names, common.caller())
    plan, waiting = resolve_task(planned, root, common.caller())
    if not plan.requests:
        raise UsageError(f"{planned.name}: every metric waits", hint="; ".join(f"{t} {r}" for t, r in waiting.items()))
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    folder = out or Path("results") / planned.name
    everything: list[ReferenceCurves] = []
    for dataset, protocol in plan.protocols:
        numbers = task.counts if counts is None else counts
        try:
            judged = judge(dataset, protocol.items, plan.requests, plan.resources, cache=given.cache)
            lacking = {less.request.label: less for less in judged.lacking}
            requests = [request for request in plan.requests if request.label not in lacking]
            waiting |= {
                f"{less.request.rows[0].title} on {protocol}": f"waits: {less.error}" for less in lacking.values()
            }
            if numbers is not None and not any(r.metric.reference_free() & set(r.columns) for r in requests):
                numbers = tuple(number for number in numbers if number)
            with common.progress(f"scoring {protocol}", None) as step:
                curves = reference_curves(
                    dataset,
                    protocol,
                    requests,
                    counts=numbers,
                    draws=task.draws if draws is None else draws,
                    seed=task.seed if seed is None else seed,
                    resources=plan.resources,
                    cache=given.cache,
                    sample=root.is_sample and dataset.under_root,
                    progress=step,
                )
        except CapbenchError as error:
            waiting[str(protocol)] = f"waits: {error}"
            continue
        everything.append(curves)
        shown = replace(protocol, version="")
        show(
            curves,
            group,
            folder / str(shown).replace("/", "."),
            escape_formulas=escape_formulas,
            chosen=chosen,
            printed=not json_output,
        )
    if json_output:
        common.print_json([curves.model_dump(mode="json") for curves in everything])
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)
