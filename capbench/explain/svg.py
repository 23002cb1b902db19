"""Charts of an explanation as SVG inside a page; colours come from the page's style, so that it can be dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from capbench.explain.page import shorten
from capbench.explain.reo import WordShare, percentages
from capbench.explain.tiger import TigerCandidate
from capbench.records import FloatArray
from capbench.reports.heatmaps import Pixels, Scene, data_uri, label_places

__all__ = ["gains", "group_bars", "picture", "picture_source", "profile", "ranking", "word_bars"]

TOP_RANKS = 12
TOP_GAINS = 30


def _svg(width: float, height: float, label: str, body: Sequence[str], kind: str = "chart") -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'aria-label="{escape(label)}">{"".join(body)}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    of = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _path(x: FloatArray, y: FloatArray, kind: str) -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return f'<polyline points="{points}" class="{kind}"/>'


def picture_source(pixels: Pixels) -> str:
    """The picture, once for the whole page; :func:`picture` refers to it."""
    image = (
        f'<image id="picture" width="{pixels.shape[1]}" height="{pixels.shape[0]}" href="{data_uri(pixels)}" '
        'preserveAspectRatio="none"/>'
    )
    return f'<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{image}</defs></svg>'


def picture(
    scene: Scene,
    label: str,
    *,
    layer: Pixels | None = None,
    top: Sequence[int] = (),
    notes: Sequence[str] | None = None,
) -> str:
    """The picture under a layer of heat, with boxes.

    Args:
        scene: the picture and its boxes.
        label: what it shows, for those who cannot see it.
        layer: RGBA of :func:`capbench.reports.heatmaps.heat`.
        top: regions to draw a box around; with ``notes``, each with its number.
        notes: (n) what to show when the pointer rests on a region.
    """
    body = ['<use href="#picture"/>']
    if layer is not None:
        body.append(f'<image width="{scene.width}" height="{scene.height}" href="{data_uri(layer)}"/>')
    if scene.boxes is not None:
        boxes = scene.boxes.tolist()
        if notes is not None:
            # The smallest lie on top, so that the pointer reaches all of them.
            areas = (scene.boxes[:, 2] - scene.boxes[:, 0]) * (scene.boxes[:, 3] - scene.boxes[:, 1])
            for region in np.argsort(-areas, kind="stable").tolist():
                body.append(f"<g>{_rect(boxes[region], 'touch')}<title>{escape(notes[region])}</title></g>")
        for region in reversed(top):
            body += [_rect(boxes[region], "edge"), _rect(boxes[region], "box")]
        if notes is not None:
            for region, (x, y) in zip(top, label_places(scene, top, 20), strict=True):
                body.append(_text(x, y + 15, str(region), "tag"))
    return _svg(scene.width, scene.height, label, body, "picture")


def _rect(box: Sequence[float], kind: str) -> str:
    x1, y1, x2, y2 = box
    return f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}" class="{kind}"/>'


def ranking(candidate: TigerCandidate, names: Sequence[str]) -> str:
    """The best regions by the references and by the candidate; lines join the same region."""
    ideal, order = candidate.ideal_order.tolist(), candidate.order.tolist()
    shown = min(TOP_RANKS, len(order))
    ranks = [{region: i for i, region in enumerate(side)} for side in (ideal, order)]
    step, left, right = 20, 150, 230
    body = [_text(left - 10, 14, "references", "bold", "end"), _text(right + 10, 14, "candidate", "bold")]
    for region in dict.fromkeys(ideal[:shown] + order[:shown]):
        i, j = ranks[0][region], ranks[1][region]
        both = i < shown and j < shown
        yi, yj = 34 + step * i, 34 + step * j
        if both:
            body.append(_line(left, yi, right, yj, "mean"))
        name = shorten(names[region], 16)
        for x, y, rank, other, anchor in ((left, yi, i, j, "end"), (right, yj, j, i, "start")):
            if rank < shown:
                body.append(f'<circle cx="{x}" cy="{y}" r="4" class="{"dot" if both else "hollow"}"/>')
                text = name if both else f"{name} (there {other + 1})"
                body.append(_text(x - 10 if anchor == "end" else x + 10, y + 4, text, anchor=anchor))
    label = f"Regions by grounding; the references' best is {names[ideal[0]]}, the candidate's {names[order[0]]}"
    return _svg(380, 34 + step * shown, label, body)


def gains(candidate: TigerCandidate) -> str:
    """What each position of the ranking adds to the DCG, and what the ideal one would."""
    shown = min(TOP_GAINS, len(candidate.order))
    high = max(float(candidate.ideal_gains.max()), float(candidate.gains.max()), 1e-9)
    low = min(0.0, float(candidate.gains[:shown].min()), float(candidate.ideal_gains[:shown].min()))
    axis = _Axis(low, high, 40, 330, 20, 220)
    wide = (axis.right - axis.left) / shown
    body = axis.frame("position", [(axis.left + wide * (k - 0.5), str(k)) for k in _positions(shown)])
    for k in range(shown):
        mine, ideal = float(candidate.gains[k]), float(candidate.ideal_gains[k])
        x, y, zero = axis.left + wide * k, axis.y(mine), axis.y(0.0)
        title = f"position {k + 1}: region {candidate.order[k]} gains {mine:.3f}, the ideal {ideal:.3f}"
        bar = f'<rect x="{x + wide * 0.1:.1f}" y="{min(y, zero):.1f}" width="{wide * 0.8:.1f}" '
        body.append(f'{bar}height="{abs(zero - y):.1f}" class="candidate-bar"><title>{title}</title></rect>')
        body.append(_line(x, axis.y(ideal), x + wide, axis.y(ideal), "ideal"))
    body += _legend(axis.left, [("candidate-bar", "candidate"), ("ideal", "ideal")])
    return _svg(350, 260, "Gain of each position", body)


def profile(candidate: TigerCandidate) -> str:
    """Both grounding vectors, regions in the references' order."""
    order = candidate.ideal_order
    lines = [caption.grounding[order] for caption in candidate.references]
    values = [*lines, candidate.reference[order], candidate.caption.grounding[order]]
    axis = _Axis(float(min(v.min() for v in values)), float(max(v.max() for v in values)), 40, 330, 20, 220)
    n = len(order)
    x = axis.left + (axis.right - axis.left) * (np.arange(n) + 0.5) / n
    ticks = [(float(x[k - 1]), str(k)) for k in _positions(n)]
    body = axis.frame("region, in the references' order", ticks)
    body += [axis.line(x, line, "single") for line in lines]
    body.append(axis.line(x, values[-2], "mean"))
    body.append(axis.line(x, values[-1], "candidate"))
    for k, region in enumerate(order.tolist()):
        a, b = float(values[-2][k]), float(values[-1][k])
        title = f"region {region}: references {a:.3f}, candidate {b:.3f}"
        body.append(
            f'<circle cx="{x[k]:.1f}" cy="{axis.y(b):.1f}" r="3" class="candidate-bar"><title>{title}</title></circle>'
        )
    body += _legend(axis.left, [("single", "references"), ("mean", "their mean"), ("candidate", "candidate")])
    return _svg(350, 260, "Grounding vectors of references and candidate", body)


