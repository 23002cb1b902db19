"""Score groups against ratings: how often, and how far, a metric is off on the human scale (TIGEr, Figure 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capbench.analyses.score_groups import RatedScores, group_differences
from capbench.datasets.protocol import with_version
from capbench.reports.figures.metric_styles import metric_styles
from capbench.reports.figures.style import USUAL, Look, caption, finish, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["score_groups_figure"]


def score_groups_figure(rated: RatedScores, look: Look = USUAL) -> Figure:
    """Bars for each difference of score group and rating, one colour a metric; steps: a metric that knows nothing."""
    differences = group_differences(rated)
    titles = list(differences.shares)
    places = np.arange(len(differences.differences))
    width = 0.8 / len(titles)
    styles = metric_styles(titles)
    with style(look):
        figure, (axes,) = new_figure(max(5.0, 1.6 + 0.28 * len(places) * max(2, len(titles))), 3.6, look=look)
        for i, title in enumerate(titles):
            axes.bar(
                *(places + (i - (len(titles) - 1) / 2) * width, [100 * share for share in differences.shares[title]]),
                width=width,
                color=styles[title].colour,
                hatch=styles[title].hatch,
                edgecolor="white",
                linewidth=0.4,
                label=f"{title}: {100 * differences.equal(title):.0f} % equal",
            )
        axes.stairs(
            *([100 * share for share in differences.chance], np.arange(len(places) + 1) - 0.5),
            color="#808080",  # seen on white and on the darkest bars
            linewidth=1.2,
            linestyle="--",
            label="chance",
        )
        axes.set_xticks(places, [f"{d:+.3g}".replace("-", "−") if d else "0" for d in differences.differences])
        axes.set_xlabel("score group minus people's rating")
        axes.set_ylabel("share of data points, %")
        axes.grid(axis="y")
        handles, labels = axes.get_legend_handles_labels()
        # Matplotlib lists the line first; it belongs behind the metrics.
        order = sorted(range(len(labels)), key=lambda place: labels[place] == "chance")
        shown = [handles[place] for place in order], [labels[place] for place in order]
        figure.legend(*shown, loc="outside upper center", ncols=min(4, len(labels)))
        return finish(
            figure,
            caption(
                rated.dataset_title,
                with_version(rated.protocol, rated.version),
                f"n = {differences.n:,}",
                "scores mapped onto the human scale by their rank",
                f"draw 1 of {rated.draws}" if rated.draws > 1 else "",
                sample=rated.sample,
            ),
            look,
        )
