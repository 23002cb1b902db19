"""Agreement with human ratings by number of references (TIGEr, Figure 5; FAIEr, Figure 4) and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from capbench.core.errors import check_choice
from capbench.datasets.protocol import statistic_title, with_version
from capbench.reports import methods
from capbench.reports.figures.style import BAND, USUAL, Look, caption, finish, metric_styles, new_figure, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from capbench.studies.layers import LayerCurves
    from capbench.studies.references import ReferenceCurves

_TICKS = {0, 1, 2, 5, 10, 20, 50, 100, 200, 500}
"""Numbers of references with a tick if there are many."""


def curves_figure(curves: ReferenceCurves, groups: Sequence[str] = ("",), look: Look = USUAL) -> Figure:
    """One panel per group, of which ``""`` is all, one line per metric: mean over draws, with a band of one sd."""
    for group in filter(None, groups):
        check_choice("group", group, curves.groups)
    sizes, unit = {point.group: point.n for point in curves.points}, "pairs" if curves.kind == "accuracy" else "ratings"
    drawn = f"mean ± sd of {curves.draws} random order{'s' * (curves.draws != 1)} of the references, seed {curves.seed}"
    with style(look):
        figure, panels = new_figure(0.8 + 3.6 * len(groups), 3.7, columns=len(groups), look=look)
        for axes, group in zip(panels, groups, strict=True):
            _panel(axes, curves, group)
        panels[0].set_ylabel(_agreement(curves))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 3 + 2 * len(groups)))
        parts = [f"{group or 'all'} {sizes[group]:,}" for group in groups]
        counted = f"n = {sizes['']:,} {unit}" if list(groups) == [""] else f"{unit}: {', '.join(parts)}"
        protocol = with_version(curves.protocol, curves.version)
        return finish(figure, caption(curves.dataset_title, protocol, counted, drawn, sample=curves.sample), look)


def _panel(axes: Axes, curves: ReferenceCurves, group: str) -> None:
    styles, scale = metric_styles(curves.columns.values()), 100 if curves.kind == "accuracy" else 1
    for (metric, column), title in curves.columns.items():
        points, drawn = curves.curve(metric, column, group), styles[title]
        x = np.array([point.count for point in points], dtype=float)
        mean = scale * np.array([point.mean for point in points])
        sd = scale * np.array([point.sd or 0.0 for point in points])
        size = 4 if len(points) <= 20 else 2.5
        axes.plot(
            x, mean, color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, markersize=size, label=title
        )
        axes.fill_between(x, mean - sd, mean + sd, color=drawn.colour, alpha=BAND, linewidth=0)
    # The first references change most: a logarithmic axis gives them space, with an extra tick for 0.
    logarithmic = curves.counts[-1] > 10
    if logarithmic:
        axes.set_xscale("symlog", linthresh=1, linscale=0.6)
    many = len(curves.counts) > 8
    _finish(
        axes,
        [count for count in curves.counts if not many or count in {*_TICKS, curves.counts[-1]}],
        "references" + (" (log scale)" if logarithmic else ""),
        f"{curves.dataset_title}, {group or 'all'}",
    )


def _agreement(curves: ReferenceCurves | LayerCurves) -> str:
    return "accuracy, %" if curves.kind == "accuracy" else f"{curves.statistic} with human ratings"


def _finish(axes: Axes, ticks: Sequence[int], label: str, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.set_xlabel(label)
    axes.set_title(title)
    axes.grid(axis="y")


# Agreement with human ratings by the layer of the word states (ViLBERTScore, Figure 3).

_APART = 0.06  # distance between the bars of two columns, in layers


def layers_figure(curves: Sequence[LayerCurves], look: Look = USUAL) -> Figure:
    """One panel per protocol, one line per column; bars are the intervals, slightly shifted within a layer."""
    columns = min(len(curves), 2)
    rows = -(-len(curves) // columns)
    # A metric may be missing under a protocol; it has the same style in all other panels.
    titles = list(dict.fromkeys(title for of_protocol in curves for title in of_protocol.curves))
    sizes = [f"{c.versioned_id} (n = {c.n:,} {'pairs' if c.kind == 'accuracy' else 'ratings'})" for c in curves]
    if (made := curves[0].bootstrap) is not None:
        sizes.append(methods.intervals(made.level, made.method, made.unit, made.resamples, made.seed))
    with style(look):
        figure, panels = new_figure(0.9 + 3.6 * columns, 0.7 + 3.0 * rows, columns=columns, rows=rows, look=look)
        handles: dict[str, Artist] = {}
        for axes, of_protocol in zip(panels, curves, strict=False):
            _layer_panel(axes, of_protocol, titles)
            handles |= {str(line.get_label()): line for line in axes.lines}
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        shown = [handles[title] for title in titles]
        figure.legend(shown, titles, loc="outside upper center", ncols=min(len(titles), 3))
        return finish(figure, caption(*sizes, sample=any(c.sample for c in curves)), look)


def _layer_panel(axes: Axes, curves: LayerCurves, titles: Sequence[str]) -> None:
    styles, scale = metric_styles(titles), 100 if curves.kind == "accuracy" else 1
    for title, points in curves.curves.items():
        drawn, shift = styles[title], _APART * (titles.index(title) - (len(titles) - 1) / 2)
        x, y = [point.layer + shift for point in points], [scale * point.value for point in points]
        axes.plot(x, y, color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, markersize=4, label=title)
        ends = np.array([(point.low, point.high) for point in points], dtype=float)  # NaN without an interval
        axes.vlines(x, *(scale * ends.T), color=drawn.colour, linewidth=0.9, alpha=0.6)
    axes.set_xlim(curves.layers[0] - 0.4, curves.layers[-1] + 0.4)
    axes.set_ylabel(_agreement(curves))
    _finish(axes, curves.layers, "layer", f"{curves.dataset_title}, {statistic_title(curves.statistic)}")
