"""``capbench figure``: figures of agreement, significance, ratings, curves and layers, and HTML reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from capbench.cli import common
from capbench.cli.commands import split_names
from capbench.cli.options import FigureLook, LeftOut, OptionGroup, ScoringInputs, Target, argument
from capbench.cli.report import write_page
from capbench.core.arguments import Help, Resamples, Seed, Unit
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capbench.api.arguments import Statistics
    from capbench.reports.figures.style import Look
    from capbench.studies.examples import RatedScores

_Kind = Literal["forest", "significance", "curves", "ratings", "score-groups", "layers", "report"]


@dataclass(frozen=True)
class _Own(OptionGroup):
    inputs: Annotated[
        list[str] | None,
        argument(
            "[INPUT]...",
            "Metrics (forest, significance, ratings, score-groups), a study (layers), or results (curves, report).",
        ),
    ] = None
    metric: common.MetricsOption = None
    saved: Annotated[Path | None, Help("forest, significance: what compare --json printed.", ("--from",), "FILE")] = (
        None
    )
    group: Annotated[list[str] | None, Help("curves: also this group; repeatable.", metavar="NAME")] = None
    resamples: Annotated[
        Resamples | None, Help("Resamples; of significance also permutations.", ("--bootstrap",), "N")
    ] = None
    seed: Annotated[Seed | None, Help("Seed of resamples and permutations. Default: 0, or the study's.")] = None
    unit: Annotated[Unit, Help("forest, significance: unit of resampling.")] = "image"
    json_output: common.JsonOption = False


@dataclass(frozen=True)
class _Call(ScoringInputs, LeftOut, Target, _Own):
    """The options of a call; those that do not apply to its kind have their defaults."""

    def metrics(self) -> list[str]:
        """Metrics named as arguments, which may be lists with commas, and with ``--metric``."""
        named = [name for text in self.inputs or () for name in split_names(text, self.scores or ())]
        return named + (self.metric or [])

    def files(self, what: str, most: int | None = 1) -> list[Path]:
        """The input files. Raises UsageError if none or more than ``most`` are named."""
        named = list(map(Path, self.inputs or ()))
        if not named or (most is not None and len(named) > most):
            code, number = ("too-many", f"{len(named)} files are") if named else ("missing-option", "no file is")
            raise UsageError(f"{number} named", code=code, value="inputs", hint=f"Name {what}")
        return named


def _names(*groups: type[Any]) -> set[str]:
    return {option.name for group in groups for option in fields(group)}


_COMPARED = {"metric", "saved", "unit", "resamples", "seed", *_names(Target, ScoringInputs, FigureLook)}
_RATED = {"metric", "json_output", *_names(Target, ScoringInputs, FigureLook)}
_OPTIONS: dict[str, set[str]] = {
    "forest": _COMPARED,
    "significance": _COMPARED,
    "curves": {"group", *_names(FigureLook)},
    "ratings": _RATED,
    "score-groups": _RATED,
    "layers": {*_RATED, "resamples", "seed", *_names(LeftOut)},
    "report": {"title", "data", "image_root"},
}
"""Options of each kind, in addition to ``--out``."""


def figure(
    *,
    ctx: typer.Context,
    kind: Annotated[_Kind, argument("KIND", "forest, significance, curves, ratings, score-groups, layers or report.")],
    call: _Call,
    out: Annotated[Path | None, common.output("Output: .png, .svg or .pdf. Default: KIND.png, or report.html.")] = None,
    chosen: FigureLook,
) -> None:
    """Draw a figure as PNG, SVG or PDF, or write an HTML report.

    forest: human agreement of metrics, the best first, with 95 % bootstrap intervals. significance: which differences
    are significant. curves: agreement against the number of references (TIGEr, Figure 5). ratings: the distribution of
    scores for each rating (TIGEr, Figure 4). score-groups: scores on the human scale against ratings (TIGEr, Figure 8).
    layers: agreement against the network layer (ViLBERTScore, Figure 3). report: an HTML page of studies' results. An
    option that does not apply to KIND is rejected. See docs/figures.md and docs/report.md.

    Exit code 1: requirements of a metric or protocol are missing (listed).

    Example: capbench figure forest cider meteor rouge-l -d flickr8k-expert --out forest.svg

    Example: capbench figure curves curves/results.json --group MM --out figure5.pdf

    Example: capbench figure report results/tiger-table1 results/tiger-table2 --out report.html
    """
    others = {str(parameter.name) for parameter in ctx.command.params} - {"kind", "inputs", "out", *_OPTIONS[kind]}
    common.check_applies(ctx, others, f"'figure {kind}'")
    from capbench.reports.figures.style import check_ending, save

    if kind == "report":
        from capbench.core.files import check_folder, check_writable
        from capbench.reports.page import read_source

        files = call.files("results.json files, or folders with one", None)
        page, folder = out or Path("report.html"), call.image_root
        if folder is not None:
            check_folder(folder, "--image-root")
        check_writable(page)
        write_page([read_source(file) for file in files], page, call.root(), title=chosen.title, image_root=folder)
        return
    path = out or Path(f"{kind}.png")
    check_ending(path)
    look = chosen.look(path)
    draw, missing = _DRAWN[kind](call, look)
    if draw is not None:
        common.wrote(*save(draw, path, look))
    if missing:
        raise typer.Exit(1)


# One function for each kind: it prints its numbers, and returns the figure and whether something is missing (listed).


def _compared(draw: str, call: _Call, look: Look) -> tuple[Figure, bool]:
    from capbench.api.comparing import plan_comparison, run_comparison
    from capbench.reports.figures import compared
    from capbench.studies.results import load_result

    metrics, missing = call.metrics(), False
    if call.saved is not None:
        if metrics:
            raise UsageError("--from excludes metrics", code="conflict", hint="Omit one of the two")
        result = load_result(call.saved)
    else:
        caller = common.caller()
        statistics: Statistics = {"unit": call.unit, "seed": call.seed or 0}
        if call.resamples is not None:
            statistics |= {"bootstrap": call.resamples, "permutations": call.resamples}
        values = call.values()
        plan = plan_comparison(call.dataset, metrics, call.protocol, values, caller, statistics, sentinels=False)
        result = run_comparison(plan, caller, cache=call.cache)
        for line in (*result.protocols[0].notes, *result.undefined_lines(), *result.reasons()):
            common.note(line)
        missing = bool(result.undefined or result.missing)
    found = compared.from_study(result, None if call.saved is None else call.protocol)
    figures = {"forest": compared.forest_figure, "significance": compared.significance_figure}
    return figures[draw](found, look), missing


def _curves(call: _Call, look: Look) -> tuple[Figure, bool]:
    from capbench.reports.figures.curves import curves_figure
    from capbench.studies.results import load_result

    (saved,) = call.files("the results.json of 'capbench correlate --references-curve'")
    return curves_figure(load_result(saved), ("", *(call.group or ())), look), False


def _ratings(call: _Call, look: Look) -> tuple[Figure, bool]:
    from capbench.reports.figures.ratings import ratings_figure
    from capbench.stats.score_groups import by_rating

    rated = _rated(call)
    metrics = {title: by_rating(scores, rated.human) for title, scores in rated.scores.items()}
    rows = [
        [f"{group.rating:.3g}", f"{group.n:,}", *(f"{of_metric.mean:.4f}" for of_metric in (group, *others))]
        for group, *others in zip(*metrics.values(), strict=True)
    ]
    heads = ["rating", "n", *(title if title.startswith("Mean ") else f"mean {title}" for title in metrics)]
    numbers = {"metrics": {title: [group._asdict() for group in groups] for title, groups in metrics.items()}}
    _print_rated(call, rated, numbers, heads, rows)
    return ratings_figure(rated, look), bool(rated.scored.incomplete)


def _score_groups(call: _Call, look: Look) -> tuple[Figure, bool]:
    import numpy as np

    from capbench.reports.figures.ratings import score_groups_figure
    from capbench.stats.score_groups import group_differences

    rated = _rated(call)
    found = group_differences(rated.scores, rated.human)
    shares = {**found.shares, "chance": found.chance}
    rows = [
        [f"{difference:+.3g}" if difference else "0", *(f"{100 * share:.1f}" for share in of_difference)]
        for difference, *of_difference in zip(found.differences, *shares.values(), strict=True)
    ]
    distances = np.array([*shares.values()]) @ np.abs(found.differences)
    rows.append(["mean distance", *(f"{distance:.3f}" for distance in distances)])
    heads = ["difference", *(f"{title}, %" for title in shares)]
    _print_rated(call, rated, {"n": len(rated.human), **found._asdict()}, heads, rows)
    return score_groups_figure(rated, look), bool(rated.scored.incomplete)


def _layers(call: _Call, look: Look) -> tuple[Figure | None, bool]:
    from capbench.api.agreement import plan_agreement, study_of
    from capbench.api.checking import refuse_with_study, refuse_without
    from capbench.api.resolve import resolve_study
    from capbench.api.tasks import study_of_task
    from capbench.reports.curves import curve_tables
    from capbench.reports.figures.curves import curves_figure
    from capbench.studies.layers import plan_layers, with_layers
    from capbench.studies.results import is_left_out
    from capbench.studies.run import run_plan
    from capbench.studies.study import LayerTask

    if call.scores:
        raise UsageError("--scores: a score file has no layers", code="unsupported", hint="Omit --scores")
    study, task = str(call.files("one study file")[0]) if call.inputs else None, LayerTask()
    inputs, caller = call.values(), common.caller(json_output=call.json_output)
    if study is None:
        refuse_without(call.names, caller)
        metrics = call.metrics() or ["vilbertscore"]
        plan = plan_agreement(study_of(call.dataset, metrics, call.protocol, inputs, caller), inputs, caller)
    else:
        refuse_with_study({"metrics": call.metric, **call.changed()}, caller)
        planned, task = study_of_task(study, LayerTask, inputs, call.names, caller)
        plan = resolve_study(planned, call.root(), caller, task=True)
        caller.on_data(plan.root, plan.uses_root)
    resamples = task.resamples if call.resamples is None else call.resamples
    plan, places = plan_layers(plan, resamples, task.seed if call.seed is None else call.seed)
    result = with_layers(run_plan(plan, common.progress, cache=call.cache, test_groups=False), places)
    common.answer(call.json_output, result, curve_tables(result))
    waiting = {reason: names for reason, names in result.reasons().items() if not is_left_out(reason)}
    for reason, names in waiting.items():
        common.note(f"{', '.join(names)} {reason}")
    return curves_figure(result, look=look) if result.points else None, bool(waiting)


_DRAWN: dict[str, Callable[[_Call, Look], tuple[Figure | None, bool]]] = {
    "forest": partial(_compared, "forest"),
    "significance": partial(_compared, "significance"),
    "curves": _curves,
    "ratings": _ratings,
    "score-groups": _score_groups,
    "layers": _layers,
}


def _print_rated(
    call: _Call, rated: RatedScores, numbers: dict[str, Any], heads: list[str], rows: list[list[str]]
) -> None:
    from capbench.reports.table import Table

    of_protocol = {"protocol": str(rated.protocol), "version": rated.protocol.version, "sample": rated.sample}
    incomplete = {title: asdict(entry) for title, entry in rated.scored.incomplete.items()}
    result = {**of_protocol, **numbers, "signatures": rated.scored.tables[0].signatures, "incomplete": incomplete}
    common.answer(call.json_output, result, [Table.of(heads, rows)])


def _rated(call: _Call) -> RatedScores:
    from capbench.api.agreement import plan_judged
    from capbench.studies.examples import rated_scores

    caller = common.caller(json_output=call.json_output)
    plan = plan_judged(call.dataset, call.metrics(), call.protocol, call.values(), caller)
    rated = rated_scores(plan, cache=call.cache, progress=common.progress)
    for line in (*rated.notes, *(f"{title}: {entry}" for title, entry in rated.scored.incomplete.items())):
        common.note(line)
    return rated
