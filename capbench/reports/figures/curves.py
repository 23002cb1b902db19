"""Agreement with human ratings by number of references (TIGEr, Figure 5; FAIEr, Figure 4) and by layer of a network
(ViLBERTScore, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.core.errors import UsageError, check_choice
from capbench.datasets.protocol import statistic_title
from capbench.reports.curves import spread
from capbench.reports.figures.style import BAND, USUAL, Look, caption, finish, metric_styles, new_figure, style
from capbench.reports.methods import details
from capbench.studies.results import ProtocolInfo, StudyResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = {0, 1, 2, 5, 10, 20, 50, 100, 200, 500}
"""Numbers of references with a tick if there are many."""
_APART = 0.06  # distance between the bars of two metrics, in layers


def curves_figure(result: StudyResult, groups: Sequence[str] = ("",), look: Look = USUAL) -> Figure:
    """One panel per protocol and group, of which ``""`` is all, and one line per metric.

    Over references, a line is the mean over draws, with a band of one sd; bars in a layer are the intervals.
    """
    if not result.points:
        raise UsageError("the result has no curves", code="missing-value", hint="Add --references-curve to its command")
    for group in filter(None, groups):
        check_choice("group", group, [point.group for point in result.points])
    shown = [(info, group) for info in result.protocols for group in groups if result.curve(info.id, group)]
    columns, facts = min(len(shown), 2), list[str]()
    # A metric may be missing under a protocol; it has the same style in all panels.
    styles = metric_styles(dict.fromkeys(point.title for point in result.points))
    with style(look):
        rows = -(-len(shown) // columns)
        figure, panels = new_figure(0.9 + 3.6 * columns, 0.7 + 3.0 * rows, columns=columns, rows=rows, look=look)
        handles: dict[str, Any] = {}
        for axes, (info, group) in zip(panels, shown, strict=False):
            handles |= _panel(axes, result, info, group, styles)
            unit, sized = "pairs" if info.kind == "accuracy" else "ratings", result.curve(info.id, group)[0].n
            facts.append(f"{info.versioned_id}{f' {group}' if group else ''} (n = {sized:,} {unit})")
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        titles = [title for title in styles if title in handles]
        figure.legend([handles[t] for t in titles], titles, loc="outside upper center", ncols=min(len(titles), 3))
        return finish(figure, caption(*facts, *spread(result, shown[0][0]), sample=result.sample), look)


def _panel(axes: Axes, result: StudyResult, info: ProtocolInfo, group: str, styles: dict[str, Any]) -> dict[str, Any]:
    """Draws a panel and returns its lines by title."""
    from matplotlib.ticker import MaxNLocator

    lines, scale, points = dict[str, Any](), 100 if info.kind == "accuracy" else 1, result.curve(info.id, group)
    for place, (title, drawn) in enumerate(styles.items()):
        curve = sorted((p for p in points if p.title == title and p.value is not None), key=lambda point: point.at)
        shift = 0 if result.curves else _APART * (place - (len(styles) - 1) / 2)
        x, y = np.array([point.at for point in curve]) + shift, scale * np.array([point.number for point in curve])
        size = 4 if len(curve) <= 20 else 2.5
        lines |= {
            title: axes.plot(x, y, color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, markersize=size)[0]
        }
        sd = scale * np.array([point.sd or 0.0 for point in curve])
        axes.fill_between(x, y - sd, y + sd, color=drawn.colour, alpha=BAND, linewidth=0)
        ends = np.array([(point.low, point.high) for point in curve], dtype=float)  # NaN without an interval
        axes.vlines(x, *(scale * ends.reshape(-1, 2).T), color=drawn.colour, linewidth=0.9, alpha=0.6)
    # The first references change most: a logarithmic axis gives them space, with an extra tick for 0.
    places = sorted({point.at for point in points})
    if logarithmic := places[-1] > 10 and result.curves is not None:
        axes.set_xscale("symlog", linthresh=1, linscale=0.6)
    ticks = [at for at in places if len(places) <= 8 or at in {*_TICKS, places[-1]}] if result.curves else places
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.set_xlabel(f"references{' (log scale)' if logarithmic else ''}" if result.curves else "layer")
    axes.set_ylabel("accuracy, %" if info.kind == "accuracy" else f"{info.statistic} with human ratings")
    names = info.dataset_title, details(result.protocols)[info.id], group or statistic_title(info.statistic)
    axes.set_title(", ".join(filter(None, names)))
    axes.grid(axis="y")
    return lines
