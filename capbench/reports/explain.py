"""An explanation as an HTML page, a picture and text lines: heat maps, coloured cells and bars of named arrays."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.explanations import (
    Bars,
    ExplainedCandidate,
    Explanation,
    Matrix,
    Panel,
    RegionMaps,
    Regions,
    Table,
    letter,
)
from capbench.core.records import FloatArray
from capbench.reports.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pixels = NDArray[np.uint8]

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """A text for HTML and SVG: special characters are escaped, characters that XML forbids become U+FFFD.

    >>> clean("a < b\\x00")
    'a &lt; b�'
    """
    return escape(_ILLEGAL.sub("\ufffd", text))


# Weights of regions over the picture.

_LONGEST_PX = 420
_OPACITY = 0.6
_COLOUR_MAP = "viridis"  # its lightness rises evenly, readable with any kind of colour vision


@dataclass(frozen=True, eq=False)
class Scene:
    """The picture at its displayed size: uint8 (height, width, 3) RGB, and (n, 4) boxes of regions in its pixels.

    Without a picture the pixels are grey; ``boxes`` is None if they are unknown.
    """

    pixels: Pixels
    boxes: FloatArray | None


def make_scene(picture: Pixels | None, regions: Regions) -> Scene:
    """Scale a picture (h, w, 3), or grey in place of it, and the regions' boxes to the displayed size."""
    from PIL import Image

    if picture is not None:
        wide, high = picture.shape[1], picture.shape[0]
    else:
        # A size of 1 x 1 means that the boxes are fractions of an unknown size.
        wide, high = regions.size if min(regions.size) > 1 else (4, 3)
    factor = _LONGEST_PX / max(wide, high)
    width, height = max(1, round(wide * factor)), max(1, round(high * factor))
    pixels = np.full((height, width, 3), 200, dtype=np.uint8)
    if picture is not None:
        way = Image.Resampling.NEAREST if factor > 2 else Image.Resampling.LANCZOS
        pixels = np.asarray(Image.fromarray(picture).resize((width, height), way), dtype=np.uint8)
    boxes = None
    if regions.boxes is not None and min(regions.size) > 0:
        scale = np.array([width / regions.size[0], height / regions.size[1]] * 2)
        boxes = np.clip(regions.boxes.astype(np.float64) * scale, 0, [width, height] * 2)
    return Scene(pixels, boxes)


def weight_map(boxes: FloatArray, weights: FloatArray, height: int, width: int) -> FloatArray:
    """A weight for each pixel (height, width): the mean over the boxes that cover it, weighted by 1 / area.

    A large box (the whole scene) also covers everything that small boxes cover; with the inverse of its area it is
    visible where no smaller box is. Boxes that do not overlap, such as a grid's cells, keep their weights. NaN outside
    all boxes.
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


def heat(scene: Scene, weights: FloatArray, low: float, high: float) -> Pixels:
    """The picture in grey (height, width, 3) under the colours of its regions' weights (n,), from low to high."""
    assert scene.boxes is not None
    grey = np.repeat(scene.pixels.mean(axis=2, keepdims=True), 3, axis=2)
    spread = weight_map(scene.boxes, weights, *grey.shape[:2])
    mixed = (1 - _OPACITY) * grey + _OPACITY * _colours(np.nan_to_num(spread, nan=low), low, high)
    return np.where(np.isnan(spread)[..., None], grey, mixed).astype(np.uint8)


def _colours(values: FloatArray, low: float, high: float) -> Pixels:
    """Colours (..., 3) of values on the scale from low to high."""
    import matplotlib as mpl

    scaled = np.full(values.shape, 0.5) if high <= low else (values - low) / (high - low)
    return np.asarray(mpl.colormaps[_COLOUR_MAP](scaled, bytes=True)[..., :3], dtype=np.uint8)


# The sheet: texts and panels from top to bottom. Lengths are points at the usual font of 9 points.

WIDTH = 930.0
_MARGIN, _GAP = 15.0, 15.0
_POINTS = 9.0
_EM, _EM_BOLD = 0.65, 0.75  # mean widths of a character in DejaVu Sans, in font sizes
_NAME = 84.0  # maximum width of a row's name
_LARGE, _SMALL, _FEW = 270.0, 100.0, 3
_CELL, _LINE, _BAR = 27.0, 14.0, 90.0
_MOST_BARS = 15

