"""Compares a study's numbers with a published table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

from capbench.core.records import caption_key
from capbench.metrics.metric_request import Row
from capbench.studies.published.tables import (
    PrintedRow,
    PublishedInfo,
    PublishedRow,
    PublishedTable,
    given_parts,
    signed_facts,
    tells_no_reason,
)
from capbench.studies.results import Cell, StudyResult

STANDARD_ERRORS = 3  # maximum distance from a published mean over draws that needs no explanation


def is_printed_as(row: Row, printed: PublishedRow) -> bool:
    """True if a published row is one of ours: the same column, and the variant that the label names.

    A published row of a metric that is not part of capbench matches scores from elsewhere of the same name.
    """
    if printed.metric is None or printed.label:
        return caption_key(row.name) in map(caption_key, (printed.key, printed.title, printed.label))
    if printed.metric != row.key.column:
        return False
    if row.key.label == row.metric:
        return not printed.variant
    return bool(printed.variant) and row.key.label in (printed.variant, f"{row.metric}-{printed.variant}")


def join_published(
    result: StudyResult, table: PublishedTable, rows: Sequence[Row], changed: Mapping[str, str] | None = None
) -> StudyResult:
    """A result with a published table: numbers in its cells, and the part of the table on protocols of the study.

    ``changed``: by label, inputs that replace the study's own, which are the reason of differences.
    """
    asked = {info.id for info in result.protocols} | {missing.protocol for missing in result.missing}
    columns = [column for column in table.columns if column.protocol is None or column.protocol in asked]
    kept = set(PrintedRow.model_fields) & set(PublishedRow.model_fields)
    printed_rows = [
        PrintedRow(
            **printed.model_dump(include=kept),
            rows=tuple(row.name for row in rows if is_printed_as(row, printed)),
            numbers=tuple(filter(None, (table.values.get((column.key, printed.key)) for column in columns))),
        )
        for printed in table.rows
    ]
    info = PublishedInfo(
        **{name: getattr(table, name) for name in ("name", "source", "missing", "notes", "draws")},
        columns=tuple(columns),
        rows=tuple(printed for printed in printed_rows if printed.numbers),
        authors=_authors(result, table, rows),
    )
    reduced = {protocol.id for protocol in result.protocols if protocol.n_items_whole is not None}
    draws = {protocol.id: protocol.draws for protocol in result.protocols}
    cells = tuple(
        cell if cell.protocol in reduced else _joined(cell, info, draws[cell.protocol], result, changed or {})
        for cell in result.cells
    )
    cells = _settled(cells, info, draws)
    return result.model_copy(update={"cells": cells, "published": table.source, "published_table": info})


def _joined(cell: Cell, info: PublishedInfo, draws: int, result: StudyResult, changed: Mapping[str, str]) -> Cell:
    number = info.number(cell.column, cell.protocol, cell.group)
    if number is None:
        return cell
    label = cell.label or cell.metric
    note = f"computed with {changed[label]}" if label in changed else number.note
    told = note is not None and not tells_no_reason(note)
    has_reason = told or bool(given_parts(result.signatures, label, info))
    return cell.model_copy(
        update={
            "published": number.value,
            "published_printed": number.printed,
            "published_digits": number.digits,
            "published_sd": number.sd,
            "published_note": note,
            "unexplained": not has_reason and _is_off(cell, info, draws),
        }
    )


def _settled(cells: Sequence[Cell], info: PublishedInfo, draws: Mapping[str, int]) -> tuple[Cell, ...]:
    """Cells without the mark "unexplained" where another reading of the column agrees with the printed number: at most
    one of two readings is right.
    """

    def printed(cell: Cell) -> tuple[str, str]:
        column = info.column(cell.protocol, cell.group)
        return cell.column, "" if column is None else column.reading_of or column.key

    known = [cell for cell in cells if cell.published is not None and cell.value is not None]
    agreeing = {printed(cell) for cell in known if not _is_off(cell, info, draws[cell.protocol])}
    return tuple(
        cell.model_copy(update={"unexplained": cell.unexplained and printed(cell) not in agreeing}) for cell in cells
    )


def _is_off(cell: Cell, info: PublishedInfo, draws: int) -> bool:
    """True if rounding and draws of references cannot explain a cell's difference from its printed number.

    The difference of a mean over draws is compared with its standard error; if the paper prints no deviation, its draws
    are assumed to vary as ours do.
    """
    column, number = info.column(cell.protocol, cell.group), info.number(cell.column, cell.protocol, cell.group)
    if column is None or number is None or cell.value is None:
        return False
    scale = 100 if column.unit == "percent" else 1
    # repr gives the shortest decimal, so 0.3525 is exactly on the edge.
    difference = Decimal(repr(float(cell.value))) * scale - Decimal(number.printed.partition(" ")[0])
    if abs(difference) <= Decimal(1).scaleb(-number.digits) / 2:
        return False
    ours = cell.sd or 0.0
    theirs = ours if number.sd is None else number.sd
    error = math.hypot(ours / math.sqrt(draws), theirs / math.sqrt(info.draws))
    return abs(cell.value - number.value) > STANDARD_ERRORS * error


def _authors(
    result: StudyResult, table: PublishedTable, rows: Sequence[Row]
) -> dict[str, tuple[Literal["model", "features"], ...]]:
    """The inputs of each label that are the authors' own: the registered weights of the published row, with the
    published shapes; features whose detector is among the row's detectors.
    """
    lines: dict[str, list[dict[str, str]]] = {}
    for signatures in result.signatures.values():
        for label, line in signatures.items():
            lines.setdefault(label, []).append(signed_facts(line))
    authors: dict[str, tuple[Literal["model", "features"], ...]] = {}
    for label, facts in lines.items():
        printed = [p for row in rows if row.key.label == label for p in table.rows if is_printed_as(row, p)]
        entries = {row.weights for row in printed}
        models = {of_line["model"] for of_line in facts if "model" in of_line}
        features = {of_line["features"].partition("+")[0] for of_line in facts if "features" in of_line}
        parts: list[Literal["model", "features"]] = []
        if models and len(entries) == 1 and models <= _registered(*entries):
            parts.append("model")
        if features and printed and all(features <= set(row.detectors) for row in printed):
            parts.append("features")
        if parts:
            authors[label] = tuple(parts)
    return authors


def _registered(name: str) -> set[str]:
    """Digests of a registered weight file in signatures; empty if it is missing or differs from the published one."""
    if not name:
        return set()
    from capbench.weights.registry import status

    weights = status(name)
    if weights.state != "here" or weights.sha256 is None or not weights.fits or weights.remark is not None:
        return set()
    digest = weights.sha256[:16]
    return {digest, f"scan-{digest}", f"vilbert-{digest}"}
