"""What a results table is made of: columns, entries, rows; texts alone, ready to be printed."""

from __future__ import annotations

from dataclasses import dataclass

from capbench.reports.uncertainty import MARK

__all__ = ["Column", "Entry", "Row", "Table"]


@dataclass(frozen=True)
class Column:
    """One value column.

    Attributes:
        head: its head, from the outside in (``("Composite", "τ-c")``).
        protocol: id of its protocol.
        group: the group that it shows, ``""`` for overall.
        compared: True if published numbers stand beside ours.
        percent: True if values are shown times 100.
        best: our highest number as printed, for emphasis; None if there is only one.
        tested: True if its metrics were tested against each other.
        detail: the part of the protocol's id that tells it from another column with the same head, or ``""``.
        where: what it shows, as said in notes.
        published_alone: True if it shows published numbers and none of ours.
    """

    head: tuple[str, str]
    protocol: str
    group: str
    compared: bool
    percent: bool
    best: str | None = None
    tested: bool = False
    detail: str = ""
    where: str = ""
    published_alone: bool = False

    @property
    def outer(self) -> str:
        """The outer head, with the detail."""
        return ", ".join(part for part in (self.head[0], self.detail) if part)

    @property
    def name(self) -> str:
        """The whole head in one line."""
        return " ".join(part for part in (self.outer, self.head[1]) if part)

    def parts(self, ours: str, paper: str, difference: str) -> tuple[str, ...]:
        """Those of three texts that the column shows."""
        if self.published_alone:
            return (paper,)
        return (ours, paper, difference) if self.compared else (ours,)


@dataclass(frozen=True)
class Entry:
    """One value in print: ours, its interval, published, difference; ``""`` where there is none.

    Attributes:
        ours: the value, with its deviation over draws.
        published: what the paper prints.
        difference: ours minus published.
        interval: ``[low, high]``, with a digit less than the value.
        top: True for the best metric of a tested column and those that are not significantly worse.
        note: a remark on the published number.
        unexplained: True if nothing explains the difference.
    """

    ours: str = ""
    published: str = ""
    difference: str = ""
    interval: str = ""
    top: bool = False
    note: str = ""
    unexplained: bool = False

    @property
    def marked(self) -> str:
        """Ours, with the mark right after the value where it belongs there."""
        value, space, deviation = self.ours.partition(" ")
        return f"{value}{MARK}{space}{deviation}" if self.top and value else self.ours


@dataclass(frozen=True)
class Row:
    """One metric's row: an entry for each column, or the reason why there are none."""

    title: str
    entries: tuple[Entry, ...]
    missing: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption and notes, ready to be printed.

    Attributes:
        title: its caption.
        columns: the value columns.
        rows: one for each metric.
        notes: one line each.
        ceiling: the row of people's agreement with each other, None where it is not known.
        ranks: the significance clusters of each tested column, one line each.
        published_only: rows that the paper has and the study has not.
        footnotes: those of ``notes`` that are about single numbers and name them; a form with footnotes of its own
            says the same in these.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    ceiling: Row | None = None
    ranks: tuple[str, ...] = ()
    published_only: tuple[Row, ...] = ()
    footnotes: tuple[str, ...] = ()

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """Every row: ours, the ceiling, those that are published only."""
        return (*self.rows, *([self.ceiling] if self.ceiling else []), *self.published_only)