Draw = Callable[["Axes", float, float, float], None]
"""Draws on axes at x and y, with a factor of fonts and lines."""


@dataclass(frozen=True)
class _Tile:
    width: float
    height: float
    draw: Draw


class Sheet:
    """Texts and panels of a given width; ``y`` is the position of the next one."""

    def __init__(self, width: float) -> None:
        self.width, self.y = width, _MARGIN
        self._texts: list[tuple[float, float, str, float, dict[str, Any]]] = []
        self._tiles: list[tuple[float, float, Draw]] = []

    def write(self, text: str, size: float = _POINTS, **look: Any) -> None:
        """Write a paragraph; ``look`` are properties of matplotlib's texts."""
        self.y += self._lines(text, _MARGIN, self.y, self.width - 2 * _MARGIN, size, look) + 2

    def _lines(self, text: str, x: float, y: float, width: float, size: float, look: dict[str, Any]) -> float:
        """Write lines of a width, and return their height."""
        em = size * (_EM_BOLD if "weight" in look else _EM)
        rows = textwrap.wrap(_ILLEGAL.sub("\ufffd", text), max(8, int(width / em)))
        self._texts += [(x, y + size * (1 + 1.4 * place), row, size, look) for place, row in enumerate(rows)]
        return 1.4 * size * len(rows)

    def add(self, panels: Sequence[Panel], scene: Scene, regions: Regions) -> None:
        """Draw panels, next to each other where they fit, each below its title."""
        x, bottom = _MARGIN, self.y
        for panel in panels:
            tile = _tile(panel, scene, regions, self.width - 2 * _MARGIN)
            if tile is None:
                continue
            if x > _MARGIN and x + tile.width > self.width - _MARGIN:
                x, self.y = _MARGIN, bottom
            top = self.y + self._lines(panel.title, x, self.y, tile.width, _POINTS, {"weight": "bold"}) + 4
            self._tiles.append((x, top, tile.draw))
            bottom = max(bottom, top + tile.height + _GAP)
            x += tile.width + _GAP
        self.y = bottom

    def figure(self, scale: float = 1.0, size: tuple[float, float] | None = None) -> Figure:
        """The sheet at a scale, in a figure of a size in inches, by default that of the content."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with style.style():
            across, down = size or (self.width * scale / 72, (self.y + _MARGIN) * scale / 72)
            figure = Figure(figsize=(across, down))
            FigureCanvasAgg(figure)
            axes = figure.add_axes((0, 0, 1, 1))
            for x, y, text, points, look in self._texts:
                _text(axes, x, y, text, points * scale, **look)
            for x, y, draw in self._tiles:
                draw(axes, x, y, scale)
            axes.set(xlim=(0, across * 72 / scale), ylim=(down * 72 / scale, 0), aspect="auto")
            axes.set_axis_off()
            style.fit_fonts(figure)
        return figure


def _text(axes: Axes, x: float, y: float, text: str, size: float, **look: Any) -> None:
    """A line of text, taken literally: no formulas."""
    axes.text(x, y, text, fontsize=size, parse_math=False, **{"va": "baseline", **look})


def _outline(axes: Axes, corner: tuple[float, float], width: float, height: float, colour: str, thick: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=colour, linewidth=thick))


def _fit(text: str, width: float, size: float = _POINTS) -> str:
    """A text of about at most ``width`` points, truncated with an ellipsis.

    >>> _fit("umbrellas", 28)
    'umb…'
    """
    text, used = _ILLEGAL.sub("\ufffd", text), 0.0
    for place, character in enumerate(text):
        used += size * (1.0 if unicodedata.east_asian_width(character) in "WF" else _EM)
        if used > width:
            return text[: max(place - 2, 1)] + "…"
    return text


def _tile(panel: Panel, scene: Scene, regions: Regions, full: float) -> _Tile | None:
    """A panel as a drawing; None for tables, and for maps without boxes."""
    if isinstance(panel, Table) or not panel.rows:
        return None
    if isinstance(panel, RegionMaps):
        return None if scene.boxes is None else _maps(panel, scene, regions, full)
    return _cells(panel, full) if isinstance(panel, Matrix) else _bars(panel)


def _maps(panel: RegionMaps, scene: Scene, regions: Regions, full: float) -> _Tile:
    """Heat maps with the names of their rows and best regions; the regions are outlined."""
    few = len(panel.rows) <= _FEW
    wide = min(_LARGE if few else _SMALL, full)
    factor = wide / scene.pixels.shape[1]
    high = scene.pixels.shape[0] * factor
    per_row = max(1, int((full + 8) // (wide + 8)))
    low, most = float(panel.values.min()), float(panel.values.max())
    size = _POINTS if few else 7.5

    def draw(axes: Axes, x: float, y: float, scale: float) -> None:
        assert scene.boxes is not None
        _text(axes, x, y + 8, f"{low:.3f} (dark) to {most:.3f} (bright)", 7.5 * scale, color=style.GREY)
        for place, (name, weights) in enumerate(zip(panel.rows, panel.values, strict=True)):
            left = x + place % per_row * (wide + 8)
            top = y + 14 + place // per_row * (high + 30)
            best = panel.best(place)
            says = f"{regions.names[best[0]]}: {weights[best[0]]:.3f}" if best else "the same everywhere"
            _text(axes, left, top + 9, _fit(name, wide, size), size * scale)
            _text(axes, left, top + 18, _fit(says, wide, 7), 7 * scale, color=style.GREY)
            top += 22
            axes.imshow(heat(scene, weights, low, most), extent=(left, left + wide, top + high, top), aspect="auto")
            for region in reversed(best):
                x1, y1, x2, y2 = (scene.boxes[region] * factor).tolist()
                for colour, thick in (("black", 2.4), ("white", 1.2)):
                    _outline(axes, (left + x1, top + y1), x2 - x1, y2 - y1, colour, thick * scale)
                if few:
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5 * scale}
                    _text(axes, left + x1 + 3, top + y1 + 11, str(region), 8 * scale, bbox=box)

    lines = -(-len(panel.rows) // per_row)
    return _Tile(min(per_row, len(panel.rows)) * (wide + 8) - 8, 14 + lines * (high + 30), draw)


def _cells(panel: Matrix, full: float) -> _Tile:
    """Coloured cells with their numbers, if these fit."""
    wide = min(_CELL, (full - _NAME - 40) / max(len(panel.columns), 1))
    above = min(max(len(name) for name in (*panel.columns, "")) * _EM * 7.5, 80.0) * 0.9 + 6
    values = panel.values
    low, high = min(float(values.min(initial=0.0)), 0.0), float(values.max(initial=0.0))
    colours = _colours(values, low, high)

    def draw(axes: Axes, x: float, y: float, scale: float) -> None:
        left, top = x + _NAME, y + above
        right, bottom = left + wide * len(panel.columns), top + _LINE * len(panel.rows)
        if values.size:
            axes.imshow(colours, extent=(left, right, bottom, top), aspect="auto", interpolation="nearest")
        for j, name in enumerate(panel.columns):
            look = {"rotation": 60, "rotation_mode": "anchor"} if above > 20 else {}
            _text(axes, left + wide * (j + 0.4), top - 3, _fit(name, 80, 7.5), min(7.5, wide) * scale, **look)
        for i, name in enumerate(panel.rows):
            _text(axes, left - 4, top + _LINE * i + 10, _fit(name, _NAME - 4), _POINTS * scale, ha="right")
            for j, value in enumerate(values[i].tolist() if wide >= _CELL else ()):
                ink = "black" if colours[i, j].mean() > 110 else "white"
                at = left + wide * (j + 0.5), top + _LINE * i + 9.5
                _text(axes, *at, f"{value:.2f}", 6.5 * scale, ha="center", color=ink)
        for i, j in panel.marked:
            corner = left + wide * j + 0.5, top + _LINE * i + 0.5
            _outline(axes, corner, wide - 1, _LINE - 1, "red", 1.4 * scale)

    return _Tile(_NAME + wide * len(panel.columns) + 40, above + _LINE * len(panel.rows), draw)


def _bars(panel: Bars) -> _Tile:
    """Horizontal bars with their numbers; one of 1 has the full length unless others are longer."""
    from matplotlib.patches import Rectangle

    rows = panel.rows[:_MOST_BARS]
    longest = max(1.0, float(panel.values.max()))

    def draw(axes: Axes, x: float, y: float, scale: float) -> None:
        left = x + _NAME
        for i, (name, value) in enumerate(zip(rows, panel.values.tolist(), strict=False)):
            length = _BAR * max(value, 0.0) / longest
            _text(axes, left - 4, y + _LINE * i + 10, _fit(name, _NAME - 4), _POINTS * scale, ha="right")
            axes.add_patch(Rectangle((left, y + _LINE * i + 1), length, _LINE - 3, color=style.COLOURS[1], linewidth=0))
            _text(axes, left + length + 3, y + _LINE * i + 10, f"{value:.3f}", 8 * scale)
        if len(panel.rows) > len(rows):
            more = f"and {len(panel.rows) - len(rows)} more"
            _text(axes, left, y + _LINE * len(rows) + 10, more, 8 * scale)

    return _Tile(_NAME + _BAR + 34, _LINE * (len(rows) + 1), draw)


def draw(
    explanation: Explanation,
    picture: Pixels | None,
    title: str = "",
    size: tuple[float, float] | None = None,
    font_size: float | None = None,
) -> tuple[Figure, float]:
    """Draw an explanation as one figure.

    Without a size, the sheet has the default width, scaled by the font size. With a size only, the layout is the one
    that allows the largest font. With both, the font size is exact and the layout has the width of the file; if it then
    exceeds the height, the font is reduced to the largest that fits.

    Args:
        explanation: the explanation.
        picture: uint8 (height, width, 3) RGB, None if it is not available.
        title: default: the metric and the image.
        size: width and height in inches.
        font_size: of most texts, in points.

    Returns:
        The figure, and the font size of most of its texts in points.
    """
    scale = (font_size or _POINTS) / _POINTS
    if size is None:
        return _sheet(explanation, picture, title, WIDTH).figure(scale), _POINTS * scale
    wanted = [max(size[0] * 72 / scale, 320.0)] if font_size else []
    fitted = _largest([_sheet(explanation, picture, title, width) for width in wanted], size)
    if fitted is None or fitted[0] < 0.99 * scale:
        widths = [*wanted, *np.geomspace(320, 3200, 16).tolist()]
        fitted = _largest([_sheet(explanation, picture, title, width) for width in widths], size)
    assert fitted is not None
    scale = min(fitted[0], scale) if font_size else fitted[0]
    return fitted[1].figure(scale, size), _POINTS * scale


def _largest(sheets: Sequence[Sheet], size: tuple[float, float]) -> tuple[float, Sheet] | None:
    """The sheet with the largest scale within a size in inches, and that scale."""
    scaled = [(72 * min(size[0] / one.width, size[1] / (one.y + _MARGIN)), one) for one in sheets]
    return max(scaled, key=lambda entry: entry[0], default=None)


def _sheet(explanation: Explanation, picture: Pixels | None, title: str, width: float) -> Sheet:
    regions = explanation.regions or Regions(())
    scene = make_scene(picture, regions)
    sheet = Sheet(width)
    sheet.write(title or f"{explanation.title}: {explanation.image}", 16, weight="bold")
    for note in explanation.notes:
        sheet.write(note)
    sheet.write(explanation.signature, 7, color=style.GREY)
    for number, candidate in enumerate(explanation.candidates):
        sheet.y += 8
        sheet.write(f"{letter(number)}: {candidate.text}", 12, weight="bold")
        for row in _facts(candidate):
            sheet.write(row)
        sheet.add(candidate.panels, scene, regions)
    sheet.add(explanation.comparison, scene, regions)
    return sheet


def _facts(candidate: ExplainedCandidate) -> Iterator[str]:
    """Rating, scores and notes of a candidate, one line each."""
    if candidate.human is not None:
        yield f"human rating {candidate.human:.2f}"
    yield "   ".join(f"{name} {value:.4f}" for name, value in candidate.scores.items())
    yield from candidate.notes


# The page: one HTML file without scripts and external resources.

STYLE = """
body { color: #1b1b1b; background: #fff; font: 15px/1.45 system-ui, "Segoe UI", sans-serif; max-width: 1208px;
  margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; margin: 0 0 .3rem } h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem } p { margin: .3rem 0 }
