"""``capbench figure layers``: in which layer of its network does a metric agree with people?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.figure_look import FigureLook
from capbench.cli.given import Given, Target, open_judged
from capbench.cli.groups import with_groups
from capbench.cli.study_flags import LeftOut
from capbench.errors import CapbenchError, UsageError

if TYPE_CHECKING:
    from capbench.analyses.layers import LayerCurves
    from capbench.reports.figures.style import Look

__all__ = ["layers"]

_RESAMPLES = 1000


@with_groups
def layers(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'layers', or one that comes with capbench."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric; repeatable. Default: vilbertscore."),
    ] = None,
    target: Target,
    resamples: Annotated[
        int | None, typer.Option("--resamples", min=100, help="Resamples of images for intervals. Default: 1000.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Their seed. Default: 0.")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write: .png, .svg or .pdf.")
    ] = Path("layers.png"),
    chosen: FigureLook,
    left_out: LeftOut,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Agreement with people against the layer of a network (ViLBERTScore, Figure 3); the numbers are printed, too.

    All layers that the weights have come from one scoring; --option vilbertscore.layer=1-3 takes some of them. Numbers
    have 95 % bootstrap intervals over images.

    With a study file everything is in the file; --features, --model, --resamples and --seed take the place of what it
    says. A metric or protocol that waits for something is left out and named, with exit code 1.

    Example: capbench figure layers vilbertscore-figure3 --features x152.h5 --model multi-task=vilbert-multi-task

    Example: capbench figure layers -m vilbertscore -d flickr8k-expert --features F.h5 --model FILE --out layers.svg
    """
    from capbench.analyses.layers import layer_curves, with_all_layers

    out = chosen.target(out, "layers.png")
    look = chosen.look()
    if given.scores:
        raise UsageError("--scores: a file of scores knows no layers", hint="Leave --scores out")
    left_out.refuse_without_study(study)
    if study is not None:
        if metric or target != Target():
            raise UsageError(
                "a study file and flags that define a study were given together",
                hint="Change the study file, or leave it out and use flags alone",
            )
        _of_study(study, given, left_out, resamples, seed, out, look, json_output=json_output)
        return
    judged = open_judged(metric or ["vilbertscore"], target, given, json_output=json_output)
    curves = layer_curves(
        judged.dataset,
        judged.protocol,
        [with_all_layers(request, judged.resources) for request in judged.requests],
        resamples=_RESAMPLES if resamples is None else resamples,
        seed=seed or 0,
        resources=judged.resources,
        cache=given.cache,
        sample=judged.sample,
        progress=common.progress,
    )
    _show([curves], out, look, json_output=json_output)


def _of_study(
    study: str,
    given: Given,
    left_out: LeftOut,
    resamples: int | None,
    seed: int | None,
    out: Path,
    look: Look,
    *,
    json_output: bool,
) -> None:
    """The curves of every protocol of a study file. Raises Exit if something is missing (exit code 1)."""
    from capbench.analyses.layers import layer_curves, with_all_layers
    from capbench.cli.study_flags import plan_task, study_of_task
    from capbench.studies.judged import judge
    from capbench.studies.tasks import LayerTask

    root = given.root()
    planned, task = study_of_task(study, LayerTask, given, left_out)
    plan, waiting = plan_task(planned, root)
    if not plan.requests:
        raise UsageError(f"{planned.name}: every metric waits", hint="; ".join(f"{t} {r}" for t, r in waiting.items()))
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    requests = [with_all_layers(request, plan.resources) for request in plan.requests]
    curves: list[LayerCurves] = []
    for dataset, protocol in plan.protocols:
        try:
            asked = [layered.request for layered in requests]
            judged = judge(dataset, protocol.items, asked, plan.resources, cache=given.cache)
            lacking = {less.request.label: less for less in judged.lacking}
            waiting |= {f"{label} on {protocol}": f"waits: {less.error}" for label, less in lacking.items()}
            left = [layered for layered in requests if layered.request.label not in lacking]
            if not left:
                continue
            curves.append(
                layer_curves(
                    dataset,
                    protocol,
                    left,
                    resamples=task.resamples if resamples is None else resamples,
                    seed=task.seed if seed is None else seed,
                    resources=plan.resources,
                    cache=given.cache,
                    sample=root.is_sample and dataset.under_root,
                    progress=common.progress,
                )
            )
        except CapbenchError as error:
            waiting[str(protocol)] = f"waits: {error}"
    if curves:
        _show(curves, out, look, json_output=json_output)
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)


def _show(curves: Sequence[LayerCurves], out: Path, look: Look, *, json_output: bool) -> None:
    """Print the numbers and write the figure."""
    from capbench.reports.figures.layers import layers_figure
    from capbench.reports.figures.style import save

    if json_output:
        common.print_json([of_protocol.model_dump(mode="json") for of_protocol in curves])
    else:
        for of_protocol in curves:
            _print(of_protocol)
    save(layers_figure(curves, look), out, look)
    common.note(f"wrote {out}")


def _print(curves: LayerCurves) -> None:
    from rich import box
    from rich.table import Table

    from capbench.datasets.protocol import with_version
    from capbench.records import signature_lines

    console = common.out()
    title = f"{curves.dataset_title}, {curves.statistic}"
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    shown.add_column("layer", justify="right")
    by_layer = [{point.layer: point for point in points} for points in curves.curves.values()]
    for column in curves.curves:
        shown.add_column(column, justify="right")
    scale, digits, ends = (100, 2, 1) if curves.kind == "accuracy" else (1, 4, 3)
    for layer in curves.layers:
        cells = []
        for points in by_layer:
            point = points.get(layer)
            text = "–" if point is None else f"{scale * point.value:.{digits}f}"
            if point is not None and point.low is not None and point.high is not None:
                text += f" [{scale * point.low:.{ends}f}, {scale * point.high:.{ends}f}]"
            cells.append(text)
        shown.add_row(str(layer), *cells)
    console.print(shown)
    what = "pairs" if curves.kind == "accuracy" else "ratings"
    sizes = f"{with_version(curves.protocol, curves.version)}: {curves.n:,} {what} of {curves.n_items:,} items"
    made = curves.intervals
    if made is not None:
        sizes += f"; {100 * made.level:g} % intervals, {made.resamples:,} resamples of {made.units:,} {made.unit}s, "
        sizes += f"seed {made.seed}"
    for line in (sizes, *curves.notes, *signature_lines(curves.signatures)):
        console.print(line, style="dim", markup=False, soft_wrap=True)
