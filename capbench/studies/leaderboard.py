"""Leaderboard: computed metrics, score files and published numbers on all judged data sets, in one table.

It is a ranking (:mod:`capbench.studies.ranking`) with published numbers next to it. Every column is a task
(:mod:`capbench.studies.task_file`): a protocol, or one of its groups. A published number is in a column only if it was
computed under the protocol of this column; all others are in a second table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from capbench.core.errors import DataError, check_choice
from capbench.core.files import read_json, write_text
from capbench.core.records import caption_key
from capbench.core.typed_json import Strict, check_version, validated
from capbench.core.yaml import shipped_configs
from capbench.datasets.protocol import with_version
from capbench.metrics.from_file import FileScores
from capbench.metrics.metric_request import Row
from capbench.stats.pairs import Tests
from capbench.studies.plan import Plan
from capbench.studies.published import PublishedColumn, PublishedRow, load_published
from capbench.studies.published.beside import is_printed_as
from capbench.studies.published.tables import PrintedNumber
from capbench.studies.ranking import TaskRanking
from capbench.studies.results import ON_SAMPLE, BootstrapInfo, Cell, StudyResult
from capbench.studies.task_file import RankedTask
from capbench.studies.uncertainty import too_few_units

if TYPE_CHECKING:
    import pandas as pd

LEADERBOARD_SCHEMA_VERSION = 1
"""Version of the schema of a leaderboard's JSON."""
PUBLISHED = ("field-2026",)
"""Published tables whose numbers are shown; for the same metric and protocol, the first table counts."""


class OurNumber(Strict):
    """A number that capbench computed: a correlation in [-1, 1], or an accuracy as a share."""

    value: float
    low: float | None = None  # ends of its bootstrap interval
    high: float | None = None
    n: int  # ratings or pairs
    rank: int | None = None  # in the column's significance clusters; None without tests
    top: bool = False  # the best one of the column or not significantly worse; False without tests
    no_better: bool = False  # not significantly better than every sentinel


class PaperNumber(Strict):
    """A published number."""

    value: float  # in the unit of OurNumber
    printed: str
    digits: int  # that it has when it is multiplied by 100
    second_hand: bool = False  # copied from another publication than the metric's own paper
    source: str
    note: str = ""


class ImageDifference(Strict):
    """Contribution of the image: a computed number minus that of the same networks with a substitute image."""

    value: float
    low: float  # ends of its paired bootstrap interval
    high: float


class BoardColumn(Strict):
    """One column."""

    name: str  # of the task
    title: str  # of the data set, with the group
    statistic: str  # short name (τ-c)
    protocol: str
    version: str = ""  # of the data set, which the protocol leaves out
    group: str = ""  # of the items or pairs; "" for all
    ceiling: OurNumber | None = None  # the human ceiling
    sentinels: dict[str, float] = Field(default_factory=dict)
    bootstrap: BootstrapInfo | None = None
    permutations: int | None = None  # of the tests between metrics
    reason: str = ""  # why no metric was computed

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return self.protocol.partition("/")[0]

    @property
    def versioned(self) -> str:
        """The protocol's id with the data set's version, and the group."""
        return f"{with_version(self.protocol, self.version)}{f', {self.group}' if self.group else ''}"


