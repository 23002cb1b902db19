"""What a result keeps of the published table that its study names."""

from __future__ import annotations

from capbench.strict import Strict
from capbench.studies.published.tables import Basis, Unit

__all__ = ["PrintedColumn", "PrintedNumber", "PrintedRow", "PublishedInfo", "tells_no_reason"]

_NO_REASON = "not explained"


def tells_no_reason(note: str) -> bool:
    """True if a remark on a number says what was tried in vain (``not explained; tried: …``), and no reason."""
    return note.startswith(_NO_REASON)


class PrintedColumn(Strict):
    """A column of the printed table.

    Attributes:
        key: its name in the published file.
        head: its head in print.
        protocol: full id of the protocol that it is; None where none of ours fits.
        group: part of the protocol's result, ``""`` for the overall value.
        basis: how the protocol is known; None without a protocol.
        unit: ``percent`` numbers are printed a hundred times the values here.
        note: a remark, or ``""``.
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
        printed: the number as it stands in the paper, with its deviation.
        value: the number in our unit; percentages are divided by 100.
        digits: printed digits after the decimal point.
        sd: its printed standard deviation in our unit, or None.
        note: a remark (why it differs from ours, a likely misprint), or None.
    """

    column: str
    printed: str
    value: float
    digits: int
    sd: float | None = None
    note: str | None = None


class PrintedRow(Strict):
    """A row of the printed table.

    Attributes:
        title: the metric's name in print.
        metric: our metric column that it is, or None.
        variant: which variant of that metric, ``""`` for the default one.
        cited: True if the paper copied the row from elsewhere.
        rows: names of the rows of ours that it stands beside; empty if it is published only.
        numbers: its numbers, in print order.
    """

    title: str
    metric: str | None
    variant: str = ""
    cited: bool = False
    rows: tuple[str, ...] = ()
    numbers: tuple[PrintedNumber, ...]


class PublishedInfo(Strict):
    """A published table, as far as it belongs beside a study.

    Attributes:
        name: its name here (``tiger-table1``).
        source: its citation.
        missing: why its file holds no numbers, or None.
        notes: remarks on the whole.
        columns: the columns whose protocol the study asks for, and those without a protocol.
        rows: the rows that have numbers in these columns, in print order.
        authors_models: models of the study's signatures that are the authors' own weights.
    """

    name: str
    source: str
    missing: str | None = None
    notes: tuple[str, ...] = ()
    columns: tuple[PrintedColumn, ...] = ()
    rows: tuple[PrintedRow, ...] = ()
    authors_models: tuple[str, ...] = ()

    def column(self, protocol: str, group: str = "") -> PrintedColumn | None:
        """The column of a protocol and group, or None."""
        return next((c for c in self.columns if (c.protocol, c.group) == (protocol, group)), None)

    def number(self, row: str, protocol: str, group: str = "") -> PrintedNumber | None:
        """What is printed for one of our rows under a protocol, or None."""
        column = self.column(protocol, group)
        if column is None:
            return None
        numbers = (number for printed in self.rows if row in printed.rows for number in printed.numbers)
        return next((number for number in numbers if number.column == column.key), None)
