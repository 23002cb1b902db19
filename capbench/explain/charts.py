"""Charts, bars, matchings and matrices of an explanation as drawings."""

from __future__ import annotations

import numpy as np

from capbench.explain.drawing import Drawing, fit, line, rect, text_at, text_width
from capbench.explain.heatmaps import colours, hex_colours
from capbench.explanations import Bars, Chart, Matching, Matrix, Series
from capbench.records import FloatArray

__all__ = ["draw_bars", "draw_chart", "draw_matching", "draw_matrix", "scale_legend"]

MOST_BARS = 10
_CHART = 370
_LEFT = 40
_PLOT = 185
_STEP = 20


def draw_bars(bars: Bars) -> Drawing:
    """The first ten bars, each with its number and note."""
    left, wide = 96, 108
    most = max(1.0, *(bar.value for bar in bars.bars[:MOST_BARS])) if bars.bars else 1.0
    body = []
    for i, bar in enumerate(bars.bars[:MOST_BARS]):
        y, length = 4 + _STEP * i, wide * max(bar.value, 0.0) / most
        body.append(text_at(left - 6, y + 12, fit(bar.name, left - 8), anchor="end"))
        body.append(rect(left, y, length, 15, f"f-{bars.tone}", bar.name))
        note = f" ({bar.note})" if bar.note else ""
        body.append(text_at(left + length + 5, y + 12, f"{bar.value:.3f}{note}", "small"))
    height = 8 + _STEP * min(MOST_BARS, len(bars.bars))
    if len(bars.bars) > MOST_BARS:
        body.append(text_at(left, height + 10, f"and {len(bars.bars) - MOST_BARS} more", "small"))
        height += 18
    if bars.unit:
        body.append(text_at(2, height + 10, fit(bars.unit, 281, 11), "small"))
        height += 18
    best = f"; most: {bars.bars[0].name}" if bars.bars else ""
    return Drawing("".join(body), 285, height, f"{bars.title}{best}")


def draw_matching(matching: Matching) -> Drawing:
    """Names on both sides; lines, as strong as their weights, join those that go together."""
    left, right, top = 150, 230, 34
    titles = ((left - 10, matching.left_title, "end"), (right + 10, matching.right_title, "start"))
    body = [text_at(x, 14, fit(title, 138), "bold", anchor) for x, title, anchor in titles]
    for link in matching.links:
        strength = min(max(link.weight, 0.0), 1.0)
        faint = f' stroke-opacity="{0.2 + 0.8 * strength:.2f}"' if strength < 1 else ""
        ends = (left, top + _STEP * link.left, right, top + _STEP * link.right)
        body.append(line(*ends, "line s-reference", faint))
    sides = (
        (left, -10, "end", matching.left, {link.left for link in matching.links}),
        (right, 10, "start", matching.right, {link.right for link in matching.links}),
    )
    for x, aside, anchor, names, linked in sides:
        for i, name in enumerate(names):
            y = top + _STEP * i
            kind = "f-reference" if i in linked else "hollow"
            body.append(f'<circle cx="{x}" cy="{y}" r="4" class="{kind}"/>')
            body.append(text_at(x + aside, y + 4, fit(name, 138), anchor=anchor))
    height = top + _STEP * max(len(matching.left), len(matching.right), 1)
    label = f"{matching.title}: {len(matching.links)} of {len(matching.left)} are linked"
    return Drawing("".join(body), 380, height, label)


def draw_matrix(matrix: Matrix) -> Drawing:
    """A cell for each pair; its colour is its value, on the scale below."""
    aside = min(max((text_width(name, 12) for name in matrix.rows), default=0) + 10, 110)
    above = min(max((text_width(name, 11) for name in matrix.columns), default=0) * 0.87 + 14, 100)
    lean = above * 0.58  # names of columns lean out to the right of the last cell
    wide, high = min(26.0, max(3.0, (_CHART - aside - lean) / max(len(matrix.columns), 1))), 18.0
    cells = hex_colours(colours(matrix.values, matrix.low, matrix.high))
    body = []
    for j, name in enumerate(matrix.columns):
        x = aside + wide * (j + 0.5) + 3
        if wide >= 10:
            turn = f' transform="rotate(-60 {x:.1f} {above - 6:.1f})"'
            body.append(text_at(x, above - 6, fit(name, 98, 11), "small", more=turn))
    for i, name in enumerate(matrix.rows):
        y = above + high * i
        body.append(text_at(aside - 6, y + 13, fit(name, aside - 8), anchor="end"))
        for j, column in enumerate(matrix.columns):
            hint = f"{name}, {column}: {matrix.values[i, j]:.3f}"
            body.append(rect(aside + wide * j, y, wide, high, "cell", hint, f' fill="{cells[i][j]}"'))
    for i, j in matrix.marked:
        for kind, thick in (("edge", 4), ("box", 2)):
            outline = f' stroke-width="{thick}"'
            body.append(rect(aside + wide * j + 1, above + high * i + 1, wide - 2, high - 2, kind, more=outline))
    bottom = above + high * len(matrix.rows) + 8
    body.append(scale_legend(aside, bottom, max(wide * len(matrix.columns), 110), matrix.low, matrix.high))
    width = max(_CHART, aside + wide * len(matrix.columns) + lean)
    return Drawing("".join(body), width, bottom + 28, matrix.title)


def scale_legend(x: float, y: float, width: float, low: float, high: float, opacity: float = 1.0) -> str:
    """What colours mean, as they look on white, with the ends of the scale below."""
    faint = f' fill="url(#scale)" fill-opacity="{opacity:g}"'
    ends = text_at(x, y + 24, f"{low:.3f}", "small") + text_at(x + width, y + 24, f"{high:.3f}", "small", "end")
    return rect(x, y, width, 11, "paper") + rect(x, y, width, 11, "scale", more=faint) + ends


