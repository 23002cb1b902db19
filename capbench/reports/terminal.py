"""Results in the terminal, as rich tables that fit the width at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capbench.reports.tables import Column, Entry, Table
from capbench.reports.tables import tables as make_tables
from capbench.studies.results import StudyResult

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_result", "print_table"]


def print_result(result: StudyResult, console: Console) -> None:
    """Print every table of a result, its signatures, and what is missing."""
    for table in make_tables(result):
        print_table(table, console)
    _print_missing(result, console)
    _print_signatures(result, console)


def print_table(table: Table, console: Console) -> None:
    """Print one table; columns that do not fit beside each other go below each other."""
    parts = _split(table, console.width)
    for number, columns in enumerate(parts):
        title = table.title if number == 0 else f"{table.title} (continued)"
        console.print(title, style="bold", markup=False, soft_wrap=not console.is_terminal)
        console.print(_rich(table, columns))
    for line in table.notes:
        console.print(f"  {line}", style="dim", markup=False, soft_wrap=not console.is_terminal)
    console.print()


def _texts(entry: Entry, column: Column) -> tuple[str, ...]:
    return (entry.ours, entry.published, entry.difference) if column.compared else (entry.ours,)


def _head(column: Column) -> tuple[str, ...]:
    outer, inner = column.head
    return (f"{outer}\n{inner}", "\npaper", "\ndiff") if column.compared else (f"{outer}\n{inner}",)


def _widths(table: Table, index: int) -> int:
    column = table.columns[index]
    heads = _head(column)
    total = 0
    for i in range(len(heads)):
        lines = heads[i].split("\n") + [_texts(row.entries[index], column)[i] for row in table.rows]
        total += max(len(line) for line in lines) + 2  # padding and the space between columns
    return total


def _split(table: Table, width: int) -> list[list[int]]:
    first = max([len(row.title) for row in table.rows] + [6]) + 2
    parts: list[list[int]] = [[]]
    used = first
    for index in range(len(table.columns)):
        need = _widths(table, index)
        if parts[-1] and used + need > width:
            parts.append([])
            used = first
        parts[-1].append(index)
        used += need
    return parts


def _rich(table: Table, indices: list[int]) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    made.add_column("\nmetric", no_wrap=True)
    for index in indices:
        for i, head in enumerate(_head(table.columns[index])):
            made.add_column(head, justify="right", no_wrap=True, style="dim" if i else "")
    for row in table.rows:
        texts: list[Text | str] = [row.title]
        for index in indices:
            column = table.columns[index]
            ours, *rest = _texts(row.entries[index], column)
            if row.missing and not ours:
                ours = "waits"
            texts.append(Text(ours, style="bold" if column.best and ours.split(" ")[0] == column.best else ""))
            texts.extend(rest)
        made.add_row(*texts, style="dim" if row.missing else "")
    return made


def _print_missing(result: StudyResult, console: Console) -> None:
    by_reason: dict[str, list[str]] = {}
    for missing in result.missing:
        by_reason.setdefault(missing.reason, []).append(missing.title or missing.protocol)
    for reason, names in by_reason.items():
        planned = any(m.planned for m in result.missing if m.reason == reason)
        word = "waits for" if planned else "not computed:"
        console.print(f"{', '.join(dict.fromkeys(names))} {word} {reason}", markup=False, soft_wrap=True)
    if by_reason:
        console.print()


def _print_signatures(result: StudyResult, console: Console) -> None:
    lines: dict[str, list[str]] = {}
    for items, signatures in result.signatures.items():
        for signature in signatures.values():
            lines.setdefault(signature, []).append(items)
    everywhere = len(result.signatures)
    for signature, where in lines.items():
        suffix = "" if len(where) == everywhere else f"  [{', '.join(where)}]"
        console.print(f"{signature}{suffix}", style="dim", markup=False, soft_wrap=True)
