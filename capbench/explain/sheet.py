"""An explanation as one SVG, and that as a PNG: the drawings of the page, on a sheet of fixed width.

What a page shows folded (references, tables) is left out.
"""

from __future__ import annotations

import re

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

__all__ = ["WIDTH", "rasterise", "sheet"]

WIDTH = 1240
"""Of a sheet, in CSS pixels; a PNG has half as many again."""
ZOOM = 1.5
_MARGIN = 20
_GAP = 20
_FULL = WIDTH - 2 * _MARGIN
_INDENT = 190


def sheet(composition: Composition) -> str:
    """The SVG, in the light colours; it stands alone."""
    writer = _Sheet()
    writer.paragraph(composition.title, 22, bold=True)
    for note in composition.notes:
        writer.paragraph(note, 13)
    writer.paragraph(composition.signature, 10, kind="soft")
    for section in composition.sections:
        writer.section(section)
    height = writer.y + _MARGIN
    style = f"{DRAWING_STYLE}.plain {{ fill: var(--ink) }} .soft {{ fill: var(--soft) }} .ground {{ fill: #fff }}"
    style = re.sub(r"var\(--(\w+)\)", lambda name: LIGHT[name[1]], style)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="DejaVu Sans"><style>{style}</style>'
        f"<defs>{composition.definitions}</defs>{rect(0, 0, WIDTH, height, 'ground')}{''.join(writer.body)}</svg>"
    )


def rasterise(svg: str) -> bytes:
    """A sheet as a PNG. Only fonts that come with capbench's libraries are used, so that it is the same everywhere."""
    import resvg_py

    fonts = [str(font_folder() / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg, zoom=ZOOM, font_files=fonts, skip_system_fonts=True, font_family="DejaVu Sans"
        )
    )


class _Sheet:
    """Writes from the top down; ``y`` is where the next thing begins."""

    def __init__(self) -> None:
        self.body: list[str] = []
        self.y = float(_MARGIN)

    def paragraph(self, text: str, size: float, *, bold: bool = False, kind: str = "plain") -> None:
        for words in wrap(text, _FULL, size, bold=bold):
            self._write(_MARGIN, self.y + size, words, size, bold=bold, kind=kind)
            self.y += 1.4 * size

    def section(self, section: Section) -> None:
        self.y += 16
        if section.title:
            self.body.append(line(_MARGIN, self.y - 4, WIDTH - _MARGIN, self.y - 4, "thin"))
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
            if x + wide > WIDTH - _MARGIN and x > _MARGIN:
                x, self.y = float(_MARGIN), self.y + 19
            self._write(x, self.y + 14, text, 13, bold=bold, kind=kind)
            x += wide + 6
        self.y += 22

    def _words(self, words: WeightedWords) -> None:
        size = 12
        title = fit(f"{sentence(words.title)}:", _FULL / 2, size)
        left = _MARGIN + max(_INDENT, text_width(title, size, bold=True) + 10)
        self._write(_MARGIN, self.y + 14, title, size, bold=True)
        x = left
        for word, weight in words.words:
            for row in wrap(word, WIDTH - _MARGIN - left - 6, size):
                wide = text_width(row, size) + 6
                if x + wide > WIDTH - _MARGIN and x > left:
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
            if shelf and sum(f.drawing.width + gap for f in shelf) + figure.drawing.width > _FULL:
                self._shelf(shelf, gap)
                shelf = []
            shelf.append(figure)
        self._shelf(shelf, gap)

    def _shelf(self, figures: list[Figure], gap: float) -> None:
        """Figures that fit beside each other: drawings stand on one line below their titles."""
        x, top = float(_MARGIN), self.y
        heads = []
        for figure in figures:
            width = min(figure.drawing.width, _FULL)
            rows = [(text, True) for text in wrap(figure.title, width, 12, bold=True)]
            heads.append(rows + [(text, False) for text in (wrap(figure.note, width, 11) if figure.note else [])])
        below = top + 16 * max(map(len, heads)) + 4
        for figure, head in zip(figures, heads, strict=True):
            for i, (text, bold) in enumerate(head):
                self._write(x, top + 12 + 16 * i, text, 12 if bold else 11, bold=bold, kind="plain" if bold else "soft")
            self.body.append(figure.drawing.element(f'x="{x:.1f}" y="{below:.1f}" '))
            x += figure.drawing.width + gap
        self.y = below + max(figure.drawing.height for figure in figures) + 16
