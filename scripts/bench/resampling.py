"""Correlations, bootstrap, permutation tests and tie calibration, compared with the plain way.

The plain way recomputes the coefficient with scipy for each resample, or lists all n (n - 1) / 2 pairs. It does a part
of the work; the table scales it up. Judgements have the shape of Flickr8k Expert: 1,000 images, 5,664 captions, three
ratings each on four levels; coefficients of the part must be equal on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from capbench.core.records import Coefficient, FloatArray, IntArray
from scripts.bench.common import Goal, Row, Settings, Work, between

PART, LISTED = 10, 3_000
"""Resamples of the plain bootstrap and permutation test; data points of the plain tie calibration."""
PAIRS = 2
"""Metrics of a bootstrap."""


def judgements(metrics: int, levels: int, seed: int = 0) -> tuple[IntArray, FloatArray, dict[str, FloatArray]]:
    """Image and rating of 16,992 data points, and the metrics' scores; 0 levels are continuous ratings."""
    rng = np.random.default_rng(seed)
    image = np.sort(np.concatenate([np.arange(1000), rng.integers(0, 1000, 4664)]))
    quality = rng.normal(size=len(image))
    rated = np.repeat(np.arange(len(image)), 3)
    human = quality[rated] + rng.normal(size=len(rated)) * 0.8
    if levels == 4:
        human = np.clip(np.floor(human * 1.1 + 2.3), 1.0, 4.0)
    elif levels:
        human = np.digitize(human, np.quantile(human, np.arange(1, levels) / levels)).astype(np.float64)
    scores = {
        f"metric-{i:02d}": (quality + rng.normal(size=len(image)) * (1.2 + 0.05 * i))[rated] for i in range(metrics)
    }
    return image[rated], human, scores


def scipy_correlation(coefficient: str, x: FloatArray, y: FloatArray) -> float:
    """Scipy's."""
    import scipy.stats

    if coefficient == "spearman":
        return float(scipy.stats.spearmanr(x, y).statistic)
    if coefficient == "pearson":
        return float(scipy.stats.pearsonr(x, y).statistic)
    variant: Literal["b", "c"] = "b" if coefficient == "tau-b" else "c"
    return float(scipy.stats.kendalltau(x, y, variant=variant).statistic)


def our_bootstrap(coefficient: Coefficient, levels: int) -> Work:
    """1,000 resamples of some metrics; returns the coefficients."""
    from capbench.stats.agreement import Correlations
    from capbench.stats.intervals import draw_bootstrap

    image, human, scores = judgements(PAIRS, levels)
    data = Correlations.of(coefficient, scores, human, image)
    draw_bootstrap(data, resamples=100)  # imports
    return lambda: draw_bootstrap(data, resamples=1000).estimates


def plain_bootstrap(coefficient: Coefficient, levels: int) -> Work:
    """A few resamples of one metric; returns the coefficients of all."""
    image, human, scores = judgements(PAIRS, levels)
    rows = np.split(np.arange(len(image)), np.flatnonzero(np.diff(image)) + 1)
    rng = np.random.default_rng(0)
    first = scores["metric-00"]
    scipy_correlation(coefficient, first[:100], human[:100])  # imports scipy.stats

    def work() -> FloatArray:
        for _ in range(PART - PAIRS):
            at = np.concatenate([rows[unit] for unit in rng.integers(0, len(rows), len(rows))])
            scipy_correlation(coefficient, first[at], human[at])
        return np.array([scipy_correlation(coefficient, values, human) for values in scores.values()])

    return work


def our_coefficient(coefficient: Coefficient, levels: int, count: int) -> Work:
    """One coefficient, ``count`` times."""
    from capbench.stats.correlation import correlation

    _, human, scores = judgements(1, levels)
    values = scores["metric-00"]
    correlation(coefficient, values[:100], human[:100])
    return lambda: np.array([correlation(coefficient, values, human).value for _ in range(count)])


def scipy_coefficient(coefficient: Coefficient, levels: int, count: int) -> Work:
    """The same by scipy."""
    _, human, scores = judgements(1, levels)
    values = scores["metric-00"]
    scipy_correlation(coefficient, values[:100], human[:100])
    return lambda: np.array([scipy_correlation(coefficient, values, human) for _ in range(count)])


def our_permutations(coefficient: Coefficient, metrics: int) -> Work:
    """All pairwise PERM-BOTH tests with 1,000 permutations; returns the coefficients."""
    from capbench.stats.agreement import Correlations
    from capbench.stats.resampling import observed_value
    from capbench.stats.significance import compare

    image, human, scores = judgements(metrics, 4)
    data = Correlations.of(coefficient, scores, human, image)

    compare(data, permutations=100, correction="none")  # imports

    def work() -> FloatArray:
        compare(data, permutations=1000, correction="none")
        return np.array([observed_value(data.statistic(name)) for name in scores])

    return work


