"""Tables in the terminal, as rich tables that fit the available width."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from capbench.reports.markup import SAMPLE
from capbench.reports.table import CEILING, PUBLISHED, SENTINELS, Cell, Column, Document, Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STYLES = {CEILING: "italic", SENTINELS: "dim"}


def print_document(document: Document, console: Console, *, details: bool = False) -> None:
    """Print tables; with ``details`` also data, methods and signatures."""
    for table in document.tables:
        print_table(table, console, details=details)
    lines = document.signatures if details else ["Protocols, counts, methods, remarks (*), signatures: --details"]
    print_lines(console, lines, style="dim")


def printed(print_to: Callable[[Console], None], *, sample: bool = False) -> str:
    """The text that a function prints on a console of 200 columns, after a line on the sample."""
    from rich.console import Console

    text = io.StringIO()
    print_to(Console(file=text, width=200, highlight=False, force_jupyter=False, color_system=None))
    lines = [*([SAMPLE] if sample else []), *text.getvalue().splitlines()]
    return "\n".join(line.rstrip() for line in lines)


def print_table(table: Table, console: Console, *, details: bool = False) -> None:
    """Print a table with its answer, warnings and legend, and with ``details`` with data and methods.

    Columns that do not fit next to each other are printed below each other.
    """
    # Second lines are printed next to their values if the whole table then fits, else below them.
    inline = len(_blocks(table, console.width, inline=True)) == 1
    for place, columns in enumerate(_blocks(table, console.width, inline=inline)):
        title = f"\n{table.title} (continued)" if place else table.title
        if title:
            console.print(title, style="bold", markup=False, soft_wrap=not console.is_terminal)
        console.print(_rich(table, columns, inline=inline))
    console.print()
    print_lines(console, table.answer)
    print_lines(console, table.warnings, mark="! ")
    print_lines(console, table.legend, style="dim")
    if details:
        print_lines(console, (*table.footnotes, *table.notes), mark="  ", style="dim")
    console.print()


def print_lines(console: Console, lines: Iterable[str], *, mark: str = "", style: str = "") -> None:
    """Print lines, which wrap in a terminal with a hanging indent and stay whole in a file."""
    for line in dict.fromkeys(lines):
        text = f"{mark}{line}"
        if console.is_terminal:
            text = textwrap.fill(text, console.width, subsequent_indent="  " if mark else "", break_long_words=False)
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _text(cell: Cell, marks: int, *, inline: bool) -> str:
    """The text of a cell; values with fewer marks than their neighbours are padded, so that digits align."""
    value, space, deviation = cell.value.partition(" ±")
    text = f"{value}{cell.marks:<{marks}}{space}{deviation}" if cell.value else cell.marks
    return f"{text}{' ' if inline else chr(10)}{cell.below}" if cell.below else text


def _column(table: Table, place: int, *, inline: bool) -> tuple[list[str], int]:
    """The texts of a column, and its width without the head's group."""
    marks = max((len(row.cells[place].marks) for row in table.rows), default=0)
    texts = [_text(row.cells[place], marks, inline=inline) for row in table.rows]
    lines = [line for text in (*texts, table.columns[place].head) for line in text.split("\n")]
    return texts, max(map(len, lines), default=0)


def _head(column: Column, width: int) -> list[str]:
    """The lines of a head: the group, wrapped to the column's width, above the head."""
    if column.with_previous:
        return [column.head]
    # A long word may break where a capital follows: Crowd-Flower.
    words = (w if len(w) <= max(width, 9) else re.sub(r"(?<=[a-z])(?=[A-Z])", "-", w) for w in column.group.split())
    return [*textwrap.wrap(" ".join(words), max(width, 9), break_long_words=False), *column.head.split("\n")]


def _blocks(table: Table, width: int, *, inline: bool) -> list[list[int]]:
    """Places of the columns that are printed next to each other."""
    parts = {PUBLISHED for row in table.rows if row.part == PUBLISHED}
    first = max(len(text) for text in (table.head, *parts, *(row.title for row in table.rows)))
    needs = []
    for place, column in enumerate(table.columns):
        _, needed = _column(table, place, inline=inline)
        needs.append(max(needed, *map(len, _head(column, needed))) + 1)
    blocks: list[list[int]] = [[]]
    used = first
    for place, column in enumerate(table.columns):
        with_next = [place]  # what must stand on the same line
        while with_next[-1] + 1 < len(needs) and table.columns[with_next[-1] + 1].with_previous:
            with_next.append(with_next[-1] + 1)
        if blocks[-1] and not column.with_previous and used + sum(needs[at] for at in with_next) > width:
            blocks.append([])
            used = first
        blocks[-1].append(place)
        used += needs[place]
    if inline and used > width:
        blocks.append([])  # one column alone that is too wide
    return blocks


def _rich(table: Table, places: Sequence[int], *, inline: bool) -> object:
    from rich import box
    from rich.table import Table as RichTable

    made = [_column(table, place, inline=inline) for place in places]
    heads = [_head(table.columns[place], width) for place, (_, width) in zip(places, made, strict=True)]
    height = max(map(len, heads), default=1)
    shown = RichTable(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    shown.add_column("\n" * (height - 1) + table.head, overflow="fold")
    for place, head in zip(places, heads, strict=True):
        column = table.columns[place]
        shown.add_column(
            "\n" * (height - len(head)) + "\n".join(head),
            justify="left" if column.text else "right",
            no_wrap=not column.text,
            style="dim" if column.with_previous else "",
        )
    rows = list(zip(table.rows, *(texts for texts, _ in made), strict=True))
    for number, (part, group) in enumerate(groupby(rows, lambda row: row[0].part)):
        of_part = list(group)
        if part == PUBLISHED:  # only those with a number in this block
            of_part = [row for row in of_part if any(text.strip("– ") for text in row[1:])]
        if number and of_part:
            shown.add_section()
        if part == PUBLISHED and of_part:
            shown.add_row(PUBLISHED, style="italic")
        for row, *texts in of_part:
            cells = [_rich_text(row.cells[place], text) for place, text in zip(places, texts, strict=True)]
            shown.add_row(row.title, *cells, style=_STYLES.get(part, ""))
    return shown


def _rich_text(cell: Cell, text: str) -> Text:
    from rich.text import Text

    made = Text(text, style="bold" if cell.bold else "")
    if cell.below:
        made.stylize("not bold dim", len(text) - len(cell.below))
    return made
