"""A ranking of metrics over many tasks: the time of its tests on generated scores.

The tasks have the shapes of published judgements: ratings of Flickr8k Expert (tau-c) and CrowdFlower (tau-b) on the
same 1,000 photographs, Composite's three sources (tau-c, 3 captions per image), PASCAL-50S's four kinds of pairs with
five random samples of references (accuracy), THumB's precision and recall (Pearson's r), and Nebula (tau-c).

Example: python scripts/bench/rank.py --metrics 20 --permutations 1000
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np

from capbench.core.records import Coefficient, FloatArray
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.resampling import worker_count
from capbench.stats.tasks import TaskData, joint_labels, joint_tests


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


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--permutations", type=int, default=1000)
    arguments = parser.parse_args()
    generated = tasks(arguments.metrics)
    pairs = list(itertools.combinations(generated[0].data.names, 2))
    started, used = time.perf_counter(), time.process_time()
    tests = joint_tests(generated, pairs, permutations=arguments.permutations)
    wall, processor = time.perf_counter() - started, time.process_time() - used
    units = len(joint_labels([task.data for task in generated]))
    significant = sum(test.p_value <= 0.05 for test in tests)
    print(
        f"{arguments.metrics} metrics, {len(generated)} tasks, {len(pairs)} pairs, {units:,} photographs, "
        f"{arguments.permutations:,} permutations: {wall:.1f} s, {processor:.1f} s of processor time on "
        f"{worker_count(None)} cores; {significant} pairs with p <= .05"
    )


if __name__ == "__main__":
    main()
