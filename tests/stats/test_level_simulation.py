"""Statistics within images and sources and over systems, under a known truth: human scores plus noise as a metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from capbench.core.records import FloatArray, WithinCoefficient
from capbench.stats.agreement import Agreement
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.resampling import observed_value
from capbench.stats.significance import compare
from capbench.stats.system_agreement import Systems
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources

DRAWS = 100
# Binomial noise of so many draws, three standard deviations, beyond the wanted 93 % and 4 to 6 %.
COVERAGE = 0.93 - 3 * (0.93 * 0.07 / DRAWS) ** 0.5
REJECTIONS = 0.06 + 3 * (0.06 * 0.94 / DRAWS) ** 0.5
QUALITY = np.array([-0.6, -0.3, -0.1, 0.1, 0.3, 0.6])
BIAS = np.array([0.2, -0.3, 0.0, 0.3, -0.2, 0.0])


def draw(seed: Any, images: int) -> tuple[dict[str, FloatArray], FloatArray, list[str], Any]:
    """Two equally good metrics' scores, ratings, systems and images: every system describes every image."""
    rng, systems = np.random.default_rng(seed), len(QUALITY)
    hard = rng.normal(size=images)
    true = 3 + hard + QUALITY[:, None] + 0.7 * rng.normal(size=(systems, images))
    # A metric finds hard images harder than people do.
    noise = rng.normal(size=(2, systems, images))
    scores = {name: (true + 2 * hard + BIAS[:, None] + noise[k]).ravel() for k, name in enumerate("ab")}
    names = [f"s{system}" for system in range(systems) for _ in range(images)]
    return scores, np.clip(np.round(2 * true) / 2, 1, 5).ravel(), names, np.tile(np.arange(images), systems)


def of_images(seed: Any, images: int) -> Agreement:
    scores, human, _, image = draw(seed, images)
    return WithinImages.of("tau-b", scores, human, image)


def of_sources(seed: Any, images: int) -> Agreement:
    scores, human, system, image = draw(seed, images)
    return WithinSources.of("tau-b", scores, human, system, image)


def of_systems(seed: Any, images: int) -> Agreement:
    scores, human, system, image = draw(seed, images)
    return Systems.of("pearson", scores, human, system, image)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("data", [of_images, of_sources, of_systems])
def test_intervals_cover_and_tests_hold_their_level(data: Callable[[Any, int], Agreement]) -> None:
    large = data(1, 40_000)
    truth = float(large.statistic("a")(np.ones((1, large.units), dtype=np.int32))[0])
    covered, rejected = [], []
    for seed in range(DRAWS):
        drawn = data([2, seed], 300)
        interval = bootstrap_intervals(drawn, draw_bootstrap(drawn, resamples=500, seed=seed))["a"]
        covered.append(interval.low <= truth <= interval.high)
        rejected.append(compare(drawn, permutations=499, seed=seed).pairs[0].significant)
    assert np.mean(covered) >= COVERAGE
    assert np.mean(rejected) <= REJECTIONS


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_soft_accuracy_of_equally_good_systems_falls_with_the_noise_as_theory_says(noise: float) -> None:
    from scipy.special import ndtr

    rng, image, names = np.random.default_rng(0), np.tile(np.arange(100), 6), np.repeat(np.arange(6), 100).astype(str)
    values = []
    for _ in range(150):
        human = rng.normal(size=600)
        scores = human + noise * rng.normal(size=600)
        data = Systems.of("soft-accuracy", {"m": scores}, human, names.tolist(), image)
        values.append(observed_value(data.statistic("m")))
    # 1 - E|Φ(z₁) - Φ(z₂)|, z correlated by 1 / sqrt(1 + noise²).
    correlated = 1 / np.sqrt(1 + noise * noise)
    first, other = rng.normal(size=(2, 1_000_000))
    second = correlated * first + np.sqrt(1 - correlated**2) * other
    assert np.mean(values) == pytest.approx(1 - np.abs(ndtr(first) - ndtr(second)).mean(), abs=0.02)


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_within_images_noise_attenuates_and_hard_images_do_not(noise: float) -> None:
    rng = np.random.default_rng(3)
    image = np.repeat(np.arange(4000), 8)
    human = rng.normal(size=image.size)
    scores = human + noise * rng.normal(size=image.size) + 5 * rng.normal(size=4000)[image]
    reliability = 1 / np.sqrt(1 + noise * noise)
    # Over pairs of one image, r is the reliability, and Kendall's tau of normal variables 2/π arcsin r.

    def value_of(coefficient: WithinCoefficient) -> float:
        return observed_value(WithinImages.of(coefficient, {"m": scores}, human, image).statistic("m"))

    assert value_of("difference-pearson") == pytest.approx(reliability, abs=0.01)
    want = 2 / np.pi * np.arcsin(reliability)
    assert value_of("tau-b") == pytest.approx(want, abs=0.01)
    assert float(np.corrcoef(scores, human)[0, 1]) < 0.3  # what a statistic over all captions says
