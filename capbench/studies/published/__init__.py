"""Numbers printed in papers, as data with their sources.

One YAML file a table lies beside this module. A file names the paper, describes each column (which protocol it
is, as far as that can be told) and lists rows of values exactly as printed, so that a comparison knows
how many digits there are. Values are facts taken from the papers' texts; where a text does not hold a table's
numbers the file has no rows and says why.

A file holds::

    schema: 1
    paper: {authors: ..., title: ..., venue: ..., year: 2019}
    where: Table 1
    description: one sentence
    missing: why there are no numbers        # only where there are none
    notes: [...]                             # remarks on the table as a whole
    columns:
      - key: composite-tau                   # unique in the table
        printed: Composite τ                 # head of the column
        protocol: composite/…/…              # ours, or null where none fits
        basis: reproduced                    # how the protocol is known: stated, reproduced, inferred
        group: HC                            # part of the protocol's result; left out for the overall value
        unit: fraction                       # fraction, percent, or score (a plain score of a metric)
        note: ...
    rows:
      - key: bleu-1                          # unique in the table
        printed: BLEU-1                      # as in the table, without citation marks
        metric: bleu-1                       # our column, or null for what is not ours
        variant: multi-task                  # left out for the metric as it is by default
        cited: true                          # copied by the paper from elsewhere
        values: ["0.280", null, "50.9 ± 0.70", {value: "0.205", note: ...}]    # one for each column
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from capbench.errors import DataError, UsageError, suggest

__all__ = [
    "Paper",
    "PublishedColumn",
    "PublishedRow",
    "PublishedTable",
    "PublishedValue",
    "load_published",
    "names",
    "parse_table",
]

Unit = Literal["fraction", "percent", "score"]
Basis = Literal["stated", "reproduced", "inferred"]

_VALUE = re.compile(r"(-?\d*\.?\d+)(?: ± (\d*\.?\d+))?")


@dataclass(frozen=True)
class Paper:
    """Where a table stands."""

    authors: str
    title: str
    venue: str
    year: int


@dataclass(frozen=True)
class PublishedColumn:
    """A column of a printed table.

    Attributes:
        key: its name in the file.
        printed: its head in print.
        protocol: full id of the protocol that it is, or None where none of ours fits or it cannot be told.
        basis: how the protocol is known: ``stated`` by the paper, ``reproduced`` (other numbers of the column come out
            under it) or ``inferred`` (it fits best); None without a protocol.
        group: part of the protocol's result (``HC``), ``""`` for the overall value.
        unit: ``percent`` values are a hundred times ours.
        note: a remark, or ``""``.
    """

    key: str
    printed: str
    protocol: str | None
    basis: Basis | None
    group: str
    unit: Unit
    note: str


@dataclass(frozen=True)
class PublishedRow:
    """A row of a printed table.

    Attributes:
        key: its name in the file.
        printed: the metric's name in print.
        metric: our column that it is, or None.
        variant: which variant of that metric, ``""`` for the default one.
        cited: True if the paper copied the row from elsewhere.
    """

    key: str
    printed: str
    metric: str | None
    variant: str
    cited: bool


@dataclass(frozen=True)
class PublishedValue:
    """One printed number.

    Attributes:
        printed: as it stands in the table.
        decimal: the number with the digits that were printed, in the column's unit.
        decimal_sd: its printed standard deviation, in the same unit.
        row: the row it stands in.
        column: the column it stands in.
        note: a remark on this number alone (a likely misprint), or None.
    """

    printed: str
    decimal: Decimal
    decimal_sd: Decimal | None
    row: PublishedRow
    column: PublishedColumn
    note: str | None = None

    @property
    def protocol(self) -> str | None:
        """Full id of the column's protocol."""
        return self.column.protocol

    @property
    def group(self) -> str:
        """The column's group."""
        return self.column.group

    @property
    def scale(self) -> int:
        """What our numbers are multiplied by to be in the printed unit."""
        return 100 if self.column.unit == "percent" else 1

    @property
    def number(self) -> float:
        """The number in our unit: percentages are divided by 100."""
        return float(self.decimal / self.scale)

    @property
    def sd(self) -> float | None:
        """The standard deviation in our unit."""
        return None if self.decimal_sd is None else float(self.decimal_sd / self.scale)

    @property
    def digits(self) -> int:
        """Printed digits after the decimal point."""
        return _digits(self.decimal)

    def agrees(self, ours: float) -> bool:
        """True if our number (in our unit) rounds to the printed one."""
        half = Decimal(1).scaleb(-self.digits) / 2
        # repr gives the shortest decimal, so that 0.3525 is on the edge and not a hair beside it.
        return abs(Decimal(repr(float(ours))) * self.scale - self.decimal) <= half


