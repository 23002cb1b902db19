"""Overall values over tasks, and permutation tests across tasks, against single permutations and scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.overall import TaskData, joint_labels, joint_tests, task_effects
from capbench.stats.resampling import Swaps, mean_statistic, observed_value
from capbench.stats.significance import compare
from capbench.stats.system_agreement import Systems
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources
from tests.errors import raises

VALUES = {
    "a": {"x": 0.7, "y": 0.5, "z": 0.9},
    "b": {"x": 0.6, "y": 0.4, "z": 0.7},
    "c": {"x": 0.8, "z": 0.8},
}
WEIGHTS = {"x": 2.0, "y": 1.0, "z": 1.0, "unused": 5.0}


def test_with_all_tasks_the_overall_value_is_the_weighted_mean() -> None:
    complete = {name: VALUES[name] for name in ("a", "b")}
    effects = task_effects(complete, WEIGHTS)
    for values in complete.values():
        want = np.average(list(values.values()), weights=[WEIGHTS[task] for task in values])
        assert effects.overall(values) == pytest.approx(want, abs=1e-12)
    assert sum(effects.weights[task] * effect for task, effect in effects.effects.items()) == pytest.approx(
        0, abs=1e-12
    )


def test_a_missing_task_is_adjusted_for_by_weighted_least_squares() -> None:
    effects = task_effects(VALUES, WEIGHTS)
    # The same model with indicator variables, the effects of the last task expressed by the others.
    rows, targets, roots = [], [], []
    for number, values in enumerate(VALUES.values()):
        for task, value in values.items():
            at = [2.0, 1.0, 1.0]
            indicator = np.eye(3)["xyz".index(task)]
            indicator = indicator[:2] - indicator[2] * np.array(at[:2]) / at[2]
            rows.append([*np.eye(3)[number], *indicator])
            targets.append(value)
            roots.append(np.sqrt(WEIGHTS[task]))
    root = np.array(roots)
    want, *_ = np.linalg.lstsq(np.array(rows) * root[:, None], np.array(targets) * root, rcond=None)
    assert [effects.overall(values) for values in VALUES.values()] == pytest.approx(want[:3].tolist(), abs=1e-12)
    # Metrics with all tasks keep their mean; y is difficult, so its absence is no advantage.
    assert effects.overall(VALUES["a"]) == pytest.approx((2 * 0.7 + 0.5 + 0.9) / 4)
    assert effects.overall(VALUES["c"]) < (2 * 0.8 + 0.8) / 3


def test_metrics_without_a_common_task_are_rejected() -> None:
    with raises(StatisticError, "mismatch", value="b"):
        task_effects({"a": {"x": 1.0}, "b": {"y": 1.0}}, {"x": 1, "y": 1})
    linked = task_effects({"a": {"x": 1.0}, "b": {"y": 1.0}, "c": {"x": 0.5, "y": 0.25}}, {"x": 1, "y": 1})
    assert linked.overall({"y": 1.0}) - linked.overall({"x": 1.0}) == pytest.approx(0.25)


# One task of each kind. The photographs of the tasks overlap.


def photographs(n: int, start: int, images: int = 12) -> list[str]:
    return [f"p{number}" for number in np.sort(start + np.arange(n) % images)]


def scores(rng: np.random.Generator, n: int, draws: int = 1, decimals: int = 1) -> dict[str, FloatArray]:
    return {name: np.round(rng.normal(size=(draws, n)), decimals) for name in "ab"}


def correlations(coefficient: Any, draws: int, decimals: int, start: int, images: int = 12) -> Correlations:
    rng = np.random.default_rng(start)
    human = rng.integers(1, 5, 40).astype(np.float64)
    of_metrics = scores(rng, 40, draws, decimals)
    of_metrics["b"] = of_metrics["b"] + human / 4
    return Correlations.of(coefficient, of_metrics, human, photographs(40, start, images))


def accuracies() -> Accuracies:
    rng = np.random.default_rng(9)
    groups = ["g", "h"] * 15
    preferred = rng.choice([-1, 1], 30)
    return Accuracies.of(
        "ties-half", scores(rng, 30, 3, 0), scores(rng, 30, 3, 0), preferred, groups, photographs(30, 3)
    )


def within_images(coefficient: Any) -> WithinImages:
    rng = np.random.default_rng(4)
    images = photographs(48, 5)
    drawn = ["p6" if image == "p5" else image for image in images]  # two ids of one photograph
    return WithinImages.of(coefficient, scores(rng, 48, 2), rng.integers(1, 4, 48), images, drawn=drawn)


def within_sources() -> WithinSources:
    rng = np.random.default_rng(5)
    sources = ["one", "two"] * 24
    return WithinSources.of("tau-c", scores(rng, 48, 2), rng.integers(1, 4, 48), sources, photographs(48, 5))


def systems() -> Systems:
    rng = np.random.default_rng(6)
    names = [f"s{number % 5}" for number in range(60)]
    return Systems.of("pearson", scores(rng, 60), rng.normal(size=60), names, photographs(60, 2))


MADE: dict[str, Callable[[], Agreement]] = {
    "tau-c": lambda: correlations("tau-c", 2, 3, 0, 30),
    "tau-c with few levels": lambda: correlations("tau-c", 1, 0, 1),
    "tau-b": lambda: correlations("tau-b", 1, 1, 2),
    "tau-b with draws": lambda: correlations("tau-b", 3, 0, 3),
    "spearman": lambda: correlations("spearman", 1, 0, 4),
    "pearson": lambda: correlations("pearson", 2, 2, 5),
    "accuracy": accuracies,
    "within images": lambda: within_images("tau-b"),
    "held out": lambda: within_images("acc-eq-held-out"),
    "differences": lambda: within_images("difference-pearson"),
    "within sources": within_sources,
    "systems": systems,
}


def one_by_one(tasks: list[TaskData], permutations: int, seed: int) -> tuple[float, float]:
    """The difference of a and b, and its p-value, each task and permutation separately."""
    labels = sorted({str(label) for task in tasks for label in task.data.labels})
    blocks = Swaps(len(labels), permutations, seed)
    swaps = np.concatenate([np.zeros((1, len(labels))), *(blocks.block(i) for i in range(-(-permutations // 64)))])
    total = sum(task.weight for task in tasks)
    values = np.zeros(len(swaps))
    for task in tasks:
        place = [labels.index(str(label)) for label in task.data.labels]
        difference = mean_statistic(task.data.swaps("a", "b"))
        values += task.weight * task.factor / total * difference(swaps[:, place].astype(np.int32))
    extreme = np.abs(values[1:]) >= abs(values[0]) - 1e-12
    return float(values[0]), float((1 + extreme.sum()) / (1 + permutations))


@pytest.mark.parametrize("kinds", [*((name,) for name in MADE), ("tau-c", "tau-b", "accuracy"), tuple(MADE)])
def test_joint_tests_are_those_of_single_permutations(kinds: tuple[str, ...]) -> None:
    tasks = [
        TaskData(MADE[kind](), 1 + place % 3, 1.0 if kind in ("accuracy", "held out") else 0.5)
        for place, kind in enumerate(kinds)
    ]
    (test,) = joint_tests(tasks, [("a", "b")], permutations=150, seed=7)
    difference, p_value = one_by_one(tasks, 150, 7)
    assert test.difference == pytest.approx(difference, abs=1e-9)
    assert test.p_value == p_value
    assert test.tasks == len(kinds)


def test_tasks_with_the_same_photographs_are_swapped_together() -> None:
    data = MADE["tau-c"]()
    (alone,) = compare(data, correction="none", permutations=500, seed=2).pairs
    # The same judgements again add no evidence. Swapped independently, they would.
    (twice,) = joint_tests([TaskData(data, 1, 0.5)] * 2, [("a", "b")], permutations=500, seed=2)
    assert (twice.p_value, len(joint_labels([data, data]))) == (alone.p_value, data.units)
    assert abs(twice.difference) == pytest.approx(alone.difference / 2, abs=1e-12)


def test_a_pair_is_tested_on_the_tasks_that_both_metrics_have() -> None:
    rng = np.random.default_rng(1)
    human = rng.normal(size=(2, 30))
    one = {name: human[0] + rng.normal(size=30) for name in "abc"}
    two = {name: human[1] + rng.normal(size=30) for name in "ab"}
    labels = photographs(30, 0)
    tasks = [
        TaskData(Correlations.of("spearman", one, human[0], labels), 3, 0.5),
        TaskData(Correlations.of("spearman", two, human[1], labels), 1, 0.5),
    ]
    of_both, of_one = joint_tests(tasks, [("a", "b"), ("c", "a")], permutations=100, seed=0)
    (alone,) = joint_tests(tasks[:1], [("c", "a")], permutations=100, seed=0)
    assert (of_both.tasks, of_one.tasks) == (2, 1)
    assert of_one == alone


@pytest.mark.parametrize("kind", MADE)
def test_a_metric_with_constant_scores_differs_by_the_value_of_the_other(kind: str) -> None:
    data = MADE[kind]()
    task = TaskData(data, 2, 0.5, constant=frozenset({"c", "d"}), no_agreement=0.25)
    pairs = [("a", "c"), ("c", "a"), ("c", "d")]
    first, turned, both = joint_tests([task], pairs, permutations=100)
    assert first.difference == pytest.approx(0.5 * (observed_value(data.statistic("a")) - 0.25), abs=1e-9)
    assert turned.difference == pytest.approx(-first.difference)
    assert turned.p_value == first.p_value
    assert (both.difference, both.p_value) == (0.0, 1.0)