def draw_chart(chart: Chart) -> Drawing:
    """Bars side by side, steps and lines over common positions, with a key."""
    key, rows = _key(chart)
    bars = [series for series in chart.series if series.mark == "bars"]
    values = [series.values for series in chart.series if len(series.values)]
    low = min((float(v.min()) for v in values), default=0.0)
    high = max((float(v.max()) for v in values), default=1.0)
    if any(series.mark in ("bars", "steps") for series in chart.series):
        low, high = min(low, 0.0), max(high, 0.0)
    axis = _Axis(low, high, 8 + 16 * rows, 8 + 16 * rows + _PLOT)
    n = max(len(chart.positions), 1)
    slot = (_CHART - 10 - _LEFT) / n
    body = axis.frame(chart.x_label, [(_LEFT + slot * (k + 0.5), chart.positions[k]) for k in _shown(n, chart)])
    for series in sorted(chart.series, key=lambda series: series.mark != "thin"):
        if series.mark == "bars":
            body += _bars(series, axis, slot, bars.index(series), len(bars))
        else:
            body += _line(series, axis, slot)
    for k, hint in enumerate(chart.hints):
        body.append(rect(_LEFT + slot * k, axis.top, slot, _PLOT, "touch", hint))
    height = axis.bottom + (40 if chart.x_label else 24)
    return Drawing("".join([*key, *body]), _CHART, height, chart.title)


def _bars(series: Series, axis: _Axis, slot: float, place: int, count: int) -> list[str]:
    zero, wide, drawn = axis.y(0.0), min(0.8 * slot / count, 40.0), []
    for k, value in enumerate(series.values.tolist()):
        x, y = _LEFT + slot * (k + 0.5) + wide * (place - count / 2), axis.y(value)
        length = max(abs(zero - y), 2.0)  # a sliver for 0
        top = zero - length if value >= 0 else zero
        drawn.append(rect(x, top, max(wide - (1 if count > 1 else 0), 0.5), length, f"f-{series.tone}"))
    return drawn


def _line(series: Series, axis: _Axis, slot: float) -> list[str]:
    n, heights = len(series.values), axis.heights(series.values)
    x = _LEFT + slot * (np.arange(n) + 0.5)
    if series.mark == "steps":
        x = np.stack([x - slot / 2, x + slot / 2], axis=1).ravel()
        heights = np.repeat(heights, 2)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), heights.tolist(), strict=True))
    kind = series.mark if series.mark in ("steps", "thin") else f"{series.mark} s-{series.tone}"
    drawn = [f'<polyline points="{points}" class="{kind}"/>']
    if series.mark == "dots" and n <= 60:
        dots = zip(x.tolist(), heights.tolist(), strict=True)
        drawn += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" class="f-{series.tone}"/>' for a, b in dots]
    return drawn


def _key(chart: Chart) -> tuple[list[str], int]:
    """What each series looks like, each name once, and the number of rows that this takes."""
    body, left, row = [], float(_LEFT), 0
    for series in {series.name: series for series in chart.series}.values():
        wide = 18 + text_width(series.name, 11)
        if left + wide > _CHART and left > _LEFT:
            left, row = float(_LEFT), row + 1
        y = 16 * row
        if series.mark == "bars":
            body.append(rect(left, y + 2, 12, 9, f"f-{series.tone}"))
        else:
            kind = series.mark if series.mark in ("steps", "thin") else f"{series.mark} s-{series.tone}"
            body.append(line(left, y + 7, left + 14, y + 7, kind))
        body.append(text_at(left + 18, y + 11, series.name, "small"))
        left += wide + 14
    return body, row + 1


def _shown(n: int, chart: Chart) -> list[int]:
    """Positions whose names are written: as many as fit."""
    if not chart.positions:
        return []
    widest = max(text_width(name, 11) for name in chart.positions) + 10
    room = max(1, int((_CHART - 10 - _LEFT) / widest))
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, n) if n / step <= room or step >= n)
    if step == 1:
        return list(range(n))
    return [0, *range(step - 1, n, step)]


class _Axis:
    """A value axis at the left of a chart, and its frame."""

    def __init__(self, low: float, high: float, top: float, bottom: float) -> None:
        self.top, self.bottom = top, bottom
        self.low, self.spread = (low, high - low) if high > low else (low - 0.5, 1.0)

    def heights(self, values: FloatArray) -> FloatArray:
        return np.asarray(self.bottom - (values - self.low) / self.spread * (self.bottom - self.top), dtype=np.float64)

    def y(self, value: float) -> float:
        return float(self.heights(np.array(value)))

    def frame(self, label: str, names: list[tuple[float, str]]) -> list[str]:
        right = _CHART - 10
        body = [line(_LEFT, self.top, _LEFT, self.bottom, "axis"), line(_LEFT, self.bottom, right, self.bottom, "axis")]
        for value in _ticks(self.low, self.low + self.spread):
            y = self.y(value)
            body += [line(_LEFT - 4, y, _LEFT, y, "axis"), text_at(_LEFT - 6, y + 4, f"{value:g}", "small", "end")]
        for x, name in names:
            body += [line(x, self.bottom, x, self.bottom + 4, "axis")]
            body += [text_at(x, self.bottom + 16, name, "small", "middle")]
        if label:
            body.append(text_at((_LEFT + right) / 2, self.bottom + 34, label, "small", "middle"))
        return body


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers between two."""
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(round(k * step, 10)) for k in range(first, last + 1)]
