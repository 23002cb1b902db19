"""``capbench figure``: pictures of results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.figure_layers import layers
from capbench.cli.figure_look import FigureLook
from capbench.cli.given import Given, Target, open_judged
from capbench.cli.groups import OptionGroup, with_groups
from capbench.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capbench.analyses.score_groups import RatedScores
    from capbench.reports.figures.compared import Compared
    from capbench.reports.figures.style import Look

__all__ = ["app"]

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
    unit: Annotated[str, typer.Option("--unit", help=f"What is resampled: {', '.join(common.UNITS)}.")] = "image"


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
    from capbench.reports.figures.forest import forest_figure

    out = chosen.target(out, "forest.png")
    look = chosen.look()
    compared = _compared(metric, target, given, resampling, saved)
    _write(forest_figure(compared, look), out, look)


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
    from capbench.reports.figures.significance import significance_figure

    out = chosen.target(out, "significance.png")
    look = chosen.look()
    compared = _compared(metric, target, given, resampling, saved)
    _write(significance_figure(compared, look), out, look)


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
    from capbench.analyses.references import load_curves
    from capbench.reports.figures.curves import curves_figure

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
    from capbench.analyses.score_groups import by_rating
    from capbench.reports.figures.ratings import ratings_figure

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
            }
        )
    else:
        rows = [[f"{g.rating:.3g}", f"{g.n:,}"] for g in next(iter(groups.values()))]
        for of_rating in groups.values():
            for row, group in zip(rows, of_rating, strict=True):
                row.append(f"{group.mean:.4f}")
        _table(["rating", "n", *(title if title.startswith("Mean ") else f"mean {title}" for title in groups)], rows)
    _write(ratings_figure(rated, look), out, look)


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
    from capbench.analyses.score_groups import group_differences
    from capbench.reports.figures.score_groups import score_groups_figure

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
) -> Compared:
    from capbench.reports.figures.compared import from_comparison, read_compared

    if saved is not None:
        if metric:
            raise UsageError("metrics and --from were given together", hint="Give one of the two")
        return read_compared(saved, target.protocol)
    from capbench.analyses.comparing import compare_metrics

    common.check_choice("--unit", resampling.unit, common.UNITS)
    one_alone = UsageError("two metrics or more are compared", hint="Name them, or give --from")
    judged = open_judged(metric or [], target, given, one_alone=one_alone)
    comparison = compare_metrics(
        judged.dataset,
        judged.protocol,
        judged.requests,
        resamples=resampling.resamples,
        seed=resampling.seed,
        unit=resampling.unit,  # type: ignore[arg-type]  # checked above
        resources=judged.resources,
        cache=given.cache,
        progress=common.progress,
    )
    for line in comparison.notes:
        common.note(line)
    return from_comparison(comparison, sample=judged.sample)


def _rated(
    metric: list[str] | None,
    target: Target,
    given: Given,
    *,
    json_output: bool,
) -> RatedScores:
    from capbench.analyses.score_groups import rated_scores

    if not (metric or given.scores):
        raise UsageError("no metric is named", hint="Example: capbench figure ratings cider meteor")
    judged = open_judged(metric or [], target, given, json_output=json_output)
    rated = rated_scores(
        judged.dataset,
        judged.protocol,
        judged.requests,
        resources=judged.resources,
        cache=given.cache,
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
