"""Agreement with people against the number of references (TIGEr, Figure 5; FAIEr, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from capbench.datasets.protocol import with_version
from capbench.errors import UsageError
from capbench.reports.figures.metric_styles import metric_styles
from capbench.reports.figures.style import BAND, USUAL, Look, caption, finish, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from capbench.analyses.references import ReferenceCurves

__all__ = ["curves_figure"]


def curves_figure(
    curves: ReferenceCurves,
    groups: Sequence[str] = ("",),
    look: Look = USUAL,
) -> Figure:
    """One panel a group, one line a metric: mean over draws, with a band of one standard deviation.

    Args:
        curves: the curves.
        groups: names of groups; ``""`` is all.
        look: title, size and font size.

    Raises:
        UsageError: there is no such group.
    """
    for group in groups:
        if group and group not in curves.groups:
            raise UsageError(f"there is no group '{group}'", hint=f"Choices: {', '.join(curves.groups) or 'none'}")
    with style(look):
        figure, panels = new_figure(0.8 + 3.6 * len(groups), 3.7, columns=len(groups), look=look)
        for axes, group in zip(panels, groups, strict=True):
            _panel(axes, curves, group)
        panels[0].set_ylabel("accuracy, %" if curves.kind == "accuracy" else f"{curves.statistic} with people")
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
    # Few references matter most: a logarithmic axis gives them room; 0 gets a place of its own on its left.
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
    axes.set_title(group or "all")
    axes.grid(axis="y")


def _ticks(counts: Sequence[int]) -> list[int]:
    if len(counts) <= 8:
        return list(counts)
    return [count for count in counts if count in {0, 1, 2, 5, 10, 20, 50, 100, 200, 500, counts[-1]}]


def _sizes(curves: ReferenceCurves, groups: Sequence[str]) -> str:
    sizes = {p.group: p.n for p in curves.points}
    what = "pairs" if curves.kind == "accuracy" else "ratings"
    parts = [f"{group or 'all'} {sizes[group]:,}" for group in groups]
    return f"n = {sizes['']:,} {what}" if len(groups) == 1 and not groups[0] else f"{what}: {', '.join(parts)}"
