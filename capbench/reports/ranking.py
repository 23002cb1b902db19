"""A ranking of metrics over many tasks, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capbench.core.errors import count
from capbench.core.files import csv_text
from capbench.core.records import signature_lines
from capbench.datasets.protocol import with_version
from capbench.reports.markup import write_files
from capbench.reports.table import CEILING, SENTINELS, USUAL_TABLE, Cell, Column, Document, Row, Table, TableStyle
from capbench.studies.ranking import RankedMetric, RankedSentinel, TaskInfo, TaskRanking
from capbench.studies.results import is_left_out
from capbench.studies.uncertainty import RANK_RULE

_INCOMPLETE = "*"
"""Marks a metric that does not have all tasks."""
_CONSTANT = "°"
"""Marks the value of no agreement of a metric with constant scores."""


def ranking_table(result: TaskRanking, style: TableStyle = USUAL_TABLE, *, short: bool = False) -> Table:
    """The table of a ranking: rank and overall value of each metric, then its value and rank on each task.

    ``short``: only the mean of the tasks of each data set, weighted as in the overall value.
    """
    heads = ["rank", "overall", "tasks"]
    places: dict[str, list[TaskInfo]] = {}
    for task in result.tasks:
        places.setdefault(task.protocol.partition("/")[0] if short else task.name, []).append(task)
    columns = [*map(Column, heads)]
    for name, tasks in places.items():
        statistics = dict.fromkeys(task.statistic for task in tasks)
        columns.append(Column(", ".join(statistics), name))

    def cells(values: Mapping[str, float], ranks: Mapping[str, int], constant: Iterable[str]) -> Iterator[Cell]:
        for tasks in places.values():
            if not all(task.name in values for task in tasks):
                yield Cell("–")
                continue
            mean = sum(task.weight * values[task.name] for task in tasks) / sum(task.weight for task in tasks)
            mark = _CONSTANT if any(task.name in constant for task in tasks) else ""
            yield Cell(style.number(mean), mark, "" if short else str(ranks.get(tasks[0].name, "")))

    def row(title: str, first: Sequence[str], part: str, values: Mapping[str, float], *more: Any) -> Row:
        before = [Cell(text) for text in (*first, *[""] * (len(heads) - len(first)))]
        return Row(title, (*before, *cells(values, *(more or ({}, ())))), part)

    rows = []
    for metric in result.ranking.metrics:
        first = [str(metric.rank), style.number(metric.overall), str(len(metric.values))]
        rows.append(row(_title(metric.title, metric), first, "", metric.values, metric.ranks, metric.constant))
    rows = _with_best(rows, [1, *range(len(heads), len(columns))]) if style.bold else rows
    title = f"{result.title or result.name}: {count(len(rows), 'metric')} on {count(len(result.tasks), 'task')} (× 100)"
    ceilings = {task.name: task.ceiling for task in result.tasks if task.ceiling is not None}
    rows += [row("human ceiling", [], CEILING, ceilings)] if ceilings else []
    for sentinel in () if short else result.sentinels:
        overall = "–" if sentinel.overall is None else style.number(sentinel.overall)
        first = ["", overall, str(len(sentinel.values))]
        rows.append(row(_title(sentinel.name, sentinel), first, SENTINELS, sentinel.values))
    missing = [f"task not computed: {task}: {reason}" for task, reason in result.missing_tasks.items()]
    for name, reason in result.missing_metrics.items():
        missing.append(f"{name} {reason}" if is_left_out(reason) else f"{name} is not ranked: {reason}")
    weighted = "" if len({task.weight for task in result.tasks}) == 1 else "weighted "
    legend = [f"overall: {weighted}mean over tasks, where a correlation r counts as (1 + r) / 2"]
    legend += [f"ranks: significance clusters, α = {result.alpha:g}"] if result.permutations is not None else []
    if any(row.title.endswith(_INCOMPLETE) for row in rows):
        legend.append(f"{_INCOMPLETE} not on all tasks: overall value adjusted for how difficult the others are")
    notes = tuple(_notes(result))
    return Table(title, tuple(columns), tuple(rows), warnings=tuple(missing), legend=tuple(legend), notes=notes)


def _with_best(rows: Sequence[Row], places: Iterable[int]) -> list[Row]:
    """Rows with the largest printed number of some columns in bold."""
    best = {}
    for place in places:
        numbers = [float(row.cells[place].value) for row in rows if row.cells[place].value not in ("", "–")]
        best[place] = f"{max(numbers):g}" if len(numbers) > 1 else None

    def is_best(place: int, cell: Cell) -> bool:
        return best.get(place) is not None and cell.value != "–" and f"{float(cell.value):g}" == best[place]

    def marked(row: Row) -> Row:
        cells = (replace(cell, bold=is_best(place, cell)) for place, cell in enumerate(row.cells))
        return replace(row, cells=tuple(cells))

    return list(map(marked, rows))


def _title(title: str, ranked: RankedMetric | RankedSentinel) -> str:
    return f"{title}{_INCOMPLETE if ranked.missing and ranked.values else ''}"


def _notes(result: TaskRanking) -> Iterator[str]:
    """Data and methods, one line each."""
    yield "columns of tasks: value of the metric, and its rank on this task"
    if result.permutations is not None:
        raised = f" ({result.requested:,} are too few for so many pairs)" if result.requested else ""
        corrected = "" if result.correction == "none" else f", {result.correction}"
        yield (
            f"ranks are significance clusters: {result.permutations:,} permutations{raised} within "
            f"{result.photographs:,} photographs across all tasks, seed {result.seed}{corrected}, α = "
            f"{result.alpha:g}. {RANK_RULE}"
        )
    if any(metric.missing for metric in result.ranking.metrics):
        yield f"{_INCOMPLETE} compared with each metric on their common tasks"
    yield from missing_lines({metric.title: metric.missing for metric in result.ranking.metrics})
    constant = {metric.title: metric.constant for metric in result.ranking.metrics}
    yield from missing_lines(constant, f"{_CONSTANT} counts as no agreement: ")
    yield from missing_lines({sentinel.name: sentinel.missing for sentinel in result.sentinels})
    for task in result.tasks:
        group = f", group {task.group}" if task.group else ""
        yield (
            f"{task.name}: {with_version(task.protocol, task.version)}{group}; weight {task.weight:g}; "
            f"{task.photographs:,} photographs"
        )


def missing_lines(missing: Mapping[str, Mapping[str, str]], head: str = "no value of ") -> Iterator[str]:
    """Reasons for missing values, by row and task; rows that miss the same tasks for one reason share a line."""
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for title, of_row in missing.items():
        for reason in dict.fromkeys(of_row.values()):
            tasks = tuple(task for task, why in of_row.items() if why == reason)
            rows.setdefault((reason, tasks), []).append(title)
    for (reason, tasks), titles in rows.items():
        yield f"{head}{', '.join(titles)} on {', '.join(tasks)}: {reason}"


def ranking_document(result: TaskRanking, style: TableStyle = USUAL_TABLE, *, short: bool = False) -> Document:
    """The table of a ranking with its signatures; see :func:`ranking_table`."""
    signatures = dict.fromkeys(line for by_label in result.signatures.values() for line in signature_lines(by_label))
    origin = f"capbench {result.capbench}, {result.created}"
    return Document([ranking_table(result, style, short=short)], "ranking", origin, list(signatures), result.sample)


def to_csv(result: TaskRanking) -> str:
    """One line for each metric and task, full precision; ``missing`` is the reason for no value or no agreement."""
    rows = [
        {
            **metric.model_dump(include={"column", "title", "overall", "rank"}),
            "task": task.name,
            **task.model_dump(include={"protocol", "group", "weight"}),
            "value": metric.values.get(task.name),
            "task_rank": metric.ranks.get(task.name),
            "missing": metric.missing.get(task.name) or metric.constant.get(task.name, ""),
        }
        for metric in result.ranking.metrics
        for task in result.tasks
    ]
    return csv_text([*rows[0]] if rows else [], rows)


def write_ranking(result: TaskRanking, folder: Path) -> list[Path]:
    """Write ``ranking.{json,md,tex,csv}`` into a folder, which is created, and return their paths."""
    texts = {"ranking.csv": to_csv(result)}
    return write_files(folder, "ranking", result.model_dump(mode="json"), ranking_document(result), texts)
