"""The picture of an explanation as a file: PNG, SVG or PDF, of a size and with letters of a size that a user wants."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass, replace

from capbench import fonts
from capbench.explain.composing import Composition, Row, Section
from capbench.explain.sheet import LEAST_WIDTH, POINTS, ZOOM, Sheet, rasterise, sheet
from capbench.explanations import Note, Scores, Table, WeightedWords

__all__ = ["Drawn", "draw"]

_INCH = 96.0
"""CSS pixels."""
_DPI = 160.0
"""Of a raster picture whose size is given in inches, as of all figures."""
_WIDTHS = (420, 500, 600, 700, 820, 960, 1100, 1240, 1400, 1600, 1840, 2100, 2400, 2800, 3400, 4200)


@dataclass(frozen=True)
class Drawn:
    """A picture.

    Attributes:
        content: the file.
        points: size of most of its letters.
    """

    content: bytes
    points: float


def draw(
    composition: Composition, kind: str, size: tuple[float, float] | None = None, font_size: float | None = None
) -> Drawn:
    """Draw an explanation.

    Without a size, the sheet is as wide as usual, and everything on it as large as its letters. With a size alone, the
    drawings are put side by side so that letters become as large as they can. With both, letters have their size, and
    the sheet is as wide as the file; where it then is too high, they become as large as they can.

    Args:
        composition: what to draw.
        kind: ``png``, ``svg`` or ``pdf``; a PDF holds a raster picture.
        size: width and height in inches, which the file then has.
        font_size: of most texts, in points.

    Warns:
        MissingGlyphs: no font has a character.
    """
    composition, further = _with_fonts(composition)
    scale = (font_size or POINTS) / POINTS
    if size is None:
        laid, pixels = sheet(composition), None
    else:
        pixels = (size[0] * _INCH, size[1] * _INCH)
        wanted = max(pixels[0] / scale, LEAST_WIDTH)
        largest, laid = _largest(composition, (wanted,) if font_size else _WIDTHS, pixels)
        if font_size and largest < 0.99 * scale:  # letters of this size do not fit: as large as they can be
            largest, laid = _largest(composition, (wanted, *_WIDTHS), pixels)
        scale = min(largest, scale) if font_size else largest
    svg = laid.svg(scale, pixels)
    points = POINTS * scale
    if kind == "svg":
        return Drawn(svg.encode(), points)
    dots = ZOOM * _INCH if size is None else _DPI
    image = rasterise(svg, dots / _INCH, further)
    return Drawn(image if kind == "png" else _pdf(image, dots), points)


def _largest(composition: Composition, widths: tuple[float, ...], pixels: tuple[float, float]) -> tuple[float, Sheet]:
    """The sheet that can be largest within so many pixels, and its scale."""
    sheets = [sheet(composition, width) for width in widths]
    scaled = [(min(pixels[0] / laid.width, pixels[1] / laid.height), laid) for laid in sheets]
    return max(scaled, key=lambda entry: entry[0])


def _pdf(image: bytes, dots: float) -> bytes:
    """A picture as a PDF of one page, without a date."""
    from PIL import Image

    stream = io.BytesIO()
    with Image.open(io.BytesIO(image)) as opened:
        never = time.gmtime(0)
        undated = {"creationDate": never, "modDate": never, "producer": "", "creator": "capbench"}
        opened.convert("RGB").save(stream, "PDF", resolution=dots, quality=92, **undated)
    return stream.getvalue()


def _with_fonts(composition: Composition) -> tuple[Composition, list[str]]:
    """The composition with U+FFFD for what no font has, and the files of further fonts that are needed."""
    covered = fonts.coverage([composition.title, *composition.notes, *_texts(composition)])
    if covered.is_usual:
        return composition, []
    if covered.missing:
        fonts.warn_missing("the picture", covered.missing, covered.tried)
        composition = _without(composition, dict.fromkeys(covered.missing, fonts.UNKNOWN))
    return composition, fonts.face_files(covered.families[1:])


def _texts(composition: Composition) -> list[str]:
    texts = []
    for section in composition.sections:
        texts.append(section.title)
        for block in section.blocks:
            if isinstance(block, Row):
                texts += [block.title, block.key]
                texts += [text for f in block.figures for text in (f.title, f.note, f.drawing.body)]
            elif isinstance(block, WeightedWords):
                texts += [block.title, *(word for word, _ in block.words)]
            elif isinstance(block, Note):
                texts.append(block.text)
            elif isinstance(block, Scores):
                texts += [block.title, *(score.name for score in block.scores)]
    return texts


def _without(composition: Composition, table: dict[int, str]) -> Composition:
    """The composition with characters replaced; what a picture leaves out stays as it is."""

    def plain(text: str) -> str:
        return text.translate(table)

    def block_of(block: Row | Scores | WeightedWords | Table | Note) -> Row | Scores | WeightedWords | Table | Note:
        if isinstance(block, Row):
            figures = tuple(
                replace(
                    figure,
                    title=plain(figure.title),
                    note=plain(figure.note),
                    drawing=replace(figure.drawing, body=plain(figure.drawing.body)),
                )
                for figure in block.figures
            )
            return replace(block, figures=figures, title=plain(block.title))
        if isinstance(block, WeightedWords):
            return replace(block, words=tuple((plain(word), weight) for word, weight in block.words))
        if isinstance(block, Note):
            return Note(plain(block.text))
        return block

    def section_of(section: Section) -> Section:
        return replace(section, title=plain(section.title), blocks=tuple(map(block_of, section.blocks)))

    return replace(
        composition,
        title=plain(composition.title),
        notes=tuple(map(plain, composition.notes)),
        sections=tuple(map(section_of, composition.sections)),
    )