class BoardRow(Strict):
    """One metric."""

    name: str
    title: str
    origin: Literal["computed", "scores", "printed"]  # by capbench, from scores in a file, or printed only
    reads_references: bool | None = None  # None if it is not known
    uses_ratings: bool | None = None  # trained on human ratings of captions; None if it is not known
    ours: dict[str, OurNumber] = Field(default_factory=dict)  # computed numbers by column
    printed: dict[str, PaperNumber] = Field(default_factory=dict)  # published numbers by column
    # Published numbers under other protocols, by protocol with its group, or by the printed heading.
    others: dict[str, PaperNumber] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)  # reasons by column whose data is installed
    signatures: dict[str, str] = Field(default_factory=dict)  # by *dataset/items*
    overall: float | None = None  # of capbench rank, on the scale from 0 to 1; None for metrics that are not ranked
    rank: int | None = None
    tasks: int = 0  # in capbench rank
    missing_tasks: int = 0
    # Differences from substitute images by column and substitute (mean, blank, shuffled).
    image: dict[str, dict[str, ImageDifference]] = Field(default_factory=dict)

    def value(self, column: str) -> float | None:
        """The shown number of a column: ours, else the published one; None without a number."""
        shown = self.ours.get(column) or self.printed.get(column)
        return None if shown is None else shown.value

    def is_second_hand(self, column: str) -> bool:
        """True if the shown number of a column was printed by others than the metric's authors."""
        return column not in self.ours and column in self.printed and self.printed[column].second_hand


