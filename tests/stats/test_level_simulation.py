"""Statistics within images and sources and over systems, under a known truth: human scores plus noise as a metric."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.records import FloatArray, SourceCoefficient
from capbench.stats.within_images import within_images
from scripts.level_simulation import (
    QUALITY,
    SOURCES,
    WITHIN,
    draw,
    expected_soft_accuracy,
    mean_soft_accuracy,
    sources_covered,
    sources_rejected,
    systems_covered,
    systems_rejected,
    true_sources,
    true_system_pearson,
    true_within,
    within_covered,
    within_rejected,
)

DRAWS = 150
# Binomial noise of so many draws, three standard deviations, beyond the wanted 93 to 97 % and 4 to 6 %.
COVERAGE = (0.93 - 3 * (0.93 * 0.07 / DRAWS) ** 0.5, 1.0)
REJECTIONS = (0.04 - 3 * (0.04 * 0.96 / DRAWS) ** 0.5, 0.06 + 3 * (0.06 * 0.94 / DRAWS) ** 0.5)
EQUAL: FloatArray = np.zeros(6)
APART: FloatArray = np.linspace(0.0, 15.0, 6)


def test_soft_accuracy_of_the_human_score_itself_is_one() -> None:
    assert mean_soft_accuracy(5, 60, QUALITY, noise=0.0) == 1.0


def test_soft_accuracy_of_noise_is_a_half_where_people_are_sure() -> None:
    # p of noise is uniform, and p of people 0 or 1: |p - p'| is ½ on average.
    assert mean_soft_accuracy(80, 60, APART, noise=1.0, knows=False) == pytest.approx(1 / 2, abs=0.03)


def test_soft_accuracy_of_noise_is_two_thirds_where_systems_are_equally_good() -> None:
    # Two independent uniform p-values are ⅓ apart on average.
    assert mean_soft_accuracy(150, 60, EQUAL, noise=1.0, knows=False) == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize("noise", [1.0, *(pytest.param(noise, marks=pytest.mark.slow) for noise in (0.5, 2.0))])
def test_soft_accuracy_falls_with_the_noise_as_theory_says(noise: float) -> None:
    got = mean_soft_accuracy(150, 100, EQUAL, noise)
    assert got == pytest.approx(expected_soft_accuracy(noise), abs=0.02)
    assert 2 / 3 < expected_soft_accuracy(noise) < 1


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_within_images_noise_attenuates_and_hard_images_do_not(noise: float) -> None:
    rng = np.random.default_rng(3)
    image = np.repeat(np.arange(4000), 8)
    human = rng.normal(size=image.size)
    scores = human + noise * rng.normal(size=image.size) + 5 * rng.normal(size=4000)[image]
    reliability = 1 / np.sqrt(1 + noise * noise)
    # Over pairs of one image, r is the reliability, and Kendall's tau of normal variables 2/π arcsin r.
    assert within_images("difference-pearson", scores, human, image).value == pytest.approx(reliability, abs=0.01)
    want = 2 / np.pi * np.arcsin(reliability)
    assert within_images("tau-b", scores, human, image).value == pytest.approx(want, abs=0.01)
    assert float(np.corrcoef(scores, human)[0, 1]) < 0.3  # what a statistic over all captions says


def test_draws_depend_on_their_seed_alone() -> None:
    one, two = (draw(np.random.default_rng(5), 30) for _ in range(2))
    assert one.a.tobytes() == two.a.tobytes()
    assert len(one.human) == 30 * len(QUALITY)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("coefficient", WITHIN)
def test_intervals_within_images_cover_and_tests_hold_their_level(coefficient: str) -> None:
    truth = true_within(coefficient)  # type: ignore[arg-type]
    covered = np.mean([within_covered(coefficient, truth, seed) for seed in range(DRAWS)])  # type: ignore[arg-type]
    assert COVERAGE[0] <= covered <= COVERAGE[1]
    rejected = np.mean([within_rejected(coefficient, seed) for seed in range(DRAWS)])  # type: ignore[arg-type]
    assert REJECTIONS[0] <= rejected <= REJECTIONS[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("coefficient", SOURCES)
def test_intervals_within_sources_cover_and_tests_hold_their_level(coefficient: SourceCoefficient) -> None:
    truth = true_sources(coefficient)
    covered = np.mean([sources_covered(coefficient, truth, seed) for seed in range(DRAWS)])
    assert COVERAGE[0] <= covered <= COVERAGE[1]
    assert np.mean([sources_rejected(coefficient, seed) for seed in range(DRAWS)]) <= REJECTIONS[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_intervals_over_systems_cover_and_tests_hold_their_level() -> None:
    truth = true_system_pearson()
    assert COVERAGE[0] <= np.mean([systems_covered("pearson", truth, seed) for seed in range(DRAWS)]) <= COVERAGE[1]
    assert np.mean([systems_rejected("pearson", seed) for seed in range(DRAWS)]) <= REJECTIONS[1]
