"""A ranking of metrics over many tasks, as tables in four formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core.errors import count
from capbench.core.files import csv_text, json_text, lock, write_text
from capbench.core.records import signature_lines
from capbench.datasets.protocol import with_version
from capbench.reports.markup import (
    latex_document,
    markdown_document,
    markdown_signatures,
    markdown_table,
    markdown_text,
)
from capbench.reports.table import CEILING, SENTINELS, USUAL_TABLE, Cell, Column, Row, Table, TableStyle
from capbench.studies.ranking import RankedMetric, RankedSentinel, TaskInfo, TaskRanking
from capbench.studies.results import is_left_out
from capbench.studies.uncertainty import RANK_RULE

if TYPE_CHECKING:
    from rich.console import Console

_INCOMPLETE = "*"
"""Marks a metric that does not have all tasks."""
_CONSTANT = "°"
"""Marks the value of no agreement of a metric with constant scores."""


def ranking_table(result: TaskRanking, style: TableStyle = USUAL_TABLE) -> Table:
    """The table of a ranking: rank and overall value of each metric, then its value and rank on each task."""
    heads = ["rank", "overall", "tasks"]
    if result.discretised is not None:
        heads += [f"rank,\n{result.classes} classes", f"overall,\n{result.classes} classes"]
    metrics = result.ranking.metrics
    columns = [*map(Column, heads), *(_of_task(task) for task in result.tasks)]
    style.check(columns)
    several = style.bold and len(metrics) > 1
    best = ["", style.number(max(metric.overall for metric in metrics)) if several else "", *[""] * (len(heads) - 2)]
    for task in result.tasks:
        values = [metric.values[task.name] for metric in metrics if task.name in metric.values]
        best.append(style.number(max(values)) if style.bold and len(values) > 1 else "")

    def row(title: str, texts: Iterable[str], part: str = "") -> Row:
        cells = []
        for text, top in zip(texts, best, strict=True):
            value, _, rank = text.partition(" ")
            mark = _CONSTANT if value.endswith(_CONSTANT) else ""
            value = value.removesuffix(_CONSTANT)
            cells.append(Cell(value, mark, rank.strip(), bold=not part and bool(top) and value == top))
        return Row(title, tuple(cells), part)

    rows = [row(_title(metric.title, metric), _texts(result, metric, style)) for metric in metrics]
    title = f"{result.title or result.name}: {count(len(rows), 'metric')} on {count(len(result.tasks), 'task')} (× 100)"
    if any(task.ceiling is not None for task in result.tasks):
        shown = ["" if task.ceiling is None else style.number(task.ceiling) for task in result.tasks]
        rows.append(row("human ceiling", [*[""] * len(heads), *shown], CEILING))
    rows += [
        row(_title(sentinel.name, sentinel), _of_sentinel(result, sentinel, len(heads), style), SENTINELS)
        for sentinel in result.sentinels
    ]
    missing = [f"task not computed: {task}: {reason}" for task, reason in result.missing_tasks.items()]
    for name, reason in result.missing_metrics.items():
        missing.append(f"{name} {reason}" if is_left_out(reason) else f"{name} is not ranked: {reason}")
    raised = [f"{_INCOMPLETE} not on all tasks: overall value adjusted for how difficult the others are"]
    legend = ["overall: mean over tasks, where a correlation r counts as (1 + r) / 2"]
    legend += [f"ranks: significance clusters, α = {result.alpha:g}"] if result.permutations is not None else []
    legend += raised if any(row.title.endswith(_INCOMPLETE) for row in rows) else []
    return Table(
        title, tuple(columns), tuple(rows), warnings=tuple(missing), legend=tuple(legend), notes=tuple(_notes(result))
    ).chosen(style)


def _of_task(task: TaskInfo) -> Column:
    return Column(task.statistic, task.name, names=(task.protocol, task.group))


def _title(title: str, ranked: RankedMetric | RankedSentinel) -> str:
    return f"{title}{_INCOMPLETE if ranked.missing and ranked.values else ''}"


def _texts(result: TaskRanking, metric: RankedMetric, style: TableStyle) -> Iterator[str]:
    yield from (str(metric.rank), style.number(metric.overall), str(len(metric.values)))
    if result.discretised is not None:
        coarse = next((each for each in result.discretised.metrics if each.column == metric.column), None)
        yield from ("", "") if coarse is None else (str(coarse.rank), style.number(coarse.overall))
    for task in result.tasks:
        known = task.name in metric.values
        mark = _CONSTANT if task.name in metric.constant else ""
        yield f"{style.number(metric.values[task.name])}{mark} {metric.ranks[task.name]:>2}" if known else "–"


def _of_sentinel(result: TaskRanking, sentinel: RankedSentinel, heads: int, style: TableStyle) -> Iterator[str]:
    yield from ("", "–" if sentinel.overall is None else style.number(sentinel.overall), str(len(sentinel.values)))
    yield from [""] * (heads - 3)
    for task in result.tasks:
        yield style.number(sentinel.values[task.name]) if task.name in sentinel.values else "–"


def _notes(result: TaskRanking) -> Iterator[str]:
    """The notes below the table, one line each."""
    weights = {task.weight for task in result.tasks}
    mean = "mean over tasks" if len(weights) == 1 else "weighted mean over tasks"
    yield f"overall: {mean} on the scale from 0 to 1, where a correlation r counts as (1 + r) / 2"
    yield "columns of tasks: value of the metric, and its rank on this task"
    if result.permutations is not None:
        raised = f" ({result.requested:,} are too few for so many pairs)" if result.requested else ""
        corrected = "" if result.correction == "none" else f", {result.correction}"
        yield (
            f"ranks are significance clusters: {result.permutations:,} permutations{raised} within "
            f"{result.photographs:,} photographs across all tasks, seed {result.seed}{corrected}, α = "
            f"{result.alpha:g}. {RANK_RULE}"
        )
    if result.discretised is not None:
        yield f"{result.classes} classes: the same ranking, with scores rounded to {result.classes} quantile classes"
    incomplete = any(metric.missing for metric in result.ranking.metrics)
    if incomplete or any(sentinel.missing and sentinel.values for sentinel in result.sentinels):
        compared = "; compared with each metric on their common tasks" if incomplete else ""
        yield f"{_INCOMPLETE} overall value adjusted for how difficult the other tasks are{compared}"
    yield from missing_lines({metric.title: metric.missing for metric in result.ranking.metrics})
    constant = {metric.title: metric.constant for metric in result.ranking.metrics}
    yield from missing_lines(constant, f"{_CONSTANT} counts as no agreement: ")
    yield from missing_lines({sentinel.name: sentinel.missing for sentinel in result.sentinels})


def missing_lines(missing: Mapping[str, Mapping[str, str]], head: str = "no value of ") -> Iterator[str]:
    """Reasons for missing values, by row and task; rows that miss the same tasks for one reason share a line."""
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for title, of_row in missing.items():
        for reason in dict.fromkeys(of_row.values()):
            tasks = tuple(task for task, why in of_row.items() if why == reason)
            rows.setdefault((reason, tasks), []).append(title)
    for (reason, tasks), titles in rows.items():
        yield f"{head}{', '.join(titles)} on {', '.join(tasks)}: {reason}"


def _signatures(result: TaskRanking) -> list[str]:
    return list(dict.fromkeys(line for by_label in result.signatures.values() for line in signature_lines(by_label)))


def print_ranking(
    result: TaskRanking, console: Console, *, details: bool = False, style: TableStyle = USUAL_TABLE
) -> None:
    """Print ranks and overall values; with ``details`` also the tasks, methods and signatures."""
    from capbench.reports.terminal import print_lines, print_table

    table = ranking_table(result, style)
    if not details and not style.columns:
        table = table.chosen(replace(style, columns=tuple(column.head for column in table.columns if not column.group)))
    print_table(table, console, details=details)
    lines = [*map(_task, result.tasks), *_signatures(result)] if details else ["Tasks, methods, signatures: --details"]
    print_lines(console, lines, style="dim")


def to_markdown(result: TaskRanking, style: TableStyle = USUAL_TABLE) -> str:
    """The table as GitHub Markdown, with notes, tasks and signatures."""
    tasks = "Tasks:\n\n" + "\n".join(f"- {markdown_text(line)}" for line in map(_task, result.tasks))
    return markdown_document(
        [markdown_table(ranking_table(result, style)), tasks, markdown_signatures(_signatures(result))],
        f"capbench {result.capbench}, {result.created}",
        sample=result.sample,
    )


def _task(task: TaskInfo) -> str:
    """A task in one line."""
    group = f", group {task.group}" if task.group else ""
    return (
        f"{task.name}: {with_version(task.protocol, task.version)}{group}; weight {task.weight:g}; "
        f"{task.photographs:,} photographs"
    )


def to_latex(result: TaskRanking, style: TableStyle = USUAL_TABLE) -> str:
    """The table as LaTeX for the packages booktabs and graphicx."""
    table = ranking_table(result, style)
    table = replace(table, notes=(*table.notes, *map(_task, result.tasks)))
    return latex_document([table], "ranking", f"capbench {result.capbench}, {result.created}", sample=result.sample)


_CSV = ["column", "title", "overall", "rank", "task", "protocol", "group", "weight", "value", "task_rank", "missing"]


def to_csv(result: TaskRanking, *, escape_formulas: bool = False) -> str:
    """One line for each metric and task, full precision.

    ``missing`` is the reason for a task without a value, or with that of no agreement.
    """
    rows = (
        {
            "column": metric.column,
            "title": metric.title,
            "overall": metric.overall,
            "rank": metric.rank,
            "task": task.name,
            "protocol": task.protocol,
            "group": task.group,
            "weight": task.weight,
            "value": metric.values.get(task.name),
            "task_rank": metric.ranks.get(task.name),
            "missing": metric.missing.get(task.name) or metric.constant.get(task.name, ""),
        }
        for metric in result.ranking.metrics
        for task in result.tasks
    )
    return csv_text(_CSV, rows, escape_formulas=escape_formulas)


def write_ranking(result: TaskRanking, folder: Path, *, escape_formulas: bool = False) -> list[Path]:
    """Write ``ranking.{json,csv,md,tex}`` into a folder and return their paths.

    Args:
        result: the ranking.
        folder: created if it does not exist.
        escape_formulas: for the CSV file, see :func:`capbench.core.files.csv_text`.

    Raises:
        UsageError: a file cannot be written.
    """
    texts = {
        "ranking.json": json_text(result.model_dump(mode="json")) + "\n",
        "ranking.csv": to_csv(result, escape_formulas=escape_formulas),
        "ranking.md": to_markdown(result),
        "ranking.tex": to_latex(result),
    }
    with lock(folder / ".results"):
        for name, text in texts.items():
            write_text(folder / name, text)
    return [folder / name for name in texts]
