"""A table of results as texts, and the user's choices about it: columns, digits, percentages, emphasis and marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capbench.core.errors import UsageError
from capbench.datasets.protocol import statistic_title
from capbench.reports.uncertainty import MARK, READ_MARK, SENTINEL_MARK

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Column:
    """One value column.

    Attributes:
        head: its head, outer part first (``("Composite", "τ-c")``).
        protocol: id of its protocol.
        group: its group, ``""`` for overall.
        compared: True if published numbers are printed next to ours.
        percent: True if values are shown times 100.
        best: our highest number as printed, for emphasis; None if there is only one.
        tested: True if its metrics were tested against each other.
        marks: the largest number of marks of its values.
        detail: the part of the protocol's id that distinguishes columns with the same head, or ``""``.
        where: name of the column in notes.
        published_alone: True if it has published numbers only.
        rescaled: power of ten by which published numbers are multiplied, for a scale other than the statistic's own.
    """

    head: tuple[str, str]
    protocol: str
    group: str
    compared: bool
    percent: bool
    best: str | None = None
    tested: bool = False
    marks: int = 0
    detail: str = ""
    where: str = ""
    published_alone: bool = False
    rescaled: int = 0

    @property
    def outer(self) -> str:
        """The outer head and the detail."""
        return ", ".join(part for part in (self.head[0], self.detail) if part)

    @property
    def name(self) -> str:
        """The whole head in one line."""
        return " ".join(part for part in (self.outer, self.head[1]) if part)

    @property
    def inner(self) -> str:
        """The inner head in full: ``Kendall's τ-c`` for ``τ-c``, with its scale if that is not the usual one."""
        title = " ".join(statistic_title(self.head[1]).split())
        return f"{title} ×100" if self.rescaled > 0 else title

    @property
    def heading(self) -> str:
        """The whole head in full, in one line: ``Flickr8k Expert, Kendall's τ-c``."""
        separator = ", " if self.inner != self.head[1] else " "
        return separator.join(part for part in (self.outer, self.inner) if part)

    def parts(self, ours: str, paper: str, difference: str) -> tuple[str, ...]:
        """Those of three texts that the column prints."""
        if self.published_alone:
            return (paper,)
        return (ours, paper, difference) if self.compared else (ours,)


@dataclass(frozen=True)
class Entry:
    """One printed value: ours, its interval, published, difference; ``""`` for those that do not exist.

    Attributes:
        ours: the value, with its standard deviation over draws.
        published: the number in the paper.
        difference: ours minus published.
        interval: ``[low, high]``.
        top: True for the best metric of a tested column and those that are not significantly worse.
        note: a remark on the published number.
        unexplained: True if the difference has no known reason.
        instead: the text that replaces our number if it could not be computed.
        undefined: the reason, one sentence.
        no_better: True if the metric is not significantly better than every sentinel.
        has_read: True if the metric's training has read captions, photographs or judgements of the items.
    """

    ours: str = ""
    published: str = ""
    difference: str = ""
    interval: str = ""
    top: bool = False
    note: str = ""
    unexplained: bool = False
    instead: str = ""
    undefined: str = ""
    no_better: bool = False
    has_read: bool = False

    @property
    def marks(self) -> str:
        """The marks of our value."""
        marks = ((MARK, self.top), (SENTINEL_MARK, self.no_better), (READ_MARK, self.has_read))
        return "".join(mark for mark, is_set in marks if is_set)

    @property
    def marked(self) -> str:
        """Our value with its marks right after it."""
        value, space, deviation = self.ours.partition(" ")
        return f"{value}{self.marks}{space}{deviation}" if value else self.ours


@dataclass(frozen=True)
class Row:
    """One metric's row: an entry for each column, or the reason why the metric is missing."""

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
        ceiling: the row of the human ceiling, None if it is unknown.
        ranks: the significance clusters of each tested column, one line each.
        published_only: rows that the paper has and the study has not.
        footnotes: those of ``notes`` that are about single numbers and name them; formats with footnotes of their own
            print these instead.
        answer: those of ``notes`` that answer which metric fits a user's judgements best; they come first.
        sentinels: one row for each sentinel.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    ceiling: Row | None = None
    ranks: tuple[str, ...] = ()
    published_only: tuple[Row, ...] = ()
    footnotes: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    sentinels: tuple[Row, ...] = ()

    @property
    def protocols(self) -> set[str]:
        """Ids of the columns' protocols."""
        return {column.protocol for column in self.columns}

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """All rows: ours, the ceiling, sentinels, those of the paper only."""
        return (*self.rows, *([self.ceiling] if self.ceiling else []), *self.sentinels, *self.published_only)

    def is_metric(self, row: Row) -> bool:
        """True if a row is neither the ceiling nor a sentinel."""
        return row is not self.ceiling and not any(row is one for one in self.sentinels)


# The user's choices.

_DIGITS = 9
"""Maximum number of digits after the decimal point."""


