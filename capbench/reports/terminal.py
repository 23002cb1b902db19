"""Results in the terminal, as rich tables that fit the available width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capbench.core.records import signature_lines
from capbench.datasets.protocol import with_version
from capbench.reports.table import Column, Entry, Row, Table
from capbench.reports.tables import PUBLISHED_ONLY
from capbench.reports.tables import tables as make_tables
from capbench.studies.results import StudyResult, is_left_out, missing_word

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_BELOW = "\n"


def print_result(result: StudyResult, console: Console, *, by_source: bool = True) -> None:
    """Print every table of a result, its signatures, and what is missing; see :func:`tables.tables`."""
    print_tables(result, console, by_source=by_source)
    _print_missing(result, console)
    _print_signatures(result, console)


def print_tables(result: StudyResult, console: Console, *, by_source: bool = True) -> None:
    """Print every table of a result, without signatures and missing metrics."""
    for table in make_tables(result, by_source=by_source):
        print_table(table, console)


def print_table(table: Table, console: Console) -> None:
    """Print one table; columns that do not fit next to each other are printed below each other."""
    # Intervals are printed next to their values if the whole table then fits, else below them.
    blocks = _split(table, console.width, inline=True)
    inline = len(blocks) == 1
    if not inline:
        blocks = _split(table, console.width, inline=False)
    for number, columns in enumerate(blocks):
        title = table.title if number == 0 else f"{table.title} (continued)"
        console.print(title, style="bold", markup=False, soft_wrap=not console.is_terminal)
        console.print(_rich(table, columns, inline))
    for line in (*table.notes, *(f"ranks, {ranks}" for ranks in table.ranks)):
        style = "" if line in table.answer else "dim"
        console.print(f"  {line}", style=style, markup=False, soft_wrap=not console.is_terminal)
    console.print()


def _texts(entry: Entry, column: Column, inline: bool) -> tuple[str, ...]:
    """The texts of an entry's columns, without colours, for measuring."""
    value = _value(entry, column)
    if entry.interval:
        value += f"{' ' if inline else _BELOW}{entry.interval}"
    return column.parts(value, entry.published, entry.difference)


def _value(entry: Entry, column: Column) -> str:
    if not entry.ours:
        return entry.instead
    value, space, deviation = entry.ours.partition(" ")
    # Unmarked values are padded, so that their digits align with those of marked ones.
    return f"{value}{entry.marks:<{column.marks}}{space}{deviation}"


def _heads(column: Column, height: int = 1) -> tuple[str, ...]:
    """The heads of a column's texts, padded to a number of lines so that their last lines align."""
    head = _BELOW.join(word for word in (column.head[0], column.detail, column.head[1]) if word)
    shown = column.parts(head, head if column.published_alone else "paper", "diff")
    return tuple(_filled(text, height) for text in shown)


def _filled(head: str, height: int) -> str:
    return _BELOW * (height - 1 - head.count(_BELOW)) + head


def _widths(table: Table, index: int, inline: bool) -> int:
    column = table.columns[index]
    texts = [_texts(row.entries[index], column, inline) for row in table.all_rows]
    total = 0
    for i, head in enumerate(_heads(column)):
        lines = [line for text in (head, *(text[i] for text in texts)) for line in text.split(_BELOW)]
        total += max(len(line) for line in lines) + 2  # padding and the space between columns
    return total


def _split(table: Table, width: int, *, inline: bool) -> list[list[int]]:
    """Column indices of the blocks in which a table is printed."""
    first = max([len(row.title) for row in table.all_rows] + [len("metric")]) + 2
    if table.published_only:
        first = max(first, len(PUBLISHED_ONLY) + 2)
    blocks: list[list[int]] = [[]]
    used = first
    for index in range(len(table.columns)):
        need = _widths(table, index, inline)
        if blocks[-1] and used + need > width:
            blocks.append([])
            used = first
        blocks[-1].append(index)
        used += need
    if inline and used > width:
        blocks.append([])  # one column alone that is too wide
    return blocks


def _rich(table: Table, indices: list[int], inline: bool) -> object:
    from rich import box
    from rich.table import Table as RichTable

    made = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    height = max((head.count(_BELOW) + 1 for i in indices for head in _heads(table.columns[i])), default=1)
    made.add_column(_filled("metric", height), no_wrap=True)
    for index in indices:
        for i, head in enumerate(_heads(table.columns[index], height)):
            made.add_column(head, justify="right", no_wrap=True, style="dim" if i else "")
    for row in table.rows:
        empty = row.missing and not any(entry.ours for entry in row.entries)
        made.add_row(row.title, *_cells(table, row, indices, inline), style="dim" if empty else "")
    if table.ceiling is not None:
        made.add_section()
        made.add_row(table.ceiling.title, *_cells(table, table.ceiling, indices, inline), style="italic")
    if table.sentinels:
        made.add_section()
        for row in table.sentinels:
            made.add_row(row.title, *_cells(table, row, indices, inline), style="dim")
    # A block of columns has only those rows that have a number in it.
    only = [row for row in table.published_only if any(row.entries[index].published for index in indices)]
    if only:
        made.add_section()
        made.add_row(PUBLISHED_ONLY, style="italic")
    for row in only:
        made.add_row(row.title, *_cells(table, row, indices, inline))
    return made


def _cells(table: Table, row: Row, indices: list[int], inline: bool) -> list[Text | str]:
    from rich.text import Text

    cells: list[Text | str] = []
    for index in indices:
        column, entry = table.columns[index], row.entries[index]
        value = _value(entry, column)
        if row.missing and not value:
            value = missing_word(row.missing)
        is_best = table.is_metric(row) and column.best is not None and entry.ours.split(" ")[0] == column.best
        text = Text(value, style="bold" if is_best else "")
        if entry.interval:
            text.append(f"{' ' if inline else _BELOW}{entry.interval}", style="not bold dim")
        if not column.published_alone:
            cells.append(text)
        if column.compared or column.published_alone:
            cells.append(entry.published)
        if column.compared:
            cells.append(entry.difference)
    return cells


def _print_missing(result: StudyResult, console: Console) -> None:
    by_reason = result.reasons()
    for reason, names in by_reason.items():
        planned = any(m.planned for m in result.missing if m.reason == reason)
        separator = (
            " " if is_left_out(reason) else f": require{'s' * (len(names) == 1)} " if planned else " not computed: "
        )
        console.print(f"{', '.join(names)}{separator}{reason}", markup=False, soft_wrap=True)
    if by_reason:
        console.print()


def _print_signatures(result: StudyResult, console: Console) -> None:
    lines: dict[str, list[str]] = {}
    versions = {info.id.rpartition("/")[0]: info.version for info in result.protocols}
    for items, signatures in result.signatures.items():
        for signature in signature_lines(signatures):
            lines.setdefault(signature, []).append(with_version(items, versions.get(items, "")))
    everywhere = len(result.signatures)
    for sentinels in result.sentinels:
        for signature in sentinels.signatures.values():
            lines.setdefault(signature, []).append(sentinels.protocol)
    for signature, where in lines.items():
        suffix = "" if len(where) == everywhere else f"  [{', '.join(where)}]"
        console.print(f"{signature}{suffix}", style="dim", markup=False, soft_wrap=True)
