"""Published tables: their parts, the parser of their files, and the part that results store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, get_args

from capbench.core.errors import DataError, UsageError, check_choice, suggest
from capbench.core.typed_json import Strict

Unit = Literal["fraction", "percent", "score"]
Basis = Literal["stated", "reproduced", "inferred"]


@dataclass(frozen=True)
class Paper:
    """Bibliographic source of a table."""

    authors: str
    title: str
    venue: str
    year: int


@dataclass(frozen=True)
class PublishedColumn:
    """A column of a printed table.

    Attributes:
        key: its name in the file.
        printed: its printed heading.
        protocol: full id of its protocol, or None if none fits or it is unknown.
        basis: source of the protocol: ``stated`` by the paper, ``reproduced`` (other numbers of the column are
            reproduced under it) or ``inferred`` (it fits best); None without a protocol.
        group: group of the protocol's result (``HC``), ``""`` for the overall value.
        unit: ``percent`` values are a hundred times ours.
        note: a note, or ``""``.
        reading_of: key of the column whose numbers it repeats under another possible protocol; ``""`` for a column
            with numbers.
    """

    key: str
    printed: str
    protocol: str | None
    basis: Basis | None
    group: str
    unit: Unit
    note: str
    reading_of: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """A row of a printed table.

    Attributes:
        key: its name in the file.
        printed: the metric's printed name.
        metric: capbench's column, or None.
        variant: variant of that metric, ``""`` for the default one.
        cited: True if the paper copied the row from elsewhere.
        label: label of scores from elsewhere that belong to this row, ``""`` for none.
        weights: the registry's name of the row's weights, ``""`` if they were not published.
        detectors: detectors of the row's features.
        reads_references: True if the metric reads references; None if not recorded.
        uses_ratings: True if the metric was trained on human ratings of captions; None if not recorded or unknown.
        second_hand: True if the numbers were copied from a collection and not seen in the paper.
    """

    key: str
    printed: str
    metric: str | None
    variant: str
    cited: bool
    label: str = ""
    weights: str = ""
    detectors: tuple[str, ...] = ()
    reads_references: bool | None = None
    uses_ratings: bool | None = None
    second_hand: bool = False


@dataclass(frozen=True)
class PublishedValue:
    """One printed number.

    Attributes:
        printed: the number as printed.
        decimal: the number with the printed digits, in the column's unit.
        decimal_sd: its printed standard deviation, in the same unit.
        row: its row.
        column: its column.
        note: a note on this number (such as the reason of a difference), or None.
        source: where it is printed: authors, year, venue and table.
    """

    printed: str
    decimal: Decimal
    decimal_sd: Decimal | None
    row: PublishedRow
    column: PublishedColumn
    note: str | None = None
    source: str = ""

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
        """Factor from our unit to the printed one."""
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


@dataclass(frozen=True)
class PublishedTable:
    """A printed table.

    Attributes:
        name: its name in capbench (``tiger-table1``).
        paper: the paper.
        where: place in the paper (``Table 1``).
        description: one sentence.
        columns: its columns in print order.
        rows: its rows in print order.
        values: numbers by (column key, row key), without empty cells.
        notes: notes on the whole table.
        missing: the reason there are no numbers, or None if there are some.
        draws: draws of references that each number is the mean of.
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
    draws: int = 1
    _by_protocol: Mapping[tuple[str, str, str, str], PublishedValue] = field(default_factory=dict, repr=False)

    @property
    def source(self) -> str:
        """One line: authors, year, title, venue, and where in the paper."""
        paper = self.paper
        return f"{paper.authors} ({paper.year}). {paper.title}. {paper.venue}. {self.where}"

    def cell(self, column_key: str, row_key: str) -> PublishedValue | None:
        """The number in a column and a row of the printed table, None for an empty cell.

        Raises:
            UsageError: there is no such column or row.
        """
        for key, known in ((column_key, [c.key for c in self.columns]), (row_key, [r.key for r in self.rows])):
            if key not in known:
                raise UsageError(
                    f"{self.name} has no '{key}'", code="unknown-name", value=key, hint=suggest(key, known)
                )
        return self.values.get((column_key, row_key))

    def value(self, metric: str, protocol: str, group: str = "", variant: str = "") -> PublishedValue | None:
        """The printed number that corresponds to one of ours, or None.

        Args:
            metric: name of capbench's metric column (``bleu-4``).
            protocol: full protocol id.
            group: group of the protocol's result, ``""`` for the overall value.
            variant: variant of the metric, ``""`` for the default one.
        """
        return self._by_protocol.get((metric, variant, protocol, group))