def plain_permutations(coefficient: Coefficient, metrics: int) -> Work:
    """A few permutations of one pair; returns the coefficients of all metrics."""
    import scipy.stats

    image, human, scores = judgements(metrics, 4)
    a, b = (scipy.stats.rankdata(scores[name]) for name in ("metric-00", "metric-01"))
    rng = np.random.default_rng(0)
    scipy_correlation(coefficient, a[:100], human[:100])  # imports scipy.stats

    def work() -> FloatArray:
        for _ in range(PART - metrics // 2):
            swap = rng.integers(0, 2, int(image.max()) + 1)[image] == 1
            scipy_correlation(coefficient, np.where(swap, b, a), human)
            scipy_correlation(coefficient, np.where(swap, a, b), human)
        return np.array([scipy_correlation(coefficient, values, human) for values in scores.values()])

    return work


def our_calibration(count: int, listed: int) -> Work:
    """acc*_eq of all points; returns that of the listed ones."""
    from capbench.stats.tie_calibration import calibrate_ties

    _, human, scores = judgements(1, 4)
    x = scores["metric-00"]
    few = np.random.default_rng(0).permutation(len(x))[:listed]

    def work() -> float:
        calibrate_ties(x[:count], human[:count])
        return calibrate_ties(x[few], human[few]).accuracy

    return work


def listed_calibration(_: int, listed: int) -> Work:
    """The same from a list of all pairs of the listed points."""
    _image, human, scores = judgements(1, 4)
    few = np.random.default_rng(0).permutation(len(human))[:listed]
    x, y = scores["metric-00"][few], human[few]

    def work() -> float:
        i, j = np.triu_indices(len(x), 1)
        difference, tied = np.abs(x[i] - x[j]), y[i] == y[j]
        right = (x[i] > x[j]) == (y[i] > y[j])
        order = np.argsort(difference, kind="stable")
        difference = difference[order]
        gain = np.cumsum(np.where(tied, 1, np.where(right, -1, 0))[order] * (difference > 0))
        last = np.append(difference[1:] != difference[:-1], True)
        start = int((tied[order] & (difference == 0)).sum()) + int((~tied & right)[order][difference > 0].sum())
        return float((start + max(0, int(gain[last].max()))) / len(difference))

    return work


def measure(settings: Settings) -> Iterator[Row]:
    """All comparisons with the plain way."""
    repeats, metrics = settings.repeats, settings.pick(4, 12)
    named: tuple[tuple[str, Coefficient], ...] = (("τ-b", "tau-b"), ("τ-c", "tau-c"), ("ρ", "spearman"))
    for levels, title in ((4, "4 levels"), (200, "200 levels"), (0, "continuous")):
        ways = (our_coefficient, scipy_coefficient)
        row = between(
            f"20 × τ-b, n = 16,992, {title}",
            "scipy",
            *ways,
            "tau-b",
            levels,
            20,
            repeats=repeats,
            tolerance=1e-12,
            inner=3,
        )
        yield row if row.ratio is None else replace(row, goals=(Goal(row.ratio, 1, "times scipy", minimum=True),))
    rows: list[tuple[str, Coefficient, int]] = [(f"{sign}, 4 levels", name, 4) for sign, name in named]
    for title, coefficient, levels in (*rows, ("τ-b, 200 levels", "tau-b", 200), ("τ-b, continuous", "tau-b", 0)):
        row = between(
            f"1,000 bootstraps of {title}; {PAIRS} metrics",
            f"scipy, {PART} resamples × {1000 * PAIRS // PART}",
            our_bootstrap,
            plain_bootstrap,
            coefficient,
            levels,
            repeats=repeats,
            tolerance=1e-12,
            times=1000 * PAIRS / PART,
        )
        goals = (Goal(row.ratio, 4, "times scipy", minimum=True),) if row.ratio and levels else ()
        yield replace(row, goals=goals)
    pairs = metrics * (metrics - 1) // 2
    for sign, coefficient in named:
        yield between(
            f"PERM-BOTH of {sign}; {pairs} pairs × 1,000",
            f"scipy, {PART} permutations × {1000 * pairs // PART:,}",
            our_permutations,
            plain_permutations,
            coefficient,
            metrics,
            repeats=repeats,
            tolerance=1e-12,
            times=1000 * pairs / PART,
        )
    count = 16_992
    yield between(
        f"tie calibration, n = {count:,}",
        f"list of all pairs, n = {LISTED:,}, × {(count / LISTED) ** 2:.0f}",
        our_calibration,
        listed_calibration,
        count,
        LISTED,
        repeats=repeats,
        times=(count / LISTED) ** 2,
        inner=2,
    )
