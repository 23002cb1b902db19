"""Intervals and tests under a known truth: simulated judgements, whose true values come from a very large draw."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.records import FloatArray, IntArray
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.significance import compare

DRAWS = 80
# Binomial noise of so many draws, three standard deviations, beyond the wanted 93 to 97 % and 4 to 6 %.
COVERAGE = (0.93 - 3 * (0.93 * 0.07 / DRAWS) ** 0.5, 0.97 + 3 * (0.97 * 0.03 / DRAWS) ** 0.5)
REJECTIONS = (0.04 - 3 * (0.04 * 0.96 / DRAWS) ** 0.5, 0.06 + 3 * (0.06 * 0.94 / DRAWS) ** 0.5)
ALIKE = 0.4  # share of the variance that the captions of an image have in common


def captions(rng: np.random.Generator, images: int) -> tuple[IntArray, FloatArray, dict[str, FloatArray]]:
    """Images of four captions each, their quality, and scores of two equally good metrics."""
    image = np.repeat(np.arange(images), 4)

    def noise() -> FloatArray:
        common, own = rng.normal(size=images)[image], rng.normal(size=len(image))
        return np.asarray(np.sqrt(ALIKE) * common + np.sqrt(1 - ALIKE) * own)

    quality = noise()
    return image, quality, {name: 0.6 * quality + 0.8 * noise() for name in ("a", "b")}


def ratings(rng: np.random.Generator, images: int, by_image: bool = True) -> Correlations:
    """Kendall's tau-c with three ratings of each caption, of four levels."""
    image, quality, scores = captions(rng, images)
    rated = np.repeat(np.arange(len(image)), 3)
    human = np.clip(np.floor(2.3 + 1.1 * quality[rated] + 0.7 * rng.normal(size=len(rated))), 1.0, 4.0)
    of_ratings = {name: values[rated] for name, values in scores.items()}
    return Correlations.of("tau-c", of_ratings, human, image[rated] if by_image else None)


def pairs(rng: np.random.Generator, images: int) -> Accuracies:
    """Accuracy on pairs of captions of an image, two of each; scores have one decimal, so that some tie."""
    image, quality, scores = captions(rng, images)
    preferred = np.sign(quality[::2] - quality[1::2] + 0.5 * rng.normal(size=len(image) // 2)).astype(np.int64)
    first, second = ({name: np.round(values[k::2], 1) for name, values in scores.items()} for k in (0, 1))
    return Accuracies.of("strict", first, second, preferred, unit=image[::2])


def true_value(data: Agreement) -> float:
    """The statistic of metric ``a``."""
    return float(data.statistic("a")(np.ones((1, data.units), dtype=np.int32))[0])


def covers(data: Agreement, truth: float, seed: int) -> list[bool]:
    """True for percentile and BCa if the interval contains the true value."""
    sample = draw_bootstrap(data, resamples=500, seed=seed)
    found = [bootstrap_intervals(data, sample, method=m)["a"] for m in ("percentile", "bca")]
    return [interval.low <= truth <= interval.high for interval in found]


def rejects(data: Agreement, seed: int) -> bool:
    """True if the permutation test finds the equally good metrics to differ."""
    return compare(data, correction="none", permutations=499, seed=seed).pairs[0].p_value <= 0.05


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_intervals_cover_the_truth_and_tests_hold_their_level_unless_ratings_count_as_independent() -> None:
    truth, accuracy = (true_value(data(np.random.default_rng(1), 80_000)) for data in (ratings, pairs))
    drawn = [np.random.default_rng([11, seed]) for seed in range(DRAWS)]
    for data, true in ((ratings, truth), (pairs, accuracy)):
        covered = [covers(data(rng, 200), true, seed) for seed, rng in enumerate(drawn)]
        assert all(COVERAGE[0] <= share <= COVERAGE[1] for share in np.mean(covered, axis=0)), covered
        rejected = np.mean([rejects(data(rng, 200), seed) for seed, rng in enumerate(drawn)])
        assert REJECTIONS[0] <= rejected <= REJECTIONS[1]
    single = [ratings(rng, 200, by_image=False) for rng in drawn]
    assert np.mean([covers(data, truth, seed)[0] for seed, data in enumerate(single)]) < 0.92
    assert np.mean([rejects(data, seed) for seed, data in enumerate(single)]) > 0.08
