"""An explanation as an HTML page, a picture of each candidate and a table, drawn from named arrays.

Words whose largest weight is below the mean of all weights (an equal share) have no map.
"""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
from capbench.reports.page.elements import Html, joined, lines_list, plain_table, printable, tag
from capbench.reports.page.page import html_document
from capbench.reports.table import Table as ResultTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pixels = NDArray[np.uint8]

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
    import matplotlib as mpl

    assert scene.boxes is not None
    grey = np.repeat(scene.pixels.mean(axis=2, keepdims=True), 3, axis=2)
    spread = weight_map(scene.boxes, weights, *grey.shape[:2])
    scaled = np.full(spread.shape, 0.5) if high <= low else (np.nan_to_num(spread, nan=low) - low) / (high - low)
    mixed = (1 - _OPACITY) * grey + _OPACITY * mpl.colormaps[_COLOUR_MAP](scaled, bytes=True)[..., :3]
    return np.where(np.isnan(spread)[..., None], grey, mixed).astype(np.uint8)


# Figures. Lengths are inches at a font of 9 points.

WIDTH = 9.3
_MARGIN, _GAP = 0.15, 0.2
_NAME, _CELL, _LINE, _BAR, _MOST_BARS = 1.1, 0.38, 0.2, 1.3, 15
_LARGE, _SMALL, _FEW = 3.6, 1.35, 3
SEE = "Bright regions and cells have large numbers; the largest, and in a matrix the match of each word, are outlined."
"""One sentence on what the drawings show."""

Tile = tuple[float, float, list[tuple[float, float, float, float, Callable[["Axes"], None]]]]
"""A drawn panel: width, height, and x, y, width, height from its upper left corner and content of each axes."""


def shown_rows(panel: RegionMaps) -> list[int]:
    """The rows of maps that are drawn: of more than three, those with a weight of at least an equal share."""
    if len(panel.rows) <= _FEW:
        return [*range(len(panel.rows))]
    return np.flatnonzero(panel.values.max(axis=1) >= panel.values.mean()).tolist()


def _tile(panel: Panel, scene: Scene, regions: Regions, full: float) -> Tile | None:
    """A panel as a drawing; None for tables, and for maps without boxes."""
    if isinstance(panel, Table) or not panel.rows:
        return None
    if isinstance(panel, RegionMaps):
        return None if scene.boxes is None else _maps(panel, scene, regions, full)
    return _matrix(panel, full) if isinstance(panel, Matrix) else _bars(panel)


