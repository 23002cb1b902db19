"""Drawings of an explanation: SVG elements, text widths, weights of regions over a picture, and charts.

Colours are names of the style sheet (``var(--ink)``), so that the same drawing is light or dark on a page, and light in
a picture. Widths are those of DejaVu Sans, the font of pictures; the fonts of a page are narrower, never wider.
"""

from __future__ import annotations

import base64
import io
import re
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from capbench.core.explanations import Bars, Chart, Matching, Matrix, RegionMap, RegionMaps, Regions, Series
from capbench.core.records import FloatArray

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

Pixels = NDArray[np.uint8]

# Selected from Okabe and Ito's palette, which is distinguishable with any kind of colour vision.
LIGHT = {"ground": "#ffffff", "ink": "#1b1b1b", "soft": "#5c5c5c", "rule": "#c9c9c9"}
LIGHT |= {"reference": "#0072b2", "candidate": "#d55e00", "missing": "#007d5b", "neutral": "#767676"}
DARK = {"ground": "#16181b", "ink": "#ececec", "soft": "#a9adb3", "rule": "#44484e"}
DARK |= {"reference": "#56b4e9", "candidate": "#f0903c", "missing": "#3ccba0", "neutral": "#9a9a9a"}

DRAWING_STYLE = (
    """text { font-size: 12px; fill: var(--ink) } text.small { font-size: 11px; fill: var(--soft) }
text.bold { font-weight: 700 }
text.tag { font-size: 16px; font-weight: 700; fill: #fff; stroke: #000; stroke-width: 3px; paint-order: stroke }
.axis { stroke: var(--soft) } .steps { stroke: var(--ink); stroke-width: 1.6; fill: none }
.line { stroke-width: 2.2; fill: none } .dots { stroke-width: 1.4; fill: none }
.thin { stroke: var(--rule); fill: none } .hollow { fill: var(--ground); stroke: var(--soft) }
.touch { fill: #000; fill-opacity: 0 } .edge { fill: none; stroke: #000 }
.box { fill: none; stroke: #fff } .paper { fill: #fff }
"""
    + "\n".join(
        f".f-{tone} {{ fill: var(--{tone}) }} .s-{tone} {{ stroke: var(--{tone}) }}" for tone in list(LIGHT)[4:]
    )
    + "\n"
)
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Drawing:
    """A piece of SVG.

    Attributes:
        body: its elements.
        width: in CSS pixels.
        height: in CSS pixels.
        label: description for screen readers.
    """

    body: str
    width: float
    height: float
    label: str

    def element(self, attributes: str = "") -> str:
        """The drawing as an ``<svg>`` element, for a page or, with a position, for another SVG."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}" '
            f'{attributes}role="img" aria-label="{clean(self.label)}">{self.body}</svg>'
        )


def clean(text: str) -> str:
    """A text for HTML and SVG: special characters are escaped, characters that XML forbids become U+FFFD.

    >>> clean("a < b\\x00")
    'a &lt; b�'
    """
    return escape(_ILLEGAL.sub("\ufffd", text))


def text_at(x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = "") -> str:
    """A line of text; ``anchor`` is the part of it at x (``start``, ``middle`` or ``end``)."""
    named = f' class="{kind}"' if kind else ""
    ends = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{ends}{named}{more}>{clean(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str, more: str = "") -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"{more}/>'


def rect(x: float, y: float, width: float, height: float, kind: str, hint: str = "", more: str = "") -> str:
    """A rectangle, with a tooltip."""
    head = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"{more}'
    return f"{head}><title>{clean(hint)}</title></rect>" if hint else f"{head}/>"


def gradient(colours: Sequence[str]) -> str:
    """Definition of the fill ``url(#scale)``: colours at equal distances, from left to right."""
    places = np.linspace(0, 1, len(colours)).tolist()
    stops = "".join(f'<stop offset="{at:.3f}" stop-color="{c}"/>' for at, c in zip(places, colours, strict=True))
    return f'<linearGradient id="scale">{stops}</linearGradient>'


def font_folder() -> Path:
    """The folder of matplotlib's fonts, which include DejaVu Sans."""
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf"


@cache
def _font(bold: bool) -> FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.truetype(str(font_folder() / f"DejaVuSans{'-Bold' if bold else ''}.ttf"), 100)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a text in CSS pixels, in DejaVu Sans of ``size`` pixels."""
    letters = _ILLEGAL.sub("\ufffd", text)
    # DejaVu Sans has no Chinese, Japanese and Korean characters; they are square in every font that has them.
    squares = [letter for letter in letters if not letter.isascii() and unicodedata.east_asian_width(letter) in "WF"]
    rest = "".join(letter for letter in letters if letter not in squares) if squares else letters
    return (_font(bold).getlength(rest) + 100 * len(squares)) * size / 100


def shorten(text: str, longest: int) -> str:
    """A text of at most ``longest`` characters, truncated with an ellipsis.

    >>> shorten("umbrellas", 5)
    'umbr…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def fit(text: str, width: float, size: float = 12) -> str:
    """A text of at most ``width`` pixels, truncated with an ellipsis."""
    longest = len(text)
    while longest > 1 and text_width(shorten(text, longest), size) > width:
        longest -= 1
    return shorten(text, longest)


def wrap(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Lines of at most a width, broken between words, and within a word that is longer than a line."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if text_width(joined, size, bold=bold) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if lines[-1] and text_width(lines[-1] + character, size, bold=bold) > width:
                lines.append("")
            lines[-1] += character
    return lines


# Weights of regions as a heat map over a picture.

COLOUR_MAP = "viridis"
"""A map whose lightness rises evenly, readable with any kind of colour vision."""
HEAT_ALPHA = 0.6
"""Opacity of the heat map."""
GLOW_RGB, GLOW_ALPHA = (255, 221, 30), 0.8
_LONGEST_PX = 420


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture at its displayed size, with the boxes of its regions.

    Attributes:
        pixels: uint8 (height, width, 3): the picture in grey, so that only weights have colours; plain grey without a
            picture.
        colour: the picture in colour.
        boxes: (n, 4) float64 x1, y1, x2, y2 in these pixels, or None.
        pictured: False if there is no picture.
    """

    pixels: Pixels
    colour: Pixels
    boxes: FloatArray | None
    pictured: bool

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.pixels.shape[0])


def make_scene(
    picture: Pixels | None,
    boxes: NDArray[np.floating] | None,
    size: tuple[int, int] = (0, 0),
    longest: int = _LONGEST_PX,
) -> Scene:
    """Scale a picture and its boxes to the displayed size.

    Args:
        picture: uint8 (h, w, 3) RGB, or None.
        boxes: (n, 4) x1, y1, x2, y2 in units of ``size``, or None.
        size: width and height of the boxes' coordinates; (0, 0) if they are unknown.
        longest: pixels of the longer side.
    """
    from PIL import Image

    if picture is not None:
        wide, high = picture.shape[1], picture.shape[0]
    else:
        # A size of 1 x 1 means that the boxes are fractions of an unknown size.
        wide, high = size if min(size) > 1 else (4, 3)
    factor = longest / max(wide, high)
    width, height = max(1, round(wide * factor)), max(1, round(high * factor))
    if picture is None:
        pixels = colour = np.full((height, width, 3), 200, dtype=np.uint8)
    else:
        resampling = Image.Resampling.NEAREST if factor > 2 else Image.Resampling.LANCZOS
        shrunk = Image.fromarray(picture).resize((width, height), resampling)
        colour = np.asarray(shrunk, dtype=np.uint8)
        pixels = np.repeat(np.asarray(shrunk.convert("L"), dtype=np.uint8)[:, :, None], 3, axis=2)
    scaled_boxes = None
    if boxes is not None and min(size) > 0:
        scale = np.array([width / size[0], height / size[1]] * 2)
        scaled_boxes = np.clip(boxes.astype(np.float64) * scale, 0, [width, height] * 2)
    return Scene(pixels, colour, scaled_boxes, picture is not None)


def weight_map(boxes: FloatArray, weights: FloatArray, height: int, width: int) -> FloatArray:
    """A weight for each pixel: the mean over the boxes that cover it, weighted by 1 / area.

    A large box (the whole scene) also covers everything that small boxes cover; with the inverse of its area it is
    visible where no smaller box is. Boxes that do not overlap, such as a grid's cells, keep their weights.

    Args:
        boxes: (n, 4) x1, y1, x2, y2 in pixels.
        weights: (n,).
        height: of the map in pixels.
        width: of the map in pixels.

    Returns:
        (height, width) float64, NaN outside all boxes.
    """
    total, count = np.zeros((height, width)), np.zeros((height, width))
    for (left, top, right, bottom), weight in zip(boxes.tolist(), weights.tolist(), strict=True):
        # A box covers at least one pixel, and not a pixel whose edge it only touches.
        x1, y1 = min(round(left), width - 1), min(round(top), height - 1)
        x2, y2 = max(round(right), x1 + 1), max(round(bottom), y1 + 1)
        share = 1.0 / ((x2 - x1) * (y2 - y1))
        total[y1:y2, x1:x2] += share * weight
        count[y1:y2, x1:x2] += share
    covered = count > 0
    return np.divide(total, count, out=np.full_like(total, np.nan), where=covered)


def colours(values: FloatArray, low: float, high: float) -> Pixels:
    """Colours of values on the scale from low to high: uint8 (..., 4); values outside get the colour of the end."""
    import matplotlib as mpl

    spread = high - low
    scaled = np.full(values.shape, 0.5) if spread <= 0 else np.clip((values - low) / spread, 0, 1)
    return np.asarray(mpl.colormaps[COLOUR_MAP](scaled, bytes=True), dtype=np.uint8)


def hex_colours(pixels: Pixels) -> list[list[str]]:
    """Colours (r, c, 4) in SVG's hexadecimal notation, without opacity."""
    return [[f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue, _ in row] for row in pixels.tolist()]


def heat(scene: Scene, weights: FloatArray, low: float, high: float) -> Pixels:
    """Region weights as a layer over a scene: uint8 (height, width, 4) RGBA, transparent outside all boxes.

    Args:
        scene: with boxes.
        weights: (n,).
        low: weight of the darkest colour.
        high: weight of the brightest colour.
    """
    assert scene.boxes is not None
    spread = weight_map(scene.boxes, weights, scene.height, scene.width)
    covered = np.isfinite(spread)
    layer = colours(np.where(covered, spread, low), low, high)
    layer[..., 3] = np.where(covered, np.floor(255 * HEAT_ALPHA), 0)
    return layer


def glow(scene: Scene, weights: FloatArray, low: float, high: float) -> Pixels:
    """Like :func:`heat`, for small pictures: yellow that is opaque at ``high`` and transparent at ``low``."""
    assert scene.boxes is not None
    spread = np.nan_to_num(weight_map(scene.boxes, weights, scene.height, scene.width), nan=low)
    layer = np.empty((*spread.shape, 4), dtype=np.uint8)
    layer[..., :3] = GLOW_RGB
    layer[..., 3] = np.floor(255 * GLOW_ALPHA * np.clip((spread - low) / (high - low), 0, 1))
    return layer


def label_places(scene: Scene, regions: Sequence[int], size: float) -> list[tuple[float, float]]:
    """Positions of the regions' numbers: the upper left corners of the boxes, below other numbers there.

    Args:
        scene: with boxes.
        regions: the most important first.
        size: height of a line in pixels of the scene; a number is 1.6 times as wide.

    Returns:
        Upper left corners, inside the picture if it is large enough.
    """
    assert scene.boxes is not None
    places: list[tuple[float, float]] = []
    for region in regions:
        x = max(0.0, min(scene.boxes[region, 0] + 4, scene.width - 1.6 * size))
        y = max(0.0, min(scene.boxes[region, 1] + 4, scene.height - size))
        while any(abs(x - a) < 1.6 * size and abs(y - b) < size for a, b in places) and y < scene.height:
            y += size
        places.append((float(x), float(y)))
    return places


def data_uri(pixels: Pixels, *, photograph: bool = False) -> str:
    """A picture as a ``data:`` URL: a PNG, or for a photograph a JPEG if that is smaller."""
    from PIL import Image

    kinds: dict[str, dict[str, object]] = {"png": {}}
    if photograph:
        kinds["jpeg"] = {"quality": 88}
    files = {}
    for kind, settings in kinds.items():
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format=kind, optimize=True, **settings)
        files[kind] = buffer.getvalue()
    smallest = min(files, key=lambda kind: len(files[kind]))
    return f"data:image/{smallest};base64,{base64.b64encode(files[smallest]).decode('ascii')}"


# Bars, matchings, matrices and charts.

MAX_BARS = 10
_CHART = 370
_LEFT = 40
_PLOT = 185
_STEP = 20


def draw_bars(bars: Bars) -> Drawing:
    """The first ten bars, each with its number and note."""
    left, wide = 96, 108
    most = max(1.0, *(bar.value for bar in bars.bars[:MAX_BARS])) if bars.bars else 1.0
    body = []
    for i, bar in enumerate(bars.bars[:MAX_BARS]):
        y, length = 4 + _STEP * i, wide * max(bar.value, 0.0) / most
        body.append(text_at(left - 6, y + 12, fit(bar.name, left - 8), anchor="end"))
        body.append(rect(left, y, length, 15, f"f-{bars.tone}", bar.name))
        note = f" ({bar.note})" if bar.note else ""
        body.append(text_at(left + length + 5, y + 12, f"{bar.value:.3f}{note}", "small"))
    height = 8 + _STEP * min(MAX_BARS, len(bars.bars))
    if len(bars.bars) > MAX_BARS:
        body.append(text_at(left, height + 10, f"and {len(bars.bars) - MAX_BARS} more", "small"))
        height += 18
    if bars.unit:
        body.append(text_at(2, height + 10, fit(bars.unit, 281, 11), "small"))
        height += 18
    best = f"; highest: {bars.bars[0].name}" if bars.bars else ""
    return Drawing("".join(body), 285, height, f"{bars.title}{best}")


def draw_matching(matching: Matching) -> Drawing:
    """Names on both sides; lines join linked names, with the opacity of their weights."""
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
    """A cell for each pair, coloured by its value, with a scale below."""
    aside = min(max((text_width(name, 12) for name in matrix.rows), default=0) + 10, 110)
    above = min(max((text_width(name, 11) for name in matrix.columns), default=0) * 0.87 + 14, 100)
    lean = above * 0.58  # slanted column names extend to the right of the last cell
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
    """The colour scale on white, with its ends below."""
    faint = f' fill="url(#scale)" fill-opacity="{opacity:g}"'
    ends = text_at(x, y + 24, f"{low:.3f}", "small") + text_at(x + width, y + 24, f"{high:.3f}", "small", "end")
    return rect(x, y, width, 11, "paper") + rect(x, y, width, 11, "scale", more=faint) + ends


def draw_chart(chart: Chart) -> Drawing:
    """Bars, steps and lines over common positions, with a legend."""
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
        length = max(abs(zero - y), 2.0)  # visible for 0
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
    """The legend, with each series name once, and its number of rows."""
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
    """Positions with printed names: as many as fit."""
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
    """Four to eight round numbers between two values."""
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(round(k * step, 10)) for k in range(first, last + 1)]


