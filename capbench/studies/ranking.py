"""Ranks metrics over many tasks (``capbench rank``).

The overall value, its adjustment for missing tasks and the tests are those of :mod:`capbench.stats.tasks`. A metric
without a value on some task is compared with every other metric on the tasks that both have.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field

from capbench.core.errors import StatisticError, suggest
from capbench.core.records import FloatArray, IntArray, Judgements, ScoreTable
from capbench.core.typed_json import Strict
from capbench.datasets.base import Dataset
from capbench.datasets.opening import group_of
from capbench.datasets.protocol import Protocol, StatisticSpec
from capbench.metrics.metric_request import Row
from capbench.stats.agreement import Agreement
from capbench.stats.resampling import observed_value
from capbench.stats.significance import adjust, permutations_to_use, significance_ranks
from capbench.stats.tasks import TaskData, TaskEffects, discretise, joint_labels, joint_tests, task_effects
from capbench.studies.all_protocols import ranks
from capbench.studies.evaluate import agreement, no_agreement, people
from capbench.studies.judged import ProgressFactory, Scored
from capbench.studies.plan import Plan
from capbench.studies.results import StudyResult, is_left_out
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.sentinels import SENTINELS, SentinelScores, sentinel_cell, sentinel_scores
from capbench.studies.study import TestSettings
from capbench.studies.task_file import RankedTask
from capbench.studies.uncertainty import common_scores, group_scores

RANKING_SCHEMA_VERSION = 1
"""Version of the schema of ``ranking.json``."""


class TaskInfo(Strict):
    """One task of a ranking.

    Attributes:
        name: its name.
        protocol: id of its protocol.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
        group: group of the items or pairs, ``""`` for all.
        weight: its weight.
        statistic: short name of the statistic (``τ-c``).
        kind: ``accuracy``, or ``correlation`` (also for acc*_eq and accuracies over systems).
        photographs: number of photographs with judgements.
        ceiling: the human ceiling; None if it is unknown.
        effect: value of the task minus that of the average task, on the scale from 0 to 1; see
            :func:`capbench.stats.tasks.task_effects`.
    """

    name: str
    protocol: str
    version: str
    group: str
    weight: float
    statistic: str
    kind: Literal["correlation", "accuracy"]
    photographs: int
    ceiling: float | None
    effect: float


class RankedMetric(Strict):
    """One metric of a ranking.

    Attributes:
        column: name of its row.
        title: title of its row.
        overall: weighted mean over its tasks, on the scale from 0 to 1; adjusted for missing tasks.
        rank: rank in significance clusters, from 1.
        values: the statistic by task.
        ranks: rank among all metrics by task, from 1; equal values share the better rank.
        missing: tasks without a value, with the reason.
        constant: tasks with the value of no agreement, since the statistic is undefined for constant scores, with the
            reason.
    """

    column: str
    title: str
    overall: float
    rank: int
    values: dict[str, float]
    ranks: dict[str, int]
    missing: dict[str, str]
    constant: dict[str, str] = Field(default_factory=dict)


class MetricPair(Strict):
    """The test of two metrics.

    Attributes:
        better: column of the metric with the larger mean over the tasks that both have.
        worse: column of the other metric.
        difference: difference of these means, on the scale from 0 to 1, ≥ 0.
        tasks: number of these tasks.
        p_value: two-sided, not corrected.
        p_adjusted: after the correction for all pairs.
        significant: True if ``p_adjusted`` is at most α.
    """

    better: str
    worse: str
    difference: float
    tasks: int
    p_value: float
    p_adjusted: float
    significant: bool


class RankedSentinel(Strict):
    """A sentinel metric (:mod:`capbench.studies.sentinels`), which has no rank and enters no test.

    Attributes:
        name: its name.
        overall: weighted mean over its tasks, on the scale from 0 to 1, adjusted for missing tasks as for metrics; None
            without any task.
        values: the statistic by task.
        missing: tasks without a value, with the reason.
    """

    name: str
    overall: float | None
    values: dict[str, float]
    missing: dict[str, str]


class Ranking(Strict):
    """Metrics ranked over tasks.

    Attributes:
        metrics: the metrics, best first.
        pairs: tests of all pairs.
    """

    metrics: tuple[RankedMetric, ...]
    pairs: tuple[MetricPair, ...]


class TaskRanking(Strict):
    """Result of ``capbench rank``.

    Attributes:
        schema_version: version of this schema.
        capbench: version of capbench.
        created: UTC time.
        name: name of the task file.
        title: its title.
        sample: True if the data was the embedded synthetic sample.
        tasks: the tasks that at least one metric has.
        missing_tasks: the others, with the reason.
        ranking: the metrics, ranked.
        missing_metrics: metrics without any task, by title with the reason.
        photographs: number of photographs of all tasks; those of several tasks count once.
        permutations: number of permutations; None with fewer than two metrics.
        requested: requested number of permutations if it was too small; None if it was not.
        seed: their seed.
        correction: correction for the number of pairs.
        alpha: significance level.
        classes: number of classes of ``discretised``; None without it.
        discretised: the same ranking after each metric's scores are rounded to quantile classes; None without it.
        sentinels: values of sentinel metrics; empty if they were not requested.
        signatures: signature of each metric by *dataset/items*.
        cached: number of scores from the cache.
    """

    schema_version: int = RANKING_SCHEMA_VERSION
    capbench: str
    created: str
    name: str
    title: str
    sample: bool
    tasks: tuple[TaskInfo, ...]
    missing_tasks: dict[str, str]
    ranking: Ranking
    missing_metrics: dict[str, str]
    photographs: int
    permutations: int | None
    requested: int | None
    seed: int
    correction: Literal["holm", "bh", "none"]
    alpha: float
    classes: int | None = None
    discretised: Ranking | None = None
    sentinels: tuple[RankedSentinel, ...] = ()
    signatures: dict[str, dict[str, str]]
    cached: int = 0

    @property
    def is_incomplete(self) -> bool:
        """True if a metric that was not left out has no value on some task, or on any."""
        absent = any(not is_left_out(reason) for reason in self.missing_metrics.values())
        return absent or any(metric.missing for metric in self.ranking.metrics)


@dataclass(frozen=True, eq=False)
class _Gathered:
    """Judgements and scores of a task.

    Attributes:
        task: the task.
        dataset: its data set.
        draws: its judgements, one for each draw (the human side is the same for all).
        scores: (draws, items) scores by row name.
    """

    task: RankedTask
    dataset: Dataset
    draws: Sequence[Judgements]
    scores: Mapping[str, FloatArray]

    def agreement(self, columns: Iterable[str]) -> Agreement:
        """The scores of some rows at the task's data points. Raises StatisticError where the statistic is undefined."""
        scores = {column: self.scores[column] for column in columns}
        return agreement(self.task.protocol, self.draws[0], scores, "image", self.task.group)

    def discretised(self, column: str, classes: int) -> FloatArray:
        """(draws, items) scores of a row, rounded to quantile classes of the task's items; other items have 0."""
        rounded = np.zeros_like(self.scores[column])
        places: IntArray = np.arange(rounded.shape[1])
        if self.task.group:
            places = group_of(self.dataset, self.task.group).places(self.draws[0])
        for draw, scores in enumerate(self.scores[column]):
            rounded[draw, places] = discretise(scores[places], classes)
        return rounded

    def sentinels(self, made: Mapping[str, SentinelScores | str]) -> tuple[dict[str, float], dict[str, str]]:
        """The statistic of sentinels, and the reason for those without a value."""
        values, reasons = {}, {}
        for name, scores in made.items():
            cell = sentinel_cell(self.task.protocol, self.draws[0], name, scores, self.task.group)
            if cell.value is None:
                reasons[name] = cell.undefined
            else:
                values[name] = cell.value
        return values, reasons


