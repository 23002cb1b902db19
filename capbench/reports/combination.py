"""A learned combination: next to its metrics, and its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capbench.reports.compare import print_comparison
from capbench.reports.table import USUAL_TABLE, Cell, Column, Row, Table
from capbench.reports.terminal import print_table
from capbench.studies.combine import METRIC, CombinationResult, InputPart

if TYPE_CHECKING:
    from rich.console import Console


def print_combined(result: CombinationResult, console: Console, *, details: bool = False) -> None:
    """Print a combination with its metrics, and weights."""
    print_comparison(result.comparison, console, of=METRIC, details=details)
    console.print()
    print_table(parts_table(result), console, details=details)


def parts_table(result: CombinationResult) -> Table:
    """Weight of each metric, and the agreement without it."""
    settings, (info,) = result.settings, result.comparison.protocols
    low, high = min(result.fold_penalties), max(result.fold_penalties)
    about = (
        f"{result.title}: {settings.learner}; each caption's score was learned on other images ({result.images:,} "
        f"images, {settings.folds} folds, {settings.inner_folds} inner folds, seed {settings.seed}); penalties "
        f"{low:g}{f' to {high:g}' if high > low else ''}"
    )
    unit = "log-odds of being preferred" if result.on_pairs else "points of the ratings' scale"
    legend = [
        f"weight: change of the score for one standard deviation of the metric, in {unit}; learned from all images "
        f"with the penalty {result.penalty:g}; 95 % bootstrap interval over images"
    ]
    if settings.learner == "mean-rank":
        about = (
            f"{result.title}: mean of the metrics' quantiles among the judged captions of {result.images:,} images; "
            "no judgement was used"
        )
        legend = ["weight: standard deviation of the metric's quantile, divided by the number of metrics"]
    columns = [Column("weight")]
    if len(result.parts) > 1:
        columns += [Column("without it"), Column("drop")]
        legend.append(
            f"drop: loss of {info.statistic} if {result.title} is learned without the metric, with the interval of "
            "the difference on the same resamples of images"
        )
    rows = [Row(f"{p.title}{' (negated)' if p.lower_is_better else ''}", _cells(p)) for p in result.parts]
    return Table(f"Parts of {result.title}", tuple(columns), tuple(rows), answer=(about,), legend=tuple(legend))


def _cells(part: InputPart) -> tuple[Cell, ...]:
    weight = Cell(f"{part.weight:+.4f}", below=f"[{part.weight_low:+.4f}, {part.weight_high:+.4f}]")
    if part.without is None or part.drop is None:
        return (weight,)
    number, ends = USUAL_TABLE.number, USUAL_TABLE.interval(part.drop_low, part.drop_high)
    return weight, Cell(number(part.without)), Cell(number(part.drop), below=ends)
