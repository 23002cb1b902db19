"""What a published table is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from capbench.errors import UsageError, suggest

__all__ = ["Basis", "Paper", "PublishedColumn", "PublishedRow", "PublishedTable", "PublishedValue", "Unit"]

Unit = Literal["fraction", "percent", "score"]
Basis = Literal["stated", "reproduced", "inferred"]


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
        reading_of: key of the column whose numbers it repeats, because they may as well be of this protocol; ``""`` for
            a column that has numbers of its own.
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
        printed: the metric's name in print.
        metric: our column that it is, or None.
        variant: which variant of that metric, ``""`` for the default one.
        cited: True if the paper copied the row from elsewhere.
        label: the label under which scores from elsewhere are this row, ``""`` if none is meant.
    """

    key: str
    printed: str
    metric: str | None
    variant: str
    cited: bool
    label: str = ""


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


def _digits(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
