"""A learned combination: next to its metrics, and its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capbench.reports.compare import print_comparison
from capbench.reports.table import USUAL_TABLE, Cell, Column, Row, Table
from capbench.reports.terminal import print_table
from capbench.studies.combine import METRIC, CombinationResult

if TYPE_CHECKING:
    from rich.console import Console


def print_combined(result: CombinationResult, console: Console, *, details: bool = False) -> None:
    """Print a combination with its metrics, and weights."""
    print_comparison(result.comparison, console, of=METRIC, details=details)
    console.print()
    print_table(_parts(result), console, details=details)


def _parts(result: CombinationResult) -> Table:
    """Weight of each metric, and the agreement without it."""
    settings, (info,), show = result.settings, result.comparison.protocols, USUAL_TABLE
    if settings.learner == "mean-rank":
        about = (
            f"mean of the metrics' quantiles among the judged captions of {result.images:,} images, without judgements"
        )
        weight = "standard deviation of the metric's quantile, divided by the number of metrics"
    else:
        about = (
            f"{settings.learner}; each caption's score was learned on other images ({result.images:,} images, "
            f"{settings.folds} folds, {settings.inner_folds} inner folds, seed {settings.seed})"
        )
        unit = "log-odds of being preferred" if result.on_pairs else "points of the ratings' scale"
        weight = (
            f"change of the score for one standard deviation of the metric, in {unit}; learned from all images with "
            f"the penalty {result.penalty:g}; 95 % bootstrap interval over images"
        )
    drop = f"loss of {info.statistic} if {METRIC} is learned without the metric, on the same resamples of images"
    rows = []
    for part in result.parts:
        cells = [Cell(f"{part.weight:+.4f}", below=f"[{part.weight_low:+.4f}, {part.weight_high:+.4f}]")]
        if part.without is not None and part.drop is not None:
            ends = show.interval(part.drop_low, part.drop_high)
            cells += [Cell(show.number(part.without)), Cell(show.number(part.drop), below=ends)]
        rows.append(Row(f"{part.title}{' (negated)' if part.lower_is_better else ''}", tuple(cells)))
    columns, legend = [Column("weight")], [f"weight: {weight}"]
    if len(rows) > 1:
        columns += [Column("without it"), Column("drop")]
        legend.append(f"drop: {drop}")
    title, answer = f"Parts of {METRIC}", (f"{METRIC}: {about}",)
    return Table(title, tuple(columns), tuple(rows), answer=answer, legend=tuple(legend))
