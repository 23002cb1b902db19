"""An explanation as an HTML page, as a picture and as text lines, from one composition of drawings."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

from capbench.core import files
from capbench.core.explanations import (
    Bars,
    Chart,
    ExplainedCandidate,
    Explanation,
    Matching,
    Matrix,
    Note,
    Panel,
    RegionMaps,
    Regions,
    Score,
    Scores,
    Table,
    Tone,
    WeightedWords,
    letter,
)
from capbench.reports.explain.drawing import (
    DARK,
    DRAWING_STYLE,
    GLOW_RGB,
    LIGHT,
    ZOOM,
    Drawing,
    Pixels,
    Scene,
    as_pdf,
    clean,
    definitions,
    draw_bars,
    draw_chart,
    draw_map,
    draw_matching,
    draw_matrix,
    fit,
    line,
    make_scene,
    rasterise,
    rect,
    text_at,
    text_width,
    wrap,
)
from capbench.reports.figures import style

# The common composition of pages and pictures: blocks in their order, each drawn once.


@dataclass(frozen=True)
class Figure:
    """A drawing with its title."""

    title: str
    note: str
    drawing: Drawing


@dataclass(frozen=True)
class Row:
    """Figures next to each other, as many as fit; with a legend if their colour has a range of numbers."""

    figures: tuple[Figure, ...]
    title: str = ""
    key: str = ""
    key_colour: str = ""


Block = Row | Scores | WeightedWords | Table | Note


@dataclass(frozen=True)
class Section:
    """A heading with its content."""

    title: str
    blocks: tuple[Block, ...]
    human: float | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Composition:
    """An explanation with its drawings; ``definitions`` is the SVG that they refer to."""

    title: str
    notes: tuple[str, ...]
    signature: str
    sections: tuple[Section, ...]
    definitions: str


def compose(explanation: Explanation, scene: Scene, title: str = "") -> Composition:
    """Draw all panels under a title, by default that of the metric and the image.

    Maps of weights require boxes, maps without weights a picture; without these they are omitted.
    """
    regions = explanation.regions
    sections = [Section("", _blocks(explanation.opening, scene, regions))]
    for i, candidate in enumerate(explanation.candidates):
        blocks = _blocks(candidate.panels, scene, regions)
        sections.append(Section(f"{letter(i)}: {candidate.text}", blocks, candidate.human, candidate.references))
    sections.append(Section("All candidates", _blocks(explanation.comparison, scene, regions)))
    filled = tuple(section for section in sections if section.blocks)
    return Composition(
        title or f"{explanation.title}: {explanation.image}",
        explanation.notes,
        explanation.signature,
        filled,
        definitions([f.drawing for s in filled for b in s.blocks if isinstance(b, Row) for f in b.figures], scene),
    )


def score_pieces(score: Score) -> list[str]:
    """A score with its parts in brackets, as pieces between which a line may break.

    >>> score_pieces(Score("f", 0.5, (Score("p", 0.4), Score("r", 0.7))))
    ['f 0.5000', '(p 0.4000,', 'r 0.7000)']
    """
    pieces = [str(score)]
    for i, inner_score in enumerate(score.parts):
        inner = score_pieces(inner_score)
        inner[0] = ("(" if i == 0 else "") + inner[0]
        inner[-1] += ")" if i == len(score.parts) - 1 else ","
        pieces += inner
    return pieces


def sentence(title: str) -> str:
    """A title with an initial capital."""
    return title[:1].upper() + title[1:]


def _blocks(panels: Sequence[Panel], scene: Scene, regions: Regions | None) -> tuple[Block, ...]:
    """Panels in their order; consecutive drawings share a row."""
    blocks: list[Block] = []
    for panel in panels:
        if isinstance(panel, Scores | WeightedWords | Table | Note):
            blocks.append(panel)
        elif figures := tuple(_figures(panel, scene, regions)):
            last = blocks[-1] if blocks else None
            if isinstance(panel, RegionMaps) and panel.small:
                key = f"from {panel.low:.2f} to {panel.high:.2f}; outlined: the highest"
                blocks.append(Row(figures, sentence(panel.title), key, "#{:02x}{:02x}{:02x}".format(*GLOW_RGB)))
            elif isinstance(last, Row) and not last.key:
                blocks[-1] = replace(last, figures=last.figures + figures)
            else:
                blocks.append(Row(figures))
    return tuple(blocks)


def _figures(
    panel: RegionMaps | Bars | Chart | Matching | Matrix, scene: Scene, regions: Regions | None
) -> Iterator[Figure]:
    title = sentence(panel.title)
    if isinstance(panel, RegionMaps):
        for region_map in panel.maps:
            boxed = region_map.weights is not None and scene.boxes is not None
            bare = region_map.weights is None and scene.pictured and not panel.small
            if boxed or bare:
                drawing = draw_map(panel, region_map, scene, regions)
                named = (region_map.title, "") if panel.small else (sentence(region_map.title), region_map.note)
                yield Figure(*named, drawing)
    elif isinstance(panel, Bars):
        if panel.bars:
            yield Figure(title, "", draw_bars(panel))
    elif isinstance(panel, Chart):
        yield Figure(title, "", draw_chart(panel))
    elif isinstance(panel, Matching):
        yield Figure(title, panel.note, draw_matching(panel))
    else:
        yield Figure(title, "", draw_matrix(panel))


# The page: one HTML file without scripts and external resources.

_STEPS = 60
"""Number of shades of a marked word, and the opacity of the strongest in percent, at which text remains readable."""

_STYLE = """
body { background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", sans-serif;
  max-width: 1208px; margin: 1.5rem auto; padding: 0 1rem }
