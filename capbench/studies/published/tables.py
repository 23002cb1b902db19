"""Published tables: the models of their files, and the part that results store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from capbench.core.errors import DataError, UsageError, check_choice, suggest
from capbench.core.typed_json import Strict, validated

Unit = Literal["fraction", "percent", "score"]
Basis = Literal["stated", "reproduced", "inferred"]

_NUMBER = re.compile(r"\d*\.?\d+(?:e-?\d+)?")


class Paper(Strict):
    """Bibliographic source of a table."""

    authors: str
    title: str
    venue: str
    year: int


class PublishedColumn(Strict):
    """A column of a printed table.

    Attributes:
        key: its name in the file.
        head: its printed heading.
        protocol: full id of its protocol, or None if none fits or it is unknown.
        basis: source of the protocol: ``stated`` by the paper, ``reproduced`` (other numbers of the column are
            reproduced under it) or ``inferred`` (it fits best); None without a protocol.
        group: group of the protocol's result (``HC``), ``""`` for the overall value.
        unit: ``percent`` numbers are printed a hundred times ours.
        note: a note, or ``""``.
        reading_of: key of the column whose numbers it repeats under another possible protocol; ``""`` for a column
            with numbers.
    """

    key: str
    head: str
    protocol: Annotated[str, Field(pattern=r"^[^/]+/[^/]+/[^/]+$")] | None = None
    group: str = ""
    basis: Basis | None = None
    unit: Unit
    note: str = ""
    reading_of: str = ""

    @model_validator(mode="after")
    def _with_basis(self) -> Self:
        if self.protocol and not self.basis:
            raise ValueError("a protocol requires a basis")
        return self

    @property
    def place(self) -> tuple[str | None, str]:
        """Protocol and group; the key without a protocol. Columns of one place hold the same numbers."""
        return (self.protocol, self.group) if self.protocol else (None, self.key)


class _Row(Strict):
    """The facts of a row that results store, too.

    Attributes:
        title: the metric's printed name.
        metric: capbench's column, or None.
        variant: variant of that metric, ``""`` for the default one.
        cited: True if the paper copied the row from elsewhere.
        reads_references: True if the metric reads references; None if not recorded.
        uses_ratings: True if the metric was trained on human ratings of captions; None if not recorded or unknown.
        second_hand: True if the numbers were copied from a collection and not seen in the paper.
    """

    title: str
    metric: str | None = None
    variant: str = ""
    cited: bool = False
    reads_references: bool | None = None
    uses_ratings: bool | None = None
    second_hand: bool = False


class _Printed(Strict):
    """A number as printed. Numbers are quoted in files, since YAML would read 0.280 as 0.28 and lose a digit."""

    value: Annotated[str, Field(pattern=r"^-?\d*\.?\d+(e-?\d+)?( ± \d*\.?\d+)?$")]
    note: str | None = None


class PublishedRow(_Row):
    """A row of a printed table.

    Attributes:
        key: its name in the file.
        label: label of scores from elsewhere that belong to this row, ``""`` for none.
        weights: the registry's name of the row's weights, ``""`` if they were not published.
        detectors: detectors of the row's features.
        source: where the row is printed, ``""`` for the table's paper.
        values: its numbers, one for each column that is not a reading of another; None for an empty cell.
    """

    key: str
    label: str = ""
    weights: str = ""
    detectors: tuple[str, ...] = ()
    source: str = ""
    values: tuple[_Printed | None, ...]

    @field_validator("values", mode="before")
    @classmethod
    def _with_notes(cls, values: Any) -> Any:
        return [{"value": value} if isinstance(value, str) else value for value in values]


class PublishedValue(Strict):
    """One printed number.

    Attributes:
        printed: the number as printed, with its standard deviation if one is printed.
        row: its row.
        column: its column.
        note: a note on this number (such as the reason of a difference), or None.
        source: where it is printed: authors, year, venue and table.
    """

    printed: str
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
    def decimals(self) -> list[Decimal]:
        """The number with the printed digits, and its standard deviation if one is printed, in the column's unit."""
        return [Decimal(part) for part in self.printed.split(" ± ")]

    @property
    def number(self) -> float:
        """The number in our unit: percentages are divided by 100."""
        return float(self.decimals[0] / self.scale)

    @property
    def sd(self) -> float | None:
        """The standard deviation in our unit."""
        return float(self.decimals[1] / self.scale) if len(self.decimals) == 2 else None

    @property
    def digits(self) -> int:
        """Printed digits after the decimal point."""
        return -int(self.decimals[0].as_tuple().exponent)


class _Include(Strict):
    """Rows of another table; without lists, all rows and all columns with a protocol or a place in this table."""

    table: str
    rows: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    reads_references: Annotated[bool, Field(strict=True)] | None = None
    uses_ratings: Annotated[bool, Field(strict=True)] | None = None