class TaskCollector:
    """Gathers the data of all tasks while a study runs."""

    def __init__(self, tasks: Sequence[RankedTask]) -> None:
        self.tasks = tasks
        self.gathered: dict[str, _Gathered] = {}

    def __call__(self, protocol: Protocol, scored: Scored, tables: Sequence[ScoreTable], rows: Sequence[Row]) -> None:
        """Keep the judgements and scores of the tasks of a protocol."""
        whole = common_scores(tables, rows)
        for task in self.tasks:
            if str(task.protocol) == str(protocol):
                scores = {**whole, **group_scores(scored, task.group, rows)}
                self.gathered[task.name] = _Gathered(task, scored.dataset, scored.draws, scores)


def run_ranking(
    plan: Plan,
    tasks: Sequence[RankedTask],
    settings: TestSettings,
    progress: ProgressFactory,
    *,
    name: str,
    title: str = "",
    classes: int | None = None,
    sentinels: bool = True,
    cache: bool = True,
    announce: Callable[[SlowPart], None] | None = None,
) -> TaskRanking:
    """Score all metrics on all tasks, and rank them.

    Args:
        plan: a study of the tasks' protocols.
        tasks: the tasks.
        settings: test (``permutation``), correction, level, number of permutations and seed.
        progress: makes progress bars.
        name: name of the task file.
        title: its title.
        classes: number of quantile classes for a second ranking of rounded scores; None for none.
        sentinels: True to compute sentinel metrics, too.
        cache: True to use the score cache.
        announce: called before slow work, see :func:`capbench.studies.run.run_plan`.

    Raises:
        StatisticError: some metrics have no task in common with the others.
        StudyError, CapbenchError: see :func:`capbench.studies.run.run_plan`.
    """
    collector = TaskCollector(tasks)
    bare = replace(plan, study=replace(plan.study, bootstrap=None, compare=None, human_ceiling=False, answers=False))
    result = run_plan(bare, progress, cache=cache, test_groups=False, announce=announce, keep=collector)
    return rank_tasks(
        result, plan, collector, settings, progress, name=name, title=title, classes=classes, sentinels=sentinels
    )