h1, h2, p, li, code { overflow-wrap: anywhere }
h1 { font-size: 1.5rem; margin: 0 0 .3rem } h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem }
h3 { font-size: .95rem; margin: 1rem 0 .2rem } p { margin: .3rem 0 } .soft, code { color: var(--soft) }
code { font-size: .75rem } .piece { white-space: nowrap; margin-right: .35em }
.score { margin-right: 1em; font-variant-numeric: tabular-nums }
.row { display: flex; flex-wrap: wrap; gap: 1.25rem; margin: .8rem 0; align-items: flex-start }
.row.small { gap: .6rem } figure { margin: 0; max-width: 100% }
figcaption { font-size: .85rem; margin-bottom: .25rem; overflow-wrap: anywhere }
svg { max-width: 100%; height: auto; display: block; font-family: system-ui, "Segoe UI", sans-serif }
svg.swatch { display: inline-block; vertical-align: -.1em } svg.shared { position: absolute }
figcaption { contain: inline-size }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { border-bottom: 1px solid var(--rule); padding: .2rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left }
mark { color: inherit; padding: .1rem .2rem; border-radius: .2rem; overflow-wrap: anywhere }
details { margin: .6rem 0 } summary { cursor: pointer }
@media print { body { margin: 0; max-width: none; font-size: 10pt; print-color-adjust: exact;
    -webkit-print-color-adjust: exact }
  figure { zoom: .58 } figure, .words { break-inside: avoid } h2, h3 { break-after: avoid } }
"""


def style_sheet() -> str:
    """The content of every page's only ``<style>``; a page that contains explanations can allow it by its checksum.

    Elements have no style attributes, so that such a page need not allow any.
    """
    dark = _colours(DARK).replace("{", "{ color-scheme: dark;")
    shades = " ".join(f".w{step} {{ --share: {step}% }}" for step in range(_STEPS + 1))
    marks = " ".join(
        f"mark.{tone} {{ background: color-mix(in srgb, var(--{tone}) var(--share), transparent) }}"
        for tone in get_args(Tone)
    )
    return (
        f"{_colours(LIGHT)}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"
        f"{DRAWING_STYLE}{_STYLE}{shades}\n{marks}\n"
    )


def page(composition: Composition) -> str:
    """The complete HTML file."""
    title = clean(composition.title)
    notes = "".join(f"<p>{clean(note)}</p>" for note in composition.notes)
    shared = (
        f'<svg class="shared" width="0" height="0" aria-hidden="true"><defs>{composition.definitions}</defs></svg>\n'
        if composition.definitions
        else ""
    )
    body = "\n".join(line for section in composition.sections for line in _section(section))
    style = style_sheet()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{shared}<h1>{title}</h1>\n{notes}"
        f"<p><code>{clean(composition.signature)}</code></p>\n{body}\n</body>\n</html>\n"
    )


def _policy(style: str) -> str:
    """The page's Content-Security-Policy: its own style, and embedded images."""
    checksum = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rules = ("default-src 'none'", f"style-src 'sha256-{checksum}'", "img-src data:", "base-uri 'none'")
    return "; ".join((*rules, "form-action 'none'"))


