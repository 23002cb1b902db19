"""Scores by rating: a violin for each rating, with the mean (TIGEr, Figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capbench.analyses.score_groups import RatedScores, by_rating
from capbench.datasets.protocol import with_version
from capbench.reports.figures.metric_styles import MetricStyle, metric_styles
from capbench.reports.figures.style import USUAL, Look, caption, finish, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ratings_figure"]


def ratings_figure(rated: RatedScores, look: Look = USUAL) -> Figure:
    """One panel a metric column, one violin a rating, the means joined by a line."""
    titles = list(rated.scores)
    columns = 2 if len(titles) == 4 else min(3, len(titles))
    rows = -(-len(titles) // columns)
    wide = 1.2 + 0.42 * len(rated.levels)
    with style(look):
        figure, panels = new_figure(0.5 + max(2.5, wide) * columns, 0.6 + 2.5 * rows, columns, rows, look=look)
        styles = metric_styles(titles)
        for axes, title in zip(panels, titles, strict=False):
            _panel(axes, rated, title, styles[title])
        for axes in panels[len(titles) :]:
            axes.set_visible(False)
        return finish(
            figure,
            caption(
                rated.dataset_title,
                with_version(rated.protocol, rated.version),
                f"n = {len(rated.human):,}",
                "marks: mean of each rating",
                f"draw 1 of {rated.draws}" if rated.draws > 1 else "",
                sample=rated.sample,
            ),
            look,
        )


def _panel(axes: Axes, rated: RatedScores, title: str, drawn: MetricStyle) -> None:
    scores = rated.scores[title]
    groups = by_rating(scores, rated.human)
    places = range(len(groups))
    parts = axes.violinplot(
        [scores[rated.human == group.rating] for group in groups],
        positions=list(places),
        widths=0.85,
        showextrema=False,
    )
    bodies: Any = parts["bodies"]
    for body in bodies:
        body.set_facecolor(drawn.colour)
        body.set_edgecolor(drawn.colour)
        body.set_linewidth(0.6)
        body.set_alpha(0.3)
    means = [group.mean for group in groups]
    axes.plot(places, means, "-", marker=drawn.marker, color=drawn.colour, linewidth=1.3, markersize=4.5)
    axes.set_xticks(places, [f"{group.rating:.3g}\n{group.n:,}" for group in groups])
    axes.set_xlabel("people's rating (number below)")
    axes.set_title(title)
    axes.grid(axis="y")
