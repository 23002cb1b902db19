"""Puts a published table beside the numbers of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence

from capbench.metrics.requests import Row
from capbench.records import caption_key
from capbench.studies.published.printed import (
    PrintedColumn,
    PrintedNumber,
    PrintedRow,
    PublishedInfo,
    tells_no_reason,
)
from capbench.studies.published.tables import PublishedColumn, PublishedRow, PublishedTable, PublishedValue
from capbench.studies.results import Cell, StudyResult

__all__ = ["TOLERANCE", "is_printed_as", "join_published"]

TOLERANCE = 0.01
"""A larger difference from a published number (a point of a percentage) needs a reason."""


def is_printed_as(row: Row, printed: PublishedRow) -> bool:
    """True if a published row is one of ours: the same column, and the variant that the label names.

    A request without a label is the metric's default variant. A published row of a metric that capbench does not have
    is that of scores from elsewhere, or of a metric of one's own, which bear its name.
    """
    if printed.metric is None or printed.label:
        return caption_key(row.name) in map(caption_key, (printed.key, printed.printed, printed.label))
    if printed.metric != row.key.column:
        return False
    if row.key.label == row.metric:
        return not printed.variant
    return bool(printed.variant) and row.key.label in (printed.variant, f"{row.metric}-{printed.variant}")


def join_published(result: StudyResult, table: PublishedTable, rows: Sequence[Row]) -> StudyResult:
    """A result with a published table: numbers in its cells, and all of the table that belongs beside them.

    Columns whose protocol the study does not ask for stay out. Rows that none of ours is are published only.

    Args:
        result: a result without published numbers.
        table: the table that the study names.
        rows: the study's rows, those that could not be computed included.
    """
    asked = {info.id for info in result.protocols} | {missing.protocol for missing in result.missing}
    columns = [column for column in table.columns if column.protocol is None or column.protocol in asked]
    printed_rows = [_printed_row(table, printed, columns, rows) for printed in table.rows]
    info = PublishedInfo(
        name=table.name,
        source=table.source,
        missing=table.missing,
        notes=table.notes,
        columns=tuple(_printed_column(column) for column in columns),
        rows=tuple(printed for printed in printed_rows if printed.numbers),
        authors_models=_authors_models(result),
    )
    cells = tuple(_joined(cell, info.number(cell.column, cell.protocol, cell.group)) for cell in result.cells)
    cells = _settled(cells, info)
    return result.model_copy(update={"cells": cells, "published": table.source, "published_table": info})


def _printed_column(column: PublishedColumn) -> PrintedColumn:
    return PrintedColumn(
        key=column.key,
        head=column.printed,
        protocol=column.protocol,
        group=column.group,
        basis=column.basis,
        unit=column.unit,
        note=column.note,
        reading_of=column.reading_of,
    )


def _printed_row(
    table: PublishedTable, printed: PublishedRow, columns: Sequence[PublishedColumn], rows: Sequence[Row]
) -> PrintedRow:
    values = [table.values.get((column.key, printed.key)) for column in columns]
    return PrintedRow(
        title=printed.printed,
        metric=printed.metric,
        variant=printed.variant,
        cited=printed.cited,
        rows=tuple(row.name for row in rows if is_printed_as(row, printed)),
        numbers=tuple(_printed_number(value) for value in values if value is not None),
    )


def _printed_number(value: PublishedValue) -> PrintedNumber:
    return PrintedNumber(
        column=value.column.key,
        printed=value.printed,
        value=value.number,
        digits=value.digits,
        sd=value.sd,
        note=value.note,
    )


def _joined(cell: Cell, number: PrintedNumber | None) -> Cell:
    if number is None:
        return cell
    return cell.model_copy(
        update={
            "published": number.value,
            "published_printed": number.printed,
            "published_digits": number.digits,
            "published_sd": number.sd,
            "published_note": number.note,
            "unexplained": (number.note is None or tells_no_reason(number.note)) and _differs(cell, number),
        }
    )


def _settled(cells: tuple[Cell, ...], info: PublishedInfo) -> tuple[Cell, ...]:
    """Cells of which none is unexplained whose printed number agrees with ours under another reading of its column.

    Of two readings of a column one is wrong: that ours differs under it is no riddle where it agrees under the other.
    """
    homes: dict[tuple[str, str], str] = {
        (column.protocol, column.group): column.reading_of or column.key for column in info.columns if column.protocol
    }
    repeated = {column.reading_of for column in info.columns if column.reading_of}

    def number_of(cell: Cell) -> tuple[str, str] | None:
        home = homes.get((cell.protocol, cell.group))
        return (cell.column, home) if home in repeated and cell.published is not None else None

    agreeing = {number_of(cell) for cell in cells if not _is_off(cell, info)}
    return tuple(
        cell.model_copy(update={"unexplained": False})
        if cell.unexplained and number_of(cell) is not None and number_of(cell) in agreeing
        else cell
        for cell in cells
    )


def _is_off(cell: Cell, info: PublishedInfo) -> bool:
    number = info.number(cell.column, cell.protocol, cell.group)
    return number is not None and _differs(cell, number)


def _differs(cell: Cell, number: PrintedNumber) -> bool:
    """True if two numbers differ by more than rounding and draws of references can do.

    A paper that prints no deviation is taken to have drawn as we did, so that its number varies as ours does.
    """
    sd = cell.sd or 0.0
    spread = math.hypot(sd, sd if number.sd is None else number.sd)
    # A difference of .010 in print is no more than the tolerance, whatever its last binary digit is.
    return abs(cell.value - number.value) > max(TOLERANCE + 1e-9, 2 * spread)


def _authors_models(result: StudyResult) -> tuple[str, ...]:
    """Models of the signatures that are weights of a paper's authors, added to ours under the name they have there."""
    lines = {line for signatures in result.signatures.values() for line in signatures.values()}
    models = {fact.removeprefix("model:") for line in lines for fact in line.split("|") if fact.startswith("model:")}
    if not models:
        return ()
    from capbench.models.registry import entries, status

    known = [status(name) for name, entry in entries().items() if "tiger" in entry.used_by]
    authors = {f"scan-{weights.sha256[:16]}" for weights in known if weights.state == "here" and weights.sha256}
    return tuple(sorted(models & authors))