def _digits(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


# Parser of the file of a published table.

_VALUE = re.compile(r"(-?\d*\.?\d+(?:e-?\d+)?)(?: ± (\d*\.?\d+))?")
_NUMBER = re.compile(r"\d*\.?\d+(?:e-?\d+)?")


def parse_table(name: str, text: str, load: Callable[[str], PublishedTable] | None = None) -> PublishedTable:
    """Parse and validate one file's text (form: see :mod:`capbench.studies.published`).

    Args:
        name: name of the table.
        text: content of its file.
        load: loads the tables that ``include`` names; None if the file includes none.

    Raises:
        DataError: the file is invalid; the error names the file and the place.
    """
    from capbench.core.yaml import parse_own

    path = f"{name}.yaml"
    top = _Reader(path, "", parse_own(text, path))
    top.only("schema", "paper", "where", "description", "draws", "missing", "notes", "columns", "rows", "include")
    if top.raw.get("schema") != 1:
        version = top.raw.get("schema")
        raise DataError(
            f"has the schema {version!r}; this version reads 1", code="wrong-version", value=version, path=path
        )
    paper = _Reader(path, "paper", top.raw.get("paper"))
    paper.only("authors", "title", "venue", "year")
    year = paper.raw.get("year")
    if not isinstance(year, int):
        raise DataError("year should be a whole number", code="wrong-type", path=path, row="paper")
    draws = top.raw.get("draws", 1)
    if not isinstance(draws, int) or draws < 1:
        raise DataError("draws should be a whole number of at least 1", code="wrong-value", path=path)
    columns = tuple(_column(reader) for reader in top.entries("columns"))
    row_readers = top.entries("rows")
    rows = tuple(_row(reader) for reader in row_readers)
    missing = top.optional("missing")
    if bool(rows) == bool(missing):
        raise DataError(
            "should have either rows or the reason for their absence ('missing')", code="missing-key", path=path
        )
    _refuse_repeats(path, [c.key for c in columns], "column keys")
    _refuse_repeats(path, [r.key for r in rows], "row keys")
    _refuse_repeats(path, [(c.protocol, c.group) for c in columns if c.protocol], "protocols with group")
    _refuse_repeats(path, [(r.metric, r.variant) for r in rows if r.metric], "metrics with variant")
    with_numbers = [column.key for column in columns if not column.reading_of]
    for column in columns:
        if column.reading_of and column.reading_of not in with_numbers:
            raise DataError(
                f"reading_of names '{column.reading_of}', which is not a column with numbers",
                code="unknown-name",
                value=column.reading_of,
                path=path,
                row=column.key,
                hint=suggest(column.reading_of, with_numbers),
            )
    values: dict[tuple[str, str], PublishedValue] = {}
    shown = f"{paper.text('authors')} ({year}). {paper.text('venue')}. {top.text('where')}"
    for row, reader in zip(rows, row_readers, strict=True):
        printed = reader.raw.get("values")
        if not isinstance(printed, list) or len(printed) != len(with_numbers):
            raise DataError(
                f"values should be a list of {len(with_numbers)} entries, one for each column",
                code="mismatch",
                path=path,
                row=row.key,
            )
        cells = dict(zip(with_numbers, printed, strict=True))
        for column in columns:
            cell = cells[column.reading_of or column.key]
            if cell is not None:
                values[column.key, row.key] = _value(path, row, column, cell, reader.optional("source") or shown)
    if "include" in top.raw:
        for reader in top.entries("include"):
            reader.only("table", "rows", "columns", "reads_references", "uses_ratings")
            columns, rows, values = _with_included(reader, load, columns, rows, values)
    by_protocol: dict[tuple[str, str, str, str], PublishedValue] = {}
    for value in values.values():
        if value.row.metric is not None and value.protocol is not None:
            by_protocol.setdefault((value.row.metric, value.row.variant, value.protocol, value.group), value)
    notes = top.raw.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise DataError("notes should be a list of sentences", code="wrong-type", path=path)
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
        draws,
        by_protocol,
    )


