"""Graded preferences against plain second implementations: scipy on both orders, and pairs counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import StatisticError
from capbench.stats.graded_preferences import GradedPairs, length_sides


def pairs(seed: int, m: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 6, (2, m)).astype(float)
    grade = np.clip(np.rint(first - second + generator.normal(0, 2, m)), -2, 2)
    return first, second, grade


def value(data: GradedPairs, name: str = "m") -> float:
    return float(data.statistic(name)(np.ones((1, data.units), dtype=np.int32))[0])


@pytest.mark.parametrize("seed", range(4))
def test_both_coefficients_are_those_of_the_pairs_in_both_orders(seed: int) -> None:
    first, second, grade = pairs(seed)
    d = first - second
    doubled = np.concatenate([d, -d]), np.concatenate([grade, -grade])
    pearson = GradedPairs.of_pairs("pearson", {"m": first}, {"m": second}, grade, np.arange(40))
    assert value(pearson) == pytest.approx(scipy.stats.pearsonr(*doubled)[0])
    assert value(pearson) == pytest.approx((d * grade).sum() / np.sqrt((d**2).sum() * (grade**2).sum()))
    tau = GradedPairs.of_pairs("tau-b", {"m": first}, {"m": second}, grade, np.arange(40))
    assert value(tau) == pytest.approx(scipy.stats.kendalltau(*doubled)[0])
    assert (pearson.n, pearson.units) == (40, 40)


def test_the_order_of_a_pairs_captions_does_not_matter() -> None:
    first, second, grade = pairs(5)
    turned = np.arange(40) % 3 == 0
    other = np.where(turned, second, first), np.where(turned, first, second), np.where(turned, -grade, grade)
    for coefficient in ("pearson", "tau-b"):
        straight = GradedPairs.of_pairs(coefficient, {"m": first}, {"m": second}, grade, np.arange(40))
        reversed_ = GradedPairs.of_pairs(coefficient, {"m": other[0]}, {"m": other[1]}, other[2], np.arange(40))
        assert value(straight) == pytest.approx(value(reversed_))


def test_resampled_units_are_repeated_pairs_and_draws_are_averaged() -> None:
    first, second, grade = pairs(7, 12)
    image = np.repeat(np.arange(4), 3)
    data = GradedPairs.of_pairs(
        "pearson", {"m": np.stack([first, first**2])}, {"m": np.stack([second, second])}, grade, image
    )
    weights = np.array([[2, 0, 1, 1]], dtype=np.int32)
    repeated = np.repeat(np.arange(12), weights[0][image])
    expected = []
    for ones in (first, first**2):
        d, g = (ones - second)[repeated], grade[repeated]
        expected.append((d * g).sum() / np.sqrt((d**2).sum() * (g**2).sum()))
    assert float(data.statistic("m")(weights)[0]) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize(
    ("first", "grade"),
    [([1.0, 2.0], [0, 0]), ([1.0, 1.0], [1, -1]), ([np.nan, 1.0], [1, 2])],
)
def test_undefined_correlations_are_errors(first: list[float], grade: list[int]) -> None:
    with pytest.raises(StatisticError):
        GradedPairs.of_pairs("pearson", {"m": first}, {"m": [1.0, 1.0]}, grade, [0, 1])


def test_sides_are_those_of_the_longer_and_the_shorter_caption() -> None:
    preferred = [1, -1, 1, -1, 0, 1]
    difference = [3.0, 2.0, -1.0, -4.0, 5.0, 0.0]
    assert length_sides(preferred, difference, ["g"] * 6).tolist() == [1, -1, -1, 1, 0, 0]


def test_a_group_with_one_side_has_no_balanced_accuracy() -> None:
    groups = ["a", "a", "b", "b"]
    assert length_sides([1, -1, 1, 1], [1.0, 1.0, 1.0, 2.0], groups).tolist() == [1, -1, 0, 0]
    assert length_sides([], [], []).tolist() == []
