"""Ranks metrics over many tasks (``capbench rank``), by the values and tests of :mod:`capbench.stats.overall`.

Two metrics are compared on the tasks that both have.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from typing_extensions import Unpack

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Judgements
from capbench.core.typed_json import Strict
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import Row
from capbench.stats.overall import TaskData, TaskEffects, joint_labels, joint_tests, task_effects
from capbench.stats.pairs import Correction, Pair
from capbench.stats.significance import adjusted_pairs, permutations_to_use, significance_ranks
from capbench.studies.all_protocols import ranks
from capbench.studies.data_points import agreement
from capbench.studies.human_ceiling import human_ceiling
from capbench.studies.plan import Plan
from capbench.studies.protocol_notes import no_agreement
from capbench.studies.results import ON_SAMPLE, Cell, Shown, StudyResult, TableChoices, is_left_out
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.scoring import ProgressFactory, Scored
from capbench.studies.sentinel_agreement import sentinel_cell
from capbench.studies.sentinels import SENTINELS, SentinelScores, sentinel_scores
from capbench.studies.study import TestSettings
from capbench.studies.task_file import RankedTask
from capbench.studies.uncertainty import common_scores, group_scores

if TYPE_CHECKING:
    import pandas as pd

RANKING_SCHEMA_VERSION = 1


class TaskInfo(Strict):
    """One task of a ranking."""

    name: str
    protocol: str
    version: str  # of the data set, which the protocol leaves out
    group: str  # of the items or pairs; "" for all
    weight: float
    statistic: str  # short name (τ-c)
    kind: Literal["correlation", "accuracy"]  # correlation also for acc*_eq and accuracies over systems
    photographs: int  # with judgements
    ceiling: float | None  # the human ceiling; None if it is unknown
    effect: float  # value minus that of the average task, on the scale from 0 to 1


class RankedMetric(Strict):
    """One metric of a ranking."""

    column: str
    title: str
    overall: float  # weighted mean over its tasks, on the scale from 0 to 1; adjusted for missing tasks
    rank: int  # in significance clusters, from 1
    values: dict[str, float]  # the statistic by task
    ranks: dict[str, int]  # among all metrics by task, from 1; equal values share the better rank
    missing: dict[str, str]  # tasks without a value, with the reason
    # Tasks with the value of no agreement, since the statistic is undefined for constant scores, with the reason.
    constant: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MetricPair(Pair):
    """The test of two metrics over the tasks that both have; its difference is on the scale from 0 to 1."""

    tasks: int


class RankedSentinel(Strict):
    """A sentinel metric (:mod:`capbench.studies.sentinels`), which has no rank and enters no test."""

    name: str
    overall: float | None  # as for metrics; None without any task
    values: dict[str, float]
    missing: dict[str, str]


class Ranking(Strict):
    """Metrics ranked over tasks, best first, and tests of all pairs."""

    metrics: tuple[RankedMetric, ...]
    pairs: tuple[MetricPair, ...]


class TaskRanking(Shown, Strict):
    """Result of ``capbench rank``."""

    schema_version: int = RANKING_SCHEMA_VERSION
    capbench: str  # version
    created: str  # UTC time
    name: str  # of the task file
    title: str
    sample: bool  # computed on the embedded synthetic sample
    tasks: tuple[TaskInfo, ...]  # those that at least one metric has
    missing_tasks: dict[str, str]  # the others, with the reason
    ranking: Ranking
    missing_metrics: dict[str, str]  # metrics without any task, by title with the reason
    photographs: int  # of all tasks; those of several tasks count once
    permutations: int | None  # None with fewer than two metrics
    requested: int | None  # number of permutations, if it was too small
    seed: int
    correction: Correction
    alpha: float
    sentinels: tuple[RankedSentinel, ...] = ()  # empty if they were not requested
    signatures: dict[str, dict[str, str]]  # by *dataset/items*
    cached: int = 0  # scores from the cache

    @property
    def is_incomplete(self) -> bool:
        """True if a metric that was not left out has no value on some task, or on any."""
        absent = any(not is_left_out(reason) for reason in self.missing_metrics.values())
        return absent or any(metric.missing for metric in self.ranking.metrics)

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write CSV, JSON, Markdown and LaTeX files, as ``capbench rank --out`` does, and return them."""
        from capbench.reports.ranking import write_ranking

        return write_ranking(self, Path(folder))

    def _document(self, **choices: Unpack[TableChoices]) -> Any:
        from capbench.reports.ranking import ranking_document
        from capbench.reports.table import TableStyle

        return ranking_document(self, TableStyle(**dict[str, Any](choices)))

    def to_frame(self) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``rank``, ``overall``, and the statistic of each task."""
        import pandas as pd

        rows = [
            {"metric": metric.column, "rank": metric.rank, "overall": metric.overall, **metric.values}
            for metric in self.ranking.metrics
        ]
        names = [task.name for task in self.tasks]
        return pd.DataFrame(rows, columns=["metric", "rank", "overall", *names])

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each test of two metrics."""
        import pandas as pd

        return pd.DataFrame(self.ranking.pairs, columns=[field.name for field in fields(MetricPair)])

    def __repr__(self) -> str:
        listed = ", ".join(metric.column for metric in self.ranking.metrics)
        return f"TaskRanking({len(self.tasks)} tasks: {listed}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from capbench.reports.ranking import ranking_document
        from capbench.reports.terminal import print_document, printed

        return printed(partial(print_document, ranking_document(self, short=True)))


