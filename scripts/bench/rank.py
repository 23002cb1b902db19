"""A ranking of metrics over many tasks: the time of its tests on generated scores.

The tasks have the shapes of published judgements: ratings of Flickr8k Expert (tau-c) and CrowdFlower (tau-b) on the
same 1,000 photographs, Composite's three sources (tau-c, 3 captions per image), PASCAL-50S's four kinds of pairs with
five random samples of references (accuracy), THumB's precision and recall (Pearson's r), and Nebula (tau-c).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np

from capbench.core.records import Coefficient, FloatArray
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.overall import TaskData, joint_labels, joint_tests
from scripts.bench.common import Goal, Row, Settings, Work, child

PERMUTATIONS = 1000


def correlations(
    rng: np.random.Generator,
    metrics: int,
    coefficient: Coefficient,
    name: str,
    images: int,
    captions: int,
    raters: int,
    levels: int,
) -> TaskData:
    """A task of ratings; metric i is the worse, the larger i is."""
    image = np.sort(rng.integers(0, images, captions))
    quality = rng.normal(size=captions)
    rated = np.repeat(np.arange(captions), raters)
    human = np.clip(np.floor(quality[rated] + rng.normal(size=len(rated)) + levels / 2), 1, levels)
    scores = {
        f"metric-{i:02d}": (quality + rng.normal(size=captions) * (1 + 0.03 * i))[None, rated] for i in range(metrics)
    }
    labels = [f"{name}{number}" for number in image[rated]]
    return TaskData(Correlations.of(coefficient, scores, human, labels), 1.0, 0.5)


def accuracies(rng: np.random.Generator, metrics: int, name: str, pairs: int, draws: int) -> TaskData:
    """A task of preferences, one pair per image."""
    difference = rng.normal(size=pairs)
    preferred = np.where(rng.normal(size=pairs) < difference, 1, -1)
    noise = {f"metric-{i:02d}": rng.normal(size=(draws, pairs)) * (1 + 0.03 * i) for i in range(metrics)}
    first: dict[str, FloatArray] = {title: difference + of_metric for title, of_metric in noise.items()}
    second = {title: np.zeros((draws, pairs)) for title in noise}
    labels = [f"{name}{number}" for number in range(pairs)]
    return TaskData(Accuracies.of("strict", first, second, preferred, unit=labels), 1.0, 1.0)


def tasks(metrics: int, seed: int = 0) -> list[TaskData]:
    """Twelve tasks."""
    rng = np.random.default_rng(seed)
    return [
        correlations(rng, metrics, "tau-c", "flickr8k-", 1000, 5664, 3, 4),
        correlations(rng, metrics, "tau-b", "flickr8k-", 1000, 47_830, 1, 7),
        *(correlations(rng, metrics, "tau-c", f"composite{part}-", 1330, 3995, 1, 5) for part in range(3)),
        *(accuracies(rng, metrics, f"pascal{kind}-", 1000, 5) for kind in range(4)),
        *(correlations(rng, metrics, "pearson", "thumb-", 500, 2000, 1, 5) for _ in range(2)),
        correlations(rng, metrics, "tau-c", "nebula-", 3000, 3298, 1, 5),
    ]


def ranking(metrics: int, permutations: int) -> Work:
    """All pairwise tests across the tasks; returns the wall time and the number of photographs."""
    generated = tasks(metrics)
    pairs = list(itertools.combinations(generated[0].data.names, 2))
    units = len(joint_labels([task.data for task in generated]))
    joint_tests(generated, pairs[:1], permutations=100)  # imports

    def work() -> tuple[float, int]:
        started = time.perf_counter()
        joint_tests(generated, pairs, permutations=permutations)
        return time.perf_counter() - started, units

    return work


def measure(settings: Settings) -> Iterator[Row]:
    """One ranking."""
    metrics = settings.pick(6, 20)
    run = child(ranking, metrics, PERMUTATIONS)
    seconds, units = run.result
    goals = (Goal(seconds, 60, "s on all cores"),) if settings.full else ()
    what = f"ranking: {metrics} metrics, 12 tasks, {units:,} photographs, {PERMUTATIONS:,} permutations"
    yield Row(what, run.seconds, megabytes=run.megabytes, goals=goals)
