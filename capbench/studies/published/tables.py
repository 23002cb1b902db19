"""Published tables: one model for a file and its table, and the part of it that results store.

Numbers are quoted, since YAML would read 0.280 as 0.28.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from capbench.core.errors import DataError, check_choice
from capbench.core.typed_json import Strict, validated

_FOLDER = "capbench.studies.published"
_NUMBER = re.compile(r"\d*\.?\d+(?:e-?\d+)?")


class Paper(Strict):
    """Bibliographic source of a table."""

    authors: str
    title: str
    venue: str
    year: int


class PublishedColumn(Strict):
    """A column of a printed table."""

    key: str  # unique in the table
    head: str  # printed heading
    protocol: Annotated[str, Field(pattern=r"^[^/]+/[^/]+/[^/]+$")] | None = None  # None if none fits or it is unknown
    group: str = ""  # of the protocol's result (HC); "" for the overall value
    # Source of the protocol: stated by the paper, reproduced (other numbers of the column are reproduced under it), or
    # inferred (it fits best).
    basis: Literal["stated", "reproduced", "inferred"] | None = None
    unit: Literal["fraction", "percent", "score"]  # percent: a hundred times ours; score: a plain score of a metric
    note: str = ""
    reading_of: str = ""  # key of the column whose numbers it repeats under another possible protocol

    @property
    def place(self) -> tuple[str | None, str]:
        """Protocol and group; the key without a protocol. Columns of one place hold the same numbers."""
        return (self.protocol, self.group) if self.protocol else (None, self.key)


class _Row(Strict):
    """The facts of a row that results store, too."""

    title: str  # as in the table, without citation marks
    metric: str | None = None  # capbench's column
    variant: str = ""  # of that metric; "" for the default one
    cited: bool = False  # copied by the paper from elsewhere
    reads_references: bool | None = None  # None if not recorded
    uses_ratings: bool | None = None  # trained on human ratings of captions; None if not recorded or unknown
    second_hand: bool = False  # copied from a collection, not seen in the paper


class _Cell(Strict):
    value: Annotated[str, Field(pattern=r"^-?\d*\.?\d+(e-?\d+)?( ± \d*\.?\d+)?$")]
    note: str | None = None  # such as the reason of a difference


class PublishedRow(_Row):
    """A row of a printed table."""

    key: str  # unique in the table
    label: str = ""  # of scores from elsewhere that belong to this row
    weights: str = ""  # the registry's name of the row's weights, if they were published
    detectors: tuple[str, ...] = ()  # of the row's features
    source: str = ""  # where the row is printed, if not in the table's paper
    values: tuple[_Cell | None, ...]  # one for each column that is not a reading of another

    @field_validator("values", mode="before")
    @classmethod
    def _with_notes(cls, values: Any) -> Any:
        return [{"value": value} if isinstance(value, str) else value for value in values]


class PrintedNumber(Strict):
    """A printed number in our unit: percentages are divided by 100."""

    column: str  # key of its column
    printed: str  # with its standard deviation if one is printed
    value: float
    digits: int  # printed after the decimal point
    sd: float | None = None
    note: str | None = None
    source: str = ""  # authors, year, venue and table


class _Include(Strict):
    """Rows of another table; without lists, all rows and all columns with a protocol or a place in this table."""

    table: str
    rows: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    reads_references: Annotated[bool, Field(strict=True)] | None = None
    uses_ratings: Annotated[bool, Field(strict=True)] | None = None


class PublishedTable(Strict):
    """A printed table: a file of this folder, with the rows that it includes."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: str  # its name in capbench (tiger-table1)
    paper: Paper
    where: str  # place in the paper (Table 1)
    description: str
    draws: Annotated[int, Field(ge=1)] = 1  # draws of references that each number is the mean of
    missing: str | None = None  # the reason there are no numbers
    notes: tuple[str, ...] = ()
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]
    include: tuple[_Include, ...] = ()

    @property
    def _keys(self) -> list[str]:
        """Keys of the columns with numbers."""
        return [column.key for column in self.columns if not column.reading_of]

    @property
    def source(self) -> str:
        """One line: authors, year, title, venue, and where in the paper."""
        paper = self.paper
        return f"{paper.authors} ({paper.year}). {paper.title}. {paper.venue}. {self.where}"

    @property
    def _shown(self) -> str:
        return f"{self.paper.authors} ({self.paper.year}). {self.paper.venue}. {self.where}"

    @cached_property
    def values(self) -> Mapping[tuple[str, str], PrintedNumber]:
        """The numbers by (column key, row key)."""
        found = {}
        for row in self.rows:
            cells = dict(zip(self._keys, row.values, strict=True))
            source = row.source or self._shown
            for column in self.columns:
                cell = cells[column.reading_of or column.key]
                if cell is None:
                    continue
                number, *sd = (Decimal(part) for part in cell.value.split(" ± "))
                scale = 100 if column.unit == "percent" else 1
                note = cell.note
                if row.second_hand:
                    note = f"second-hand, not seen in the paper: {source}" + (f"; {note}" if note else "")
                found[column.key, row.key] = PrintedNumber(
                    column=column.key,
                    printed=cell.value,
                    value=float(number / scale),
                    digits=-int(number.as_tuple().exponent),
                    sd=float(sd[0] / scale) if sd else None,
                    note=note,
                    source=source,
                )
        return found


