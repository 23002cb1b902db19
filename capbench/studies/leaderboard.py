"""Leaderboard: a ranking (:mod:`capbench.studies.ranking`) with published numbers next to it.

Overall values and tests are those of the ranking (:mod:`capbench.stats.overall`).

Every column is a task: a protocol, or one of its groups. A published number is in a column only if it was computed
under the protocol of this column; all others are in a second table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import Field

from capbench.core.errors import check_choice, count
from capbench.core.files import write_text
from capbench.core.records import caption_key
from capbench.core.typed_json import Strict, read_versioned
from capbench.core.yaml import shipped_configs
from capbench.datasets.protocol import with_version
from capbench.metrics.from_file import FileScores
from capbench.metrics.metric_request import Row
from capbench.studies.plan import Plan
from capbench.studies.published.differences import is_printed_as
from capbench.studies.published.tables import PrintedNumber, PublishedColumn, PublishedRow, load_published
from capbench.studies.ranking import TaskRanking, missing_reason
from capbench.studies.results import NUMBER, ON_SAMPLE, BootstrapInfo, Number, StudyResult
from capbench.studies.task_file import RankedTask
from capbench.studies.uncertainty import decided

if TYPE_CHECKING:
    import pandas as pd

LEADERBOARD_SCHEMA_VERSION = 1
PUBLISHED = "field-2026"  # the table whose numbers are shown


class OurNumber(Number):
    """A number that capbench computed."""

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
    overall: float | None = None  # of capbench rank (capbench.stats.overall), from 0 to 1; None without a rank
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
    columns: Annotated[tuple[BoardColumn, ...], MinLen(1)]  # with at least one number
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
        """The rows by the shown numbers of a column (the first by default), the best first, second-hand ones last."""
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
        size = f"{count(len(self.rows), 'metric')} on {count(len(self.columns), 'task')}"
        return f"Leaderboard({size}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from capbench.reports.leaderboard import print_leaderboard
        from capbench.reports.terminal import printed

        return printed(partial(print_leaderboard, self))


def published_numbers() -> Iterator[tuple[PublishedRow, PublishedColumn, PrintedNumber]]:
    """The published correlations and accuracies, without repeats under a second possible protocol."""
    table = load_published(PUBLISHED)
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
    everything: bool = True,  # also published numbers of other data sets than those of the tasks
) -> Leaderboard:
    """A leaderboard whose columns are the tasks of a study that was run, in their order."""
    columns = [_column(result, plan, task, tasks) for task in tasks]
    published = _Published(plan, columns, everything=everything)
    ranked = {metric.column: metric for metric in ranking.ranking.metrics}
    order = {name: place for place, name in enumerate(ranked)}
    ours = {row.name: row for row in plan.rows if row not in plan.left_out}
    rows = []
    names = dict.fromkeys([*ours, *published.rows])
    for name in sorted(names, key=lambda name: (name not in ours, order.get(name, len(order)))):
        printed, row = published.rows.get(name), ours.get(name)
        of_file = None if row is None else published.files.get(row.key.label)
        known = printed or of_file
        facts: dict[str, Any] = {"title": printed.title} if printed else {}
        if row is not None:
            facts = _computed(result, row, columns)
            if printed is not None and of_file and row.title == row.name:
                facts["title"] = printed.title
        if (metric := ranked.get(name)) is not None:
            facts |= {"overall": metric.overall, "rank": metric.rank}
            facts |= {"tasks": len(metric.values), "missing_tasks": len(metric.missing)}
        rows.append(
            BoardRow(
                name=name,
                origin="printed" if row is None else "scores" if of_file else "computed",
                reads_references=known.reads_references if known else published.reads_references.get(name),
                uses_ratings=known.uses_ratings if known else None,
                printed=published.numbers.get(name, {}),
                others=published.others.get(name, {}),
                **facts,
            )
        )
    return Leaderboard(
        capbench=result.capbench,
        created=result.created,
        command=command,
        sample=result.sample,
        columns=tuple(column for column in columns if any(row.value(column.name) is not None for row in rows)),
        rows=tuple(rows),
        published=(PUBLISHED,),
        alpha=ranking.alpha,
        correction=ranking.correction,
        ranking=ranking,
        left_out=dict(left_out or {}),
    )


def _column(result: StudyResult, plan: Plan, task: RankedTask, tasks: Sequence[RankedTask]) -> BoardColumn:
    """The column of one of the tasks.

    Its title is that of the data set, with the group, with the items unless they are its default ones, and with the
    rated aspect if tasks differ in nothing else.
    """
    protocol, datasets = str(task.protocol), {str(protocol): dataset for dataset, protocol in plan.protocols}

    def title(other: RankedTask) -> str:
        dataset, items = datasets[str(other.protocol)], other.protocol.items.name
        return " ".join(filter(None, [dataset.title, other.group, "" if items == dataset.default[0] else items]))

    heads = [(title(other), other.protocol.statistic.label) for other in tasks]
    alike = heads.count((title(task), task.protocol.statistic.label)) > 1
    tests, ceiling = decided(result, protocol, task.group), result.ceiling(protocol, task.group)
    return BoardColumn(
        name=task.name,
        title=f"{title(task)} {task.protocol.statistic.human if alike else ''}".strip(),
        statistic=task.protocol.statistic.label,
        protocol=protocol,
        version=task.protocol.version,
        group=task.group,
        ceiling=None if ceiling is None else OurNumber(**ceiling.model_dump(include=NUMBER)),
        sentinels=result.sentinel_values(protocol, task.group),
        bootstrap=next((info.bootstrap for info in result.protocols if info.id == protocol), None),
        permutations=None if tests is None else tests.resamples,
        reason=next((m.reason for m in result.missing if m.protocol == protocol and not m.column), ""),
    )


def _computed(result: StudyResult, row: Row, columns: Sequence[BoardColumn]) -> dict[str, Any]:
    ours, missing = dict[str, OurNumber](), dict[str, str]()
    for column in columns:
        cell = result.cell(column.protocol, row.name, column.group)
        if cell is not None and cell.value is not None:
            tests = decided(result, column.protocol, column.group)
            ours[column.name] = OurNumber(
                **cell.model_dump(include=NUMBER),
                rank=None if tests is None else tests.ranks.get(row.name),
                top=tests is not None and row.name in tests.top,
                no_better=row.name in result.no_better(column.protocol, column.group),
            )
        elif not column.reason:
            reason = missing_reason(result, row.name, column.protocol)
            missing[column.name] = reason if cell is None else cell.undefined
    label, of_columns = row.key.label, {column.protocol.rpartition("/")[0] for column in columns}
    lines = {items: of.get(label) for items, of in result.signatures.items() if items in of_columns}
    signatures = {items: line for items, line in lines.items() if line is not None}
    return {"title": row.title, "ours": ours, "missing": missing, "signatures": signatures}


class _Published:
    """The published numbers by row, in a column or under another protocol; the first number of a place counts."""

    def __init__(self, plan: Plan, columns: Sequence[BoardColumn], *, everything: bool) -> None:
        self.plan = plan
        self.files = {r.label: r.metric for r in plan.requests if issubclass(r.metric, FileScores)}
        self.reads_references = {
            row.name: row.key.column not in request.ignores_references
            for request in plan.requests
            if request.label not in self.files
            for row in request.rows
        }
        self.rows: dict[str, PublishedRow] = {}
        self.numbers: dict[str, dict[str, PaperNumber]] = {}
        self.others: dict[str, dict[str, PaperNumber]] = {}
        places = {(column.protocol, column.group): column.name for column in columns}
        chosen = {dataset.name: dataset.title for dataset, _ in plan.protocols}
        for row, column, number in published_numbers():
            name, place = self._name(row), places.get((column.protocol or "", column.group))
            printed = PaperNumber(
                value=number.value,
                printed=number.printed,
                digits=max(number.digits - (0 if column.unit == "percent" else 2), 0),
                second_hand=row.second_hand or row.cited,
                source=number.source,
                note=number.note or "",
            )
            if place is not None:
                self.numbers.setdefault(name, {}).setdefault(place, printed)
            elif (
                everything
                or (column.protocol or "").partition("/")[0] in chosen
                or (not column.protocol and any(map(column.head.startswith, chosen.values())))
            ):
                group = f", {column.group}" if column.group else ""
                heading = f"{column.protocol}{group}" if column.protocol else column.head
                self.others.setdefault(name, {}).setdefault(heading, printed)
            else:
                continue
            self.rows.setdefault(name, row)

    def _name(self, printed: PublishedRow) -> str:
        """Name of the row of a published metric: ours, if there is one, or that of scores with the printed title."""
        same = [row for row in self.plan.rows if is_printed_as(row, printed)]
        titled = [row for row in self.plan.rows if row.key.label in self.files and row.title == printed.title]
        for ours in (*(row for row in same if row not in self.plan.left_out), *titled, *same):
            return ours.name
        what = (caption_key(printed.title), printed.metric, printed.variant)
        for name, row in self.rows.items():
            same_references = row.reads_references in (None, printed.reads_references)
            if (caption_key(row.title), row.metric, row.variant) == what and same_references:
                return name
        return printed.label or printed.key


def load_leaderboard(path: str | os.PathLike[str]) -> Leaderboard:
    """The leaderboard of a JSON file. Raises DataError for another format or version."""
    hint = "Write it with 'capbench leaderboard --json'"
    return read_versioned(Leaderboard, path, LEADERBOARD_SCHEMA_VERSION, "a leaderboard of capbench", hint)


def committed_leaderboard() -> Path:
    """The file of the leaderboard that comes with capbench."""
    folder = shipped_configs().parent
    installed = folder / "_leaderboard.json"
    return installed if installed.exists() else folder / "results" / "leaderboard" / "leaderboard.json"
