"""Bootstrap, permutation tests and tie calibration: capbench's way beside the plain one.

The plain way is what one writes with scipy: correlate the resampled rows again for every resample, and list all
n (n - 1) / 2 pairs for tie calibration. It is measured on a part of the work, right before and after ours, and scaled
up; the table says by how much. Judgements are generated in the shape of Flickr8k Expert: 1,000 images, 5,664 captions,
three ratings each on four levels.

Example: python scripts/bench/resampling.py --metrics 12
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import numpy as np
import scipy.stats

from capbench.core.records import FloatArray, IntArray
from capbench.stats.agreement import Correlations
from capbench.stats.correlation import correlation
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.resampling import Swaps, evaluate, worker_count
from capbench.stats.significance import compare
from capbench.stats.tie_calibration import calibrate_ties


@dataclass(frozen=True)
class Row:
    """One line of the table, in seconds."""

    task: str
    ours: float
    plain: float
    note: str


def judgements(metrics: int, seed: int = 0) -> tuple[IntArray, FloatArray, FloatArray, dict[str, FloatArray]]:
    """Image, rating and continuous rating of 16,992 data points, and the metrics' scores."""
    rng = np.random.default_rng(seed)
    image = np.sort(np.concatenate([np.arange(1000), rng.integers(0, 1000, 4664)]))
    quality = rng.normal(size=len(image))
    rated = np.repeat(np.arange(len(image)), 3)
    continuous = quality[rated] + rng.normal(size=len(rated)) * 0.8
    human = np.clip(np.floor(continuous * 1.1 + 2.3), 1.0, 4.0)
    scores = {
        f"metric-{i:02d}": (quality + rng.normal(size=len(image)) * (1.2 + 0.05 * i))[rated] for i in range(metrics)
    }
    return image[rated], human, continuous, scores


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Least processor time of some runs."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def plain_correlation(coefficient: str, x: FloatArray, y: FloatArray) -> float:
    """Scipy's."""
    if coefficient == "spearman":
        return float(scipy.stats.spearmanr(x, y).statistic)
    variant: Literal["b", "c"] = "b" if coefficient == "tau-b" else "c"
    return float(scipy.stats.kendalltau(x, y, variant=variant).statistic)


def bootstrap(data: Correlations, name: str, resamples: int) -> Row:
    """1,000 bootstraps by image: ours for all metrics, then divided; scipy's for a few resamples, then multiplied."""
    rows = np.argsort(data.unit, kind="stable")
    ends = np.cumsum(np.bincount(data.unit))
    starts = np.concatenate([[0], ends[:-1]])
    rng = np.random.default_rng(0)
    metric = data.names[0]

    def plain() -> None:
        for _ in range(resamples):
            drawn = rng.integers(0, data.units, data.units)
            at = np.concatenate([rows[starts[u] : ends[u]] for u in drawn])
            plain_correlation(data.coefficient, data.scores[metric][0][at], data.human[at])

    before = seconds(plain)
    ours = seconds(lambda: draw_bootstrap(data, resamples=1000), 2) / len(data.names)
    plain_time = min(before, seconds(plain)) * 1000 / resamples
    return Row(
        f"1,000 bootstraps of {name}, a metric", ours, plain_time, f"plain: {resamples} resamples x {1000 // resamples}"
    )


def coefficient(name: str, x: FloatArray, y: FloatArray) -> Row:
    """One coefficient, beside scipy's."""
    if abs(correlation("tau-b", x, y).value - plain_correlation("tau-b", x, y)) > 1e-12:
        raise SystemExit("the two ways disagree")
    ours = seconds(lambda: [correlation("tau-b", x, y) for _ in range(20)], 5) / 20
    plain_time = seconds(lambda: [plain_correlation("tau-b", x, y) for _ in range(20)], 5) / 20
    return Row(f"1,000 times one {name}", 1000 * ours, 1000 * plain_time, "")


def permutations(data: Correlations, repeats: int) -> Row:
    """All pairwise PERM-BOTH tests with 1,000 permutations."""
    pairs = len(data.names) * (len(data.names) - 1) // 2
    a, b = (scipy.stats.rankdata(data.scores[name][0]) for name in data.names[:2])
    rng = np.random.default_rng(0)

    def plain() -> None:
        for _ in range(repeats):
            swap = rng.integers(0, 2, data.units)[data.unit] == 1
            plain_correlation(data.coefficient, np.where(swap, b, a), data.human)
            plain_correlation(data.coefficient, np.where(swap, a, b), data.human)

    before = seconds(plain)
    ours = seconds(lambda: compare(data, permutations=1000, correction="none"))
    plain_time = min(before, seconds(plain)) * 1000 / repeats * pairs
    note = f"plain: {repeats} permutations x {1000 * pairs // repeats:,}"
    return Row(f"PERM-BOTH of {data.coefficient}, {pairs} pairs x 1,000", ours, plain_time, note)


