"""Kendall's tau from exact integer counts, in O(n log n).

Both sides are first encoded as ranks (:func:`rank_encode`). If one side has few levels, as human ratings do, all pairs
are counted from the contingency table; otherwise discordant pairs are counted as inversions.

Notation: of all ``N = n (n - 1) / 2`` pairs of data points, ``C`` are concordant, ``D`` discordant, ``Tx``
are tied in x, ``Ty`` in y and ``Txy`` in both, so that ``C + D = N - Tx - Ty + Txy``.

:class:`WaveletMatrix` (Claude, Navarro and Ordóñez 2015) counts the elements of a prefix of a list that are smaller
than a value, here with weights and for arrays of queries.

References:
    Kendall, M. G. (1938). A new measure of rank correlation. Biometrika 30 (1/2).
    Kendall, M. G. (1945). The treatment of ties in ranking problems. Biometrika 33 (3).
    Stuart, A. (1953). The estimation and comparison of strengths of association in contingency tables.
    Biometrika 40 (1/2).
    Claude, F., Navarro, G. and Ordóñez, A. (2015). The wavelet matrix: An efficient wavelet tree for large alphabets.
    Information Systems 47.
    Kendall, M. G. (1970). Rank Correlation Methods, 4th edition, chapters 4 and 5 (variance under ties).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray, IntArray
from capbench.stats.vectors import run_starts

# With more cells per data point in the contingency table, counting inversions is cheaper.
_CELLS_PER_POINT = 32
# Pairs of elements of a block of this length are compared directly.
_BLOCK = 128
# Integers in a range up to this width (ratings) are encoded by counting instead of sorting.
_SMALL_RANGE = 4096


@dataclass(frozen=True, eq=False)
class RankCode:
    """Values replaced by their dense ranks."""

    codes: IntArray  # (n,) dense rank of every value, from 0; equal values have equal codes
    counts: IntArray  # (k,) frequency of each of the k distinct values, in ascending order of the values

    @property
    def levels(self) -> int:
        """Number of distinct values, k."""
        return len(self.counts)

    def ties(self) -> int:
        """Number of tied pairs."""
        return _pairs(self.counts)

    def doubled_ranks(self) -> IntArray:
        """(n,) twice the average rank minus (n + 1): integers whose sum is 0."""
        ends = np.cumsum(self.counts)
        # The ranks of a run of equal values are starts + 1 ... ends; twice their mean is starts + 1 + ends.
        centred = (ends - self.counts) + 1 + ends - (len(self.codes) + 1)
        return np.asarray(centred[self.codes], dtype=np.int64)


@dataclass(frozen=True)
class PairCounts:
    """Numbers of concordant, discordant and tied pairs of data points."""

    n: int  # number of data points
    concordant: int  # pairs in the same order on both sides
    discordant: int  # pairs in opposite order
    ties_x: int  # pairs tied in x, whether or not they are tied in y
    ties_y: int  # pairs tied in y, whether or not they are tied in x
    ties_xy: int  # pairs tied in both
    levels_x: int  # number of distinct values in x
    levels_y: int  # number of distinct values in y

    @property
    def total(self) -> int:
        """Number of all pairs, n (n - 1) / 2."""
        return self.n * (self.n - 1) // 2


def rank_encode(values: FloatArray) -> RankCode:
    """Replace (n,) finite values, n ≥ 1, by their dense ranks, in O(n log n). ``-0.0`` equals ``0.0``."""
    low = float(values.min())
    width = float(values.max()) - low  # Python floats: an overflow gives inf without a warning
    if width < _SMALL_RANGE and bool((values == np.rint(values)).all()):
        offsets = (values - low).astype(np.int64)
        counts = np.bincount(offsets)
        present = counts > 0
        dense = np.cumsum(present) - 1
        return RankCode(dense[offsets], counts[present].astype(np.int64, copy=False))
    order = np.argsort(values)
    counts = np.diff(run_starts(values[order]), append=len(values))
    codes = np.empty(len(values), dtype=np.int64)
    codes[order] = np.repeat(np.arange(len(counts)), counts)
    return RankCode(codes, counts.astype(np.int64, copy=False))


def pair_counts(x: RankCode, y: RankCode) -> PairCounts:
    """Count concordant, discordant and tied pairs; sums stay below 2**63 for n up to 10**9."""
    if x.levels * y.levels <= _CELLS_PER_POINT * len(x.codes):
        return _swapped(_count_by_table(y, x)) if x.levels > y.levels else _count_by_table(x, y)
    return _swapped(_count_by_inversions(y, x)) if x.levels < y.levels else _count_by_inversions(x, y)


def tau_b(counts: PairCounts) -> float:
    """Tau-b, ``(C - D) / sqrt((N - Tx) (N - Ty))`` (Kendall 1945). Neither side may be constant."""
    free = (counts.total - counts.ties_x) * (counts.total - counts.ties_y)
    return _limit((counts.concordant - counts.discordant) / math.sqrt(free))


def tau_c(counts: PairCounts) -> float:
    """Tau-c, ``2 (C - D) / (n² (m - 1) / m)`` (Stuart 1953).

    m is the smaller number of distinct values of the two sides. It is counted in the data (as in
    ``scipy.stats.kendalltau(variant="c")``), not taken from the rating scale. Neither side may be constant.
    """
    m = min(counts.levels_x, counts.levels_y)
    return _limit(2 * (counts.concordant - counts.discordant) * m / (counts.n**2 * (m - 1)))


def kendall_p_value(x: RankCode, y: RankCode, counts: PairCounts) -> float:
    """Two-sided p-value of ``C - D`` under independence; the same for tau-b and tau-c.

    Without ties, and if n ≤ 33 or at most one pair is out of order, it is exact: twice the share of the n!
    orders with at most ``min(C, D)`` inversions (Kendall 1970, chapter 5). Otherwise ``C - D`` is
    assumed normal with the variance under ties (Kendall 1970, chapter 4; t and u are the sizes of the
    groups of equal values in x and y)::

        v0 = n (n-1) (2n+5),  vt = Σ t (t-1) (2t+5),  vu = Σ u (u-1) (2u+5)
        var = (v0 - vt - vu) / 18  +  Σ t (t-1) · Σ u (u-1) / (2 n (n-1))
              +  Σ t (t-1) (t-2) · Σ u (u-1) (u-2) / (9 n (n-1) (n-2))

    ``scipy.stats.kendalltau(method="auto")`` makes the same choice. A result below the smallest float is 0.0.
    """
    fewer = min(counts.concordant, counts.discordant)
    if counts.ties_x == 0 and counts.ties_y == 0 and (counts.n <= 33 or fewer <= 1):
        return _exact_p_value(counts.n, fewer)
    n = counts.n
    m = n * (n - 1)
    x3, xv = _tie_terms(x.counts)
    y3, yv = _tie_terms(y.counts)
    # Python integers over the common denominator 18 m (n - 2), without cancellation. With ties n ≥ 3, since two tied
    # points are a constant side.
    numerator = (m * (2 * n + 5) - xv - yv) * m * (n - 2) + 36 * counts.ties_x * counts.ties_y * (n - 2) + 2 * x3 * y3
    variance = numerator / (18 * m * (n - 2))
    z = (counts.concordant - counts.discordant) / math.sqrt(variance)
    return math.erfc(abs(z) / math.sqrt(2.0))


def _pairs(counts: NDArray[np.int64]) -> int:
    return int((counts * (counts - 1)).sum()) // 2


def _limit(value: float) -> float:
    return min(1.0, max(-1.0, value))


def _swapped(c: PairCounts) -> PairCounts:
    return PairCounts(c.n, c.concordant, c.discordant, c.ties_y, c.ties_x, c.ties_xy, c.levels_y, c.levels_x)


def _count_by_table(x: RankCode, y: RankCode) -> PairCounts:
    # One row for each of the few levels of x, so that cumulative sums run along the long, contiguous axis.
    rows, columns = x.levels, y.levels
    table = np.bincount(x.codes * columns + y.codes, minlength=rows * columns).reshape(rows, columns)
    # below[j]: points in earlier rows with y < j; each concordant pair has one such point.
    below = np.zeros(columns, dtype=np.int64)
    concordant = 0
    for row in table:
        concordant += int((row * below).sum())
        below[1:] += np.cumsum(row[:-1])
    n, ties_x, ties_y, ties_xy = len(x.codes), x.ties(), y.ties(), _pairs(table)
    discordant = n * (n - 1) // 2 - ties_x - ties_y + ties_xy - concordant
    return PairCounts(n, concordant, discordant, ties_x, ties_y, ties_xy, rows, columns)


def _count_by_inversions(x: RankCode, y: RankCode) -> PairCounts:
    n = len(x.codes)
    # Sorted by x and, for equal x, by y: pairs that are then out of order in y are discordant.
    keys = np.sort(x.codes * y.levels + y.codes)
    values, runs = keys % y.levels, np.diff(run_starts(keys), append=n)
    discordant = _inversions(values)
    ties_x, ties_y, ties_xy = x.ties(), y.ties(), _pairs(runs)
    concordant = n * (n - 1) // 2 - ties_x - ties_y + ties_xy - discordant
    return PairCounts(n, concordant, discordant, ties_x, ties_y, ties_xy, x.levels, y.levels)


def _inversions_in_blocks(values: NDArray[np.integer]) -> int:
    """Number of pairs i < j in one block of the list with values[i] > values[j]."""
    blocks = -(-len(values) // _BLOCK)
    padded = np.full(blocks * _BLOCK, values.max(), dtype=values.dtype)  # the largest value causes no inversions
    padded[: len(values)] = values
    rows = np.ascontiguousarray(padded.reshape(blocks, _BLOCK).T)
    return sum(int(np.count_nonzero(rows[:-distance] > rows[distance:])) for distance in range(1, _BLOCK))


def _inversions(values: NDArray[np.integer]) -> int:
    """Inversions of any values, by a top-down merge sort with one step per bit.

    Positions are listed in ascending order of the values (equal values: by position). A pair whose positions first
    differ in bit b is an inversion if the one with the bit set is listed first. The list is then split by that bit, and
    both halves continue with the next bit. Padded positions are last in both orders and cause no inversions. Pairs of
    one block are compared directly.
    """
    n = len(values)
    bits = max(1, (n - 1).bit_length())
    size = 1 << bits
    positions: NDArray[np.signedinteger] = np.arange(size, dtype=np.int32 if bits < 31 else np.int64)
    # 16-bit keys are sorted by radix.
    sortable: NDArray[np.integer] = values.astype(np.uint16) if values.max() < 1 << 16 else values
    positions[:n] = np.argsort(sortable, kind="stable")
    # The size / 2 members without the bit have the positions p0 < p1 < ...; p_k - k members with the bit precede the
    # k-th. Summed over all groups, this also counts members of earlier groups, half · half for every two groups.
    first_half = size // 2
    total = _inversions_in_blocks(sortable)
    for bit in range(bits - 1, _BLOCK.bit_length() - 2, -1):
        half = 1 << bit
        groups = first_half // half
        is_set = (positions & half).astype(np.bool_)
        clear_at = np.flatnonzero(~is_set)
        total += int(clear_at.sum()) - first_half * (first_half - 1) // 2 - half * half * (groups * (groups - 1) // 2)
        halves = np.empty((groups, 2, half), dtype=positions.dtype)
        halves[:, 0] = positions[clear_at].reshape(groups, half)
        halves[:, 1] = positions[is_set].reshape(groups, half)
        positions = halves.ravel()
    return total


def _tie_terms(counts: IntArray) -> tuple[int, int]:
    """Σ t (t-1) (t-2) and Σ t (t-1) (2t+5) as Python integers (they exceed 2**63 for n above two million)."""
    sizes, repeats = np.unique(counts[counts > 1], return_counts=True)
    pairs = list(zip(sizes.tolist(), repeats.tolist(), strict=True))
    return (
        sum(r * t * (t - 1) * (t - 2) for t, r in pairs),
        sum(r * t * (t - 1) * (2 * t + 5) for t, r in pairs),
    )


def _exact_p_value(n: int, fewer: int) -> float:
    if 4 * fewer >= n * (n - 1):  # the middle of the distribution
        return 1.0
    if n > 200:  # fewer is 0 or 1 here, and 2 / 199! is smaller than any float
        return 0.0
    # ways[i] = number of orders of j elements with i inversions; the j-th element adds 0 ... j - 1 inversions.
    ways = [1] + [0] * fewer
    for j in range(2, n + 1):
        running = 0
        grown = []
        for i in range(fewer + 1):
            running += ways[i] - (ways[i - j] if i >= j else 0)
            grown.append(running)
        ways = grown
    return min(1.0, 2 * sum(ways) / math.factorial(n))


class WaveletMatrix:
    """Prefix counts over (n,) codes in [0, levels) with (n,) weights ≥ 0.

    A query takes O(log levels) after a preparation of O(n log levels).
    """

    def __init__(self, codes: IntArray, weights: IntArray, levels: int) -> None:
        self._bits = max(1, (levels - 1).bit_length())
        self._steps: list[tuple[NDArray[np.int32], IntArray, int]] = []
        for bit in range(self._bits - 1, -1, -1):
            clear = (codes >> bit & 1) == 0
            # Number and weight of elements without the bit among the first 0 ... n.
            places = np.concatenate([[0], np.cumsum(clear)]).astype(np.int32)
            heavy = np.concatenate([[0], np.cumsum(np.where(clear, weights, 0))]).astype(np.int64)
            self._steps.append((places, heavy, int(places[-1])))
            order = np.concatenate([np.flatnonzero(clear), np.flatnonzero(~clear)])
            codes, weights = codes[order], weights[order]
        self._total = np.concatenate([[0], np.cumsum(weights)]).astype(np.int64)

    def below_and_equal(self, first: IntArray, value: IntArray) -> tuple[IntArray, IntArray]:
        """(q,) weights of the elements with a smaller code than ``value``, and with the same, among the first ones.

        ``first``: (q,) number of these, in [0, n].
        """
        low = np.zeros(len(first), dtype=np.int64)
        high = np.asarray(first, dtype=np.int64)
        below = np.zeros(len(first), dtype=np.int64)
        for step, (places, heavy, clear) in enumerate(self._steps):
            is_set = (value >> (self._bits - 1 - step) & 1).astype(np.bool_)
            places_low, places_high = places[low], places[high]
            below += np.where(is_set, heavy[high] - heavy[low], 0)
            # Elements with the bit follow those without it.
            low = np.where(is_set, clear + low - places_low, places_low)
            high = np.where(is_set, clear + high - places_high, places_high)
        return below, self._total[high] - self._total[low]


def partner_differences(a: IntArray, b: IntArray, levels_a: int, levels_b: int) -> FloatArray:
    """(n,) number of concordant minus discordant partners of each data point, in O(n log n).

    ``a``, ``b``: (n,) codes of both sides, in [0, ``levels_a``) and [0, ``levels_b``).
    """
    order = np.argsort(a, kind="stable")
    table = WaveletMatrix(b[order], np.ones(len(a), dtype=np.int64), levels_b)
    counts_a = np.bincount(a, minlength=levels_a)
    ends = np.cumsum(counts_a)[a]  # data points with a smaller or the same a
    starts = ends - counts_a[a]
    n = len(a)
    under_start, equal_start = table.below_and_equal(starts, b)
    under_end, equal_end = table.below_and_equal(ends, b)
    under_all, equal_all = table.below_and_equal(np.full(n, n), b)
    over_start = starts - under_start - equal_start
    later = n - ends
    under_later, equal_later = under_all - under_end, equal_all - equal_end
    over_later = later - under_later - equal_later
    return np.asarray(under_start + over_later - over_start - under_later, dtype=np.float64)
