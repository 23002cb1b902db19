"""Forest plot: each metric's agreement with people, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capbench.errors import UsageError
from capbench.reports.figures.compared import Compared
from capbench.reports.figures.metric_styles import metric_styles
from capbench.reports.figures.style import COLOURS, GREY, USUAL, Look, caption, finish, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["forest_figure"]


def forest_figure(compared: Compared, look: Look = USUAL) -> Figure:
    """One row a metric, best first; metrics not significantly worse than the best are filled.

    Raises:
        UsageError: there are no intervals.
    """
    names = list(compared.values)
    if not all(name in compared.intervals for name in names):
        raise UsageError(
            "a forest plot needs intervals", hint="Add 'bootstrap' to the study, or use 'capbench compare'"
        )
    scale, digits = (100.0, 1) if compared.percent else (1.0, 3)
    with style(look):
        figure, (axes,) = new_figure(7.0, 1.1 + 0.34 * len(names), look=look)
        tested = bool(compared.top)
        styles = metric_styles(names)
        for row, name in enumerate(names):
            low, high = (scale * end for end in compared.intervals[name])
            value = scale * compared.values[name]
            filled = not tested or name in compared.top
            colour = styles[name].colour
            axes.plot([low, high], [row, row], color=colour, linewidth=1.8, solid_capstyle="butt")
            axes.plot(
                *(value, row, styles[name].marker),
                color=colour,
                markerfacecolor=colour if filled else "white",
                markersize=6,
            )
            axes.text(
                *(1.02, row, f"{value:.{digits}f}  [{low:.{digits}f}, {high:.{digits}f}]"),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=look.points(8),
                color="black" if filled else GREY,
            )
        axes.axvline(scale * compared.values[names[0]], color=GREY, linewidth=0.7, alpha=0.5, zorder=0)
        if compared.ceiling is not None:
            axes.axvline(
                scale * compared.ceiling, color=COLOURS[1], linewidth=1.2, linestyle="--", label="one more person"
            )
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_xlabel("accuracy, %" if compared.percent else f"{compared.label} with people")
        legend = "filled: not significantly worse than the best" if tested else ""
        return finish(
            figure,
            caption(
                compared.versioned_id,
                f"n = {compared.n:,}",
                compared.interval_note,
                legend,
                compared.test_note,
                sample=compared.sample,
            ),
            look,
        )