def rank_tasks(
    result: StudyResult,
    plan: Plan,
    collector: TaskCollector,
    settings: TestSettings,
    progress: ProgressFactory,
    *,
    name: str,
    title: str = "",
    classes: int | None = None,
    sentinels: bool = True,
) -> TaskRanking:
    """Rank metrics on the tasks of a study that was run.

    Args:
        result: the result of the study.
        plan: the study.
        collector: the ``keep`` of :func:`capbench.studies.run.run_plan`; it has the tasks and their scores.
        settings: see :func:`run_ranking`, as for the other arguments and errors.
        progress: makes progress bars.
        name: name of the task file.
        title: its title.
        classes: number of quantile classes.
        sentinels: True to compute sentinel metrics, too.
    """
    board = _Board(settings, {row.name: row.title for row in plan.rows})
    missing_tasks = {}
    for task in collector.tasks:
        gathered = collector.gathered.get(task.name)
        absent = _file_reason(result, task) if gathered is None else _group_reason(gathered)
        if gathered is None or absent:
            missing_tasks[task.name] = absent
            continue
        absent = board.add(gathered, *_cells(result, plan.rows, task))
        if absent:
            missing_tasks[task.name] = absent
    if not board.values:
        place, reason = next(iter(missing_tasks.items()))
        raise StatisticError(f"no metric has a value on any task; {place}: {reason}", value=place)
    with progress("tests over all tasks", math.comb(len(board.values), 2) * (1 if classes is None else 2)) as step:
        ranking, effects = board.rank(step)
        discretised = None
        if classes is not None:
            discretised, _ = _discretised(board, classes).rank(step)
    used = board.permutations
    return TaskRanking(
        capbench=result.capbench,
        created=result.created,
        name=name,
        title=title,
        sample=result.sample,
        tasks=tuple(_info(result, each, board.data[name], effects) for name, each in board.gathered.items()),
        missing_tasks=missing_tasks,
        ranking=ranking,
        missing_metrics={
            row.title: _metric_reason(result, row.name) for row in plan.rows if row.name not in board.values
        },
        photographs=len(joint_labels(list(board.data.values()))),
        permutations=used if ranking.pairs else None,
        requested=settings.resamples if ranking.pairs and settings.resamples not in (None, used) else None,
        seed=settings.seed,
        correction=settings.correction,
        alpha=settings.alpha,
        classes=classes,
        discretised=discretised,
        sentinels=_sentinels(board, effects, progress) if sentinels else (),
        signatures=result.signatures,
        cached=sum(result.cached.values()),
    )