def word_bars(words: Sequence[WordShare], top: int, kind: str, label: str) -> str:
    """The most similar words on a scale up to 1, each with its part of the length that all words make up."""
    body, step, left, wide = [], 20, 110, 150
    for i, (share, part) in enumerate(zip(words[:top], percentages(words), strict=False)):
        y, length = 4 + step * i, wide * max(share.similarity, 0.0)
        body.append(_text(left - 6, y + 12, shorten(share.word, 14), anchor="end"))
        body.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" class="{kind}-bar"/>')
        numbers = f"{share.similarity:.3f}" + (f" ({part})" if part else "")
        body.append(_text(left + length + 5, y + 12, numbers, "small"))
    return _svg(left + wide + 80, 8 + step * min(top, len(words)), label, body)


def group_bars(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float], str]], label: str) -> str:
    """Bars from 0 to 1: for each group one bar of each series (name, values, class of its colour)."""
    each = 16 * len(series) + 18
    axis = _Axis(0.0, 1.0, 40, 40 + max(each * len(groups), 260), 24, 200)
    body = axis.frame("", [])
    for g, group in enumerate(groups):
        left = axis.left + each * g + 9
        body.append(_text(left + 8 * len(series), axis.bottom + 18, group, "bold", "middle"))
        for s, (name, values, kind) in enumerate(series):
            y = min(axis.y(values[g]), axis.bottom - 2)  # a sliver for 0
            bar = f'<rect x="{left + 16 * s:.1f}" y="{y:.1f}" width="14" height="{axis.bottom - y:.1f}" class="{kind}">'
            body.append(f"{bar}<title>{escape(group)}: {escape(name)} {values[g]:.2f}</title></rect>")
    body += _legend(axis.left, [(kind, name) for name, _, kind in series])
    return _svg(axis.right + 20, 232, label, body)


def _positions(n: int) -> list[int]:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, n) if n / step <= 8)
    return [1, *range(step if step > 1 else 2, n + 1, step)] if n > 1 else [1]


def _legend(left: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    body = []
    for kind, name in entries:
        if kind.endswith("-bar"):
            body.append(f'<rect x="{left:.1f}" y="2" width="12" height="9" class="{kind}"/>')
        else:
            body.append(_line(left, 7, left + 14, 7, kind))
        body.append(_text(left + 18, 11, name, "small"))
        left += 34 + 6.2 * len(name)
    return body


class _Axis:
    """A value axis at the left of a chart, and its frame."""

    def __init__(self, low: float, high: float, left: float, right: float, top: float, bottom: float) -> None:
        self.left, self.right, self.top, self.bottom = left, right, top, bottom
        spread = (high - low) or 1.0
        self.low, self.spread = (low, spread) if high > low else (low - 0.5, 1.0)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.low) / self.spread * (self.bottom - self.top)

    def line(self, x: FloatArray, values: FloatArray, kind: str) -> str:
        return _path(x, self.bottom - (values - self.low) / self.spread * (self.bottom - self.top), kind)

    def frame(self, label: str, ticks: Sequence[tuple[float, str]]) -> list[str]:
        body = [
            _line(self.left, self.top, self.left, self.bottom, "axis"),
            _line(self.left, self.bottom, self.right, self.bottom, "axis"),
        ]
        for value in _ticks(self.low, self.low + self.spread):
            y = self.y(value)
            body += [
                _line(self.left - 4, y, self.left, y, "axis"),
                _text(self.left - 6, y + 4, f"{value:g}", "small", "end"),
            ]
        for x, name in ticks:
            body += [
                _line(x, self.bottom, x, self.bottom + 4, "axis"),
                _text(x, self.bottom + 16, name, "small", "middle"),
            ]
        if label:
            body.append(_text((self.left + self.right) / 2, self.bottom + 34, label, "small", "middle"))
        return body


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers between two."""
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(round(k * step, 10)) for k in range(first, last + 1)]
