"""Significance matrix: which metric is better than which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capbench.errors import UsageError
from capbench.reports.figures.compared import Compared, PairResult
from capbench.reports.figures.style import USUAL, Look, caption, finish, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["significance_figure"]

# One hue from light to dark, so that the order is seen in grey as well.
_STEPS = ((0.001, "#08519c", "p ≤ .001"), (0.01, "#4292c6", "p ≤ .01"), (1.0, "#9ecae1", "p ≤ α"))
_NOT = "#f0f0f0"


def significance_figure(compared: Compared, look: Look = USUAL) -> Figure:
    """A cell for each pair: the row's metric minus the column's, and the corrected p-value.

    Raises:
        UsageError: nothing was tested.
    """
    if not compared.pairs:
        raise UsageError(
            "a significance matrix needs tests", hint="Add 'compare' to the study, or use 'capbench compare'"
        )
    names = list(compared.values)
    scale, digits = (100.0, 1) if compared.percent else (1.0, 3)
    with style(look):
        from matplotlib.patches import Patch, Rectangle

        size = 1.6 + 0.62 * len(names)
        figure, (axes,) = new_figure(max(4.6, size + 1.2), max(3.4, size), look=look)
        for pair in compared.pairs:
            # Equal values may stand in either order.
            row, column = sorted((names.index(pair.better), names.index(pair.worse)))
            colour = _colour(pair)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            dark = colour in (_STEPS[0][1], _STEPS[1][1])
            axes.text(
                *(column, row, f"+{scale * pair.difference:.{digits}f}\n{_p(pair.p_value)}"),
                ha="center",
                va="center",
                fontsize=look.points(7.5),
                color="white" if dark else "black",
            )
        axes.set_xlim(0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 1.5, -0.5)
        axes.xaxis.tick_top()
        long = len(names) > 5
        axes.set_xticks(range(1, len(names)), names[1:], rotation=45 if long else 0, ha="left" if long else "center")
        axes.set_yticks(range(len(names) - 1), names[:-1])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_aspect("equal")
        patches = [Patch(color=colour, label=label) for _, colour, label in _STEPS]
        patches.append(Patch(color=_NOT, label="not significant"))
        if len(names) > 4:  # the lower triangle has room for it
            axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(0.0, 0.0), borderaxespad=0.3)
        else:
            axes.legend(handles=patches, loc="center left", bbox_to_anchor=(1.02, 0.5))
        unit = "points of accuracy" if compared.percent else compared.label
        return finish(
            figure,
            caption(
                f"row minus column, in {unit}; p-values are corrected",
                compared.versioned_id,
                f"n = {compared.n:,}",
                compared.test_note,
                sample=compared.sample,
            ),
            look,
        )


def _colour(pair: PairResult) -> str:
    if not pair.significant:
        return _NOT
    return next(colour for limit, colour, _ in _STEPS if pair.p_value <= limit)


def _p(value: float) -> str:
    return "p < .001" if value < 0.001 else f"p = {value:.3f}".replace("0.", ".")
