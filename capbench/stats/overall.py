"""Agreement of metrics over several tasks: one overall value for each metric, and permutation tests across tasks.

The overall value of a metric is the weighted mean over tasks of the statistic on the scale from 0 to 1: an accuracy as
it is, a correlation r as (1 + r) / 2. If nothing is tied, (1 + tau) / 2 is the share of pairs in the right order, so
the two kinds have one meaning.

Under the null hypothesis of a test, two metrics are exchangeable on each photograph in all tasks that contain it. A
permutation therefore swaps the metrics on random photographs, in all tasks at once (PERM-BOTH, with each task's common
scale). This respects the dependence of tasks that share photographs.

A metric with a constant score has no agreement on a task. The difference from another metric is then that metric's
value, and a permutation changes the sign of its jackknife pseudo-values (Tukey 1958) on random photographs.

References:
    Freitag, M. et al. (2023, 2024). Results of the WMT23 and WMT24 metrics shared tasks. WMT.
    Deutsch, D., Dror, R. and Roth, D. (2021). A statistical analysis of summarization evaluation metrics using
    resampling methods. Transactions of the ACL 9. (PERM-BOTH)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray
from capbench.stats.agreement import Agreement, Correlations
from capbench.stats.permutation import LinearSwap, SwapSum, SwapTerm, swap_p_values
from capbench.stats.resampling import LeaveOneOut, evaluate, observed_value

# Number of data points of the pairs of metrics that are prepared at a time: each requires tables of all scores.
_POINTS_TOGETHER = 300_000


@dataclass(frozen=True)
class TaskEffects:
    """Differences of the tasks' values from those of the average task."""

    weights: Mapping[str, float]  # by task
    effects: Mapping[str, float]  # by task; their weighted mean is 0

    def overall(self, values: Mapping[str, float]) -> float:
        """The weighted mean of one metric's values by task, with its tasks' weighted mean effect subtracted.

        With all tasks, this is the plain weighted mean.
        """
        total = sum(self.weights[task] for task in values)
        return sum(self.weights[task] * (value - self.effects[task]) for task, value in values.items()) / total


def task_effects(values: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]) -> TaskEffects:
    """Fit ``value = metric + task`` by weighted least squares, to compare metrics that have different tasks.

    A metric without a value for a difficult task would otherwise gain from its absence. ``values``: by metric, by task;
    ``weights``: by task, > 0. Raises StatisticError if some metrics have no task in common with the others.
    """
    tasks = [task for task in weights if any(task in of_metric for of_metric in values.values())]
    used = {task: weights[task] for task in tasks}
    _check_connected(values)
    if all(len(of_metric) == len(tasks) for of_metric in values.values()):
        means = {task: sum(of_metric[task] for of_metric in values.values()) / len(values) for task in tasks}
    else:
        cells = [
            (row, tasks.index(task), number)
            for row, of_metric in enumerate(values.values())
            for task, number in of_metric.items()
        ]
        design, target = np.zeros((len(cells), len(values) + len(tasks))), np.zeros(len(cells))
        for line, (row, column, number) in enumerate(cells):
            root = np.sqrt(used[tasks[column]])
            design[line, [row, len(values) + column]] = root
            target[line] = root * number
        fitted = np.linalg.lstsq(design, target, rcond=None)[0]
        means = dict(zip(tasks, fitted[len(values) :].tolist(), strict=True))
    centre = sum(used[task] * means[task] for task in tasks) / sum(used.values())
    return TaskEffects(used, {task: means[task] - centre for task in tasks})


def _check_connected(values: Mapping[str, Mapping[str, float]]) -> None:
    names = list(values)
    reached, tasks = {names[0]}, set(values[names[0]])
    while more := {name for name in names if name not in reached and tasks & values[name].keys()}:
        reached |= more
        tasks |= {task for name in more for task in values[name]}
    apart = [name for name in names if name not in reached]
    if apart:
        raise StatisticError(
            f"{names[0]} and {apart[0]} have no task in common, directly or through other metrics",
            code="mismatch",
            value=apart[0],
            hint="Rank them separately, or add a task that both have",
        )


