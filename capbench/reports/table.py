"""One table of results as texts, which each format prints, and the user's choices: digits, scale, marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capbench.core.errors import UsageError

CEILING, SENTINELS, PUBLISHED = "ceiling", "sentinels", "published only"
"""Parts of a table below its metrics (:attr:`Row.part`); the last has a heading."""


@dataclass(frozen=True)
class Cell:
    """One printed cell."""

    value: str = ""
    marks: str = ""  # signs right after the value: †, ‡, §, *, ?
    below: str = ""  # a second line, such as an interval
    bold: bool = False
    note: str = ""  # a remark: a lettered footnote in LaTeX, in place of the marks
    tip: str = ""  # a tooltip on pages
    soft: bool = False  # grey on pages

    @property
    def marked(self) -> str:
        """The value with its marks, which precede a standard deviation."""
        value, space, deviation = self.value.partition(" ±")
        return f"{value}{self.marks}{space}{deviation}"


@dataclass(frozen=True)
class Column:
    """One column after the first."""

    head: str  # τ-c
    group: str = ""  # a head above it, shared by neighbours: Flickr8k Expert
    full: str = ""  # the head in full, by default the head: Kendall's τ-c
    text: bool = False  # its cells are texts, at the left
    width: float = 0.0  # share of the line that a column of long texts takes in LaTeX
    with_previous: bool = False  # never separated from the column at its left
    place: tuple[str, str] = ("", "")  # protocol and group of its numbers

    @property
    def name(self) -> str:
        """The whole head in one line."""
        return " ".join(f"{self.group} {self.head}".split())

    @property
    def heading(self) -> str:
        """The whole head in full, in one line: ``Flickr8k Expert, Kendall's τ-c``."""
        parts = [" ".join(part.split()) for part in (self.group, self.full or self.head) if part]
        return (", " if self.full and self.full != self.head else " ").join(parts)


@dataclass(frozen=True)
class Row:
    """A row: its title, and a cell for each column."""

    title: str
    cells: tuple[Cell, ...]
    part: str = ""  # "" or one of the parts above; a rule separates parts
    about: str = ""  # a second line below the title on pages


@dataclass(frozen=True)
class Table:
    """A table with a caption, and the lines around it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    answer: tuple[str, ...] = ()  # sentences that say what the table shows
    warnings: tuple[str, ...] = ()  # what could mislead, a short line each
    legend: tuple[str, ...] = ()  # meaning of marks and intervals, a short line each
    footnotes: tuple[str, ...] = ()  # remarks on single cells, which they name; LaTeX has letters instead
    notes: tuple[str, ...] = ()  # data and methods: on the screen with --details only
    head: str = "metric"  # head of the first column

    @property
    def shown(self) -> list[str]:
        """The lines below the table without data and methods."""
        return list(dict.fromkeys((*self.answer, *self.warnings, *self.legend, *self.footnotes)))

    @property
    def lines(self) -> list[str]:
        """All lines below the table."""
        return list(dict.fromkeys((*self.shown, *self.notes)))

    @classmethod
    def of(
        cls, heads: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", **lines: tuple[str, ...]
    ) -> Table:
        """A table of plain texts; rows are filled up with empty cells. ``lines``: answer, legend, notes, …"""
        columns, made = tuple(map(Column, heads[1:])), []
        for first, *others in rows:
            cells = [*map(Cell, others), *[Cell()] * (len(columns) - len(others))]
            made.append(Row(first, tuple(cells)))
        return cls(title, columns, tuple(made), head=heads[0], **lines)


@dataclass(frozen=True)
class Document:
    """Tables that are written together: ``markup.markdown``, ``latex`` and ``html`` write, ``terminal`` prints them."""

    tables: Sequence[Table]
    name: str = ""  # of their labels in LaTeX
    origin: str = ""  # of the numbers: capbench's version, and when they were computed
    signatures: Sequence[str] = ()
    sample: bool = False  # computed on the embedded synthetic sample


_DIGITS = 9
"""Maximum number of digits after the decimal point."""


@dataclass(frozen=True, kw_only=True)
class TableStyle:
    """The user's choices for all tables of a result."""

    digits: int | None = None  # after the decimal point; by default one of numbers × 100, else four
    percent: bool | None = None  # True, the default, multiplies correlations and accuracies by 100
    bold: bool = True  # emphasise the best value of each column
    daggers: bool = True  # mark metrics that are not significantly worse than the best, or not better than sentinels
    intervals: bool = True

    def __post_init__(self) -> None:
        if self.digits is not None and (type(self.digits) is not int or not 0 <= self.digits <= _DIGITS):
            message = f"digits={self.digits!r} is not a number of digits from 0 to {_DIGITS}"
            raise UsageError(message, code="out-of-range", value=self.digits, hint="Example: digits=3")

    @property
    def hundredfold(self) -> bool:
        """True if correlations and accuracies are multiplied by 100."""
        return self.percent is not False

    def number(self, value: float, *, share: bool = True) -> str:
        """A printed number; ``share=False``, for such as a mean score, keeps its scale."""
        scaled = share and self.hundredfold
        digits = (1 if scaled else 4) if self.digits is None else self.digits
        return f"{100 * value if scaled else value:z.{digits}f}"

    def interval(self, low: float | None, high: float | None, *, share: bool = True) -> str:
        """A printed interval ``[low, high]``; ``""`` if there is or should be none."""
        if low is None or high is None or not self.intervals:
            return ""
        return f"[{self.number(low, share=share)}, {self.number(high, share=share)}]"


USUAL_TABLE = TableStyle()
"""The default choices."""


def number(value: float, share: bool = True) -> str:
    """A printed statistic with the default choices."""
    return USUAL_TABLE.number(value, share=share)
