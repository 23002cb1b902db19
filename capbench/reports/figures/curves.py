"""Agreement with human ratings by number of references (TIGEr, Figure 5; FAIEr, Figure 4) and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from capbench.core.errors import check_choice
from capbench.datasets.protocol import statistic_title, with_version
from capbench.reports.figures.style import (
    BAND,
    LINES,
    MARKERS,
    USUAL,
    Look,
    caption,
    finish,
    metric_styles,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from capbench.studies.layers import LayerCurves
    from capbench.studies.references import ReferenceCurves


def curves_figure(
    curves: ReferenceCurves,
    groups: Sequence[str] = ("",),
    look: Look = USUAL,
) -> Figure:
    """One panel per group, of which ``""`` is all, one line per metric: mean over draws, with a band of one sd."""
    for group in filter(None, groups):
        check_choice("group", group, curves.groups)
    with style(look):
        figure, panels = new_figure(0.8 + 3.6 * len(groups), 3.7, columns=len(groups), look=look)
        for axes, group in zip(panels, groups, strict=True):
            _panel(axes, curves, group)
        panels[0].set_ylabel("accuracy, %" if curves.kind == "accuracy" else f"{curves.statistic} with human ratings")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 3 + 2 * len(groups)))
        return finish(
            figure,
            caption(
                curves.dataset_title,
                with_version(curves.protocol, curves.version),
                _sizes(curves, groups),
                f"mean ± sd of {curves.draws} random order{'s' * (curves.draws != 1)} of the references, "
                f"seed {curves.seed}",
                sample=curves.sample,
            ),
            look,
        )


def _panel(axes: Axes, curves: ReferenceCurves, group: str) -> None:
    from matplotlib.ticker import MaxNLocator

    scale = 100 if curves.kind == "accuracy" else 1
    # The first references change most: a logarithmic axis gives them space, with an extra tick for 0.
    logarithmic = curves.counts[-1] > 10
    styles = metric_styles(curves.columns.values())
    for (metric, column), title in curves.columns.items():
        points = curves.curve(metric, column, group)
        x = np.array([point.count for point in points], dtype=float)
        mean = scale * np.array([point.mean for point in points])
        sd = scale * np.array([point.sd or 0.0 for point in points])
        drawn = styles[title]
        axes.plot(
            *(x, mean),
            color=drawn.colour,
            linestyle=drawn.dashes,
            marker=drawn.marker,
            markersize=4 if len(points) <= 20 else 2.5,
            linewidth=1.4,
            label=title,
        )
        axes.fill_between(x, mean - sd, mean + sd, color=drawn.colour, alpha=BAND, linewidth=0)
    if logarithmic:
        axes.set_xscale("symlog", linthresh=1, linscale=0.6)
    ticks = _ticks(curves.counts)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.set_xlabel("references" + (" (log scale)" if logarithmic else ""))
    axes.set_title(f"{curves.dataset_title}, {group or 'all'}")
    axes.grid(axis="y")


def _ticks(counts: Sequence[int]) -> list[int]:
    if len(counts) <= 8:
        return list(counts)
    return [count for count in counts if count in {0, 1, 2, 5, 10, 20, 50, 100, 200, 500, counts[-1]}]


def _sizes(curves: ReferenceCurves, groups: Sequence[str]) -> str:
    sizes = {p.group: p.n for p in curves.points}
    unit = "pairs" if curves.kind == "accuracy" else "ratings"
    parts = [f"{group or 'all'} {sizes[group]:,}" for group in groups]
    return f"n = {sizes['']:,} {unit}" if len(groups) == 1 and not groups[0] else f"{unit}: {', '.join(parts)}"


# Agreement with human ratings by the layer of the word states (ViLBERTScore, Figure 3).

_APART = 0.06  # distance between the bars of two columns, in layers


def layers_figure(curves: Sequence[LayerCurves], look: Look = USUAL) -> Figure:
    """One panel per protocol, one line per column; bars are the intervals, slightly shifted within a layer.

    The columns of a metric share a dash pattern; the same column of two metrics shares a colour.
    """
    with style(look):
        columns = min(len(curves), 2)
        rows = -(-len(curves) // columns)
        figure, panels = new_figure(0.9 + 3.6 * columns, 0.7 + 3.0 * rows, columns=columns, rows=rows, look=look)
        # A metric may be missing under a protocol; it has the same style in all other panels.
        points = [point for of_protocol in curves for point in of_protocol.points]
        labels, names = (
            list(dict.fromkeys(values)) for values in zip(*((p.label, p.column) for p in points), strict=True)
        )
        titles: dict[str, Artist] = {}
        for axes, of_protocol in zip(panels, curves, strict=False):
            _layer_panel(axes, of_protocol, labels, names)
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


def _layer_panel(axes: Axes, curves: LayerCurves, labels: Sequence[str], columns: Sequence[str]) -> None:
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
    axes.set_ylabel("accuracy, %" if curves.kind == "accuracy" else f"{curves.statistic} with human ratings")
    axes.set_title(f"{curves.dataset_title}, {statistic_title(curves.statistic)}")
    axes.grid(axis="y")
