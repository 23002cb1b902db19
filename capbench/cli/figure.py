"""``capbench figure``: pictures of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import FigureLook, Given, OptionGroup, Target, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import CapbenchError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capbench.reports.figures.compared import Compared
    from capbench.reports.figures.style import Look
    from capbench.studies.examples import RatedScores
    from capbench.studies.judged import Incomplete
    from capbench.studies.layers import LayerCurves

__all__ = ["app", "layers"]


# ``capbench figure layers``: in which layer of its network does a metric agree with people?

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
    from capbench.api.resolve import resolve_judged
    from capbench.studies.layers import layer_curves, with_all_layers

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
    caller = common.caller(json_output=json_output)
    judged = resolve_judged(metric or ["vilbertscore"], target.dataset, target.protocol, given.values(), caller)
    curves = layer_curves(
        judged.dataset,
        judged.protocol,
        [with_all_layers(request, judged.resources) for request in judged.requests],
        resamples=_RESAMPLES if resamples is None else resamples,
        seed=seed or 0,
        resources=judged.resources,
        cache=judged.cache,
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
    from capbench.api.resolve import resolve_task, study_of_task
    from capbench.studies.judged import judge
    from capbench.studies.layers import layer_curves, with_all_layers
    from capbench.studies.tasks import LayerTask

    root = given.root()
    planned, task = study_of_task(study, LayerTask, given.values(), left_out.names, common.caller())
    plan, waiting = resolve_task(planned, root, common.caller())
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
    from capbench.reports.figures.curves import layers_figure
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

    from capbench.core.records import signature_lines
    from capbench.datasets.protocol import with_version

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


app = typer.Typer(
    help="Draw figures as PNG, SVG or PDF: from metrics and a data set, or from saved JSON.\n\n"
    "Example: capbench figure forest cider meteor rouge-l -d flickr8k-expert --out forest.svg",
    no_args_is_help=True,
    rich_markup_mode=None,
)


Metrics = Annotated[list[str] | None, typer.Argument(metavar="[METRIC...]", help="Metrics.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write: .png, .svg or .pdf.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="Output of 'capbench compare --json', or a study's results.json, instead."
    ),
]


@dataclass(frozen=True)
class Resampling(OptionGroup):
    """How metrics are compared."""

    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Resamples and permutations.")] = 1000
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")] = 0
    unit: Annotated[common.Unit, typer.Option("--unit", help="What is resampled.")] = "image"


@app.command()
@with_groups
def forest(
    *,
    metric: Metrics = None,
    target: Target,
    saved: From = None,
    out: Out = Path("forest.png"),
    chosen: FigureLook,
    resampling: Resampling,
    given: Given,
) -> None:
    """Forest plot: every metric's agreement with people and its 95 % bootstrap interval, best first.

    Example: capbench figure forest bleu-4 rouge-l meteor cider -d composite --out forest.png
    """
    from capbench.reports.figures.compared import forest_figure

    out = chosen.target(out, "forest.png")
    look = chosen.look()
    compared, incomplete = _compared(metric, target, given, resampling, saved)
    _write(forest_figure(compared, look), out, look)
    common.leave_if_incomplete(incomplete)


@app.command()
@with_groups
def significance(
    *,
    metric: Metrics = None,
    target: Target,
    saved: From = None,
    out: Out = Path("significance.png"),
    chosen: FigureLook,
    resampling: Resampling,
    given: Given,
) -> None:
    """Significance matrix: which metric agrees better with people than which, and how surely.

    Example: capbench figure significance --from compare.json --out significance.svg
    """
    from capbench.reports.figures.compared import significance_figure

    out = chosen.target(out, "significance.png")
    look = chosen.look()
    compared, incomplete = _compared(metric, target, given, resampling, saved)
    _write(significance_figure(compared, look), out, look)
    common.leave_if_incomplete(incomplete)


@app.command()
@with_groups
def curves(
    *,
    saved: Annotated[Path, typer.Argument(metavar="FILE", help="curves.json of 'capbench references'.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="A panel of this group, too; repeatable.")
    ] = None,
    out: Out = Path("curves.png"),
    chosen: FigureLook,
) -> None:
    """Reference-dependency curves from what 'capbench references' saved (TIGEr, Figure 5).

    Example: capbench figure curves curves/curves.json --group MM --out figure5.pdf
    """
    from capbench.reports.figures.curves import curves_figure
    from capbench.studies.references import load_curves

    out = chosen.target(out, "curves.png")
    look = chosen.look()
    _write(curves_figure(load_curves(saved), ("", *(group or ())), look), out, look)


@app.command()
@with_groups
def ratings(
    *,
    metric: Metrics = None,
    target: Target,
    out: Out = Path("ratings.png"),
    chosen: FigureLook,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Scores by rating, as violins with the mean of each (TIGEr, Figure 4); the means are printed, too.

    Example: capbench figure ratings cider meteor -d flickr8k-expert --out figure4.png
    """
    from capbench.reports.figures.ratings import ratings_figure
    from capbench.studies.examples import by_rating

    out = chosen.target(out, "ratings.png")
    look = chosen.look()
    rated = _rated(metric, target, given, json_output=json_output)
    groups = {title: by_rating(scores, rated.human) for title, scores in rated.scores.items()}
    if json_output:
        common.print_json(
            {
                "protocol": rated.protocol,
                "version": rated.version,
                "sample": rated.sample,
                "metrics": {
                    title: [{"rating": g.rating, "n": g.n, "mean": g.mean, "sd": g.sd} for g in of_rating]
                    for title, of_rating in groups.items()
                },
                "signatures": dict(rated.signatures),
                "incomplete": {title: asdict(less) for title, less in rated.incomplete.items()},
            }
        )
    else:
        rows = [[f"{g.rating:.3g}", f"{g.n:,}"] for g in next(iter(groups.values()))]
        for of_rating in groups.values():
            for row, group in zip(rows, of_rating, strict=True):
                row.append(f"{group.mean:.4f}")
        _table(["rating", "n", *(title if title.startswith("Mean ") else f"mean {title}" for title in groups)], rows)
    _write(ratings_figure(rated, look), out, look)
    common.leave_if_incomplete(rated.incomplete)