class TaskCollector:
    """Gathers judgements and (draws, items) scores by row of all tasks while a study runs."""

    def __init__(self, tasks: Sequence[RankedTask]) -> None:
        self.tasks = tasks
        self.gathered: dict[str, tuple[Sequence[Judgements], Mapping[str, FloatArray]]] = {}

    def __call__(self, protocol: Protocol, scored: Scored, rows: Sequence[Row]) -> None:
        common = common_scores(scored.tables, rows)
        for task in self.tasks:
            if str(task.protocol) == str(protocol):
                self.gathered[task.name] = scored.draws, {**common, **group_scores(scored, task.group, rows)}


@dataclass(frozen=True, eq=False)
class _Measured:
    """A task with the metrics' values, which are those of no agreement for ``constant`` scores."""

    task: RankedTask
    draws: Sequence[Judgements]  # the human side is the same for all
    data: TaskData
    values: Mapping[str, float]
    missing: Mapping[str, str]
    constant: Mapping[str, str]

    def on_unit_scale(self, value: float) -> float:
        """A value on the scale from 0 to 1: a share of pairs as it is, a correlation r as (1 + r) / 2."""
        return 1 - self.data.factor + self.data.factor * value


def run_ranking(
    plan: Plan,
    tasks: Sequence[RankedTask],
    settings: TestSettings,
    progress: ProgressFactory,
    *,
    cache: bool = True,
    announce: Callable[[SlowPart], None] | None = None,
    **choices: Any,
) -> TaskRanking:
    """Score all metrics of a plan of the tasks' protocols, and rank them (:func:`rank_tasks`)."""
    collector = TaskCollector(tasks)
    bare = replace(plan, study=replace(plan.study, bootstrap=None, compare=None, human_ceiling=False, answers=False))
    result = run_plan(bare, progress, cache=cache, test_groups=False, announce=announce, keep=collector)
    return rank_tasks(result, plan, collector, settings, progress, **choices)