class _Reader:
    """A mapping of a file, with its place for error messages."""

    def __init__(self, path: str, place: str, raw: object) -> None:
        if not isinstance(raw, dict):
            raise DataError("should be a mapping of keys to values", code="wrong-type", path=path, row=place or None)
        self.path, self.place = path, place
        self.raw: dict[Any, Any] = raw

    def fail(self, message: str, code: str = "wrong-type", value: object = None) -> DataError:
        return DataError(message, code=code, value=value, path=self.path, row=self.place or None)

    def only(self, *known: str) -> None:
        for key in self.raw:
            check_choice("key", key, known, DataError, code="unknown-key", path=self.path, row=self.place or None)

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
            raise self.fail(f"{key} is missing", "missing-key", key)
        return text

    def flag(self, key: str) -> bool | None:
        flag = self.raw.get(key)
        if not isinstance(flag, bool | None):
            raise self.fail(f"{key} should be true or false")
        return flag

    def entries(self, key: str) -> list[_Reader]:
        entries = self.raw.get(key)
        if not isinstance(entries, list):
            raise self.fail(f"{key} should be a list")
        return [_Reader(self.path, f"{key}, entry {i}", entry) for i, entry in enumerate(entries, start=1)]

    def choice(self, key: str, choices: tuple[str, ...]) -> Any:
        text = self.text(key)
        if text not in choices:
            raise self.fail(f"{key} is '{text}' but should be one of {', '.join(choices)}", "wrong-value", text)
        return text


def _column(reader: _Reader) -> PublishedColumn:
    reader.only("key", "printed", "protocol", "basis", "group", "unit", "note", "reading_of")
    protocol = reader.optional("protocol") or None
    if protocol is not None and protocol.count("/") != 2:
        message = f"the protocol '{protocol}' should have the form dataset/items/statistic"
        raise reader.fail(message, "wrong-format", protocol)
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
    reader.only(
        "key", "printed", "metric", "variant", "cited", "label", "weights", "detectors", "values",
        "source", "reads_references", "uses_ratings", "second_hand",
    )  # fmt: skip
    detectors = reader.raw.get("detectors", [])
    if not isinstance(detectors, list) or not all(isinstance(name, str) for name in detectors):
        raise reader.fail("detectors should be a list of names")
    return PublishedRow(
        reader.text("key"),
        reader.text("printed"),
        reader.optional("metric") or None,
        reader.optional("variant"),
        bool(reader.flag("cited")),
        reader.optional("label"),
        reader.optional("weights"),
        tuple(detectors),
        reader.flag("reads_references"),
        reader.flag("uses_ratings"),
        bool(reader.flag("second_hand")),
    )


