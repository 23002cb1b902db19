from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray
from capbench.stats.correlation import correlation, exact_dot
from capbench.stats.vectors import t_p_value
from tests.errors import raises
from tests.stats.strategies import paired_values

COEFFICIENTS: list[Coefficient] = ["tau-b", "tau-c", "spearman", "pearson"]


def from_scipy(coefficient: Coefficient, x: FloatArray, y: FloatArray) -> tuple[float, float]:
    import scipy.stats as stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns where it divides by n - 2 = 0
        result: Any
        if coefficient in ("tau-b", "tau-c"):
            result = stats.kendalltau(x, y, variant="b" if coefficient == "tau-b" else "c")
        elif coefficient == "spearman":
            result = stats.spearmanr(x, y)
        else:
            result = stats.pearsonr(x, y)
    return float(result.statistic), float(result.pvalue)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@given(pair=paired_values())
@settings(max_examples=150, deadline=None)
def test_agrees_with_scipy(coefficient: Coefficient, pair: tuple[FloatArray, FloatArray]) -> None:
    x, y = pair
    # Values that differ in their last digits only: scipy's deviations from the mean are rounding errors.
    assume(coefficient != "pearson" or min(np.ptp(side) / np.abs(side).max() for side in pair) > 1e-9)
    value, p_value = from_scipy(coefficient, x, y)
    ours = correlation(coefficient, x, y)
    assert ours.value == pytest.approx(value, abs=1e-12)
    rounding_decides = coefficient in ("spearman", "pearson") and abs(value) > 1 - 1e-6 * len(x)
    if len(x) > 2 and not rounding_decides:  # near ±1, scipy's p is a function of the last digit of its r
        # Near r = 0, both lose half of the digits of 1 - p.
        assert ours.p_value == pytest.approx(p_value, rel=1e-9 if p_value < 0.999 else 1e-7, abs=1e-300)
    assert ours.p_value is not None
    assert 0.0 <= ours.p_value <= 1.0


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("levels", [2, 4, 12, None])
def test_agrees_with_scipy_at_the_size_of_real_judgements(coefficient: Coefficient, levels: int | None) -> None:
    rng = np.random.default_rng(17)
    latent = rng.normal(size=17_000)
    scores = np.where(latent < 0, 0.0, latent) + rng.integers(0, 2, size=17_000) / 3
    noisy = 0.02 * latent + rng.normal(size=17_000)  # weak, so that p does not vanish
    ratings = noisy if levels is None else np.floor((noisy.argsort().argsort() / 17_000) * levels) + 1
    value, p_value = from_scipy(coefficient, scores, ratings)
    ours = correlation(coefficient, scores, ratings)
    assert ours.value == pytest.approx(value, abs=1e-12)
    assert ours.p_value == pytest.approx(p_value, rel=1e-9)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_two_points_are_perfectly_correlated_and_prove_nothing(coefficient: Coefficient) -> None:
    up, down = correlation(coefficient, [1, 2], [5, 9]), correlation(coefficient, [1, 2], [9, 5])
    assert up.value == pytest.approx(1.0)
    assert down.value == pytest.approx(-1.0)
    assert up.p_value == down.p_value == 1.0


@pytest.mark.parametrize("scale", [1e308, 1e-308, 5e-324])
def test_pearson_neither_overflows_nor_underflows(scale: float) -> None:
    x = np.array([1.0, -1.0, 1.0, 0.0]) * scale
    y = np.array([4.0, 1.0, 2.0, 3.0])
    assert correlation("pearson", x, y).value == pytest.approx(correlation("pearson", x / scale, y).value, abs=1e-12)


@given(st.integers(3, 40), st.integers(0, 2**32 - 1))
def test_pearson_of_nearly_equal_scores_keeps_its_digits(n: int, seed: int) -> None:
    steps = np.random.default_rng(seed).integers(0, 5, size=n)
    ratings = np.arange(n, dtype=np.float64)
    assume(steps.min() < steps.max())
    nearly_equal = 1.0 + steps * 2.0**-36
    assert correlation("pearson", nearly_equal, ratings).value == pytest.approx(
        correlation("pearson", steps, ratings).value, abs=1e-12
    )


@pytest.mark.parametrize(
    ("x", "y", "code", "value"),
    [
        ([1.0, float("nan"), 2.0], [1, 2, 3], "not-a-number", "cider"),
        ([1.0, 2.0, float("-inf")], [1, 2, 3], "not-a-number", "cider"),
        ([1.0, 2.0, 3.0], [1, 2, float("nan")], "not-a-number", "expert"),
        ([0.5, 0.5, 0.5], [1, 2, 3], "undefined", "cider"),
        ([0.0, -0.0, 0.0], [1, 2, 3], "undefined", "cider"),
        ([1.0, 2.0], [4, 4], "undefined", "expert"),
        ([1.0, 2.0], [1, 2, 3], "mismatch", None),
        ([1.0], [1], "too-few", 1),
        ([], [], "too-few", 0),
        (["a", "b"], [1, 2], "wrong-type", "cider"),
        ([None, 1.0], [1, 2], "wrong-type", "cider"),
        ([[1.0, 2.0]], [1, 2], "wrong-type", "cider"),
    ],
)
@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_undefined_correlations_are_rejected(
    x: Any, y: Any, code: str, value: object, coefficient: Coefficient
) -> None:
    with raises(StatisticError, code, value=value):
        correlation(coefficient, x, y, name_x="cider", name_y="expert")


def test_sums_over_ranks_do_not_overflow() -> None:
    values = np.array([3_000_000_000, -2_999_999_999, 7, 3_000_000_000], dtype=np.int64)
    assert exact_dot(values, values) == sum(int(v) ** 2 for v in values) > 2**63
    assert exact_dot(values, -values) == -exact_dot(values, values)


@pytest.mark.slow
def test_spearman_of_millions_of_points_is_right() -> None:
    x = np.arange(3_300_000, dtype=np.float64)  # the sum of squared ranks passes 2**63
    assert correlation("spearman", x, x).value == 1.0
    assert correlation("spearman", x, -x).value == -1.0


@given(st.integers(1, 10_000_000), st.floats(0, 1))
def test_p_values_of_any_rest_are_scipys(degrees: int, rest: float) -> None:
    assert t_p_value(rest, degrees) == pytest.approx(float(betainc(degrees / 2, 0.5, rest)), rel=1e-11, abs=1e-300)


@given(st.integers(1, 10_000_000), st.floats(1e-6, 1e3))
def test_p_values_of_any_t_are_scipys(degrees: int, t: float) -> None:
    rest = degrees / (degrees + t * t)
    assert t_p_value(rest, degrees) == pytest.approx(float(betainc(degrees / 2, 0.5, rest)), rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("t", [0.01, 1.0, math.sqrt(3) - 1e-9, math.sqrt(3) + 1e-9, 12.0, 1e6])
def test_one_and_two_degrees_have_closed_forms(t: float) -> None:
    assert t_p_value(1 / (1 + t * t), 1) == pytest.approx(2 / math.pi * math.atan(1 / t), rel=1e-12)
    distance = math.sqrt(2 + t * t)
    assert t_p_value(2 / (2 + t * t), 2) == pytest.approx(2 / (distance * (distance + t)), rel=1e-12)