@dataclass(frozen=True, kw_only=True)
class TableStyle:
    """Choices that apply to every table of a result.

    Attributes:
        columns: the columns to show, in this order: heads (``τ-c``, ``MM``, ``rank``), groups, titles or names of data
            sets, or parts of protocol ids; empty for all.
        digits: digits after the decimal point of values, intervals and notes; by default four, or two for percentages,
            and one less for intervals.
        percent: True to multiply all values by 100, False for none; by default accuracies only.
        bold: True to emphasise the best value of each column.
        daggers: True to mark metrics that are not significantly worse than the best, or not better than sentinels.
        intervals: True to show intervals.
    """

    columns: tuple[str, ...] = ()
    digits: int | None = None
    percent: bool | None = None
    bold: bool = True
    daggers: bool = True
    intervals: bool = True

    @classmethod
    def of(cls, columns: str | Sequence[str] | None = None, digits: int | None = None, **choices: Any) -> TableStyle:
        """From the arguments of a Python function.

        Raises:
            UsageError: the number of digits is not valid.
        """
        if digits is not None and (
            isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= _DIGITS
        ):
            raise UsageError(
                f"digits={digits!r} is not a number of digits from 0 to {_DIGITS}",
                code="out-of-range",
                value=digits,
                hint="Example: digits=3",
            )
        names = (columns,) if isinstance(columns, str) else tuple(columns or ())
        return cls(columns=names, digits=digits, **choices)

    def number(self, value: float, percent: bool) -> str:
        """A printed statistic; with ``percent`` times 100."""
        return number(value, percent, self.digits)

    def interval(self, low: float | None, high: float | None, percent: bool) -> str:
        """A printed interval, by default with one digit less than values; ``""`` if there is or should be none."""
        if low is None or high is None or not self.intervals:
            return ""
        digits = (1 if percent else 3) if self.digits is None else self.digits
        return f"[{number(low, percent, digits)}, {number(high, percent, digits)}]"

    def rescaled(self, is_percent: bool) -> int:
        """The power of ten between a statistic's usual scale and the chosen one."""
        return 2 * (self.scale(is_percent) - is_percent)

    def scale(self, is_percent: bool) -> bool:
        """True if values are shown times 100; the argument is the statistic's own scale."""
        return is_percent if self.percent is None else self.percent

    def chosen(self, columns: Sequence[Column]) -> list[Column]:
        """The columns of a table that were chosen, in the order of the choice; all without one."""
        if not self.columns:
            return list(columns)
        places = [place for name in self.columns for place, column in enumerate(columns) if _matches(name, column)]
        return [columns[place] for place in dict.fromkeys(places)]

    def check(self, columns: Iterable[Column]) -> None:
        """Raise UsageError, with the choices, for a name that matches none of all columns."""
        known = list(columns)
        for name in self.columns:
            if not any(_matches(name, column) for column in known):
                choices = dict.fromkeys(" ".join(column.name.split()) for column in known)
                raise unknown_column(name, choices)

    def frame(self, frame: pd.DataFrame, numbers: Sequence[str], *, keep: Sequence[str] | None = None) -> pd.DataFrame:
        """A data frame with the chosen columns, scale and digits.

        Args:
            frame: the frame, with correlations and shares from 0 to 1.
            numbers: its columns with such values.
            keep: columns that are always kept if :attr:`columns` chooses some; None if these are columns of tables.

        Raises:
            UsageError: the frame has no column of this name.
        """
        frame = frame.copy()
        for name in numbers:
            if name in frame and (self.percent or self.digits is not None):
                values = frame[name].astype("float64") * (100 if self.percent else 1)
                frame[name] = values if self.digits is None else values.round(self.digits)
        if keep is None or not self.columns:
            return frame
        for name in self.columns:
            if name not in frame:
                raise unknown_column(name, frame.columns)
        return frame[[*keep, *(name for name in dict.fromkeys(self.columns) if name not in keep)]]


USUAL_TABLE = TableStyle()
"""The default choices."""


def unknown_column(name: str, choices: Iterable[str]) -> UsageError:
    """The error for a column that no table has."""
    return UsageError(
        f"there is no column '{name}'",
        code="unknown-name",
        value=name,
        hint=f"Choices: {', '.join(choices) or 'none'}",
    )


def _matches(name: str, column: Column) -> bool:
    """True if a name of the user denotes a column."""
    wanted = " ".join(name.casefold().split())
    heads = {*column.head, column.outer, column.name, column.heading, column.group, column.protocol.partition("/")[0]}
    shown = {" ".join(head.casefold().split()) for head in heads if head}
    is_part = ("/" in wanted or "-" in wanted) and wanted in column.protocol.casefold()
    return wanted in shown or is_part


def number(value: float, percent: bool, digits: int | None = None) -> str:
    """A printed statistic: four digits, or a percentage with two, unless the number of digits is given."""
    if digits is None:
        digits = 2 if percent else 4
    return f"{100 * value if percent else value:z.{digits}f}"
