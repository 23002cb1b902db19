"""Reads and validates the file of a published table."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, get_args

from capbench.errors import DataError, suggest
from capbench.studies.published.tables import (
    Basis,
    Paper,
    PublishedColumn,
    PublishedRow,
    PublishedTable,
    PublishedValue,
    Unit,
)

__all__ = ["parse_table"]

_VALUE = re.compile(r"(-?\d*\.?\d+)(?: ± (\d*\.?\d+))?")


def parse_table(name: str, text: str) -> PublishedTable:
    """Parse and validate one file's text (form: see :mod:`capbench.studies.published`).

    Raises:
        DataError: it does not hold what it should; file and place are named.
    """
    import yaml

    from capbench.yaml_files import parse_own

    path = f"{name}.yaml"
    try:
        raw = parse_own(text)
    except yaml.YAMLError as error:
        raise DataError(f"is not YAML: {error}", path=path) from error
    top = _Reader(path, "", raw)
    top.only("schema", "paper", "where", "description", "missing", "notes", "columns", "rows")
    if top.raw.get("schema") != 1:
        raise DataError(f"has the schema {top.raw.get('schema')!r}, this version reads 1", path=path)
    paper = _Reader(path, "paper", top.raw.get("paper"))
    paper.only("authors", "title", "venue", "year")
    year = paper.raw.get("year")
    if not isinstance(year, int):
        raise DataError("year should be a whole number", path=path, row="paper")
    columns = tuple(_column(reader) for reader in top.entries("columns"))
    row_readers = top.entries("rows")
    rows = tuple(_row(reader) for reader in row_readers)
    missing = top.optional("missing")
    if bool(rows) == bool(missing):
        raise DataError("needs either rows or, where there are no numbers, 'missing' with the reason", path=path)
    _refuse_repeats(path, [c.key for c in columns], "column keys")
    _refuse_repeats(path, [r.key for r in rows], "row keys")
    _refuse_repeats(path, [(c.protocol, c.group) for c in columns if c.protocol], "protocols with group")
    _refuse_repeats(path, [(r.metric, r.variant) for r in rows if r.metric], "metrics with variant")
    with_numbers = [column.key for column in columns if not column.reading_of]
    for column in columns:
        if column.reading_of and column.reading_of not in with_numbers:
            raise DataError(
                f"reading_of names '{column.reading_of}', which is no column with numbers of its own",
                path=path,
                row=column.key,
                hint=suggest(column.reading_of, with_numbers),
            )
    values: dict[tuple[str, str], PublishedValue] = {}
    for row, reader in zip(rows, row_readers, strict=True):
        printed = reader.raw.get("values")
        if not isinstance(printed, list) or len(printed) != len(with_numbers):
            raise DataError(
                f"values should be a list of {len(with_numbers)}, one for each column", path=path, row=row.key
            )
        cells = dict(zip(with_numbers, printed, strict=True))
        for column in columns:
            cell = cells[column.reading_of or column.key]
            if cell is not None:
                values[column.key, row.key] = _value(path, row, column, cell)
    by_protocol = {
        (value.row.metric, value.row.variant, value.protocol, value.group): value
        for value in values.values()
        if value.row.metric is not None and value.protocol is not None
    }
    notes = top.raw.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise DataError("notes should be a list of sentences", path=path)
    return PublishedTable(
        name,
        Paper(paper.text("authors"), paper.text("title"), paper.text("venue"), year),
        top.text("where"),
        top.text("description"),
        columns,
        rows,
        values,
        tuple(notes),
        missing or None,
        by_protocol,
    )


class _Reader:
    """One mapping of a file, with its place for error messages."""

    def __init__(self, path: str, place: str, raw: object) -> None:
        if not isinstance(raw, dict):
            raise DataError("should be a mapping of keys to values", path=path, row=place or None)
        self.path, self.place = path, place
        self.raw: dict[Any, Any] = raw

    def fail(self, message: str) -> DataError:
        return DataError(message, path=self.path, row=self.place or None)

    def only(self, *known: str) -> None:
        for key in self.raw:
            if key not in known:
                raise DataError(
                    f"unknown key '{key}'", path=self.path, row=self.place or None, hint=suggest(str(key), [*known])
                )

    def optional(self, key: str) -> str:
        text = self.raw.get(key)
        if text is None:
            return ""
        if not isinstance(text, str):
            raise self.fail(f"{key} should be a text")
        return text

    def text(self, key: str) -> str:
        text = self.optional(key)
        if not text:
            raise self.fail(f"{key} is missing")
        return text

    def entries(self, key: str) -> list[_Reader]:
        entries = self.raw.get(key)
        if not isinstance(entries, list):
            raise self.fail(f"{key} should be a list")
        return [_Reader(self.path, f"{key}, entry {i}", entry) for i, entry in enumerate(entries, start=1)]

    def choice(self, key: str, choices: tuple[str, ...]) -> Any:
        text = self.text(key)
        if text not in choices:
            raise self.fail(f"{key} is '{text}' but should be one of {', '.join(choices)}")
        return text


def _column(reader: _Reader) -> PublishedColumn:
    reader.only("key", "printed", "protocol", "basis", "group", "unit", "note", "reading_of")
    protocol = reader.optional("protocol") or None
    if protocol is not None and protocol.count("/") != 2:
        raise reader.fail(f"the protocol '{protocol}' should have the form dataset/items/statistic")
    return PublishedColumn(
        reader.text("key"),
        reader.text("printed"),
        protocol,
        None if protocol is None else reader.choice("basis", get_args(Basis)),
        reader.optional("group"),
        reader.choice("unit", get_args(Unit)),
        reader.optional("note"),
        reader.optional("reading_of"),
    )


def _row(reader: _Reader) -> PublishedRow:
    reader.only("key", "printed", "metric", "variant", "cited", "label", "values")
    cited = reader.raw.get("cited", False)
    if not isinstance(cited, bool):
        raise reader.fail("cited should be true or false")
    return PublishedRow(
        reader.text("key"),
        reader.text("printed"),
        reader.optional("metric") or None,
        reader.optional("variant"),
        cited,
        reader.optional("label"),
    )


def _value(path: str, row: PublishedRow, column: PublishedColumn, cell: object) -> PublishedValue:
    note: object = None
    if isinstance(cell, dict):
        reader = _Reader(path, row.key, cell)
        reader.only("value", "note")
        cell, note = reader.raw.get("value"), reader.raw.get("note")
    # Numbers must be quoted: YAML would read 0.280 as 0.28 and lose a digit.
    match = _VALUE.fullmatch(cell) if isinstance(cell, str) else None
    if match is None or not isinstance(note, str | None):
        raise DataError(
            f"the value for {column.key} is {cell!r}",
            path=path,
            row=row.key,
            hint='Give it as printed and in quotes, such as "0.280" or "50.9 ± 0.70"',
        )
    sd = None if match[2] is None else Decimal(match[2])
    return PublishedValue(match[0], Decimal(match[1]), sd, row, column, note)


def _refuse_repeats(path: str, keys: list[Any], what: str) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            raise DataError(f"{what} should be unique, '{key}' is not", path=path)
        seen.add(key)