code { font-size: .75rem; color: #5c5c5c } img { max-width: 100%; height: auto; display: block }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { border-bottom: 1px solid #c9c9c9; padding: .2rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left } details { margin: .6rem 0 } summary { cursor: pointer }
"""
"""The content of every page's only ``<style>``; a page that contains explanations allows it by its checksum."""


def page(explanation: Explanation, picture: Pixels | None, title: str = "") -> str:
    """The complete HTML file."""
    name = clean(title or f"{explanation.title}: {explanation.image}")
    regions = explanation.regions or Regions(())
    scene = make_scene(picture, regions)
    checksum = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{checksum}'; img-src data:; base-uri 'none'; form-action 'none'"
    body = [f"<h1>{name}</h1>", *(f"<p>{clean(note)}</p>" for note in explanation.notes)]
    body.append(f"<p><code>{clean(explanation.signature)}</code></p>")
    if picture is not None:
        body.append(_image(scene.pixels, explanation.image))
    for number, candidate in enumerate(explanation.candidates):
        body.append(f"<h2>{letter(number)}: {clean(candidate.text)}</h2>")
        body += [f"<p>{clean(row)}</p>" for row in _facts(candidate)]
        body += _panels(candidate.panels, scene, regions)
        if candidate.references:
            texts = "".join(f"<li>{clean(text)}</li>" for text in candidate.references)
            body.append(f"<details><summary>References</summary><ol>{texts}</ol></details>")
    if explanation.comparison:
        body += ["<h2>All candidates</h2>", *_panels(explanation.comparison, scene, regions)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _panels(panels: Sequence[Panel], scene: Scene, regions: Regions) -> Iterator[str]:
    """One image of all drawings, and the tables."""
    sheet = Sheet(WIDTH)
    sheet.add(panels, scene, regions)
    if sheet.y > _MARGIN:
        figure = sheet.figure()
        figure.set_dpi(110)
        figure.canvas.draw()
        yield _image(np.asarray(figure.canvas.buffer_rgba())[..., :3], ", ".join(panel.title for panel in panels))  # type: ignore[attr-defined]
    for panel in panels:
        if isinstance(panel, Table):
            head = "".join(f"<th>{clean(text)}</th>" for text in panel.heads)
            rows = "".join(f"<tr>{''.join(f'<td>{clean(_cell(c))}</td>' for c in row)}</tr>" for row in panel.rows)
            yield (
                f'<details><summary>{clean(panel.title)}</summary><div class="wide"><table><thead><tr>{head}</tr>'
                f"</thead><tbody>{rows}</tbody></table></div></details>"
            )


def _image(pixels: Pixels, label: str) -> str:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "WEBP", quality=80)
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    return f'<img alt="{clean(label)}" src="data:image/webp;base64,{data}">'


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"


# Terminal output.

_FIRST = 10


def text_lines(explanation: Explanation) -> list[str]:
    """Scores of all candidates, bars, best regions, and the first rows of tables; no matrices."""
    lines = []
    for number, candidate in enumerate(explanation.candidates):
        lines.append(f"{letter(number)}: {candidate.text}")
        names = explanation.regions.names if explanation.regions else ()
        told = [*_facts(candidate), *(row for panel in candidate.panels for row in _lines(panel, names))]
        lines += [f"   {row}" for row in told]
    return lines


def _lines(panel: Panel, regions: Sequence[str]) -> Iterator[str]:
    if isinstance(panel, Bars) and panel.rows:
        bars = zip(panel.rows[:_FIRST], panel.values.tolist(), strict=False)
        yield f"{panel.title}: " + ", ".join(f"{name} {value:.3f}" for name, value in bars)
    elif isinstance(panel, RegionMaps):
        best = [(name, panel.best(place)) for place, name in enumerate(panel.rows)]
        yield f"{panel.title}: " + ", ".join(f"{name}: {regions[of[0]] if of else 'even'}" for name, of in best)
    elif isinstance(panel, Table):
        rows = [list(panel.heads), *([_cell(value) for value in row] for row in panel.rows[:_FIRST])]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            first, *others = row
            cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
            yield "  ".join(cells).rstrip()


def write_explanation(
    explanation: Explanation,
    picture: Pixels | None,
    html: Path,
    drawn: Path,
    *,
    title: str = "",
    size: tuple[float, float] | None = None,
    font_size: float | None = None,
) -> float:
    """Write an explanation as a page and as a picture (PNG, SVG or PDF, by its suffix); see :func:`draw`.

    Returns:
        The font size of most texts of the picture, in points.

    Raises:
        UsageError: a file cannot be written.
    """
    files.write_text(html, page(explanation, picture, title))
    figure, points = draw(explanation, picture, title, size, font_size)
    across, down = figure.get_size_inches().tolist()
    style.save(figure, drawn, style.Look(size=(across, down)))
    return points