class _Board:
    """Values and judgements of metrics on tasks, which :meth:`rank` turns into a ranking.

    Args:
        settings: settings of the tests.
        titles: titles of the metrics by column, in the order of the study.
    """

    def __init__(self, settings: TestSettings, titles: Mapping[str, str]) -> None:
        self.settings = settings
        self.titles = titles
        self.gathered: dict[str, _Gathered] = {}
        self.data: dict[str, Agreement] = {}
        self.values: dict[str, dict[str, float]] = {}
        self.reasons: dict[str, dict[str, str]] = {column: {} for column in titles}
        self.constant: dict[str, dict[str, str]] = {column: {} for column in titles}
        self.no_agreement: dict[str, float] = {}

    def add(
        self,
        gathered: _Gathered,
        values: Mapping[str, float],
        reasons: Mapping[str, str],
        constant: Mapping[str, str],
    ) -> str:
        """Add a task.

        Args:
            gathered: its data.
            values: the statistic by column.
            reasons: for columns without a value, the reason.
            constant: for columns whose scores have no statistic, the reason.

        Returns:
            The reason the task cannot be used, ``""`` if it can.
        """
        task = gathered.task
        if not values:
            return next(iter([*constant.values(), *reasons.values()]), "no metric has a value")
        try:
            self.data[task.name] = gathered.agreement(values)
        except StatisticError as error:
            return error.message
        self.gathered[task.name] = gathered
        # The judgements have a statistic, since some metric has a value: the scores of the others are constant.
        none = no_agreement(task.protocol.statistic, gathered.draws[0], task.group)
        self.no_agreement[task.name] = none
        for column, value in {**values, **dict.fromkeys(constant, none)}.items():
            self.values.setdefault(column, {})[task.name] = value
        for kind, of_columns in ((self.reasons, reasons), (self.constant, constant)):
            for column, reason in of_columns.items():
                kind[column][task.name] = reason
        return ""

    @property
    def permutations(self) -> int:
        """Number of permutations of the tests."""
        settings = self.settings
        return permutations_to_use(settings.resamples, len(self.values), settings.alpha, settings.correction)

    def rank(self, progress: Callable[[int], None]) -> tuple[Ranking, TaskEffects]:
        """The ranking, and the effects of the tasks; ``progress`` is called with numbers of tested pairs.

        Raises:
            StatisticError: some metrics have no task in common with the others.
        """
        if not self.values:
            return Ranking(metrics=(), pairs=()), TaskEffects({}, {})
        specs = {name: each.task.protocol.statistic for name, each in self.gathered.items()}
        weights = {name: each.task.weight for name, each in self.gathered.items()}
        scaled = {
            column: {name: _on_unit_scale(specs[name], value) for name, value in of_metric.items()}
            for column, of_metric in self.values.items()
        }
        effects = task_effects(scaled, weights)
        overall = {column: effects.overall(of_metric) for column, of_metric in scaled.items()}
        order = sorted(overall, key=lambda column: -overall[column])
        pairs = self._tests(order, specs, weights, progress)
        worse = {(pair.worse, pair.better) for pair in pairs if pair.significant}
        clusters = significance_ranks(overall, lambda name, member: (name, member) in worse)
        by_task = {
            name: ranks({column: of[name] for column, of in self.values.items() if name in of}) for name in specs
        }
        metrics = tuple(
            RankedMetric(
                column=column,
                title=self.titles[column],
                overall=overall[column],
                rank=clusters[column],
                values=self.values[column],
                ranks={name: by_task[name][column] for name in self.values[column]},
                missing=self.reasons[column],
                constant=self.constant[column],
            )
            for column in order
        )
        return Ranking(metrics=metrics, pairs=pairs), effects

    def _tests(
        self,
        order: Sequence[str],
        specs: Mapping[str, StatisticSpec],
        weights: Mapping[str, float],
        progress: Callable[[int], None],
    ) -> tuple[MetricPair, ...]:
        """Tests of all pairs of metrics that share a task."""
        pairs = [
            pair for pair in itertools.combinations(order, 2) if self.values[pair[0]].keys() & self.values[pair[1]]
        ]
        if not pairs:
            return ()
        tasks = [
            TaskData(
                data,
                weights[name],
                _scale(specs[name]),
                frozenset(column for column, of_column in self.constant.items() if name in of_column),
                self.no_agreement[name],
            )
            for name, data in self.data.items()
        ]
        tests = joint_tests(tasks, pairs, permutations=self.permutations, seed=self.settings.seed, progress=progress)
        adjusted = adjust([test.p_value for test in tests], self.settings.correction).tolist()
        made = []
        for (first, second), test, p_adjusted in zip(pairs, tests, adjusted, strict=True):
            # Over the tasks that both have, the order may differ from that of the adjusted overall values.
            better, worse = (first, second) if test.difference >= 0 else (second, first)
            made.append(
                MetricPair(
                    better=better,
                    worse=worse,
                    difference=abs(test.difference),
                    tasks=test.tasks,
                    p_value=test.p_value,
                    p_adjusted=p_adjusted,
                    significant=p_adjusted <= self.settings.alpha,
                )
            )
        return tuple(made)