# The image with the weights of its regions.

GREY_ID, COLOUR_ID = "picture", "colour-picture"
_LARGE, _SMALL, _LEGEND = 360, 122, 36


def definitions(drawings: Sequence[Drawing], scene: Scene) -> str:
    """SVG definitions that drawings refer to: the colours of the scale, and the picture, once per page."""
    bodies = [drawing.body for drawing in drawings]
    scale = hex_colours(colours(np.linspace(0, 1, 9)[None], 0.0, 1.0))[0]
    found = [gradient(scale)] if any("url(#scale)" in body for body in bodies) else []
    for name, pixels in ((GREY_ID, scene.pixels), (COLOUR_ID, scene.colour)):
        if any(f'href="#{name}"' in body for body in bodies):
            found.append(
                f'<image id="{name}" width="{scene.width}" height="{scene.height}" '
                f'href="{data_uri(pixels, photograph=True)}" preserveAspectRatio="none"/>'
            )
    return "".join(found)


def draw_map(maps: RegionMaps, region_map: RegionMap, scene: Scene, regions: Regions | None) -> Drawing:
    """One of several maps: a heat map with its scale, a glow if it is small, or the picture only without weights."""
    size = _SMALL if maps.small else _LARGE
    factor = min(size / scene.width, size / scene.height)
    label = f"{region_map.title}: {region_map.note}" if region_map.note else region_map.title
    weights = region_map.weights
    body = [f'<use href="#{COLOUR_ID if weights is None else GREY_ID}"/>']
    if weights is not None:
        lay = glow if maps.small else heat
        layer = data_uri(lay(scene, weights, maps.low, maps.high))
        body.append(f'<image width="{scene.width}" height="{scene.height}" href="{layer}"/>')
    if scene.boxes is not None and regions is not None:
        if weights is not None and not maps.small:
            body += _hints(region_map, scene, regions)
            best = ", ".join(regions.names[region] for region in region_map.top)
            label += f"; best are {best}" if best else ""
        body += _outlines(region_map, scene, factor, numbered=not maps.small)
    drawn = f'<g transform="scale({factor:.5f})">{"".join(body)}</g>'
    width, height = scene.width * factor, scene.height * factor
    if weights is not None and not maps.small:
        drawn += scale_legend(0, height + 6, width, maps.low, maps.high, HEAT_ALPHA)
        height += _LEGEND
    return Drawing(drawn, width, height, label)