@dataclass(frozen=True)
class PublishedTable:
    """A printed table.

    Attributes:
        name: its name here (``tiger-table1``).
        paper: the paper.
        where: where in the paper (``Table 1``).
        description: one sentence.
        columns: its columns in print order.
        rows: its rows in print order.
        values: numbers by (column key, row key); cells that print none are absent.
        notes: remarks on the whole.
        missing: why there are no numbers, or None if there are.
    """

    name: str
    paper: Paper
    where: str
    description: str
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]
    values: Mapping[tuple[str, str], PublishedValue]
    notes: tuple[str, ...] = ()
    missing: str | None = None
    _by_protocol: Mapping[tuple[str, str, str, str], PublishedValue] = field(default_factory=dict, repr=False)

    @property
    def source(self) -> str:
        """One line: authors, year, title, venue, and where in the paper."""
        paper = self.paper
        return f"{paper.authors} ({paper.year}). {paper.title}. {paper.venue}. {self.where}"

    def cell(self, column_key: str, row_key: str) -> PublishedValue | None:
        """The number at a column and a row of the printed table, None if none is printed there.

        Raises:
            UsageError: no such column or row.
        """
        for key, known in ((column_key, [c.key for c in self.columns]), (row_key, [r.key for r in self.rows])):
            if key not in known:
                raise UsageError(f"{self.name} has no '{key}'", hint=suggest(key, known))
        return self.values.get((column_key, row_key))

    def value(self, metric: str, protocol: str, group: str = "", variant: str = "") -> PublishedValue | None:
        """What was printed for one of our numbers, or None.

        Args:
            metric: name of our metric column (``bleu-4``).
            protocol: full protocol id.
            group: part of the protocol's result, ``""`` for the overall value.
            variant: variant of the metric, ``""`` for the default one.
        """
        return self._by_protocol.get((metric, variant, protocol, group))

    def values_of(self, metric: str, variant: str = "") -> tuple[PublishedValue, ...]:
        """All numbers printed for one of our metric columns, in print order."""
        return tuple(
            value for value in self.values.values() if value.row.metric == metric and value.row.variant == variant
        )


def names() -> tuple[str, ...]:
    """Names of all tables, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def load_published(name: str) -> PublishedTable:
    """Load a table by name.

    Raises:
        UsageError: there is no such table; the nearest name and the choices are printed.
        DataError: its file does not hold what it should.
    """
    if name not in names():
        raise UsageError(f"unknown published table '{name}'", hint=suggest(name, list(names())))
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_table(name, text)


def parse_table(name: str, text: str) -> PublishedTable:
    """Parse and validate one file's text (form: see the module's docstring).

    Raises:
        DataError: it does not hold what it should; file and place are named.
    """
    import yaml

    path = f"{name}.yaml"
    try:
        raw = yaml.safe_load(text)
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
    values: dict[tuple[str, str], PublishedValue] = {}
    for row, reader in zip(rows, row_readers, strict=True):
        printed = reader.raw.get("values")
        if not isinstance(printed, list) or len(printed) != len(columns):
            raise DataError(f"values should be a list of {len(columns)}, one for each column", path=path, row=row.key)
        for column, cell in zip(columns, printed, strict=True):
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
    reader.only("key", "printed", "protocol", "basis", "group", "unit", "note")
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
    )


def _row(reader: _Reader) -> PublishedRow:
    reader.only("key", "printed", "metric", "variant", "cited", "values")
    cited = reader.raw.get("cited", False)
    if not isinstance(cited, bool):
        raise reader.fail("cited should be true or false")
    return PublishedRow(
        reader.text("key"),
        reader.text("printed"),
        reader.optional("metric") or None,
        reader.optional("variant"),
        cited,
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


def _digits(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _refuse_repeats(path: str, keys: list[Any], what: str) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            raise DataError(f"{what} should be unique, '{key}' is not", path=path)
        seen.add(key)