class Leaderboard(Strict):
    """All metrics on all data sets."""

    schema_version: int = LEADERBOARD_SCHEMA_VERSION
    capbench: str  # version
    created: str  # UTC time
    command: str = ""  # writes the same numbers; "" if it is unknown
    sample: bool  # computed on the embedded synthetic sample
    columns: tuple[BoardColumn, ...]  # with at least one number
    rows: tuple[BoardRow, ...]  # ranked metrics, best first, then all others
    published: tuple[str, ...]  # names of the published tables
    alpha: float
    correction: str
    ranking: TaskRanking  # its tasks are the columns with computed numbers
    left_out: dict[str, str] = Field(default_factory=dict)  # metrics, with the reason

    @property
    def is_incomplete(self) -> bool:
        """True if a metric that was not left out has no computed number in a column whose data is installed."""
        return any(row.missing for row in self.rows)

    def row(self, name: str) -> BoardRow:
        """The row of a metric. Raises UsageError, with the nearest names, if there is none."""
        rows = {row.name: row for row in self.rows}
        check_choice("row", name, list(rows))
        return rows[name]

    def sorted(self, by: str = "") -> tuple[BoardRow, ...]:
        """The rows by the shown numbers of a column (the first by default), the best first; second-hand numbers follow
        all others, and rows without a number come last."""
        column = self.chosen([by])[0].name if by else self.columns[0].name

        def place(row: BoardRow) -> tuple[bool, bool, float]:
            value = row.value(column)
            return value is None, row.is_second_hand(column), 0.0 if value is None else -value

        return tuple(sorted(self.rows, key=place))

    def chosen(self, names: Sequence[str] = ()) -> tuple[BoardColumn, ...]:
        """Columns by name, in the order of the names; without names, all. Raises UsageError with the choices."""
        known = {column.name: column for column in self.columns}
        for name in names:
            check_choice("column", name, list(known))
        return tuple(known[name] for name in names) if names else self.columns

    def to_latex(self, columns: Sequence[str] = (), *, sort: str = "", digits: int = 1) -> str:
        """One compact table, by default of all columns, or, of more than eight, of those with published numbers.

        The rows are in the order of the column ``sort``, by default the first.
        """
        from capbench.reports.leaderboard import board_document
        from capbench.reports.markup import latex

        return latex(board_document(self, columns, sort=sort, digits=digits))

    def write_html(self, path: str | os.PathLike[str], *, sort: str = "", digits: int = 1) -> None:
        """Write one HTML page, as ``capbench leaderboard --html`` does."""
        from capbench.reports.leaderboard import to_html

        write_text(path, to_html(self, sort=sort, digits=digits))

    def to_frame(self) -> pd.DataFrame:
        """A row for each number: ``metric``, ``column``, ``protocol``, ``origin``, ``value``, interval, ``rank``, …"""
        import pandas as pd

        rows = [
            {
                "metric": row.name,
                "column": column.name,
                "protocol": column.versioned,
                "origin": row.origin if ours else "second-hand" if printed and printed.second_hand else "printed",
                "value": row.value(column.name),
                **{key: ours and getattr(ours, key) for key in ("low", "high", "n", "rank", "top")},
                "published": printed and printed.value,
            }
            for row in self.rows
            for column in self.columns
            for ours, printed in [(row.ours.get(column.name), row.printed.get(column.name))]
            if ours or printed
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"Leaderboard({len(self.rows)} metrics on {len(self.columns)} tasks{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from capbench.reports.leaderboard import print_leaderboard
        from capbench.reports.terminal import printed

        return printed(partial(print_leaderboard, self))


def published_numbers(
    tables: Sequence[str] = PUBLISHED,
) -> Iterator[tuple[PublishedRow, PublishedColumn, PrintedNumber]]:
    """The numbers of published tables: correlations and accuracies, no plain scores of metrics.

    Numbers that a table repeats under a second possible protocol are omitted there.
    """
    for table in map(load_published, tables):
        rows, columns = {row.key: row for row in table.rows}, {column.key: column for column in table.columns}
        for (column, row), number in table.values.items():
            if columns[column].unit != "score" and not columns[column].reading_of:
                yield rows[row], columns[column], number


def leaderboard(
    result: StudyResult,
    plan: Plan,
    tasks: Sequence[RankedTask],
    ranking: TaskRanking,
    *,
    command: str = "",
    left_out: Mapping[str, str] | None = None,
    everything: bool = True,
) -> Leaderboard:
    """A leaderboard whose columns are the tasks of a study that was run, in their order.

    ``everything``: False to omit published numbers of other data sets than those of the tasks.
    """
    board = _Builder(result, plan, ranking)
    columns = [board.column(task, tasks) for task in tasks]
    board.add_published(columns, everything=everything)
    rows = board.rows(columns)
    shown = [column for column in columns if any(row.value(column.name) is not None for row in rows)]
    return Leaderboard(
        capbench=result.capbench,
        created=result.created,
        command=command,
        sample=result.sample,
        columns=tuple(shown),
        rows=tuple(rows),
        published=PUBLISHED,
        alpha=ranking.alpha,
        correction=ranking.correction,
        ranking=ranking,
        left_out=dict(left_out or {}),
    )


class _Builder:
    """Assembles the rows of a leaderboard."""

    def __init__(self, result: StudyResult, plan: Plan, ranking: TaskRanking) -> None:
        self.result = result
        self.plan = plan
        self.ranked = {metric.column: metric for metric in ranking.ranking.metrics}
        self.datasets = {str(protocol): dataset for dataset, protocol in plan.protocols}
        self.from_files = {
            request.label: request.metric for request in plan.requests if issubclass(request.metric, FileScores)
        }
        self.reads_references = {
            row.name: row.key.column not in request.ignores_references
            for request in plan.requests
            if request.label not in self.from_files
            for row in request.rows
        }
        self.printed: dict[str, dict[str, PaperNumber]] = {}
        self.others: dict[str, dict[str, PaperNumber]] = {}
        self.printed_rows: dict[str, PublishedRow] = {}

    def column(self, task: RankedTask, tasks: Sequence[RankedTask]) -> BoardColumn:
        """The column of one of the tasks."""
        result, protocol = self.result, str(task.protocol)
        info = next((info for info in result.protocols if info.id == protocol), None)
        tests = self._tests(protocol, task.group)
        ceiling = result.ceiling(protocol, task.group)
        sentinels = result.sentinels_of(protocol)
        cells = [] if sentinels is None else [cell for cell in sentinels.cells if cell.group == task.group]
        return BoardColumn(
            name=task.name,
            title=self._title(task, tasks),
            statistic=task.protocol.statistic.label,
            protocol=protocol,
            version=task.protocol.version,
            group=task.group,
            ceiling=None
            if ceiling is None
            else OurNumber(value=ceiling.value, low=ceiling.low, high=ceiling.high, n=ceiling.n),
            sentinels={cell.column: cell.value for cell in cells if cell.value is not None},
            bootstrap=None if info is None else info.bootstrap,
            permutations=None if tests is None else tests.resamples,
            reason=next((m.reason for m in result.missing if m.protocol == protocol and not m.column), ""),
        )

    def _title(self, task: RankedTask, tasks: Sequence[RankedTask]) -> str:
        """Title of the data set, with the group, with the items unless they are its default ones, and with the rated
        aspect if tasks differ in nothing else."""

        def title(one: RankedTask) -> str:
            dataset, items = self.datasets[str(one.protocol)], one.protocol.items.name
            words = [dataset.title, one.group, "" if items == dataset.default[0] else items]
            return " ".join(filter(None, words))

        def head(one: RankedTask) -> tuple[str, str]:
            return title(one), one.protocol.statistic.label

        alike = sum(head(one) == head(task) for one in tasks) > 1
        return f"{title(task)} {task.protocol.statistic.human if alike else ''}".strip()

    def add_published(self, columns: Sequence[BoardColumn], *, everything: bool) -> None:
        """Assign the published numbers to rows and columns; the first number of a place counts."""
        places = {(column.protocol, column.group): column.name for column in columns}
        chosen = {dataset.name: dataset.title for dataset, _ in self.plan.protocols}
        for row, column, number in published_numbers():
            name, place = self._name(row), places.get((column.protocol or "", column.group))
            if place is not None:
                self.printed.setdefault(name, {}).setdefault(place, _printed(row, column, number))
            elif everything or _belongs(column, chosen):
                group = f", {column.group}" if column.group else ""
                heading = f"{column.protocol}{group}" if column.protocol else column.head
                self.others.setdefault(name, {}).setdefault(heading, _printed(row, column, number))
            else:
                continue
            self.printed_rows.setdefault(name, row)

    def _name(self, printed: PublishedRow) -> str:
        """Name of the row of a published metric: ours, if there is one, or that of scores with the printed title."""
        same = [row for row in self.plan.rows if is_printed_as(row, printed)]
        titled = [row for row in self.plan.rows if row.key.label in self.from_files and row.title == printed.title]
        found = [*(row for row in same if row not in self.plan.left_out), *titled, *same]
        ours = found[0].name if found else None
        return ours or next(
            (name for name, row in self.printed_rows.items() if _is_same(row, printed)),
            printed.label or printed.key,
        )

    def rows(self, columns: Sequence[BoardColumn]) -> list[BoardRow]:
        """All rows: ranked metrics first, then metrics without a rank, then published ones."""
        ours = [self._row(row, columns) for row in self.plan.rows if row not in self.plan.left_out]
        order = {name: place for place, name in enumerate(self.ranked)}
        ours.sort(key=lambda row: order.get(row.name, len(order)))
        only = [
            BoardRow(
                name=name,
                title=row.title,
                origin="printed",
                reads_references=row.reads_references,
                uses_ratings=row.uses_ratings,
                printed=self.printed.get(name, {}),
                others=self.others.get(name, {}),
            )
            for name, row in self.printed_rows.items()
            if not any(one.name == name for one in ours)
        ]
        return [*ours, *only]

    def _row(self, row: Row, columns: Sequence[BoardColumn]) -> BoardRow:
        cells = {column.name: self.result.cell(column.protocol, row.name, column.group) for column in columns}
        ours = {
            column.name: self._number(cell, column)
            for column in columns
            if (cell := cells[column.name]) is not None and cell.value is not None
        }
        ranked = self.ranked.get(row.name)
        of_file = self.from_files.get(row.key.label)
        printed = self.printed_rows.get(row.name)
        known = printed or of_file
        reads = known.reads_references if known else self.reads_references.get(row.name)
        return BoardRow(
            name=row.name,
            title=printed.title if printed is not None and of_file and row.title == row.name else row.title,
            reads_references=reads,
            uses_ratings=known.uses_ratings if known else None,
            origin="scores" if of_file else "computed",
            ours=ours,
            printed=self.printed.get(row.name, {}),
            others=self.others.get(row.name, {}),
            missing={
                column.name: self._reason(row, column, cells[column.name])
                for column in columns
                if column.name not in ours and not column.reason
            },
            signatures={
                items: lines[row.key.label]
                for items, lines in self.result.signatures.items()
                if row.key.label in lines and any(column.protocol.startswith(f"{items}/") for column in columns)
            },
            overall=None if ranked is None else ranked.overall,
            rank=None if ranked is None else ranked.rank,
            tasks=0 if ranked is None else len(ranked.values),
            missing_tasks=0 if ranked is None else len(ranked.missing),
        )

    def _number(self, cell: Cell, column: BoardColumn) -> OurNumber:
        tests = self._tests(column.protocol, column.group)
        sentinels = self.result.sentinels_of(column.protocol)
        return OurNumber(
            value=cell.number,
            low=cell.low,
            high=cell.high,
            n=cell.n,
            rank=None if tests is None else tests.ranks.get(cell.column),
            top=tests is not None and cell.column in tests.top,
            no_better=sentinels is not None and cell.column in sentinels.no_better(column.group),
        )

    def _tests(self, protocol: str, group: str) -> Tests | None:
        """The tests of a column, unless no difference can be significant."""
        tests = self.result.comparison(protocol, group)
        return None if tests is None or too_few_units(tests) else tests

    def _reason(self, row: Row, column: BoardColumn, cell: Cell | None) -> str:
        if cell is not None:
            return cell.undefined
        items = column.protocol.rpartition("/")[0]
        places = ("", column.protocol, items)
        reasons = [m.reason for m in self.result.missing if m.column in ("", row.name) and m.protocol in places]
        return next(iter(reasons), "it has no scores")


def _belongs(column: PublishedColumn, datasets: Mapping[str, str]) -> bool:
    """True if a published column belongs to one of some data sets, which are titles by name."""
    if column.protocol is None:
        return any(column.head.startswith(title) for title in datasets.values())
    return column.protocol.partition("/")[0] in datasets


def _is_same(one: PublishedRow, other: PublishedRow) -> bool:
    """True if two published rows are the same metric."""
    return (
        caption_key(one.title) == caption_key(other.title)
        and (one.metric, one.variant) == (other.metric, other.variant)
        and (one.reads_references is None or one.reads_references == other.reads_references)
    )


def _printed(row: PublishedRow, column: PublishedColumn, number: PrintedNumber) -> PaperNumber:
    return PaperNumber(
        value=number.value,
        printed=number.printed,
        digits=max(number.digits - (0 if column.unit == "percent" else 2), 0),
        second_hand=row.second_hand or row.cited,
        source=number.source,
        note=number.note or "",
    )


def load_leaderboard(path: str | os.PathLike[str]) -> Leaderboard:
    """The leaderboard of a JSON file. Raises DataError for another format, or a later version than this one reads."""
    raw = read_json(path)
    hint = "Write it with 'capbench leaderboard --json'"
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or version < 1:
        message = "is not a leaderboard of capbench ('schema_version' is missing)"
        raise DataError(message, code="wrong-format", path=path, hint=hint)
    check_version(version, LEADERBOARD_SCHEMA_VERSION, path)
    raw.pop("partial", None)  # of earlier files: now among the reasons in ``missing``
    return validated(Leaderboard, raw, path, code="wrong-format", hint=hint)


def committed_leaderboard() -> Path:
    """The file of the leaderboard that comes with capbench."""
    folder = shipped_configs().parent
    installed = folder / "_leaderboard.json"
    return installed if installed.exists() else folder / "results" / "leaderboard" / "leaderboard.json"