def _discretised(board: _Board, classes: int) -> _Board:
    """The same tasks and metrics, with scores rounded to quantile classes of the task's items, draw by draw."""
    rounded = _Board(board.settings, board.titles)
    for name, gathered in board.gathered.items():
        scores = {
            column: gathered.discretised(column, classes)
            for column, of_metric in board.values.items()
            if name in of_metric
        }
        coarse = replace(gathered, scores=scores)
        values, constant = dict[str, float](), dict[str, str]()
        for column in scores:
            try:
                values[column] = observed_value(coarse.agreement([column]).statistic(column))
            except StatisticError as error:
                constant[column] = error.message
        rounded.add(coarse, values, {c: why[name] for c, why in board.reasons.items() if name in why}, constant)
    return rounded


def _sentinels(board: _Board, effects: TaskEffects, progress: ProgressFactory) -> tuple[RankedSentinel, ...]:
    """Sentinels on all tasks. Tasks of one protocol share the scores."""
    by_protocol: dict[str, dict[str, SentinelScores | str]] = {}
    values: dict[str, dict[str, float]] = {name: {} for name in SENTINELS}
    reasons: dict[str, dict[str, str]] = {name: {} for name in SENTINELS}
    with progress("sentinels", len(board.gathered)) as step:
        for name, gathered in board.gathered.items():
            protocol = gathered.task.protocol
            if str(protocol) not in by_protocol:
                by_protocol[str(protocol)] = sentinel_scores(protocol, gathered.draws)
            of_task, missing = gathered.sentinels(by_protocol[str(protocol)])
            for sentinel, value in of_task.items():
                values[sentinel][name] = value
            for sentinel, reason in missing.items():
                reasons[sentinel][name] = reason
            step(1)
    specs = {name: gathered.task.protocol.statistic for name, gathered in board.gathered.items()}
    overall = {
        sentinel: effects.overall({name: _on_unit_scale(specs[name], value) for name, value in of_sentinel.items()})
        for sentinel, of_sentinel in values.items()
        if of_sentinel
    }
    return tuple(
        RankedSentinel(name=name, overall=overall.get(name), values=values[name], missing=reasons[name])
        for name in SENTINELS
    )


