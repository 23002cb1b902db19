"""``capbench figure``: figures of agreement, significance, ratings, reference curves, layers and training logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import FigureLook, OptionGroup, ScoringInputs, Target, with_groups
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


# ``capbench figure layers``: agreement with human judgements against the layer of a network.

_RESAMPLES = 1000


@with_groups
def layers(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'layers', or the name of a shipped one."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric; repeatable. Default: vilbertscore."),
    ] = None,
    target: Target,
    resamples: Annotated[
        int | None, typer.Option("--resamples", min=100, help="Resamples of images for intervals. Default: 1000.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the resamples. Default: 0.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file: .png, .svg or .pdf.")] = Path(
        "layers.png"
    ),
    chosen: FigureLook,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Draw human agreement against the network layer.

    Prints and draws the values of all layers with 95 % bootstrap intervals over images (ViLBERTScore, Figure 3).
    --option vilbertscore.layer=1-3 selects layers. Options override a study file.

    Exit code 1: requirements of a metric or protocol are missing (listed).

    Example: capbench figure layers vilbertscore-figure3 --features x152.h5 --model multi-task=vilbert-multi-task

    Example: capbench figure layers -m vilbertscore -d flickr8k-expert --features F.h5 --model FILE --out layers.svg
    """
    from capbench.api.resolve import resolve_judged
    from capbench.studies.layers import layer_curves, with_all_layers

    out = chosen.target(out, "layers.png")
    look = chosen.look()
    if inputs.scores:
        raise UsageError("--scores: a score file has no layers", code="unsupported", hint="Omit --scores")
    left_out.refuse_without_study(study)
    if study is not None:
        if metric or target != Target():
            raise UsageError(
                "a study file excludes --metric, --dataset and --protocol",
                code="conflict",
                value=study,
                hint="Change the study file, or omit it",
            )
        _of_study(study, inputs, left_out, resamples, seed, out, look, json_output=json_output)
        return
    caller = common.caller(json_output=json_output)
    judged = resolve_judged(metric or ["vilbertscore"], target.dataset, target.protocol, inputs.values(), caller)
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
    inputs: ScoringInputs,
    left_out: LeftOut,
    resamples: int | None,
    seed: int | None,
    out: Path,
    look: Look,
    *,
    json_output: bool,
) -> None:
    """Draw the curves of every protocol of a study file. Raises Exit if something is missing (exit code 1)."""
    from capbench.api.resolve import resolve_task, study_of_task
    from capbench.studies.judged import judge
    from capbench.studies.layers import layer_curves, with_all_layers
    from capbench.studies.study import LayerTask

    root = inputs.root()
    planned, task = study_of_task(study, LayerTask, inputs.values(), left_out.names, common.caller())
    plan, waiting = resolve_task(planned, root, common.caller())
    if not plan.requests:
        reasons = "; ".join(f"{title} {reason}" for title, reason in waiting.items())
        message = f"{planned.name}: no metric can be computed: {reasons}"
        raise UsageError(message, code="missing-option", value=planned.name)
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    requests = [with_all_layers(request, plan.resources) for request in plan.requests]
    curves: list[LayerCurves] = []
    for dataset, protocol in plan.protocols:
        try:
            whole = [layered.request for layered in requests]
            judged = judge(dataset, protocol.items, whole, plan.resources, cache=inputs.cache)
            incomplete = {entry.request.label: entry.error for entry in judged.lacking}
            waiting |= {f"{label} on {protocol}": f"waits: {error}" for label, error in incomplete.items()}
            complete = [layered for layered in requests if layered.request.label not in incomplete]
            if not complete:
                continue
            curves.append(
                layer_curves(
                    dataset,
                    protocol,
                    complete,
                    resamples=task.resamples if resamples is None else resamples,
                    seed=task.seed if seed is None else seed,
                    resources=plan.resources,
                    cache=inputs.cache,
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
    help="Draw figures as PNG, SVG or PDF.\n\n"
    "Example: capbench figure forest cider meteor rouge-l -d flickr8k-expert --out forest.svg",
    no_args_is_help=True,
    rich_markup_mode=None,
)


Metrics = Annotated[list[str] | None, typer.Argument(metavar="[METRIC...]", help="Metrics.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file: .png, .svg or .pdf.")]
From = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Use the output of 'capbench compare --json', or a results.json."),
]