class _File(Strict):
    """The file of a table (see :mod:`capbench.studies.published`)."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    paper: Paper
    where: str
    description: str
    draws: Annotated[int, Field(ge=1)] = 1
    missing: str | None = None
    notes: tuple[str, ...] = ()
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]
    include: tuple[_Include, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.rows) == bool(self.missing):
            raise ValueError("should have either rows or the reason for their absence ('missing')")
        _refuse_repeats("column keys", [column.key for column in self.columns])
        _refuse_repeats("row keys", [row.key for row in self.rows])
        _refuse_repeats("protocols with group", [column.place for column in self.columns if column.protocol])
        _refuse_repeats("metrics with variant", [(row.metric, row.variant) for row in self.rows if row.metric])
        with_numbers = [column.key for column in self.columns if not column.reading_of]
        for column in self.columns:
            if column.reading_of and column.reading_of not in with_numbers:
                raise ValueError(f"reading_of names '{column.reading_of}', which is not a column with numbers")
        for row in self.rows:
            if len(row.values) != len(with_numbers):
                raise ValueError(f"{row.key}: values should have {len(with_numbers)} entries, one for each column")
        return self

    def numbers(self) -> dict[tuple[str, str], PublishedValue]:
        """The numbers of the rows by (column key, row key)."""
        shown = f"{self.paper.authors} ({self.paper.year}). {self.paper.venue}. {self.where}"
        with_numbers = [column.key for column in self.columns if not column.reading_of]
        found = {}
        for row in self.rows:
            cells = dict(zip(with_numbers, row.values, strict=True))
            source = row.source or shown
            for column in self.columns:
                if (cell := cells[column.reading_of or column.key]) is None:
                    continue
                note = cell.note
                if row.second_hand:
                    note = f"second-hand, not seen in the paper: {source}" + ("" if note is None else f"; {note}")
                found[column.key, row.key] = PublishedValue(
                    printed=cell.value, row=row, column=column, note=note, source=source
                )
        return found


def _refuse_repeats(what: str, keys: Sequence[object]) -> None:
    if repeated := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{what} should be unique, {repeated[0]} is not")


class PublishedTable(Strict):
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

    @cached_property
    def _by_protocol(self) -> Mapping[tuple[str | None, ...], PublishedValue]:
        found: dict[tuple[str | None, ...], PublishedValue] = {}
        for value in self.values.values():
            found.setdefault((value.row.metric, value.row.variant, value.protocol, value.group), value)
        return found

    def value(self, metric: str, protocol: str, group: str = "", variant: str = "") -> PublishedValue | None:
        """The printed number that corresponds to one of ours, or None.

        Args:
            metric: name of capbench's metric column (``bleu-4``).
            protocol: full protocol id.
            group: group of the protocol's result, ``""`` for the overall value.
            variant: variant of the metric, ``""`` for the default one.
        """
        return self._by_protocol.get((metric, variant, protocol, group))


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
    file = validated(_File, parse_own(text, path), path)
    shared = {key: getattr(file, key) for key in _File.model_fields if key in PublishedTable.model_fields}
    table = PublishedTable(name=name, values=file.numbers(), **shared)
    for include in file.include:
        if load is None:
            raise DataError("include is not supported here", code="unsupported", path=path)
        table = _with_included(table, include, load(include.table))
    return table


def _with_included(table: PublishedTable, include: _Include, other: PublishedTable) -> PublishedTable:
    """A table with rows of another one; their numbers keep their source and are converted to its columns' units.

    Columns of the same protocol and group are one column. Those without a protocol are left out, unless the table has a
    column with the same key.
    """
    places = {column.place: column for column in table.columns}
    all_rows = [row.key for row in other.rows]
    shared = [column.key for column in other.columns if column.protocol or column.place in places]
    for kind, keys, known in (("row", include.rows, all_rows), ("column", include.columns, shared)):
        for key in keys or ():
            check_choice(f"{kind} of {other.name}", key, known, DataError, path=f"{table.name}.yaml")
    for column in other.columns:
        if column.key in (include.columns or shared):
            new = {"key": f"{other.name}:{column.key}", "reading_of": ""}
            places.setdefault(column.place, column.model_copy(update=new))
    values, rows = dict(table.values), list(table.rows)
    stated = include.model_dump(include={"reads_references", "uses_ratings"}, exclude_none=True)
    for row in other.rows:
        if row.key not in (include.rows or all_rows):
            continue
        rows.append(row.model_copy(update={"key": f"{other.name}:{row.key}", **stated}))
        for column in other.columns:
            value = other.values.get((column.key, row.key))
            if value is not None and column.key in (include.columns or shared):
                place = places[column.place]
                shift = {("fraction", "percent"): 2, ("percent", "fraction"): -2}.get((column.unit, place.unit), 0)
                update = {"printed": rescaled(value.printed, shift), "row": rows[-1], "column": place}
                values[place.key, rows[-1].key] = value.model_copy(update=update)
    return table.model_copy(update={"columns": tuple(places.values()), "rows": tuple(rows), "values": values})


def rescaled(printed: str, places: int) -> str:
    """The numbers of a printed text times ten to the power of ``places``, with the printed precision.

    >>> rescaled(".323", 2), rescaled("50.9 ±0.70", -2), rescaled("7.08e-4", 2)
    ('32.3', '0.509 ±0.0070', '0.0708')
    """
    if not places:
        return printed
    return _NUMBER.sub(lambda match: f"{Decimal(match[0]).scaleb(places):f}", printed)


# The part of a published table that a study's result stores.

_NO_REASON = "not explained"


def tells_no_reason(note: str) -> bool:
    """True if a note says that a difference has no known reason (``not explained; tried: …``)."""
    return note.startswith(_NO_REASON)


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


class PrintedRow(_Row):
    """A row of the printed table, as stored.

    Attributes:
        rows: names of the corresponding rows of the study; empty if it is published only.
        numbers: its numbers, in print order.
    """

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
    columns: tuple[PublishedColumn, ...] = ()
    rows: tuple[PrintedRow, ...] = ()
    draws: int = 1
    authors: dict[str, tuple[Literal["model", "features"], ...]] | None = None
    authors_models: tuple[str, ...] = ()

    def column(self, protocol: str, group: str = "") -> PublishedColumn | None:
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
