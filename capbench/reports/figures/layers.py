"""Agreement with people against the layer that word states are taken from (ViLBERTScore, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from capbench.datasets.protocol import with_version
from capbench.reports.figures.metric_styles import metric_styles
from capbench.reports.figures.style import LINES, MARKERS, USUAL, Look, caption, finish, new_figure, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from capbench.analyses.layers import LayerCurves

__all__ = ["layers_figure"]

_APART = 0.06  # between the bars of two columns, in layers


def layers_figure(curves: Sequence[LayerCurves], look: Look = USUAL) -> Figure:
    """One panel a protocol, one line a column; bars are the intervals, a little apart where they share a layer.

    A metric's columns share a dash pattern, the same column of two metrics a colour.

    Args:
        curves: one for each protocol, with one column at least.
        look: title, size and font size.
    """
    with style(look):
        columns = min(len(curves), 2)
        rows = -(-len(curves) // columns)
        figure, panels = new_figure(0.9 + 3.6 * columns, 0.7 + 3.0 * rows, columns=columns, rows=rows, look=look)
        # A metric may be missing under a protocol: it looks alike in all panels that have it.
        points = [point for of_protocol in curves for point in of_protocol.points]
        labels, names = (
            list(dict.fromkeys(values)) for values in zip(*((p.label, p.column) for p in points), strict=True)
        )
        titles: dict[str, Artist] = {}
        for axes, of_protocol in zip(panels, curves, strict=False):
            _panel(axes, of_protocol, labels, names)
            for handle, title in zip(*axes.get_legend_handles_labels(), strict=True):
                titles.setdefault(title, handle)
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        figure.legend(list(titles.values()), list(titles), loc="outside upper center", ncols=min(len(titles), 3))
        sizes = [
            f"{with_version(c.protocol, c.version)} (n = {c.n:,} {'pairs' if c.kind == 'accuracy' else 'ratings'})"
            for c in curves
        ]
        made = curves[0].intervals
        intervals = (
            ""
            if made is None
            else f"{100 * made.level:g} % intervals ({made.method}, {made.resamples:,} resamples of {made.unit}s, seed "
            f"{made.seed})"
        )
        return finish(figure, caption(*sizes, intervals, sample=any(c.sample for c in curves)), look)


def _panel(axes: Axes, curves: LayerCurves, labels: Sequence[str], columns: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    styles = metric_styles(columns)
    scale = 100 if curves.kind == "accuracy" else 1
    lines = curves.curves
    for place, (title, points) in enumerate(lines.items()):
        shift = _APART * (place - (len(lines) - 1) / 2)
        drawn = styles[points[0].column]
        metric = labels.index(points[0].label)
        x = [point.layer + shift for point in points]
        y = [scale * point.value for point in points]
        axes.plot(
            *(x, y),
            color=drawn.colour,
            linestyle=LINES[metric % len(LINES)],
            marker=MARKERS[(MARKERS.index(drawn.marker) + metric * len(columns)) % len(MARKERS)],
            markersize=4,
            linewidth=1.4,
            label=title,
        )
        for point, centre in zip(points, x, strict=True):
            if point.low is not None and point.high is not None:
                ends = [scale * point.low, scale * point.high]
                axes.plot([centre, centre], ends, color=drawn.colour, linewidth=0.9, alpha=0.6)
    axes.set_xticks(curves.layers, [str(layer) for layer in curves.layers])
    axes.set_xlim(curves.layers[0] - 0.4, curves.layers[-1] + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.set_xlabel("layer")
    axes.set_ylabel("accuracy, %" if curves.kind == "accuracy" else f"{curves.statistic} with people")
    axes.set_title(curves.dataset_title)
    axes.grid(axis="y")
