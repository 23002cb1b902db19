"""An explanation as one HTML file: nothing is loaded from elsewhere, and no script runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from capbench.explain.composing import Block, Composition, Figure, Row, Section, score_pieces, sentence
from capbench.explain.drawing import DARK, DRAWING_STYLE, LIGHT, clean
from capbench.explanations import Note, Scores, Table, Tone, WeightedWords

__all__ = ["page", "style_sheet"]

_STEPS = 60
"""Shades of a marked word; text stays readable on the strongest, which is so many percent of a colour."""

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
    """What stands in every page's only ``<style>``: a page that holds explanations can name it by its checksum.

    Elements carry no style of their own, so that such a page need not allow any.
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
    """The whole file."""
    title = clean(composition.title)
    notes = "".join(f"<p>{clean(note)}</p>" for note in composition.notes)
    shared = (
        f'<svg class="shared" width="0" height="0" aria-hidden="true"><defs>{composition.definitions}</defs></svg>\n'
        if composition.definitions
        else ""
    )
    body = "\n".join(line for section in composition.sections for line in _section(section))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n{shared}<h1>{title}</h1>\n{notes}"
        f"<p><code>{clean(composition.signature)}</code></p>\n{body}\n</body>\n</html>\n"
    )


def _colours(palette: Mapping[str, str]) -> str:
    return f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in palette.items())} }}"


def _section(section: Section) -> Iterable[str]:
    if section.title:
        yield f"<h2>{clean(section.title)}</h2>"
    if section.human is not None:
        yield f'<p><span class="score">people {section.human:.2f}</span></p>'
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
    """With ``hint``, what the whole drawing shows appears under a pointer; other drawings have hints within."""
    drawing = figure.drawing
    told = f' title="{clean(drawing.label)}"' if hint else ""
    note = f'<br><span class="soft">{clean(figure.note)}</span>' if figure.note else ""
    return f"<figure{told}><figcaption><b>{clean(figure.title)}</b>{note}</figcaption>{drawing.element()}</figure>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{clean(text)}</th>" for text in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{clean(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
