"""Scores by rating: a violin for each rating, with the mean (TIGEr, Figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.reports.figures.style import USUAL, Look, MetricStyle, caption, finish, metric_styles, new_figure, style
from capbench.stats.score_groups import by_rating, group_differences
from capbench.studies.examples import RatedScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def ratings_figure(rated: RatedScores, look: Look = USUAL) -> Figure:
    """One panel per metric column, one violin per rating, the means joined by a line."""
    titles = list(rated.scores)
    columns = 2 if len(titles) == 4 else min(3, len(titles))
    rows = -(-len(titles) // columns)
    wide = 1.2 + 0.42 * len(np.unique(rated.human))
    with style(look):
        figure, panels = new_figure(0.5 + max(2.5, wide) * columns, 0.6 + 2.5 * rows, columns, rows, look=look)
        styles = metric_styles(titles)
        for axes, title in zip(panels, titles, strict=False):
            _panel(axes, rated, title, styles[title])
        for axes in panels[len(titles) :]:
            axes.set_visible(False)
        return finish(figure, _caption(rated, "marks: mean of each rating"), look)


def _caption(rated: RatedScores, about: str) -> str:
    draws = f"draw 1 of {rated.protocol.items.draws}" if rated.protocol.items.draws > 1 else ""
    points = f"n = {len(rated.human):,}"
    return caption(rated.scored.dataset.title, rated.protocol.versioned, points, about, draws, sample=rated.sample)


def _panel(axes: Axes, rated: RatedScores, title: str, drawn: MetricStyle) -> None:
    scores = rated.scores[title]
    groups = by_rating(scores, rated.human)
    places = list(range(len(groups)))
    of_groups = [scores[rated.human == group.rating] for group in groups]
    bodies: Any = axes.violinplot(of_groups, places, widths=0.85, showextrema=False)["bodies"]
    for body in bodies:
        body.set(facecolor=drawn.colour, edgecolor=drawn.colour, linewidth=0.6, alpha=0.3)
    means = [group.mean for group in groups]
    axes.plot(places, means, "-", marker=drawn.marker, color=drawn.colour, linewidth=1.3, markersize=4.5)
    axes.set_xticks(places, [f"{group.rating:.3g}\n{group.n:,}" for group in groups])
    axes.set_xlabel("human rating (number below)")
    axes.set_ylabel("score")
    axes.set_title(f"{title} on {rated.scored.dataset.title}")
    axes.grid(axis="y")


# Differences between score groups and ratings on the human scale (TIGEr, Figure 8).


def score_groups_figure(rated: RatedScores, look: Look = USUAL) -> Figure:
    """Bars for each difference of score group and rating, one colour per metric; the dashed steps are chance level."""
    found = group_differences(rated.scores, rated.human)
    titles, equal = list(found.shares), found.differences.index(0.0)
    places = np.arange(len(found.differences))
    width = 0.8 / len(titles)
    styles = metric_styles(titles)
    with style(look):
        figure, (axes,) = new_figure(max(5.0, 1.6 + 0.28 * len(places) * max(2, len(titles))), 3.6, look=look)
        handles: list[Any] = []
        for i, (title, shares) in enumerate(found.shares.items()):
            bars = axes.bar(
                places + (i - (len(titles) - 1) / 2) * width,
                100 * np.array(shares),
                width=width,
                color=styles[title].colour,
                hatch=styles[title].hatch,
                edgecolor="white",
                linewidth=0.4,
                label=f"{title}: {100 * shares[equal]:.0f} % equal",
            )
            handles.append(bars)
        edges, grey = np.arange(len(places) + 1) - 0.5, "#808080"  # visible on white and on the darkest bars
        chance = 100 * np.array(found.chance)
        handles.append(axes.stairs(chance, edges, color=grey, linewidth=1.2, linestyle="--", label="chance"))
        axes.set_xticks(places, [f"{d:+.3g}".replace("-", "−") if d else "0" for d in found.differences])
        axes.set_xlabel("score group minus human rating")
        axes.set_ylabel("share of data points, %")
        axes.grid(axis="y")
        figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
        about = "scores mapped onto the human scale by their rank"
        return finish(figure, _caption(rated, about), look)