def _maps(panel: RegionMaps, scene: Scene, regions: Regions, full: float) -> Tile:
    """Heat maps with the names of their rows and best regions; the regions are outlined."""
    from matplotlib.patches import Rectangle

    few, rows = len(panel.rows) <= _FEW, shown_rows(panel)
    wide = min(_LARGE if few else _SMALL, full)
    high = wide * scene.pixels.shape[0] / scene.pixels.shape[1]
    per_row = max(1, int((full + _GAP / 2) / (wide + _GAP / 2)))
    low, most = float(panel.values.min()), float(panel.values.max())

    def draw(row: int) -> Callable[[Axes], None]:
        def on(axes: Axes) -> None:
            assert scene.boxes is not None
            edges = (0, scene.pixels.shape[1], scene.pixels.shape[0], 0)
            axes.imshow(heat(scene, panel.values[row], low, most), extent=edges, aspect="auto")
            best = panel.best(row)
            says = f"{regions.names[best[0]]}: {panel.values[row, best[0]]:.3f}" if best else "the same everywhere"
            title = f"{_fit(panel.rows[row], wide)}\n{_fit(says, wide)}"
            axes.set_title(title, loc="left", fontsize="medium" if few else "small", pad=3)
            for region in reversed(best):
                x1, y1, x2, y2 = scene.boxes[region].tolist()
                for colour, thick in (("black", 2.4), ("white", 1.2)):
                    axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=colour, lw=thick))
            axes.set(xticks=[], yticks=[])  # ticks of each map would take a fifth of the time
            axes.set_axis_off()

        return on

    step = wide + _GAP / 2
    places = [(k % per_row * step, k // per_row * (high + 0.4) + 0.35) for k in range(len(rows))]
    height = -(-len(rows) // per_row) * (high + 0.4)
    boxes = [(x, y, wide, high, draw(row)) for row, (x, y) in zip(rows, places, strict=True)]
    return min(per_row, len(rows)) * step, height, boxes


def _matrix(panel: Matrix, full: float) -> Tile:
    """Coloured cells with their numbers, if these fit."""
    from matplotlib.patches import Rectangle

    cell = min(_CELL, (full - _NAME - 0.4) / max(len(panel.columns), 1))
    wide, high = cell * len(panel.columns), _LINE * len(panel.rows)
    above = 0.2 + min(max(map(len, panel.columns), default=0) * 0.065, 0.9)
    low, most = min(float(panel.values.min(initial=0.0)), 0.0), float(panel.values.max(initial=0.0))

    def draw(axes: Axes) -> None:
        axes.imshow(panel.values, cmap=_COLOUR_MAP, vmin=low, vmax=most, aspect="auto", interpolation="nearest")
        names = [_fit(name, 1.0) for name in panel.columns]
        axes.set_xticks(range(len(names)), names, rotation=60, rotation_mode="anchor", ha="left", fontsize="small")
        axes.set_yticks(range(len(panel.rows)), [_fit(name, _NAME) for name in panel.rows])
        axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        for (i, j), value in np.ndenumerate(panel.values if cell >= 0.3 else np.empty((0, 0))):
            ink = "black" if value > (low + most) / 2 else "white"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=ink, fontsize="x-small")
        for i, j in panel.marked:
            axes.add_patch(Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, fill=False, ec="red", lw=1.4))

    return _NAME + wide + 0.4, above + high, [(_NAME, above, wide, high, draw)]


def _bars(panel: Bars) -> Tile:
    """Horizontal bars with their numbers; one of 1 has the full length unless others are longer."""
    rows, values = panel.rows[:_MOST_BARS], panel.values[:_MOST_BARS]

    def draw(axes: Axes) -> None:
        bars = axes.barh(range(len(rows)), np.maximum(values, 0), color=style.COLOURS[1], height=0.75)
        axes.bar_label(bars, [f"{value:.3f}" for value in values], padding=2, fontsize="small")
        axes.set(xlim=(0, max(1.0, float(values.max()))), ylim=(len(rows) - 0.5, -0.5))
        axes.set_yticks(range(len(rows)), [_fit(name, _NAME) for name in rows])
        axes.tick_params(length=0, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        if more := len(panel.rows) - len(rows):
            axes.text(0, len(rows), f"and {more} more", va="center", fontsize="small")

    height = _LINE * (len(rows) + (len(panel.rows) > len(rows)))
    return _NAME + _BAR + 0.4, height, [(_NAME, 0.0, _BAR, _LINE * len(rows), draw)]


def _fit(text: str, inches: float) -> str:
    """A text of about at most a width, truncated with an ellipsis."""
    text, most = printable(text), max(int(inches / 0.08), 3)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def draw(
    panels: Sequence[Panel],
    scene: Scene,
    regions: Regions,
    heading: Sequence[str] = (),
) -> Figure | None:
    """Panels below a heading; None if there is nothing to draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    texts: list[tuple[float, float, str, bool]] = []
    tiles: list[tuple[float, float, Tile]] = []
    y = _MARGIN
    for place, text in enumerate(heading):
        for line in textwrap.wrap(printable(text), int((WIDTH - 2 * _MARGIN) / 0.078)):
            texts.append((_MARGIN, y, line, not place))
            y += 0.17
    x, bottom = _MARGIN, y + _GAP * bool(heading)
    y = bottom
    for panel in panels:
        tile = _tile(panel, scene, regions, WIDTH - 2 * _MARGIN)
        if tile is None:
            continue
        if x > _MARGIN and x + tile[0] > WIDTH - _MARGIN:
            x, y = _MARGIN, bottom
        title = panel.title
        if isinstance(panel, RegionMaps):
            title += f", {panel.values.min():.3f} (dark) to {panel.values.max():.3f} (bright)"
        lines = textwrap.wrap(title, max(int(tile[0] / 0.08), 20))
        texts += [(x, y + 0.16 * place, line, True) for place, line in enumerate(lines)]
        top = y + 0.16 * len(lines) + 0.05
        tiles.append((x, top, tile))
        bottom = max(bottom, top + tile[1] + _GAP)
        x += tile[0] + _GAP
    if not texts:
        return None
    height = bottom + _MARGIN
    with style.style():
        figure = Figure(figsize=(WIDTH, height), dpi=110)
        FigureCanvasAgg(figure)
        for x, y, text, bold in texts:
            weight = "bold" if bold else "normal"
            figure.text(x / WIDTH, 1 - y / height, text, va="top", weight=weight, parse_math=False)
        for left, top, (_, _, content) in tiles:
            for x, y, wide, high, on in content:
                on(figure.add_axes(((left + x) / WIDTH, 1 - (top + y + high) / height, wide / WIDTH, high / height)))
        style.take_texts_literally(figure)
        style.fit_fonts(figure)
    return figure


def _facts(candidate: ExplainedCandidate) -> Iterator[str]:
    """Rating, scores and notes of a candidate, one line each."""
    if candidate.human is not None:
        yield f"human rating {candidate.human:.2f}"
    yield "   ".join(f"{name} {value:.4f}" for name, value in candidate.scores.items())
    yield from candidate.notes


def _summary(explanation: Explanation) -> list[list[str]]:
    """All candidates: heads, then letter, human rating, scores and text of each."""
    names = list(dict.fromkeys(name for candidate in explanation.candidates for name in candidate.scores))
    rated = any(candidate.human is not None for candidate in explanation.candidates)
    rows = [["", *(["human rating"] if rated else []), *names, "candidate"]]
    for number, candidate in enumerate(explanation.candidates):
        human = [] if not rated else ["–" if candidate.human is None else f"{candidate.human:.2f}"]
        scores = [f"{candidate.scores[name]:.4f}" if name in candidate.scores else "–" for name in names]
        rows.append([letter(number), *human, *scores, candidate.text])
    return rows


# The page: one HTML file without scripts and external resources.


def page(explanation: Explanation, picture: Pixels | None, title: str = "") -> str:
    """The complete HTML file."""
    regions = explanation.regions or Regions(())
    scene = make_scene(picture, regions)
    rows = [[first, text, *numbers] for first, *numbers, text in _summary(explanation)]
    overview = [plain_table(rows[0], rows[1:], "Table: candidates", texts=2), lines_list(explanation.notes)]
    overview += [_image(scene.pixels, explanation.image)] if picture is not None else []
    sections = {"candidates": ("Candidates", joined([*overview, tag("p", SEE)]))}
    for number, candidate in enumerate(explanation.candidates):
        shown = [tag("h3", candidate.text), *(tag("p", row) for row in _facts(candidate))]
        texts = lines_list(candidate.references)
        listed = texts and tag("details", tag("summary", "References"), texts)
        sections[letter(number)] = letter(number), joined([*shown, *_panels(candidate.panels, scene, regions), listed])
    sections["all"] = "All candidates", joined(_panels(explanation.comparison, scene, regions))
    sections["signature"] = "Signature", tag("p", tag("code", explanation.signature))
    name = title or f"{explanation.title}: {explanation.image}"
    return html_document(name, [], sections)


def _panels(panels: Sequence[Panel], scene: Scene, regions: Regions) -> Iterator[Html]:
    """One image of all drawings, and the tables."""
    if (drawn := draw(panels, scene, regions)) is not None:
        drawn.canvas.draw()
        pixels = np.asarray(drawn.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
        yield _image(pixels, ", ".join(panel.title for panel in panels))
    for panel in panels:
        if isinstance(panel, Table):
            table = plain_table(panel.heads, [list(map(_cell, row)) for row in panel.rows], panel.title)
            yield tag("details", tag("summary", panel.title), table)


def _image(pixels: Pixels, label: str) -> Html:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "WEBP", quality=80)
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    return tag("img", alt=label, src=f"data:image/webp;base64,{data}")


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"


# Terminal output.


def summary_table(explanation: Explanation) -> ResultTable:
    """Rating and scores of all candidates; the page has everything else."""
    heads, *rows = (row[:-1] for row in _summary(explanation))
    texts = (f"{letter(number)}: {candidate.text}" for number, candidate in enumerate(explanation.candidates))
    notes = (f"{letter(n)}: {note}" for n, candidate in enumerate(explanation.candidates) for note in candidate.notes)
    return ResultTable.of(heads, rows, legend=(*texts, *notes))


def write_explanation(
    explanation: Explanation, picture: Pixels | None, html: Path, drawn: Path, *, title: str = ""
) -> list[Path]:
    """Write a page, and pictures (PNG, SVG or PDF, by the suffix) of candidates, ``NAME-A.png``, and of comparisons,
    ``NAME-all.png``. Returns the pictures."""
    files.write_text(html, page(explanation, picture, title))
    regions = explanation.regions or Regions(())
    scene, name = make_scene(picture, regions), title or f"{explanation.title}: {explanation.image}"
    parts: list[tuple[str, Sequence[Panel], list[str]]] = []
    for number, candidate in enumerate(explanation.candidates):
        heading = [f"{name}. {letter(number)}: {candidate.text}", *_facts(candidate), SEE]
        parts.append((letter(number), candidate.panels, heading))
    parts += [("all", explanation.comparison, [name])] if explanation.comparison else []
    paths = []
    for key, panels, heading in parts:
        made = draw(panels, scene, regions, heading)
        assert made is not None
        across, down = made.get_size_inches().tolist()
        path = drawn.with_name(f"{drawn.stem}-{key}{drawn.suffix}") if len(parts) > 1 else drawn
        paths += style.save(made, path, style.Look(size=(across, down)))
    return paths