def bounds(data: Correlations) -> Row:
    """PERM-BOTH decided by bounds, beside counting every permutation of every pair of metrics; the p-values agree."""
    pairs = list(itertools.combinations(data.names, 2))
    swaps = Swaps(data.units, 1000, 0)

    def counted() -> dict[frozenset[str], float]:
        statistics = [data.swapped(*pair) for pair in pairs]
        values = np.abs(evaluate(statistics, swaps))
        observed = [abs(float(statistic(np.zeros((1, data.units), dtype=np.int32))[0])) for statistic in statistics]
        extreme = [
            (1 + int((~(row < limit - 1e-12)).sum())) / 1001 for row, limit in zip(values, observed, strict=True)
        ]
        return {frozenset(pair): p for pair, p in zip(pairs, extreme, strict=True)}

    table = compare(data, permutations=1000, correction="none")
    if {frozenset((pair.better, pair.worse)): pair.p_value for pair in table.pairs} != counted():
        raise SystemExit("the two ways disagree")
    plain_time = seconds(counted)
    ours = seconds(lambda: compare(data, permutations=1000, correction="none"))
    return Row(f"the same by bounds, {data.coefficient}", ours, plain_time, "plain: capbench, all permutations counted")


def list_all_pairs(x: FloatArray, y: FloatArray) -> float:
    """Pairwise accuracy with tie calibration from a list of all pairs."""
    i, j = np.triu_indices(len(x), 1)
    difference, tied = np.abs(x[i] - x[j]), y[i] == y[j]
    right = (x[i] > x[j]) == (y[i] > y[j])
    order = np.argsort(difference, kind="stable")
    difference = difference[order]
    gain = np.cumsum(np.where(tied, 1, np.where(right, -1, 0))[order] * (difference > 0))
    last = np.append(difference[1:] != difference[:-1], True)
    start = int((tied[order] & (difference == 0)).sum()) + int((~tied & right)[order][difference > 0].sum())
    return (start + max(0, int(gain[last].max()))) / len(difference)


def calibration(x: FloatArray, y: FloatArray, n: int) -> Row:
    """acc*_eq: ours on all points, the plain way on n of them."""
    few = np.random.default_rng(0).permutation(len(x))[:n]
    accuracy = calibrate_ties(x[few], y[few]).accuracy
    if accuracy != list_all_pairs(x[few], y[few]):
        raise SystemExit("the two ways disagree")
    before = seconds(lambda: list_all_pairs(x[few], y[few]))
    ours = seconds(lambda: calibrate_ties(x, y), 3)
    plain_time = min(before, seconds(lambda: list_all_pairs(x[few], y[few]))) * (len(x) / n) ** 2
    peaks = []
    for work in (lambda: calibrate_ties(x, y), lambda: list_all_pairs(x[few], y[few])):
        tracemalloc.start()
        work()
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    memory = peaks[1] * (len(x) / n) ** 2
    note = f"plain: n = {n:,} x {(len(x) / n) ** 2:.0f}; peak memory {peaks[0]:.0f} MB beside {memory:,.0f} MB"
    return Row(f"tie calibration, n = {len(x):,}", ours, plain_time, note)


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Speed of intervals and tests")
    parser.add_argument("--metrics", type=int, default=12, help="number of metrics")
    parser.add_argument("--part", type=int, default=20, help="resamples of the plain way")
    parser.add_argument("--pairs-n", type=int, default=3000, help="data points of the plain tie calibration")
    arguments = parser.parse_args()
    image, human, continuous, scores = judgements(arguments.metrics)
    scipy_version, numpy_version = version("scipy"), version("numpy")
    print(
        f"{platform.machine()}, {worker_count(None)} cores (load {os.getloadavg()[0]:.1f}), Python"
        f" {platform.python_version()}, numpy {numpy_version}, scipy {scipy_version}; n = {len(human):,}\n"
    )
    print("| task | capbench | plain way | ratio | |\n|---|---|---|---|---|")

    def show(row: Row) -> None:
        print(
            f"| {row.task} | {row.ours:.2f} s | {row.plain:,.0f} s | {row.plain / row.ours:,.0f} | {row.note} |",
            flush=True,
        )

    show(bootstrap(Correlations.of("tau-c", scores, human, image), "τ-c", arguments.part))
    show(bootstrap(Correlations.of("tau-b", scores, human, image), "τ-b", arguments.part))
    show(bootstrap(Correlations.of("spearman", scores, human, image), "ρ", arguments.part))
    two = dict(list(scores.items())[:2])
    show(bootstrap(Correlations.of("tau-b", two, continuous, image), "τ-b, continuous ratings", arguments.part))
    many = np.digitize(continuous, np.quantile(continuous, np.arange(1, 200) / 200)).astype(np.float64)
    show(bootstrap(Correlations.of("tau-b", two, many, image), "τ-b, 200 levels of ratings", arguments.part))
    show(coefficient("τ-b, 200 levels of ratings", scores["metric-00"], many))
    show(coefficient("τ-b, continuous ratings", scores["metric-00"], continuous))
    show(permutations(Correlations.of("tau-c", scores, human, image), arguments.part))
    show(permutations(Correlations.of("tau-b", scores, human, image), arguments.part))
    show(permutations(Correlations.of("spearman", scores, human, image), arguments.part))
    show(bounds(Correlations.of("tau-b", scores, human, image)))
    show(bounds(Correlations.of("spearman", scores, human, image)))
    show(calibration(scores["metric-00"], human, arguments.pairs_n))


if __name__ == "__main__":
    main()