def rank_tasks(
    result: StudyResult,
    plan: Plan,
    collector: TaskCollector,
    settings: TestSettings,
    progress: ProgressFactory,
    *,
    name: str,
    title: str = "",
    sentinels: bool = True,
) -> TaskRanking:
    """Rank metrics on the tasks of a study that was run with the collector as ``keep``."""
    measured, missing_tasks, values = dict[str, _Measured](), dict[str, str](), dict[str, dict[str, float]]()
    for task in collector.tasks:
        try:
            measured[task.name] = _measured(task, collector, result, plan.rows)
        except StatisticError as error:
            missing_tasks[task.name] = error.message
            continue
        for column, value in measured[task.name].values.items():
            values.setdefault(column, {})[task.name] = value
    if not values:
        place, reason = next(iter(missing_tasks.items()))
        raise StatisticError(f"no metric has a value on any task; {place}: {reason}", value=place)
    scaled = {
        column: {task: measured[task].on_unit_scale(value) for task, value in of_metric.items()}
        for column, of_metric in values.items()
    }
    effects = task_effects(scaled, {task: entry.task.weight for task, entry in measured.items()})
    overall = {column: effects.overall(of_metric) for column, of_metric in scaled.items()}
    order = sorted(overall, key=lambda column: -overall[column])
    used = permutations_to_use(settings.resamples, len(values), settings.alpha, settings.correction)
    with progress("tests over all tasks", math.comb(len(values), 2)) as step:
        pairs = _tests(order, values, measured, settings, used, step)
    worse = {(pair.worse, pair.better) for pair in pairs if pair.significant}
    clusters = significance_ranks(overall, lambda name, member: (name, member) in worse)
    by_task = {task: ranks(entry.values) for task, entry in measured.items()}
    titles = {row.name: row.title for row in plan.rows}
    metrics = tuple(
        RankedMetric(
            column=column,
            title=titles[column],
            overall=overall[column],
            rank=clusters[column],
            values=values[column],
            ranks={task: by_task[task][column] for task in values[column]},
            missing={task: entry.missing[column] for task, entry in measured.items() if column in entry.missing},
            constant={task: entry.constant[column] for task, entry in measured.items() if column in entry.constant},
        )
        for column in order
    )
    return TaskRanking(
        capbench=result.capbench,
        created=result.created,
        name=name,
        title=title,
        sample=result.sample,
        tasks=tuple(_info(entry, effects) for entry in measured.values()),
        missing_tasks=missing_tasks,
        ranking=Ranking(metrics=metrics, pairs=pairs),
        missing_metrics={
            title: missing_reason(result, column) for column, title in titles.items() if column not in values
        },
        photographs=len(joint_labels([entry.data.data for entry in measured.values()])),
        permutations=used if pairs else None,
        requested=settings.resamples if pairs and settings.resamples not in (None, used) else None,
        seed=settings.seed,
        correction=settings.correction,
        alpha=settings.alpha,
        sentinels=_sentinels(measured, effects, progress) if sentinels else (),
        signatures=result.signatures,
        cached=sum(result.cached.values()),
    )


def _measured(task: RankedTask, collector: TaskCollector, result: StudyResult, rows: Sequence[Row]) -> _Measured:
    """A task with its values. Raises StatisticError with the reason why it cannot be used."""
    protocol, spec = str(task.protocol), task.protocol.statistic
    if task.name not in collector.gathered:
        of_protocol = [m.reason for m in result.missing if m.protocol == protocol and not m.column]
        raise StatisticError(next(iter(of_protocol), "its data is missing"))
    draws, scores = collector.gathered[task.name]
    values, missing, constant = dict[str, float](), dict[str, str](), dict[str, str]()
    for row in rows:
        cell = result.cell(protocol, row.name, task.group)
        if cell is None:
            missing[row.name] = missing_reason(result, row.name, protocol)
        elif cell.value is None:
            (missing if cell.placeholder else constant)[row.name] = cell.undefined
        else:
            values[row.name] = cell.value
    if not values:
        reason = next(iter([*constant.values(), *missing.values()]), "no metric has a value")
        raise StatisticError(f"group '{task.group}': {reason}" if task.group else reason)
    data = agreement(task.protocol, draws[0], {column: scores[column] for column in values}, "image", task.group)
    # The judgements have a statistic, since some metric has a value: the scores of the others are constant.
    none = no_agreement(spec, draws[0], task.group)
    # Shares of pairs count as they are.
    is_share = spec.kind == "accuracy" or "acc" in str(spec.coefficient)
    of_task = TaskData(data, task.weight, 1.0 if is_share else 0.5, frozenset(constant), none)
    return _Measured(task, draws, of_task, {**values, **dict.fromkeys(constant, none)}, missing, constant)