def _colours(palette: Mapping[str, str]) -> str:
    return f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in palette.items())} }}"


def _section(section: Section) -> Iterable[str]:
    if section.title:
        yield f"<h2>{clean(section.title)}</h2>"
    if section.human is not None:
        yield f'<p><span class="score">human rating {section.human:.2f}</span></p>'
    for block in section.blocks:
        yield _block(block)
    if section.references:
        texts = "".join(f"<li>{clean(text)}</li>" for text in section.references)
        yield f"<details><summary>References</summary><ol>{texts}</ol></details>"


def _block(block: Block) -> str:
    if isinstance(block, Row):
        return _row(block)
    if isinstance(block, Scores):
        scores = []
        for score in block.scores:
            first, *pieces = (f'<span class="piece">{clean(piece)}</span>' for piece in score_pieces(score))
            within = f'<span class="soft">{" ".join(pieces)}</span>' if pieces else ""
            scores.append(f'<span class="score"><b>{first}</b> {within}</span>')
        title = f"{clean(sentence(block.title))}: " if block.title else ""
        return f"<p>{title}{' '.join(scores)}</p>"
    if isinstance(block, WeightedWords):
        return f'<p class="words"><b>{clean(sentence(block.title))}:</b> {_marks(block)}</p>'
    if isinstance(block, Table):
        return (
            f'<details><summary>{clean(sentence(block.title))}</summary><div class="wide">'
            f"{_table(block.heads, block.rows)}</div></details>"
        )
    assert isinstance(block, Note)
    return f"<p>{clean(block.text)}</p>"


def _marks(words: WeightedWords) -> str:
    marks = []
    for word, weight in words.words:
        step = round(_STEPS * min(max(weight, 0.0), 1.0))
        marks.append(f'<mark class="{words.tone} w{step}">{clean(word)}</mark>')
    return " ".join(marks)


def _row(row: Row) -> str:
    head = f"<h3>{clean(row.title)}</h3>" if row.title else ""
    if row.key:
        swatch = (
            f'<svg class="swatch" width="16" height="14" aria-hidden="true"><rect width="16" height="14" '
            f'fill="{row.key_colour}"/></svg>'
        )
        head += f"<p>{swatch} {clean(row.key)}</p>"
    small = " small" if row.key else ""
    figures = "".join(_figure(figure, hint=bool(row.key)) for figure in row.figures)
    return f'{head}<div class="row{small}">{figures}</div>'


