from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capbench.core.records import Coefficient, FloatArray
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.correlation import correlation
from capbench.stats.permutation import BoundedSwap, SwapSum, SwapTerm, keeps_levels, swap_difference
from capbench.stats.resampling import mean_statistic

COEFFICIENTS: tuple[Coefficient, ...] = ("tau-b", "tau-c", "spearman", "pearson")


def by_definition(
    coefficient: Coefficient, a: FloatArray, b: FloatArray, human: FloatArray, swapped: FloatArray
) -> float:
    za, zb = (scipy.stats.zscore(x) if coefficient == "pearson" else scipy.stats.rankdata(x) for x in (a, b))
    first, second = np.where(swapped, zb, za), np.where(swapped, za, zb)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return correlation(coefficient, first, human).value - correlation(coefficient, second, human).value


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("levels", [2, 4, 30])
@given(seed=st.integers(0, 10**6))
@example(seed=142)  # some z-scores of both metrics differ in the last bit only
@settings(max_examples=20, deadline=None)
def test_swapping_whole_units_is_swapping_their_scores(coefficient: Coefficient, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 40))
    unit = np.arange(n) % int(rng.integers(2, 9))
    human = rng.integers(0, levels, n).astype(float)
    a = rng.normal(size=n) if seed % 2 else rng.integers(0, 6, n).astype(float)
    b = rng.integers(0, 5, n).astype(float) * 0.3
    human[:2], a[:2], b[:2] = (0, 1), (0, 1), (0, 0.3)
    units = int(unit.max()) + 1
    difference = swap_difference(coefficient, a, b, human, unit, units)
    weights = rng.integers(0, 2, (12, units))
    for value, row in zip(difference(weights), weights, strict=True):
        expected = by_definition(coefficient, a, b, human, row[unit].astype(bool))
        assert value == pytest.approx(expected, abs=1e-11, nan_ok=True)


@pytest.mark.parametrize("coefficient", ["tau-b", "spearman"])
@pytest.mark.parametrize("levels", [2, 4, 60])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_bounds_hold_and_decide_as_the_exact_values_do(coefficient: Coefficient, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 70))
    unit = np.arange(n) % int(rng.integers(2, 12))
    human = rng.integers(0, levels, n).astype(float)
    a = rng.normal(size=n) + human if seed % 3 else rng.integers(0, 3, n).astype(float)
    b = rng.normal(size=n) if seed % 2 else rng.integers(0, 4, n).astype(float)
    human[:2], a[:2], b[:2] = (0, 1), (0, 1), (0, 1)
    units = int(unit.max()) + 1
    swap = swap_difference(coefficient, a, b, human, unit, units)
    assert isinstance(swap, BoundedSwap)
    weights = np.concatenate([np.zeros((1, units), dtype=np.int64), rng.integers(0, 2, (40, units))])
    exact = swap(weights)
    assert swap.unswapped == pytest.approx(exact[0], abs=1e-14)
    defined = ~np.isnan(exact)
    for closely in (False, True):
        low, high = swap.bounds(weights, closely=closely)
        assert not np.any(exact[defined] < low[defined] - 1e-12)
        assert not np.any(exact[defined] > high[defined] + 1e-12)
    for observed in [abs(swap.unswapped), *np.abs(exact[defined][:8]).tolist(), 0.0, 0.05, 2.0]:
        decided = SwapSum(units, [SwapTerm(1.0, slice(None), swap)])
        decided.observed = observed
        told = np.abs(decided(weights))
        assert np.array_equal(~(told < observed - 1e-12), ~(np.abs(exact) < observed - 1e-12))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_levels_are_called_kept_only_if_no_swap_loses_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units, n = 4, 10
    unit = np.arange(n) % units
    codes = rng.integers(0, 6, 2 * n)
    place = np.concatenate([unit, unit + units])
    fewest = min(len({int(codes[i + n * (swap >> unit[i] & 1)]) for i in range(n)}) for swap in range(1 << units))
    for levels in range(2, 6):
        if keeps_levels(codes, place, units, levels):
            assert fewest >= levels


def test_accuracies_swap_what_a_metric_has_right() -> None:
    rng = np.random.default_rng(5)
    n = 40
    first = {name: rng.integers(0, 5, n).astype(float) for name in "ab"}
    second = {name: rng.integers(0, 5, n).astype(float) for name in "ab"}
    groups = ["HC" if i % 3 else "HI" for i in range(n)]
    preferred = rng.choice([-1, 1], n)
    data = Accuracies.of("ties-half", first, second, preferred, groups, np.arange(n) // 2)
    weights = rng.integers(0, 2, (10, data.units))
    for value, row in zip(mean_statistic(data.swaps("a", "b"))(weights), weights, strict=True):
        swap = row[data.unit].astype(bool)
        ours, theirs = data.scores["a"][0], data.scores["b"][0]
        a, b = np.where(swap, theirs, ours), np.where(swap, ours, theirs)
        expected = np.mean([(a - b)[data.group == g].mean() for g in (0, 1)])
        assert value == pytest.approx(expected, abs=1e-12)


def test_tau_c_by_rating_levels_has_one_denominator_for_scores_with_few_values() -> None:
    rng = np.random.default_rng(1)
    n, unit, units = 120, np.arange(120) // 3, 40
    human, few = rng.integers(1, 6, n).astype(float), (np.arange(n) % 3).astype(float)
    many = human + rng.normal(size=n)
    data = Correlations.of("tau-c", {"few": few, "many": many}, human, unit, rating_levels=True)
    drawn = rng.integers(0, 3, (6, units))
    swapped = rng.integers(0, 2, (6, units))
    values, differences = data.statistic("few")(drawn), mean_statistic(data.swaps("few", "many"))(swapped)
    for value, row in zip(values, drawn[:, unit], strict=True):
        ratings = np.repeat(human, row)
        m = len(set(ratings.tolist()))
        of_scipy = scipy.stats.kendalltau(np.repeat(few, row), ratings, variant="c").statistic
        assert value == pytest.approx(of_scipy * (2 / 3) / ((m - 1) / m))
    ranks = scipy.stats.rankdata(few), scipy.stats.rankdata(many)
    for value, row in zip(differences, swapped[:, unit].astype(bool), strict=True):
        sides = np.where(row, *ranks[::-1]), np.where(row, *ranks)
        first, second = (
            scipy.stats.kendalltau(side, human, variant="c").statistic * (m - 1) / m / (4 / 5)
            for side in sides
            for m in [min(5, len(set(side.tolist())))]
        )
        assert value == pytest.approx(first - second, abs=1e-12)