@dataclass(frozen=True, eq=False)
class TaskData:
    """One task's metrics and human judgements."""

    data: Agreement  # the metrics that have the task, with the human side; its units are photographs
    weight: float  # > 0
    factor: float  # of the statistic in the overall value: 0.5 for correlations, 1 for accuracies
    constant: frozenset[str] = frozenset()  # further metrics, with constant scores
    no_agreement: float = 0.0  # their value

    @property
    def names(self) -> set[str]:
        """Names of all metrics."""
        return {*self.data.names, *self.constant}

    def surplus(self, name: str) -> FloatArray:
        """(units,) pseudo-values of a metric, whose sum is its value minus that of no agreement."""
        if name in self.constant:
            return np.zeros(self.data.units)
        statistic = self.data.statistic(name)
        units = statistic.units
        value = observed_value(statistic)
        changes = value - evaluate([statistic], LeaveOneOut(units))[0]
        changes = np.nan_to_num(changes) * (units - 1) / units
        return np.asarray(changes + (value - self.no_agreement - changes.sum()) / units, dtype=np.float64)


class JointTest(NamedTuple):
    """The test of one pair of metrics over the tasks that both have."""

    difference: float  # weighted mean over these tasks of the first metric's value minus the second's, from 0 to 1
    p_value: float  # two-sided, not corrected
    tasks: int


def joint_labels(data: Sequence[Agreement]) -> NDArray[np.str_]:
    """(U,) labels of the photographs of several tasks, each once, ascending."""
    return np.unique(np.concatenate([np.asarray(each.labels, dtype=np.str_) for each in data]))


def joint_tests(
    tasks: Sequence[TaskData],
    pairs: Sequence[tuple[str, str]],
    *,
    permutations: int,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> list[JointTest]:
    """Test pairs of metrics over the tasks that both have, by permutations within photographs across all tasks.

    Units with the same label are one photograph in all tasks. ``p = (1 + #{|δ*| ≥ |δ|}) / (1 + R)``, with R
    permutations that all pairs share. Raises StatisticError if a task's statistic has no permutation test.
    """
    labels = joint_labels([task.data for task in tasks])
    places = [np.searchsorted(labels, np.asarray(task.data.labels, dtype=np.str_)) for task in tasks]
    units = len(labels)
    tests: list[JointTest] = []
    batch: list[tuple[SwapSum, int]] = []
    points = 0

    def run() -> None:
        p_values = swap_p_values([difference for difference, _ in batch], permutations, seed)
        tests.extend(
            JointTest(difference.observed, p_value, shared)
            for (difference, shared), p_value in zip(batch, p_values, strict=True)
        )
        progress(len(batch))

    for first, second in pairs:
        shared = [(task, place) for task, place in zip(tasks, places, strict=True) if {first, second} <= task.names]
        difference, size = _joint_difference(shared, first, second, units)
        batch.append((difference, len(shared)))
        points += size
        if points > _POINTS_TOGETHER:
            run()
            batch, points = [], 0
    if batch:
        run()
    return tests


def _joint_difference(
    shared: Sequence[tuple[TaskData, IntArray]], first: str, second: str, units: int
) -> tuple[SwapSum, int]:
    """The difference of two metrics, and the number of elements of its tables."""
    total = sum(task.weight for task, _ in shared)
    terms, size = list[SwapTerm](), units
    for task, place in shared:
        weight = task.weight * task.factor / total
        if {first, second} & task.constant:
            terms.append(SwapTerm(weight, place, LinearSwap(task.surplus(first) - task.surplus(second))))
            continue
        parts = task.data.swap_terms(first, second, weight, place)
        terms += parts
        tables = sum(not isinstance(part.statistic, LinearSwap) for part in parts)
        size += tables * (task.data.points if isinstance(task.data, Correlations) else 2 * task.data.units)
    return SwapSum(units, terms), size