def _figure(figure: Figure, *, hint: bool) -> str:
    """A figure; with ``hint``, its label is the tooltip of the whole drawing (other drawings have inner tooltips)."""
    drawing = figure.drawing
    tooltip = f' title="{clean(drawing.label)}"' if hint else ""
    note = f'<br><span class="soft">{clean(figure.note)}</span>' if figure.note else ""
    return f"<figure{tooltip}><figcaption><b>{clean(figure.title)}</b>{note}</figcaption>{drawing.element()}</figure>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{clean(text)}</th>" for text in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{clean(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


# An explanation as terminal output: scores, bars, the first rows of tables, and the notes of maps.

_BARS = 8
_ROWS = 10


def text_lines(explanation: Explanation) -> list[str]:
    """Lines for all candidates, without panels that require a drawing."""
    lines = [line for panel in explanation.opening for line in _panel(panel)]
    for i, candidate in enumerate(explanation.candidates):
        lines += [f"{letter(i)}: {candidate.text}", *(f"   {line}" for line in _candidate(candidate))]
    return lines + [line for panel in explanation.comparison for line in _panel(panel)]


def _candidate(candidate: ExplainedCandidate) -> Iterator[str]:
    if candidate.human is not None:
        yield f"human rating {candidate.human:.2f}"
    for panel in candidate.panels:
        yield from _panel(panel)


def _panel(panel: Panel) -> Iterator[str]:
    if isinstance(panel, Scores):
        title = f"{panel.title}:  " if panel.title else ""
        yield title + "    ".join(" ".join(score_pieces(score)) for score in panel.scores)
    elif isinstance(panel, Bars) and panel.bars:
        bars = (f"{b.name} {b.value:.3f}" + (f" ({b.note})" if b.note else "") for b in panel.bars[:_BARS])
        yield f"{panel.title}: {', '.join(bars)}"
    elif isinstance(panel, Table):
        rows = [panel.heads, *panel.rows[:_ROWS]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            first, *others = (
                cell.rjust(wide) if i else cell.ljust(wide)
                for i, (cell, wide) in enumerate(zip(row, widths, strict=True))
            )
            yield "  ".join((first, *others)).rstrip()
    elif isinstance(panel, RegionMaps):
        notes = [f"{region_map.title}: {region_map.note}" for region_map in panel.maps if region_map.note]
        if notes:
            yield f"{panel.title}: {'; '.join(notes)}"
    elif isinstance(panel, Note):
        yield panel.text


# An explanation as one SVG or PNG: the drawings of the page on a sheet, without its collapsed parts (references,
# tables).

WIDTH = 1240
"""Default width of a sheet in CSS pixels; a PNG has 1.5 times as many."""
MIN_WIDTH = 420
"""Minimum width of a sheet: the widest drawing with its margins."""
POINTS = 9.0
"""Font size of most texts of a sheet at 1/96 inch per CSS pixel."""
_MARGIN = 20
_GAP = 20
_INDENT = 190
# Fonts of the same widths, for viewers without DejaVu.
_FONTS = "DejaVu Sans, Bitstream Vera Sans, Verdana, sans-serif"


@dataclass(frozen=True)
class Sheet:
    """The content of a sheet, and its size in CSS pixels."""

    body: str
    width: float
    height: float

    def svg(self, scale: float = 1.0, size: tuple[float, float] | None = None) -> str:
        """The self-contained SVG, in the light colours.

        Args:
            scale: factor of all sizes.
            size: width and height of the file in CSS pixels, at least those of the sheet; None for those of the sheet.
        """
        width, height = size or (self.width * scale, self.height * scale)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width / scale:g} {height / scale:g}" font-family="{_FONTS}">'
            f"{rect(0, 0, width / scale, height / scale, 'ground')}{self.body}</svg>"
        )


def sheet(composition: Composition, width: float = WIDTH) -> Sheet:
    """Lay out a composition on a sheet of a width; its height follows from the content."""
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


class _Sheet:
    """Writes from top to bottom; ``y`` is the position of the next block."""

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
            self.paragraph(f"human rating {section.human:.2f}", 13)
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
        """Figures next to each other: titles at the top, drawings aligned below."""
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


# The picture of an explanation as a PNG, SVG or PDF file of a requested size and font size.

_INCH = 96.0
"""CSS pixels per inch."""
_DPI = 160.0
"""Resolution of a raster picture with a requested size, as of all figures."""
_WIDTHS = (420, 500, 600, 700, 820, 960, 1100, 1240, 1400, 1600, 1840, 2100, 2400, 2800, 3400, 4200)


def draw(
    composition: Composition, kind: str, size: tuple[float, float] | None = None, font_size: float | None = None
) -> tuple[bytes, float]:
    """Draw an explanation.

    Without a size, the sheet has the default width, scaled by the font size. With a size only, the layout is the one
    that allows the largest font. With both, the font size is exact and the layout has the width of the file; if it then
    exceeds the height, the font is reduced to the largest that fits.

    Args:
        composition: the explanation.
        kind: ``png``, ``svg`` or ``pdf``; a PDF contains a raster picture.
        size: width and height of the file in inches.
        font_size: of most texts, in points.

    Returns:
        The file, and the font size of most of its texts in points.

    Warns:
        MissingGlyphs: no font has a character.
    """
    composition, further = _with_fonts(composition)
    scale = (font_size or POINTS) / POINTS
    if size is None:
        laid, pixels = sheet(composition), None
    else:
        pixels = (size[0] * _INCH, size[1] * _INCH)
        wanted = max(pixels[0] / scale, MIN_WIDTH)
        largest, laid = _largest(composition, (wanted,) if font_size else _WIDTHS, pixels)
        if font_size and largest < 0.99 * scale:  # this font size does not fit: use the largest that does
            largest, laid = _largest(composition, (wanted, *_WIDTHS), pixels)
        scale = min(largest, scale) if font_size else largest
    svg = laid.svg(scale, pixels)
    points = POINTS * scale
    if kind == "svg":
        return svg.encode(), points
    dots = ZOOM * _INCH if size is None else _DPI
    image = rasterise(svg, dots / _INCH, further)
    return image if kind == "png" else as_pdf(image, dots), points


def _largest(composition: Composition, widths: tuple[float, ...], pixels: tuple[float, float]) -> tuple[float, Sheet]:
    """The sheet with the largest scale within a size in pixels, and that scale."""
    sheets = [sheet(composition, width) for width in widths]
    scaled = [(min(pixels[0] / laid.width, pixels[1] / laid.height), laid) for laid in sheets]
    return max(scaled, key=lambda entry: entry[0])


def _with_fonts(composition: Composition) -> tuple[Composition, list[str]]:
    """The content of a picture, with U+FFFD for characters without a font, and the files of additional fonts."""
    shown = tuple(
        replace(section, references=(), blocks=tuple(b for b in section.blocks if not isinstance(b, Table)))
        for section in composition.sections
    )
    composition = replace(composition, sections=shown)
    covered = style.coverage(list(_strings(composition)))
    if covered.is_usual:
        return composition, []
    if covered.missing:
        style.warn_missing("the picture", covered.missing, covered.tried)
        composition = _translated(composition, dict.fromkeys(covered.missing, style.UNKNOWN))
    return composition, style.face_files(covered.families[1:])


def _strings(value: object) -> Iterator[str]:
    """All texts within tuples and dataclasses, including those of drawings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _strings(entry)
    elif isinstance(value, Drawing):
        yield value.body
    elif is_dataclass(value):
        for within in fields(value):
            yield from _strings(getattr(value, within.name))


def _translated(value: Any, table: dict[int, str]) -> Any:
    """A copy with characters replaced in these texts."""
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, tuple):
        return tuple(_translated(entry, table) for entry in value)
    if isinstance(value, Drawing):
        return replace(value, body=value.body.translate(table))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{w.name: _translated(getattr(value, w.name), table) for w in fields(value)})
    return value


# Writing an explanation as a page and a picture.


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
    """Draw an explanation and write it to two files.

    Args:
        explanation: the explanation.
        picture: uint8 (height, width, 3) RGB, None if it is not available.
        html: the page.
        drawn: the picture with the same drawings: a PNG, an SVG or a PDF, by its suffix.
        title: of both; ``""`` for that of the metric and the image.
        size: of the picture in inches; None for the size of the content.
        font_size: of most of its texts in points; see :func:`capbench.reports.explain.page.draw`.

    Returns:
        The font size of most of its texts, in points.

    Raises:
        UsageError: a file cannot be written.
    """
    regions = explanation.regions or Regions(())
    scene = make_scene(picture, regions.boxes, regions.size)
    composition = compose(explanation, scene, title)
    files.write_text(html, page(composition))
    content, points = draw(composition, drawn.suffix.lower().removeprefix("."), size, font_size)
    with files.atomic_write(drawn, "wb") as stream:
        stream.write(content)
    return points