def _tests(
    order: Sequence[str],
    values: Mapping[str, Mapping[str, float]],
    measured: Mapping[str, _Measured],
    settings: TestSettings,
    permutations: int,
    progress: Callable[[int], None],
) -> tuple[MetricPair, ...]:
    pairs = [pair for pair in itertools.combinations(order, 2) if values[pair[0]].keys() & values[pair[1]]]
    tasks = [entry.data for entry in measured.values()]
    tests = joint_tests(tasks, pairs, permutations=permutations, seed=settings.seed, progress=progress)
    # Over the tasks that both have, the order may differ from that of the adjusted overall values.
    differences = [
        (*(pair if test.difference >= 0 else pair[::-1]), abs(test.difference))
        for pair, test in zip(pairs, tests, strict=True)
    ]
    tested = adjusted_pairs(differences, [test.p_value for test in tests], settings.correction, settings.alpha)
    return tuple(MetricPair(**vars(pair), tasks=test.tasks) for pair, test in zip(tested, tests, strict=True))


def _sentinels(
    measured: Mapping[str, _Measured], effects: TaskEffects, progress: ProgressFactory
) -> tuple[RankedSentinel, ...]:
    """Sentinels on all tasks. Tasks of one protocol share the scores."""
    by_protocol: dict[str, dict[str, SentinelScores | str]] = {}
    cells: dict[str, dict[str, Cell]] = {name: {} for name in SENTINELS}
    with progress("sentinels", len(measured)) as step:
        for task, entry in measured.items():
            protocol = entry.task.protocol
            if str(protocol) not in by_protocol:
                by_protocol[str(protocol)] = sentinel_scores(protocol, entry.draws)
            for name, scores in by_protocol[str(protocol)].items():
                cells[name][task] = sentinel_cell(protocol, entry.draws[0], name, scores, entry.task.group)
            step(1)
    found = []
    for name, of_tasks in cells.items():
        values = {task: cell.value for task, cell in of_tasks.items() if cell.value is not None}
        scaled = {task: measured[task].on_unit_scale(value) for task, value in values.items()}
        overall = effects.overall(scaled) if scaled else None
        missing = {task: cell.undefined for task, cell in of_tasks.items() if cell.value is None}
        found.append(RankedSentinel(name=name, overall=overall, values=values, missing=missing))
    return tuple(found)


def missing_reason(result: StudyResult, column: str, protocol: str = "") -> str:
    """The reason why a metric has no scores under a protocol, or under all."""
    places = ("", protocol, protocol.rpartition("/")[0])
    here = [m for m in result.missing if not protocol or m.protocol in places]
    reasons = [m.reason for m in here if m.column == column]
    reasons += [c.undefined for c in result.undefined if c.column == column and protocol in ("", c.protocol)]
    reasons += [m.reason for m in here if protocol and not m.column]  # of the whole protocol
    return next(iter(reasons), "it has no scores")


def _info(measured: _Measured, effects: TaskEffects) -> TaskInfo:
    task, spec = measured.task, measured.task.protocol.statistic
    ceiling = None
    with contextlib.suppress(StatisticError):  # too few photographs with several ratings
        human = human_ceiling(task.protocol, measured.draws[0], "image", task.group)
        ceiling = None if human is None else human[1].value
    return TaskInfo(
        name=task.name,
        protocol=str(task.protocol),
        version=task.protocol.version,
        group=task.group,
        weight=task.weight,
        statistic=spec.label,
        kind="accuracy" if spec.kind == "accuracy" else "correlation",
        photographs=measured.data.data.units,
        ceiling=ceiling,
        effect=effects.effects[task.name],
    )