@dataclass(frozen=True)
class Resampling(OptionGroup):
    """Resampling for the comparison of metrics."""

    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Resamples and permutations.")] = 1000
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of resamples and permutations.")] = 0
    unit: Annotated[common.Unit, typer.Option("--unit", help="Unit of resampling.")] = "image"


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
    inputs: ScoringInputs,
) -> None:
    """Draw each metric's human agreement (forest plot).

    Metrics are sorted, the best first, and have 95 % bootstrap intervals.

    Example: capbench figure forest bleu-4 rouge-l meteor cider -d composite --out forest.png
    """
    from capbench.reports.figures.compared import forest_figure

    out = chosen.target(out, "forest.png")
    look = chosen.look()
    compared, incomplete = _compared(metric, target, inputs, resampling, saved)
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
    inputs: ScoringInputs,
) -> None:
    """Draw which differences between metrics are significant.

    Example: capbench figure significance --from compare.json --out significance.svg
    """
    from capbench.reports.figures.compared import significance_figure

    out = chosen.target(out, "significance.png")
    look = chosen.look()
    compared, incomplete = _compared(metric, target, inputs, resampling, saved)
    _write(significance_figure(compared, look), out, look)
    common.leave_if_incomplete(incomplete)


@app.command()
@with_groups
def curves(
    *,
    saved: Annotated[Path, typer.Argument(metavar="FILE", help="curves.json of 'capbench references'.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Also draw a panel of this group; repeatable.")
    ] = None,
    out: Out = Path("curves.png"),
    chosen: FigureLook,
) -> None:
    """Draw agreement against the number of references.

    The input is the curves.json of 'capbench references' (TIGEr, Figure 5).

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
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Draw the distribution of scores for each rating.

    Prints the means and draws violins (TIGEr, Figure 4).

    Example: capbench figure ratings cider meteor -d flickr8k-expert --out figure4.png
    """
    from capbench.reports.figures.ratings import ratings_figure
    from capbench.studies.examples import by_rating

    out = chosen.target(out, "ratings.png")
    look = chosen.look()
    rated = _rated(metric, target, inputs, json_output=json_output)
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
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Draw scores on the human scale against ratings.

    Scores are mapped onto the human scale by rank, with the frequencies of the human ratings (TIGEr, appendix A.1,
    Figure 8). Shares are printed, too.

    Example: capbench figure score-groups cider meteor -d composite --out figure8.png
    """
    from capbench.reports.figures.ratings import score_groups_figure
    from capbench.studies.examples import group_differences

    out = chosen.target(out, "score-groups.png")
    look = chosen.look()
    rated = _rated(metric, target, inputs, json_output=json_output)
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
    log: Annotated[Path, typer.Argument(metavar="FILE", help="log.jsonl of a training run, or the run folder.")],
    out: Out = Path("training-log.png"),
    chosen: FigureLook,
) -> None:
    """Draw loss, learning rate and recall of a training.

    Example: capbench figure training-log runs/scan-flickr8k/log.jsonl --out training.png
    """
    from capbench.reports.figures.training_log import read_log, training_log_figure

    out = chosen.target(out, "training-log.png")
    look = chosen.look()
    _write(training_log_figure(read_log(log), look), out, look)


def _compared(
    metric: list[str] | None,
    target: Target,
    inputs: ScoringInputs,
    resampling: Resampling,
    saved: Path | None,
) -> tuple[Compared, Mapping[str, Incomplete]]:
    """The metrics to draw, and those that are omitted because their score files are incomplete, by title."""
    from capbench.reports.figures.compared import from_comparison, read_compared

    if saved is not None:
        if metric:
            raise UsageError("--from excludes metrics", code="conflict", hint="Omit one of the two")
        return read_compared(saved, target.protocol), {}
    from capbench.api.resolve import resolve_judged
    from capbench.studies.uncertainty import compare_metrics

    one_alone = UsageError("a comparison requires two metrics", code="too-few", hint="Name two or more, or pass --from")
    caller = common.caller(no_metric="Name two or more, or pass --scores FILE")
    judged = resolve_judged(metric or [], target.dataset, target.protocol, inputs.values(), caller, one_alone=one_alone)
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
    inputs: ScoringInputs,
    *,
    json_output: bool,
) -> RatedScores:
    from capbench.api.resolve import resolve_judged
    from capbench.studies.examples import rated_scores

    caller = common.caller(json_output=json_output, no_metric="Example: capbench figure ratings cider meteor")
    judged = resolve_judged(metric or [], target.dataset, target.protocol, inputs.values(), caller)
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