def _with_included(
    reader: _Reader,
    load: Callable[[str], PublishedTable] | None,
    columns: tuple[PublishedColumn, ...],
    rows: tuple[PublishedRow, ...],
    values: Mapping[tuple[str, str], PublishedValue],
) -> tuple[tuple[PublishedColumn, ...], tuple[PublishedRow, ...], dict[tuple[str, str], PublishedValue]]:
    """A table with rows of another one; their numbers keep their source and are converted to its columns' units.

    Columns of the same protocol and group are one column. Those without a protocol are left out, unless the table has a
    column with the same key.
    """
    if load is None:
        raise reader.fail("include is not supported here", "unsupported")
    other = load(reader.text("table"))

    def names(key: str, known: list[str]) -> list[str]:
        chosen = reader.raw.get(key, known)
        if not isinstance(chosen, list) or not set(chosen) <= set(known):
            raise reader.fail(f"{key} should be a list of {key} of {other.name}", "unknown-name", chosen)
        return chosen

    def place_of(column: PublishedColumn) -> tuple[str | None, str]:
        return (column.protocol, column.group) if column.protocol else (None, column.key)

    places = {place_of(column): column for column in columns}
    shared = [column.key for column in other.columns if column.protocol or place_of(column) in places]
    chosen_rows, chosen_columns = names("rows", [row.key for row in other.rows]), names("columns", shared)
    for column in other.columns:
        if column.key in chosen_columns and place_of(column) not in places:
            places[place_of(column)] = replace(column, key=f"{other.name}:{column.key}", reading_of="")
    added_rows, added = [], dict(values)
    for row in other.rows:
        if row.key not in chosen_rows:
            continue
        kept = replace(
            row,
            key=f"{other.name}:{row.key}",
            reads_references=row.reads_references
            if "reads_references" not in reader.raw
            else reader.flag("reads_references"),
            uses_ratings=row.uses_ratings if "uses_ratings" not in reader.raw else reader.flag("uses_ratings"),
        )
        added_rows.append(kept)
        for column in other.columns:
            value = other.values.get((column.key, row.key))
            if column.key in chosen_columns and value is not None:
                place = places[place_of(column)]
                added[place.key, kept.key] = _converted(value, kept, place)
    return tuple(dict.fromkeys([*columns, *places.values()])), (*rows, *added_rows), added


def _converted(value: PublishedValue, row: PublishedRow, column: PublishedColumn) -> PublishedValue:
    """A number of another table in the unit of a column, with the same digits."""
    places = {("fraction", "percent"): 2, ("percent", "fraction"): -2}.get((value.column.unit, column.unit), 0)
    sd = None if value.decimal_sd is None else value.decimal_sd.scaleb(places)
    printed = rescaled(value.printed, places)
    return replace(value, row=row, column=column, decimal=value.decimal.scaleb(places), decimal_sd=sd, printed=printed)


def rescaled(printed: str, places: int) -> str:
    """The numbers of a printed text times ten to the power of ``places``, with the printed precision.

    >>> rescaled(".323", 2), rescaled("50.9 ±0.70", -2), rescaled("7.08e-4", 2)
    ('32.3', '0.509 ±0.0070', '0.0708')
    """
    if not places:
        return printed
    return _NUMBER.sub(lambda match: f"{Decimal(match[0]).scaleb(places):f}", printed)


def _value(path: str, row: PublishedRow, column: PublishedColumn, cell: object, source: str) -> PublishedValue:
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
            code="wrong-format",
            value=cell,
            path=path,
            row=row.key,
            hint='Write it as printed and in quotes, such as "0.280" or "50.9 ± 0.70"',
        )
    sd = None if match[2] is None else Decimal(match[2])
    if row.second_hand:
        note = f"second-hand, not seen in the paper: {source}" + ("" if note is None else f"; {note}")
    return PublishedValue(match[0], Decimal(match[1]), sd, row, column, note, source)


def _refuse_repeats(path: str, keys: list[Any], what: str) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            raise DataError(f"{what} should be unique, '{key}' is not", code="duplicate", value=key, path=path)
        seen.add(key)


# The part of a published table that a study's result stores.

_NO_REASON = "not explained"


def tells_no_reason(note: str) -> bool:
    """True if a note says that a difference has no known reason (``not explained; tried: …``)."""
    return note.startswith(_NO_REASON)


class PrintedColumn(Strict):
    """A column of the printed table.

    Attributes:
        key: its name in the published file.
        head: its printed heading.
        protocol: full id of its protocol; None if none fits.
        group: group of the protocol's result, ``""`` for the overall value.
        basis: source of the protocol; None without a protocol.
        unit: ``percent`` numbers are printed a hundred times the values here.
        note: a note, or ``""``.
        reading_of: key of the column whose numbers it repeats under another protocol, or ``""``.
    """

    key: str
    head: str
    protocol: str | None
    group: str = ""
    basis: Basis | None
    unit: Unit
    note: str = ""
    reading_of: str = ""