def parse_table(name: str, text: str) -> PublishedTable:
    """The table of one file's text, with the rows of those that it includes. Raises DataError if it is invalid."""
    from capbench.core.yaml import parse_own

    path = f"{name}.yaml"
    raw = parse_own(text)
    table = validated(PublishedTable, {"name": name, **raw} if isinstance(raw, dict) else raw, path)
    for include in table.include:
        table = _with_included(table, include, load_published(include.table))
    return table


def _with_included(table: PublishedTable, include: _Include, other: PublishedTable) -> PublishedTable:
    """A table with rows of another one, whose numbers keep their source and are converted to its columns' units.

    Columns of the same protocol and group are one column. Those without a protocol need a column with the same key.
    """
    places = {column.place: column for column in table.columns}
    all_rows = [row.key for row in other.rows]
    shared = [column.key for column in other.columns if column.protocol or column.place in places]
    for kind, keys, known in (("row", include.rows, all_rows), ("column", include.columns, shared)):
        for key in keys or ():
            check_choice(f"{kind} of {other.name}", key, known, DataError, path=f"{table.name}.yaml")
    taken = [column for column in other.columns if column.key in (include.columns or shared)]
    for column in taken:
        new = {"key": f"{other.name}:{column.key}", "reading_of": ""}
        places.setdefault(column.place, column.model_copy(update=new))
    with_numbers = [column for column in places.values() if not column.reading_of]
    padding = (None,) * (len(with_numbers) - len(table._keys))
    rows = [row.model_copy(update={"values": (*row.values, *padding)}) for row in table.rows]
    stated = include.model_dump(include={"reads_references", "uses_ratings"}, exclude_none=True)
    for row in other.rows:
        if row.key not in (include.rows or all_rows):
            continue
        printed, cells = dict(zip(other._keys, row.values, strict=True)), dict[str, _Cell]()
        for column in taken:
            if (cell := printed[column.reading_of or column.key]) is not None:
                place = places[column.place]
                shift = {("fraction", "percent"): 2, ("percent", "fraction"): -2}.get((column.unit, place.unit), 0)
                cells[place.key] = _Cell(value=rescaled(cell.value, shift), note=cell.note)
        values = tuple(cells.get(column.key) for column in with_numbers)
        changed = {"key": f"{other.name}:{row.key}", "values": values, "source": row.source or other._shown, **stated}
        rows.append(row.model_copy(update=changed))
    return table.model_copy(update={"columns": tuple(places.values()), "rows": tuple(rows)})


def rescaled(printed: str, places: int) -> str:
    """The numbers of a printed text times ten to the power of ``places``, with the printed precision.

    >>> rescaled(".323", 2), rescaled("50.9 ±0.70", -2), rescaled("7.08e-4", 2)
    ('32.3', '0.509 ±0.0070', '0.0708')
    """
    return _NUMBER.sub(lambda match: f"{Decimal(match[0]).scaleb(places):f}", printed) if places else printed


def tells_no_reason(note: str) -> bool:
    """True if a note says that a difference has no known reason (``not explained; tried: …``)."""
    return note.startswith("not explained")


class PrintedRow(_Row):
    """A row of the printed table, as stored."""

    rows: tuple[str, ...] = ()  # names of the corresponding rows of the study; empty if it is published only
    numbers: tuple[PrintedNumber, ...]  # in print order


class PublishedInfo(Strict):
    """The part of a published table that corresponds to a study."""

    name: str  # its name in capbench (tiger-table1)
    source: str  # its citation
    missing: str | None = None  # the reason its file has no numbers
    notes: tuple[str, ...] = ()
    columns: tuple[PublishedColumn, ...] = ()  # of the study's protocols, and those without a protocol
    rows: tuple[PrintedRow, ...] = ()  # the rows with numbers in these columns
    draws: int = 1
    authors: dict[str, tuple[Literal["model", "features"], ...]] | None = None  # inputs that are the authors', by label
    authors_models: tuple[str, ...] = Field(default=(), exclude=True)  # of earlier versions

    def column(self, protocol: str, group: str = "") -> PublishedColumn | None:
        """The column of a protocol and group, or None."""
        return next((c for c in self.columns if (c.protocol, c.group) == (protocol, group)), None)

    def number(self, row: str, protocol: str, group: str = "") -> PrintedNumber | None:
        """The printed number of one of our rows under a protocol, or None."""
        column = self.column(protocol, group)
        numbers = (number for printed in self.rows if row in printed.rows for number in printed.numbers)
        return next((number for number in numbers if column is not None and number.column == column.key), None)


def signed_facts(signature: str) -> dict[str, str]:
    """The facts of a signature (``name|key:value|…``) by key."""
    facts = (fact.partition(":") for fact in signature.split("|")[1:])
    return {key: value for key, _, value in facts}


def given_parts(
    signatures: Mapping[str, Mapping[str, str]], label: str, info: PublishedInfo | None
) -> tuple[dict[str, str], ...]:
    """The ``model``, ``features`` and ``vectors`` of each distinct signature of a label that are not the authors'."""
    authors = (info.authors or {}).get(label, ()) if info is not None else ()
    found: list[dict[str, str]] = []
    for of_label in signatures.values():
        facts = signed_facts(of_label.get(label, ""))
        parts = [key for key in ("model", "features", "vectors") if key in facts and key not in authors]
        given = {str(key): facts[key] for key in parts}
        if given and given not in found:
            found.append(given)
    return tuple(found)


def names() -> tuple[str, ...]:
    """Names of all tables, sorted."""
    files = resources.files(_FOLDER).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def load_published(name: str) -> PublishedTable:
    """Load a table by name."""
    check_choice("published table", name, names())
    text = resources.files(_FOLDER).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_table(name, text)