@app.command("score-groups")
@with_groups
def score_groups(
    *,
    metric: Metrics = None,
    target: Target,
    out: Out = Path("score-groups.png"),
    chosen: FigureLook,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Scores mapped onto the human scale, against the ratings (TIGEr, appendix A.1, Figure 8).

    The lowest scores get the lowest rating, as many as people gave it, and so on. Shares are printed, too.

    Example: capbench figure score-groups cider meteor -d composite --out figure8.png
    """
    from capbench.reports.figures.ratings import score_groups_figure
    from capbench.studies.examples import group_differences

    out = chosen.target(out, "score-groups.png")
    look = chosen.look()
    rated = _rated(metric, target, given, json_output=json_output)
    differences = group_differences(rated)
    if json_output:
        common.print_json(
            {
                "protocol": rated.protocol,
                "version": rated.version,
                "sample": rated.sample,
                "n": differences.n,
                "differences": list(differences.differences),
                "shares": {title: list(shares) for title, shares in differences.shares.items()},
                "chance": list(differences.chance),
                "signatures": dict(rated.signatures),
                "incomplete": {title: asdict(less) for title, less in rated.incomplete.items()},
            }
        )
    else:
        shares = [*differences.shares.values(), differences.chance]
        rows = [
            [f"{difference:+.3g}" if difference else "0", *(f"{100 * share[i]:.1f}" for share in shares)]
            for i, difference in enumerate(differences.differences)
        ]
        distances = [f"{differences.mean_distance(title):.3f}" for title in differences.shares]
        chance = sum(abs(d) * share for d, share in zip(differences.differences, differences.chance, strict=True))
        rows.append(["mean distance", *distances, f"{chance:.3f}"])
        _table(["difference", *(f"{title}, %" for title in differences.shares), "chance, %"], rows)
    _write(score_groups_figure(rated, look), out, look)
    common.leave_if_incomplete(rated.incomplete)


app.command()(layers)


@app.command("training-log")
@with_groups
def training_log(
    *,
    log: Annotated[Path, typer.Argument(metavar="FILE", help="log.jsonl of a training run, or the run's folder.")],
    out: Out = Path("training-log.png"),
    chosen: FigureLook,
) -> None:
    """Loss, learning rate and recall of a training run.

    Example: capbench figure training-log runs/scan-flickr8k/log.jsonl --out training.png
    """
    from capbench.reports.figures.training_log import read_log, training_log_figure

    out = chosen.target(out, "training-log.png")
    look = chosen.look()
    _write(training_log_figure(read_log(log), look), out, look)


def _compared(
    metric: list[str] | None,
    target: Target,
    given: Given,
    resampling: Resampling,
    saved: Path | None,
) -> tuple[Compared, Mapping[str, Incomplete]]:
    """What is drawn, and the metrics that are not since their files of scores lack scores, by title."""
    from capbench.reports.figures.compared import from_comparison, read_compared

    if saved is not None:
        if metric:
            raise UsageError("metrics and --from were given together", hint="Give one of the two")
        return read_compared(saved, target.protocol), {}
    from capbench.api.resolve import resolve_judged
    from capbench.studies.compare import compare_metrics

    one_alone = UsageError("two metrics or more are compared", hint="Name them, or give --from")
    caller = common.caller(no_metric="Name two or more, or give --scores FILE")
    judged = resolve_judged(metric or [], target.dataset, target.protocol, given.values(), caller, one_alone=one_alone)
    comparison = compare_metrics(
        judged.dataset,
        judged.protocol,
        judged.requests,
        resamples=resampling.resamples,
        seed=resampling.seed,
        unit=resampling.unit,
        resources=judged.resources,
        cache=judged.cache,
        progress=common.progress,
    )
    for line in comparison.notes:
        common.note(line)
    return from_comparison(comparison, sample=judged.sample), comparison.incomplete


def _rated(
    metric: list[str] | None,
    target: Target,
    given: Given,
    *,
    json_output: bool,
) -> RatedScores:
    from capbench.api.resolve import resolve_judged
    from capbench.studies.examples import rated_scores

    caller = common.caller(json_output=json_output, no_metric="Example: capbench figure ratings cider meteor")
    judged = resolve_judged(metric or [], target.dataset, target.protocol, given.values(), caller)
    rated = rated_scores(
        judged.dataset,
        judged.protocol,
        judged.requests,
        resources=judged.resources,
        cache=judged.cache,
        sample=judged.sample,
        progress=common.progress,
    )
    for line in rated.notes:
        common.note(line)
    return rated


def _table(heads: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    common.out().print(table)


def _write(figure: Figure, out: Path, look: Look) -> None:
    from capbench.reports.figures.style import save

    save(figure, out, look)
    common.note(f"wrote {out}")
