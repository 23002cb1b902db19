"""Results as pieces of HTML, for notebooks: tables, notes and signatures, with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from capbench.records import signature_lines
from capbench.reports.table_records import Column, Entry, Row, Table
from capbench.reports.tables import PUBLISHED_ONLY
from capbench.reports.tables import tables as make_tables
from capbench.studies.results import StudyResult, missing_word

__all__ = ["SAMPLE", "document", "html_table", "to_html"]

SAMPLE = "Computed on the embedded synthetic sample: these numbers say nothing about metrics."


def document(*blocks: str, notes: Sequence[str] = (), signatures: Sequence[str] = ()) -> str:
    """Blocks of HTML, and below them notes and signatures.

    Args:
        blocks: HTML.
        notes: plain texts.
        signatures: plain texts.
    """
    listed = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    signed = "".join(f"<li><code>{escape(line)}</code></li>" for line in dict.fromkeys(signatures))
    parts = [*blocks, *([f"<ul>{listed}</ul>"] if listed else [])]
    if signed:
        parts.append(f"<details><summary>Signatures</summary><ul>{signed}</ul></details>")
    return f'<div class="capbench">{"".join(parts)}</div>'


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1, title: str = "") -> str:
    """A table of plain texts as HTML.

    Args:
        heads: one for each column.
        rows: the texts.
        texts: how many columns, from the left, are texts; the others are numbers.
        title: its caption.
    """

    def cell(tag: str, place: int, text: str) -> str:
        side = "left" if place < texts else "right"
        return f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>'

    def line(tag: str, row: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, place, text) for place, text in enumerate(row))}</tr>"

    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(line("td", row) for row in rows)
    return f"<table>{caption}<thead>{line('th', heads)}</thead><tbody>{body}</tbody></table>"


def to_html(result: StudyResult) -> str:
    """All tables of a result, with notes, what is missing, and signatures."""
    blocks = []
    for table in make_tables(result):
        heads = ["metric"]
        for column in table.columns:
            heads += column.parts(column.name, column.name if column.published_alone else "published", "diff")
        blocks.append(html_table(heads, _rows(table), title=table.title))
        below = [*table.notes, *(f"ranks, {ranks}" for ranks in table.ranks)]
        blocks.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in below) + "</ul>")
    notes = [SAMPLE] if result.sample else []
    notes += [f"{', '.join(names)}: {reason}" for reason, names in result.reasons().items()]
    signatures = [line for by_label in result.signatures.values() for line in signature_lines(by_label)]
    return document(*blocks, notes=notes, signatures=signatures)


def _rows(table: Table) -> list[list[str]]:
    rows = []
    for row in table.all_rows:
        if table.published_only and row is table.published_only[0]:
            rows.append([PUBLISHED_ONLY, *[""] * sum(len(column.parts("", "", "")) for column in table.columns)])
        texts = [row.title]
        for entry, column in zip(row.entries, table.columns, strict=True):
            texts += _texts(row, entry, column)
        rows.append(texts)
    return rows


def _texts(row: Row, entry: Entry, column: Column) -> tuple[str, ...]:
    ours = entry.marked or (missing_word(row.missing) if row.missing else "")
    return column.parts(f"{ours} {entry.interval}".strip(), entry.published, entry.difference)
