"""Ranks metrics over many tasks (``capbench rank``).

The overall value, its adjustment for missing tasks and the tests are those of :mod:`capbench.stats.tasks`. A metric
without a value on some task is compared with every other metric on the tasks that both have.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from typing_extensions import Unpack

from capbench.core.errors import StatisticError, suggest
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.core.typed_json import Strict
from capbench.datasets.protocol import Protocol, StatisticSpec
from capbench.metrics.metric_request import Row
from capbench.stats.agreement import Agreement
from capbench.stats.pairs import Correction, Pair
from capbench.stats.significance import adjust, permutations_to_use, significance_ranks
from capbench.stats.tasks import TaskData, TaskEffects, joint_labels, joint_tests, task_effects
from capbench.studies.all_protocols import ranks
from capbench.studies.data_points import agreement
from capbench.studies.human_ceiling import human_ceiling
from capbench.studies.plan import Plan
from capbench.studies.protocol_notes import no_agreement
from capbench.studies.results import ON_SAMPLE, StudyResult, TableChoices, is_left_out
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


class TaskRanking(Strict):
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

    def write(self, folder: str | os.PathLike[str], *, escape_formulas: bool = False) -> list[Path]:
        """Write CSV, JSON, Markdown and LaTeX files, as ``capbench rank --out`` does, and return them.

        ``escape_formulas`` marks texts in the CSV file that a spreadsheet would take for formulas.
        """
        from capbench.reports.ranking import write_ranking

        return write_ranking(self, Path(folder), escape_formulas=escape_formulas)

    def to_latex(self, **style: Unpack[TableChoices]) -> str:
        """The table as LaTeX."""
        from capbench.reports.markup import latex
        from capbench.reports.ranking import ranking_document
        from capbench.reports.table import TableStyle

        return latex(ranking_document(self, TableStyle.of(**style)))

    def to_markdown(self, **style: Unpack[TableChoices]) -> str:
        """The table as Markdown."""
        from capbench.reports.markup import markdown
        from capbench.reports.ranking import ranking_document
        from capbench.reports.table import TableStyle

        return markdown(ranking_document(self, TableStyle.of(**style)))

    def to_frame(
        self, *, columns: str | Sequence[str] | None = None, digits: int | None = None, percent: bool | None = None
    ) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``rank``, ``overall``, and the statistic of each task.

        By default all columns, as numbers from 0 to 1; ``percent`` multiplies them by 100.
        """
        import pandas as pd

        from capbench.reports.table import TableStyle

        names = ["overall", *(task.name for task in self.tasks)]
        rows = [
            {"metric": metric.column, "rank": metric.rank, "overall": metric.overall, **metric.values}
            for metric in self.ranking.metrics
        ]
        frame = pd.DataFrame(rows, columns=["metric", "rank", *names])
        return TableStyle.of(columns, digits, percent=percent).frame(frame, names, keep=["metric"])

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


@dataclass(frozen=True, eq=False)
class _Gathered:
    """Judgements and scores of a task."""

    task: RankedTask
    draws: Sequence[Judgements]  # the human side is the same for all
    scores: Mapping[str, FloatArray]  # (draws, items) by row name

    def agreement(self, columns: Iterable[str]) -> Agreement:
        """The scores of some rows at the task's data points. Raises StatisticError where the statistic is undefined."""
        scores = {column: self.scores[column] for column in columns}
        return agreement(self.task.protocol, self.draws[0], scores, "image", self.task.group)


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
                self.gathered[task.name] = _Gathered(task, scored.draws, scores)


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
    """Score all metrics of a plan of the tasks' protocols, and rank them; ``choices`` are those of
    :func:`rank_tasks`."""
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
    board = _Board(settings, {row.name: row.title for row in plan.rows})
    missing_tasks = {}
    for task in collector.tasks:
        gathered = collector.gathered.get(task.name)
        if gathered is None:
            of_protocol = [m.reason for m in result.missing if m.protocol == str(task.protocol) and not m.column]
            absent = next(iter(of_protocol), "its data is missing")
        else:
            absent = _group_reason(gathered) or board.add(gathered, *_cells(result, plan.rows, task))
        if absent:
            missing_tasks[task.name] = absent
    if not board.values:
        place, reason = next(iter(missing_tasks.items()))
        raise StatisticError(f"no metric has a value on any task; {place}: {reason}", value=place)
    with progress("tests over all tasks", math.comb(len(board.values), 2)) as step:
        ranking, effects = board.rank(step)
    used = board.permutations
    return TaskRanking(
        capbench=result.capbench,
        created=result.created,
        name=name,
        title=title,
        sample=result.sample,
        tasks=tuple(_info(each, board.data[name], effects) for name, each in board.gathered.items()),
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
        sentinels=_sentinels(board, effects, progress) if sentinels else (),
        signatures=result.signatures,
        cached=sum(result.cached.values()),
    )


