from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capbench.core.errors import StatisticError
from capbench.stats.agreement import Accuracies
from capbench.stats.power import fewest_units, power
from tests.errors import raises


def accuracies(n: int = 400, gap: float = 0.1, seed: int = 0) -> Accuracies:
    """Two metrics that are right on .6 + gap and .6 of the pairs, independently."""
    rng = np.random.default_rng(seed)
    first = {"a": rng.random(n) < 0.6 + gap, "b": rng.random(n) < 0.6}
    return Accuracies.of("strict", first, {name: np.full(n, 0.5) for name in first}, np.ones(n, dtype=int))


def test_the_number_needed_is_that_of_the_formula_for_two_shares() -> None:
    data = accuracies()
    found = power(data, "a", "b", gap=0.05, resamples=4000)
    difference = data.scores["a"][0] - data.scores["b"][0]
    z = 1.959964 + 0.841621
    assert found.needed == pytest.approx(z**2 * difference.var() / 0.05**2, rel=0.04)
    assert found.gap == 0.05
    assert found.difference == pytest.approx(difference.mean())


def test_the_standard_error_falls_with_the_square_root_of_the_size() -> None:
    points = power(accuracies(), "a", "b", resamples=2000).points
    assert [point.units for point in points] == [100, 200, 400, 800]
    assert points[0].standard_error / points[2].standard_error == pytest.approx(2, rel=0.08)
    assert points[1].standard_error / points[3].standard_error == pytest.approx(2, rel=0.08)
    assert points[0].power < points[1].power < points[2].power


def test_power_at_no_gap_is_the_significance_level() -> None:
    for point in power(accuracies(), "a", "b", gap=1e-12).points:
        assert point.power == pytest.approx(0.05, abs=1e-9)


def test_power_is_the_share_of_normal_differences_in_both_tails() -> None:
    points = power(accuracies(), "a", "b", gap=0.02, resamples=400).points
    drawn = np.random.default_rng(3).standard_normal(400_000)
    for point in points:
        share = (np.abs(0.02 / point.standard_error + drawn) > 1.959964).mean()
        assert point.power == pytest.approx(share, abs=0.003)
        assert point.power >= 0.05


@pytest.mark.parametrize(("alpha", "pairs"), [(0.05, 1), (0.05, 6), (0.01, 1), (0.001, 45)])
def test_the_fewest_units_are_the_first_with_a_p_value_at_the_level(alpha: float, pairs: int) -> None:
    units = fewest_units(alpha, pairs)
    assert pairs * 2 / 2**units <= alpha < pairs * 2 / 2 ** (units - 1)


def test_the_number_needed_is_not_below_that_of_a_permutation_test() -> None:
    assert power(accuracies(), "a", "b", gap=0.9, resamples=100).needed == fewest_units(0.05)


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        ({"second": "a"}, "undefined", 0),
        ({"gap": 0.0}, "undefined", 0),
        ({"second": "a", "gap": 0.1}, "undefined", 0),
        ({"target": 0.01}, "out-of-range", 0.01),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], code: str, value: object) -> None:
    chosen: dict[str, Any] = {"first": "a", "second": "b", **arguments}
    with raises(StatisticError, code, value=value):
        power(accuracies(), **chosen)
