from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.records import FloatArray
from capbench.stats import kendall
from capbench.stats.kendall import (
    PairCounts,
    kendall_p_value,
    pair_counts,
    rank_encode,
    tau_b,
    tau_c,
)
from tests.stats.strategies import paired_values


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
@settings(max_examples=200, deadline=None)
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


def test_rank_code_of_whole_numbers_and_of_fractions_agree() -> None:
    values = np.array([3.0, -1.0, 3.0, 0.0, -0.0, 7.0])
    by_counting, by_sorting = rank_encode(values), rank_encode(values + 0.25)
    assert by_counting.codes.tolist() == by_sorting.codes.tolist() == [2, 0, 2, 1, 1, 3]
    assert by_counting.counts.tolist() == by_sorting.counts.tolist() == [1, 2, 2, 1]
    assert by_counting.ties() == 2


def test_doubled_ranks_are_twice_the_average_rank_less_its_mean() -> None:
    code = rank_encode(np.array([10.0, 20.0, 20.0, 5.0]))
    assert code.doubled_ranks().tolist() == [2 * r - 5 for r in (2, 3.5, 3.5, 1)]


def test_tau_b_and_tau_c_of_a_table_worked_by_hand() -> None:
    # x: 1 1 2 3, y: 1 2 2 3 → C = 4, D = 0, Tx = 1, Ty = 1, N = 6, m = 3
    x, y = rank_encode(np.array([1.0, 1.0, 2.0, 3.0])), rank_encode(np.array([1.0, 2.0, 2.0, 3.0]))
    counts = pair_counts(x, y)
    assert counts == PairCounts(4, 4, 0, 1, 1, 0, 3, 3)
    assert tau_b(counts) == pytest.approx(4 / 5)
    assert tau_c(counts) == pytest.approx(2 * 4 / (16 * 2 / 3))


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
    import math

    code = rank_encode(np.arange(n, dtype=np.float64))
    expected = 2 / math.factorial(n)
    assert kendall_p_value(code, code, pair_counts(code, code)) == pytest.approx(expected, rel=1e-12, abs=0.0)