def _hints(region_map: RegionMap, scene: Scene, regions: Regions) -> list[str]:
    """Tooltips with the weights of regions; the smallest regions are on top, so that a pointer reaches all of them."""
    assert scene.boxes is not None
    assert region_map.weights is not None
    areas = (scene.boxes[:, 2] - scene.boxes[:, 0]) * (scene.boxes[:, 3] - scene.boxes[:, 1])
    return [
        _box(scene, region, "touch", f"region {regions.names[region]}: {region_map.weights[region]:.3f}")
        for region in np.argsort(-areas, kind="stable").tolist()
    ]


def _outlines(region_map: RegionMap, scene: Scene, factor: float, *, numbered: bool) -> list[str]:
    drawn = []
    for region in reversed(region_map.top):
        for kind, thick in (("edge", 4.0), ("box", 2.0)):
            drawn.append(_box(scene, region, kind, more=f' stroke-width="{thick / factor**0.5:.1f}"'))
    if numbered:
        for region, (x, y) in zip(region_map.top, label_places(scene, region_map.top, 20), strict=True):
            drawn.append(text_at(x, y + 15, str(region), "tag"))
    return drawn


def _box(scene: Scene, region: int, kind: str, hint: str = "", more: str = "") -> str:
    assert scene.boxes is not None
    x1, y1, x2, y2 = scene.boxes[region].tolist()
    return rect(x1, y1, x2 - x1, y2 - y1, kind, hint, more)


# Raster pictures.

ZOOM = 1.5
"""Pixels per CSS pixel."""


def rasterise(svg: str, zoom: float = ZOOM, fonts: Sequence[str] = ()) -> bytes:
    """A sheet as a PNG, with the fonts of capbench's libraries, so that it is the same on every machine.

    Args:
        svg: the sheet.
        zoom: pixels per CSS pixel.
        fonts: files of additional fonts, for characters that those do not have.
    """
    import resvg_py

    shipped = [str(font_folder() / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg, zoom=zoom, font_files=[*shipped, *fonts], skip_system_fonts=True, font_family="DejaVu Sans"
        )
    )


def as_pdf(image: bytes, dots: float) -> bytes:
    """A picture as a one-page PDF, without a date."""
    from PIL import Image

    stream = io.BytesIO()
    with Image.open(io.BytesIO(image)) as opened:
        never = time.gmtime(0)
        undated = {"creationDate": never, "modDate": never, "producer": "", "creator": "capbench"}
        opened.convert("RGB").save(stream, "PDF", resolution=dots, quality=92, **undated)
    return stream.getvalue()