class _Board:
    """Values and judgements of metrics on tasks, which :meth:`rank` turns into a ranking."""

    def __init__(self, settings: TestSettings, titles: Mapping[str, str]) -> None:
        self.settings = settings
        self.titles = titles  # by column, in the order of the study
        self.gathered: dict[str, _Gathered] = {}
        self.data: dict[str, Agreement] = {}
        self.values: dict[str, dict[str, float]] = {}
        self.reasons: dict[str, dict[str, str]] = {column: {} for column in titles}
        self.constant: dict[str, dict[str, str]] = {column: {} for column in titles}
        self.no_agreement: dict[str, float] = {}

    def add(
        self, gathered: _Gathered, values: Mapping[str, float], reasons: Mapping[str, str], constant: Mapping[str, str]
    ) -> str:
        """Add a task with the statistic by column; returns the reason why the task cannot be used, ``""`` if it can.

        ``reasons``: of columns without a value; ``constant``: of columns whose scores have no statistic.
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

    def on_unit_scale(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values by task on the scale from 0 to 1: a share of pairs as it is, a correlation r as (1 + r) / 2."""
        factors = {task: _scale(self.gathered[task].task.protocol.statistic) for task in values}
        return {task: 1 - factors[task] + factors[task] * value for task, value in values.items()}

    def rank(self, progress: Callable[[int], None]) -> tuple[Ranking, TaskEffects]:
        """The ranking, and the effects of the tasks; ``progress`` is called with numbers of tested pairs."""
        scaled = {column: self.on_unit_scale(of_metric) for column, of_metric in self.values.items()}
        effects = task_effects(scaled, {name: each.task.weight for name, each in self.gathered.items()})
        overall = {column: effects.overall(of_metric) for column, of_metric in scaled.items()}
        order = sorted(overall, key=lambda column: -overall[column])
        pairs = self._tests(order, progress)
        worse = {(pair.worse, pair.better) for pair in pairs if pair.significant}
        clusters = significance_ranks(overall, lambda name, member: (name, member) in worse)
        by_task = {
            name: ranks({column: of[name] for column, of in self.values.items() if name in of})
            for name in self.gathered
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

    def _tests(self, order: Sequence[str], progress: Callable[[int], None]) -> tuple[MetricPair, ...]:
        """Tests of all pairs of metrics that share a task."""
        pairs = [
            pair for pair in itertools.combinations(order, 2) if self.values[pair[0]].keys() & self.values[pair[1]]
        ]
        if not pairs:
            return ()
        tasks = [
            TaskData(
                data,
                self.gathered[name].task.weight,
                _scale(self.gathered[name].task.protocol.statistic),
                frozenset(column for column, of_column in self.constant.items() if name in of_column),
                self.no_agreement[name],
            )
            for name, data in self.data.items()
        ]
        tests = joint_tests(tasks, pairs, permutations=self.permutations, seed=self.settings.seed, progress=progress)
        adjusted = adjust([test.p_value for test in tests], self.settings.correction).tolist()
        return tuple(
            MetricPair(
                # Over the tasks that both have, the order may differ from that of the adjusted overall values.
                better=first if test.difference >= 0 else second,
                worse=second if test.difference >= 0 else first,
                difference=abs(test.difference),
                tasks=test.tasks,
                p_value=test.p_value,
                p_adjusted=p_adjusted,
                significant=p_adjusted <= self.settings.alpha,
            )
            for (first, second), test, p_adjusted in zip(pairs, tests, adjusted, strict=True)
        )


def _sentinels(board: _Board, effects: TaskEffects, progress: ProgressFactory) -> tuple[RankedSentinel, ...]:
    """Sentinels on all tasks. Tasks of one protocol share the scores."""
    by_protocol: dict[str, dict[str, SentinelScores | str]] = {}
    values: dict[str, dict[str, float]] = {name: {} for name in SENTINELS}
    reasons: dict[str, dict[str, str]] = {name: {} for name in SENTINELS}
    with progress("sentinels", len(board.gathered)) as step:
        for name, gathered in board.gathered.items():
            protocol, group = gathered.task.protocol, gathered.task.group
            if str(protocol) not in by_protocol:
                by_protocol[str(protocol)] = sentinel_scores(protocol, gathered.draws)
            for sentinel, scores in by_protocol[str(protocol)].items():
                cell = sentinel_cell(protocol, gathered.draws[0], sentinel, scores, group)
                if cell.value is None:
                    reasons[sentinel][name] = cell.undefined
                else:
                    values[sentinel][name] = cell.value
            step(1)
    return tuple(
        RankedSentinel(
            name=name,
            overall=effects.overall(board.on_unit_scale(values[name])) if values[name] else None,
            values=values[name],
            missing=reasons[name],
        )
        for name in SENTINELS
    )


def _scale(spec: StatisticSpec) -> float:
    """Factor of a statistic in the overall value: 1 for shares of pairs, 0.5 for correlations."""
    return 1.0 if spec.kind == "accuracy" or "acc" in str(spec.within or spec.systems or spec.coefficient) else 0.5


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


def _info(gathered: _Gathered, data: Agreement, effects: TaskEffects) -> TaskInfo:
    task = gathered.task
    spec = task.protocol.statistic
    ceiling = None
    with contextlib.suppress(StatisticError):  # too few photographs with several ratings
        human = human_ceiling(task.protocol, gathered.draws[0], "image", task.group)
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
