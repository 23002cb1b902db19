"""A learnt combination in a terminal: beside its metrics, what it is made of, and on other data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from capbench.analyses.combining import Combined
from capbench.datasets.protocol import StatisticSpec
from capbench.reports.comparing import print_comparison
from capbench.reports.tables import number

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_combined"]


def print_combined(
    combined: Combined, statistic: StatisticSpec, tests: Sequence[StatisticSpec], console: Console
) -> None:
    """Print a combination.

    Args:
        combined: the combination.
        statistic: of the protocol that it was learnt from.
        tests: those of the protocols that it was tried on.
        console: where to.
    """

    def say(text: str, style: str = "dim") -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    settings = combined.settings
    print_comparison(combined.comparison, statistic, console, of=combined.title)
    say(
        f"{combined.title}: {settings.learner}; each caption's score was learnt on other images ({combined.images:,} "
        f"images, {settings.folds} folds, {settings.inner_folds} inner folds, seed {settings.seed}); penalties "
        f"{_span(combined.fold_penalties)}"
    )
    _print_parts(combined, statistic, console)
    say(
        f"weight: what one standard deviation of the metric moves the score, in {_unit(combined)}; learnt from all "
        f"images with the penalty {combined.penalty:g}; 95 % bootstrap interval over images"
    )
    if len(combined.parts) > 1:
        say(
            f"drop: what {statistic.label} loses if {combined.title} is learnt without the metric, with the interval "
            "of the difference on the same resamples of images"
        )
    for transfer, spec in zip(combined.transfers, tests, strict=True):
        say(f"\nLearnt on {combined.comparison.protocol}, tried on {transfer.comparison.protocol}", style="bold")
        print_comparison(transfer.comparison, spec, console, of=combined.title)
        shared = (
            f"{transfer.shared:,} of these {transfer.images:,} images were learnt from, too: their captions are scored "
            "by what was learnt without them"
            if transfer.shared
            else f"none of these {transfer.images:,} images was learnt from"
        )
        say(f"{combined.title}: {shared}")


def _print_parts(combined: Combined, statistic: StatisticSpec, console: Console) -> None:
    from rich import box
    from rich.table import Table

    percent = statistic.kind == "accuracy"
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("metric")
    for head in ("weight", "95 % interval", "without it", "drop", "95 % interval"):
        shown.add_column(head, justify="right")
    for part in combined.parts:
        cells = [f"{part.weight:+.4f}", f"{part.weight_low:+.4f} – {part.weight_high:+.4f}"]
        if part.without is None or part.drop is None or part.drop_low is None or part.drop_high is None:
            cells += ["", "", ""]
        else:
            low, high = number(part.drop_low, percent), number(part.drop_high, percent)
            cells += [number(part.without, percent), number(part.drop, percent), f"{low} – {high}"]
        shown.add_row(f"{part.title} (turned)" if part.lower_is_better else part.title, *cells)
    console.print(shown)


def _span(penalties: Sequence[float]) -> str:
    low, high = min(penalties), max(penalties)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _unit(combined: Combined) -> str:
    return "log-odds of being preferred" if combined.on_pairs else "points of the ratings' scale"
