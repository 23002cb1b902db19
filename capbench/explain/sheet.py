"""An explanation as one SVG, and that as a PNG: the drawings of the page, on a sheet.

What a page shows folded (references, tables) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from capbench.explain.composing import Composition, Figure, Row, Section, score_pieces, sentence
from capbench.explain.drawing import (
    DRAWING_STYLE,
    LIGHT,
    fit,
    font_folder,
    line,
    rect,
    text_at,
    text_width,
    wrap,
)
from capbench.explanations import Note, Scores, WeightedWords

__all__ = ["LEAST_WIDTH", "POINTS", "WIDTH", "Sheet", "rasterise", "sheet"]

WIDTH = 1240
"""Of a sheet that nobody wants otherwise, in CSS pixels; a PNG has half as many again."""
LEAST_WIDTH = 420
"""Of any sheet: the widest drawing with its margins."""
POINTS = 9.0
"""Size of most texts of a sheet of which a CSS pixel is 1/96 inch."""
ZOOM = 1.5
_MARGIN = 20
_GAP = 20
_INDENT = 190
# Of the same widths, where a reader of an SVG has no DejaVu.
_FONTS = "DejaVu Sans, Bitstream Vera Sans, Verdana, sans-serif"


@dataclass(frozen=True)
class Sheet:
    """What lies on a sheet, and how large it is in CSS pixels."""

    body: str
    width: float
    height: float

    def svg(self, scale: float = 1.0, size: tuple[float, float] | None = None) -> str:
        """The SVG, in the light colours; it stands alone.

        Args:
            scale: enlarges everything.
            size: width and height of the file in CSS pixels, for a sheet that is smaller; None for its own.
        """
        width, height = size or (self.width * scale, self.height * scale)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width / scale:g} {height / scale:g}" font-family="{_FONTS}">'
            f"{rect(0, 0, width / scale, height / scale, 'ground')}{self.body}</svg>"
        )


def sheet(composition: Composition, width: float = WIDTH) -> Sheet:
    """Put a composition on a sheet of a width, as high as need be."""
    writer = _Sheet(width)
    writer.paragraph(composition.title, 22, bold=True)
    for note in composition.notes:
        writer.paragraph(note, 13)
    writer.paragraph(composition.signature, 10, kind="soft")
    for section in composition.sections:
        writer.section(section)
    height = writer.y + _MARGIN
    style = f"{DRAWING_STYLE}.plain {{ fill: var(--ink) }} .soft {{ fill: var(--soft) }} .ground {{ fill: #fff }}"
    style = re.sub(r"var\(--(\w+)\)", lambda name: LIGHT[name[1]], style)
    head = f"<style>{style}</style><defs>{composition.definitions}</defs>"
    return Sheet(head + "".join(writer.body), width, round(height))


def rasterise(svg: str, zoom: float = ZOOM, fonts: Sequence[str] = ()) -> bytes:
    """A sheet as a PNG. Fonts that come with capbench's libraries are used, so that it is the same everywhere.

    Args:
        svg: the sheet.
        zoom: pixels of a CSS pixel.
        fonts: files of further fonts, for letters that those lack.
    """
    import resvg_py

    shipped = [str(font_folder() / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg, zoom=zoom, font_files=[*shipped, *fonts], skip_system_fonts=True, font_family="DejaVu Sans"
        )
    )


class _Sheet:
    """Writes from the top down; ``y`` is where the next thing begins."""

    def __init__(self, width: float) -> None:
        self.width = width
        self.full = width - 2 * _MARGIN
        self.body: list[str] = []
        self.y = float(_MARGIN)

    def paragraph(self, text: str, size: float, *, bold: bool = False, kind: str = "plain") -> None:
        for words in wrap(text, self.full, size, bold=bold):
            self._write(_MARGIN, self.y + size, words, size, bold=bold, kind=kind)
            self.y += 1.4 * size

    def section(self, section: Section) -> None:
        self.y += 16
        if section.title:
            self.body.append(line(_MARGIN, self.y - 4, self.width - _MARGIN, self.y - 4, "thin"))
            self.y += 6
            self.paragraph(section.title, 17, bold=True)
        if section.human is not None:
            self.paragraph(f"people {section.human:.2f}", 13)
        for block in section.blocks:
            if isinstance(block, Row):
                self._row(block)
            elif isinstance(block, Scores):
                self._scores(block)
            elif isinstance(block, WeightedWords):
                self._words(block)
            elif isinstance(block, Note):
                self.paragraph(block.text, 13)

    def _write(self, x: float, y: float, text: str, size: float, *, bold: bool = False, kind: str = "plain") -> None:
        weight = "; font-weight: 700" if bold else ""
        self.body.append(text_at(x, y, text, kind, more=f' style="font-size: {size:g}px{weight}"'))

    def _scores(self, scores: Scores) -> None:
        x = float(_MARGIN)
        head = [(f"{sentence(scores.title)}:", False, "plain")] if scores.title else []
        pieces = [
            (piece, i == 0, "plain" if i == 0 else "soft")
            for score in scores.scores
            for i, piece in enumerate(score_pieces(score))
        ]
        for text, bold, kind in head + pieces:
            wide = text_width(text, 13, bold=bold)
            x += 14 if bold and x > _MARGIN else 0
            if x + wide > self.width - _MARGIN and x > _MARGIN:
                x, self.y = float(_MARGIN), self.y + 19
            self._write(x, self.y + 14, text, 13, bold=bold, kind=kind)
            x += wide + 6
        self.y += 22

    def _words(self, words: WeightedWords) -> None:
        size = 12
        title = fit(f"{sentence(words.title)}:", self.full / 2, size)
        left = _MARGIN + max(_INDENT, text_width(title, size, bold=True) + 10)
        self._write(_MARGIN, self.y + 14, title, size, bold=True)
        x = left
        for word, weight in words.words:
            for row in wrap(word, self.width - _MARGIN - left - 6, size):
                wide = text_width(row, size) + 6
                if x + wide > self.width - _MARGIN and x > left:
                    x, self.y = left, self.y + 20
                strength = f' fill-opacity="{0.6 * min(max(weight, 0.0), 1.0):.3f}"'
                self.body.append(rect(x, self.y + 1, wide, 17, f"f-{words.tone}", more=strength))
                self._write(x + 3, self.y + 14, row, size)
                x += wide + 4
        self.y += 24

    def _row(self, row: Row) -> None:
        self.y += 8
        if row.title:
            self.paragraph(row.title, 13, bold=True)
        if row.key:
            self.body.append(rect(_MARGIN, self.y, 16, 14, "key", more=f' fill="{row.key_colour}"'))
            self._write(_MARGIN + 22, self.y + 12, row.key, 12)
            self.y += 24
        gap = 10 if row.key else _GAP
        shelf: list[Figure] = []
        for figure in row.figures:
            if shelf and sum(f.drawing.width + gap for f in shelf) + figure.drawing.width > self.full:
                self._shelf(shelf, gap)
                shelf = []
            shelf.append(figure)
        self._shelf(shelf, gap)

    def _shelf(self, figures: list[Figure], gap: float) -> None:
        """Figures that fit beside each other: drawings stand on one line below their titles."""
        x, top = float(_MARGIN), self.y
        heads = []
        for figure in figures:
            width = min(figure.drawing.width, self.full)
            rows = [(text, True) for text in wrap(figure.title, width, 12, bold=True)]
            heads.append(rows + [(text, False) for text in (wrap(figure.note, width, 11) if figure.note else [])])
        below = top + 16 * max(map(len, heads)) + 4
        for figure, head in zip(figures, heads, strict=True):
            for i, (text, bold) in enumerate(head):
                self._write(x, top + 12 + 16 * i, text, 12 if bold else 11, bold=bold, kind="plain" if bold else "soft")
            self.body.append(figure.drawing.element(f'x="{x:.1f}" y="{below:.1f}" '))
            x += figure.drawing.width + gap
        self.y = below + max(figure.drawing.height for figure in figures) + 16