class PrintedNumber(Strict):
    """A printed number.

    Attributes:
        column: key of its column.
        printed: the printed number, with its deviation.
        value: the number in our unit; percentages are divided by 100.
        digits: printed digits after the decimal point.
        sd: its printed standard deviation in our unit, or None.
        note: a note (such as the reason of a difference), or None.
        source: where it is printed; ``""`` in files of earlier versions.
    """

    column: str
    printed: str
    value: float
    digits: int
    sd: float | None = None
    note: str | None = None
    source: str = ""


class PrintedRow(Strict):
    """A row of the printed table.

    Attributes:
        title: the metric's printed name.
        metric: capbench's column, or None.
        variant: variant of that metric, ``""`` for the default one.
        cited: True if the paper copied the row from elsewhere.
        reads_references: True if the metric reads references; None if not recorded.
        uses_ratings: True if the metric was trained on human ratings; None if not recorded.
        second_hand: True if the numbers were not seen in the paper.
        rows: names of the corresponding rows of the study; empty if it is published only.
        numbers: its numbers, in print order.
    """

    title: str
    metric: str | None
    variant: str = ""
    cited: bool = False
    reads_references: bool | None = None
    uses_ratings: bool | None = None
    second_hand: bool = False
    rows: tuple[str, ...] = ()
    numbers: tuple[PrintedNumber, ...]


class PublishedInfo(Strict):
    """The part of a published table that corresponds to a study.

    Attributes:
        name: its name in capbench (``tiger-table1``).
        source: its citation.
        missing: the reason its file has no numbers, or None.
        notes: notes on the whole table.
        columns: the columns of the study's protocols, and those without a protocol.
        rows: the rows with numbers in these columns, in print order.
        draws: draws of references that each printed number is the mean of.
        authors: by label, the inputs that are the authors' own; None in files of earlier versions.
        authors_models: models in the study's signatures that are the authors' weights; in older files only.
    """

    name: str
    source: str
    missing: str | None = None
    notes: tuple[str, ...] = ()
    columns: tuple[PrintedColumn, ...] = ()
    rows: tuple[PrintedRow, ...] = ()
    draws: int = 1
    authors: dict[str, tuple[Literal["model", "features"], ...]] | None = None
    authors_models: tuple[str, ...] = ()

    def column(self, protocol: str, group: str = "") -> PrintedColumn | None:
        """The column of a protocol and group, or None."""
        return next((c for c in self.columns if (c.protocol, c.group) == (protocol, group)), None)

    def number(self, row: str, protocol: str, group: str = "") -> PrintedNumber | None:
        """The printed number of one of our rows under a protocol, or None."""
        column = self.column(protocol, group)
        if column is None:
            return None
        numbers = (number for printed in self.rows if row in printed.rows for number in printed.numbers)
        return next((number for number in numbers if number.column == column.key), None)


def signed_facts(signature: str) -> dict[str, str]:
    """The facts of a signature (``name|key:value|…``) by key."""
    facts = (fact.partition(":") for fact in signature.split("|")[1:])
    return {key: value for key, _, value in facts}


def given_parts(
    signatures: Mapping[str, Mapping[str, str]], label: str, info: PublishedInfo | None
) -> tuple[dict[str, str], ...]:
    """The inputs of a label that differ from the paper's: network, features and word vectors of each signature.

    Args:
        signatures: signatures of the result.
        label: label of the request.
        info: the published table; None without one.

    Returns:
        ``model``, ``features`` and ``vectors`` of each distinct signature, without those that are the authors'; empty
        for a metric without such inputs.
    """
    authors = () if info is None or info.authors is None else info.authors.get(label, ())
    found: list[dict[str, str]] = []
    for of_label in signatures.values():
        facts = signed_facts(of_label.get(label, ""))
        if (
            info is not None
            and info.authors is None
            and set(facts.get("model", "").split("+")) <= set(info.authors_models)
        ):
            continue  # a file of an earlier version, without authors by label
        given: dict[str, str] = {
            key: facts[key] for key in ("model", "features", "vectors") if key in facts and key not in authors
        }
        if given and given not in found:
            found.append(given)
    return tuple(found)
