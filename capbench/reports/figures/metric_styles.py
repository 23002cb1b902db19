"""How a metric is drawn: the same colour, marker, dashes and hatching in every figure, by its name alone.

Colours are those of Okabe and Ito (2008) and two of Tol (2021, "muted"); no two metrics that capbench knows look alike,
and those that the papers put into one figure differ in colour where there are colours enough.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from capbench.reports.figures.style import COLOURS, LINES, MARKERS

__all__ = ["KNOWN", "MetricStyle", "metric_key", "metric_styles"]

_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY, _BLACK = COLOURS
_WINE, _OLIVE = "#882255", "#999933"
_PALETTE = (*COLOURS, _WINE, _OLIVE)
_HATCHES = ("", "///", "...", "xx")


@dataclass(frozen=True)
class MetricStyle:
    """How one metric is drawn.

    Attributes:
        colour: of its lines, points and bars.
        marker: of its points.
        dashes: of its lines.
        hatch: of its bars.
    """

    colour: str
    marker: str
    dashes: str = "-"

    @property
    def hatch(self) -> str:
        """Bars are told apart where lines are: by dashes."""
        return _HATCHES[LINES.index(self.dashes)]


KNOWN: Mapping[str, MetricStyle] = {
    "bleu-1": MetricStyle(_SKY, "<"),
    "bleu-2": MetricStyle(_SKY, ">", "--"),
    "bleu-3": MetricStyle(_SKY, "X", "-."),
    "bleu-4": MetricStyle(_BLUE, "o"),
    "rouge-l": MetricStyle(_ORANGE, "s"),
    "meteor": MetricStyle(_GREEN, "^"),
    "cider": MetricStyle(_VERMILION, "D"),
    "spice": MetricStyle(_PINK, "v"),
    "spider": MetricStyle(_PINK, "P", "--"),
    "wmd": MetricStyle(_ORANGE, "<", "--"),
    "wmd-distance": MetricStyle(_ORANGE, ">", "-."),
    "nneval": MetricStyle(_GREEN, "P", "--"),
    "bertscore-f": MetricStyle(_BLUE, "P", "--"),
    "bertscore-p": MetricStyle(_BLUE, "X", "-."),
    "bertscore-r": MetricStyle(_BLUE, "<", ":"),
    "bert-tbr": MetricStyle(_PINK, "X", "-."),
    "tiger": MetricStyle(_BLACK, "X"),
    "rrs": MetricStyle(_BLACK, "<", "--"),
    "wds": MetricStyle(_BLACK, ">", "-."),
    "mean-grounding": MetricStyle(_BLACK, "o", ":"),
    "reo-relevance": MetricStyle(_VERMILION, "o", "--"),
    "reo-extraness": MetricStyle(_VERMILION, "s", "-."),
    "reo-omission": MetricStyle(_VERMILION, "^", ":"),
    "reo-relevance-image": MetricStyle(_ORANGE, "o", ":"),
    "reo-extraness-image": MetricStyle(_GREEN, "s", "-."),
    "reo-omission-image": MetricStyle(_GREEN, "v", ":"),
    "faier": MetricStyle(_WINE, "o"),
    "faier-1-ref": MetricStyle(_WINE, "s", "--"),
    "faier-4-ref": MetricStyle(_WINE, "^", "-."),
    "faier-r-ref": MetricStyle(_WINE, "D", ":"),
    "vilbertscore-f": MetricStyle(_OLIVE, "o"),
    # These stand together in the figure of layers, where dashes are the network's.
    "vilbertscore-p": MetricStyle(_VERMILION, "P", "--"),
    "vilbertscore-r": MetricStyle(_BLUE, "D", ":"),
    "clipscore": MetricStyle(_SKY, "o", ":"),
}
"""Styles by :func:`metric_key`."""


def metric_key(title: str) -> str:
    """A metric's title as a key: ``FAIEr-4 ref`` → ``faier-4-ref``."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def metric_styles(titles: Iterable[str]) -> dict[str, MetricStyle]:
    """How metrics look that stand in one figure, by title.

    A metric that :data:`KNOWN` does not hold gets a style from its name's CRC-32. Should two of a figure then look
    alike, the later one gets the next style that is free.
    """
    every = [MetricStyle(c, m, d) for d in LINES for m in MARKERS for c in _PALETTE]
    taken: set[MetricStyle] = set(KNOWN.values())
    styles: dict[str, MetricStyle] = {}
    for title in titles:
        key = metric_key(title)
        style = KNOWN.get(key)
        if style is None:
            place = zlib.crc32(key.encode()) % len(every)
            style = next(one for one in (*every[place:], *every[:place]) if one not in taken)
            taken.add(style)
        styles[title] = style
    return styles
