from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray
from capbench.stats import kendall
from capbench.stats.correlation import correlation, exact_dot
from capbench.stats.kendall import (
    PairCounts,
    WaveletMatrix,
    kendall_p_value,
    pair_counts,
    partner_differences,
    rank_encode,
    tau_b,
)
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
@settings(max_examples=80, deadline=None)
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


def count_by_definition(x: FloatArray, y: FloatArray) -> PairCounts:
    dx, dy = np.sign(x[:, None] - x[None, :]), np.sign(y[:, None] - y[None, :])
    upper = np.triu_indices(len(x), 1)
    dx, dy = dx[upper], dy[upper]
    return PairCounts(
        len(x),
        int((dx * dy > 0).sum()),
        int((dx * dy < 0).sum()),
        int((dx == 0).sum()),
        int((dy == 0).sum()),
        int(((dx == 0) & (dy == 0)).sum()),
        len(np.unique(x)),
        len(np.unique(y)),
    )


@given(paired_values())
@settings(max_examples=100, deadline=None)
def test_both_ways_of_counting_give_the_counts_of_the_definition(pair: tuple[FloatArray, FloatArray]) -> None:
    x, y = pair
    expected = count_by_definition(x, y)
    cx, cy = rank_encode(x), rank_encode(y)
    assert pair_counts(cx, cy) == expected
    assert kendall._count_by_table(cx, cy) == expected
    assert kendall._count_by_inversions(cx, cy) == expected


def test_counts_stay_exact_beyond_32_bits() -> None:
    n = 200_000
    x = np.arange(n, dtype=np.float64)
    total = n * (n - 1) // 2
    up = pair_counts(rank_encode(x), rank_encode(x))
    down = pair_counts(rank_encode(x), rank_encode(-x))
    assert (up.concordant, up.discordant) == (total, 0)
    assert (down.concordant, down.discordant) == (0, total)
    halves = (x >= n // 2).astype(np.float64)
    few = pair_counts(rank_encode(x), rank_encode(halves))
    assert (few.concordant, few.discordant, few.ties_y) == ((n // 2) ** 2, 0, 2 * (n // 2) * (n // 2 - 1) // 2)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=300))
def test_inversions_are_those_of_the_definition(values: list[int]) -> None:
    expected = sum(a > b for a, b in itertools.combinations(values, 2))
    assert kendall._inversions(np.array(values, dtype=np.int64)) == expected


@pytest.mark.parametrize("levels", [2, 200, 257, 300, 1000, 2999, 32_769, 65_536, 70_000])
@pytest.mark.parametrize("tied", [0, 200, 300])
def test_inversions_of_many_values(levels: int, tied: int) -> None:
    values = np.random.default_rng(levels).integers(0, levels, 3000)
    values[: tied + 1] = levels - 1
    expected = int(np.triu(values[:, None] > values[None, :], 1).sum())
    stored = values.astype(np.uint16) if levels <= 1 << 16 else values
    assert kendall._inversions(stored) == expected


@pytest.mark.parametrize("levels", [300, 65_536, 70_000])
def test_pairs_of_long_lists_are_those_of_scipy(levels: int) -> None:
    from scipy.stats import kendalltau

    rng = np.random.default_rng(levels)
    x, y = rng.integers(0, 70_000, 20_000), rng.integers(0, levels, 20_000)
    counts = kendall._count_by_inversions(rank_encode(x.astype(np.float64)), rank_encode(y.astype(np.float64)))
    assert tau_b(counts) == pytest.approx(kendalltau(x, y).statistic, rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 6])
def test_exact_p_value_is_the_share_of_all_orders(n: int) -> None:
    x = rank_encode(np.arange(n, dtype=np.float64))
    orders = [rank_encode(np.array(p, dtype=np.float64)) for p in itertools.permutations(range(n))]
    all_counts = [pair_counts(x, y) for y in orders]
    distances = [abs(c.concordant - c.discordant) for c in all_counts]
    for y, counts, distance in zip(orders, all_counts, distances, strict=True):
        share = sum(d >= distance for d in distances) / len(distances)
        assert kendall_p_value(x, y, counts) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("n", [34, 170, 171, 200, 201, 5000])
def test_p_value_of_perfect_order_is_exact_for_every_n(n: int) -> None:

    code = rank_encode(np.arange(n, dtype=np.float64))
    expected = 2 / math.factorial(n)
    assert kendall_p_value(code, code, pair_counts(code, code)) == pytest.approx(expected, rel=1e-12, abs=0.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=40), st.data())
@settings(max_examples=150, deadline=None)
def test_questions_are_answered_as_by_looking(cells: list[tuple[int, int]], data: st.DataObject) -> None:
    codes, weights = np.array(cells).T
    levels = data.draw(st.integers(int(codes.max()) + 1, 20))
    table = WaveletMatrix(codes, weights, levels)
    first = np.array(data.draw(st.lists(st.integers(0, len(codes)), min_size=1, max_size=10)))
    value = np.array(data.draw(st.lists(st.integers(0, levels - 1), min_size=len(first), max_size=len(first))))
    below, equal = table.below_and_equal(first, value)
    for i, (f, v) in enumerate(zip(first, value, strict=True)):
        assert below[i] == weights[:f][codes[:f] < v].sum()
        assert equal[i] == weights[:f][codes[:f] == v].sum()


@given(paired_values())
@settings(max_examples=60, deadline=None)
def test_partner_differences_are_those_of_the_definition(pair: tuple[FloatArray, FloatArray]) -> None:
    x, y = rank_encode(pair[0]), rank_encode(pair[1])
    found = partner_differences(x.codes, y.codes, x.levels, y.levels)
    signs = np.sign(x.codes[:, None] - x.codes) * np.sign(y.codes[:, None] - y.codes)
    np.testing.assert_array_equal(found, signs.sum(axis=1))
    counts = pair_counts(x, y)
    assert found.sum() == 2 * (counts.concordant - counts.discordant)