def _scale(spec: StatisticSpec) -> float:
    """Factor of a statistic in the overall value: 1 for shares of pairs, 0.5 for correlations."""
    return 1.0 if spec.kind == "accuracy" or "acc" in str(spec.within or spec.systems or spec.coefficient) else 0.5


def _on_unit_scale(spec: StatisticSpec, value: float) -> float:
    """A value on the scale from 0 to 1: a share of pairs as it is, a correlation r as (1 + r) / 2."""
    factor = _scale(spec)
    return 1 - factor + factor * value


def _cells(
    result: StudyResult, rows: Sequence[Row], task: RankedTask
) -> tuple[dict[str, float], dict[str, str], dict[str, str]]:
    """The statistic of a task by column, the reasons for missing scores, and those for an undefined statistic."""
    values, reasons, undefined = dict[str, float](), dict[str, str](), dict[str, str]()
    for row in rows:
        cell = result.cell(str(task.protocol), row.name, task.group)
        if cell is None:
            reasons[row.name] = _metric_reason(result, row.name, str(task.protocol))
        elif cell.value is None:
            (reasons if cell.placeholder else undefined)[row.name] = cell.undefined
        else:
            values[row.name] = cell.value
    return values, reasons, undefined


def _metric_reason(result: StudyResult, column: str, protocol: str = "") -> str:
    """The reason why a metric has no scores under a protocol, or under all."""
    items = protocol.rpartition("/")[0]
    entries = [missing for missing in result.missing if missing.column == column]
    of_place = [entry.reason for entry in entries if not protocol or entry.protocol in ("", protocol, items)]
    undefined = [cell.undefined for cell in result.undefined if cell.column == column]
    return next(iter([*of_place, *undefined]), "it has no scores")


def _file_reason(result: StudyResult, task: RankedTask) -> str:
    """The reason why a task has no data."""
    protocol = str(task.protocol)
    return next((m.reason for m in result.missing if m.protocol == protocol and not m.column), "its data is missing")


def _group_reason(gathered: _Gathered) -> str:
    """The reason why a task's group has no data; ``""`` if it has."""
    task, judgements = gathered.task, gathered.draws[0]
    if task.protocol.statistic.side == "preferences":
        groups = dict.fromkeys(judgements.preferences[task.protocol.statistic.human].group)
    else:
        groups = dict.fromkeys(judgements.groups)
    if not task.group or task.group in groups:
        return ""
    return f"{task.protocol} has no judgements of the group '{task.group}'. {suggest(task.group, list(groups))}"


def _info(result: StudyResult, gathered: _Gathered, data: Agreement, effects: TaskEffects) -> TaskInfo:
    task = gathered.task
    spec = task.protocol.statistic
    ceiling = None
    with contextlib.suppress(StatisticError):  # too few photographs with several ratings
        human = people(task.protocol, gathered.draws[0], "image", task.group)
        ceiling = None if human is None else human[1].value
    return TaskInfo(
        name=task.name,
        protocol=str(task.protocol),
        version=task.protocol.version,
        group=task.group,
        weight=task.weight,
        statistic=spec.label,
        kind="accuracy" if spec.kind == "accuracy" else "correlation",
        photographs=data.units,
        ceiling=ceiling,
        effect=effects.effects[task.name],
    )
