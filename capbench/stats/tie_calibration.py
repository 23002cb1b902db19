"""Pairwise accuracy with tie calibration.

A metric's scores of two data points count as tied if they differ by at most ε. Of all pairs, C are in the same order
for metric and raters, D in opposite order, T_h are tied only for the raters, T_m only for the metric, and T_hm for
both. Tie calibration chooses the ε with the best agreement.

References:
    Deutsch, D., Foster, G. and Freitag, M. (2023). Ties matter: Meta-evaluating modern metrics with pairwise accuracy
    and tie calibration. EMNLP.
    Callison-Burch, C. et al. (2010). Findings of the 2010 joint workshop on statistical machine translation. WMT.
    Macháček, M. and Bojar, O. (2013, 2014). Results of the WMT13 and WMT14 metrics shared task. WMT.
    Mathur, N. et al. (2020). Results of the WMT20 metrics shared task. WMT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray
from capbench.stats.kendall import WaveletMatrix, rank_encode
from capbench.stats.ties import difference_rounding, last_of_equals, merged
from capbench.stats.vectors import finite_vector, run_starts

LEAF = 100_000
"""Intervals of ε with at most this many pairs are evaluated pair by pair."""


@dataclass(frozen=True)
class TiedPairs:
    """Numbers of concordant, discordant and tied pairs."""

    epsilon: float  # differences up to this one are ties of the metric
    concordant: int  # C, same order
    discordant: int  # D, opposite order
    ties_human: int  # T_h, tied only for the raters
    ties_metric: int  # T_m, tied only for the metric
    ties_both: int  # T_hm, tied for both

    @property
    def total(self) -> int:
        """Number of all pairs."""
        return self.concordant + self.discordant + self.ties_human + self.ties_metric + self.ties_both

    @property
    def accuracy(self) -> float:
        """``acc_eq = (C + T_hm) / (C + D + T_h + T_m + T_hm)`` (Deutsch et al. 2023)."""
        return (self.concordant + self.ties_both) / self.total


def calibrate_ties(
    scores: Sequence[float] | NDArray[np.generic],  # (n,) scores of a metric, n ≥ 2
    human: Sequence[float] | NDArray[np.generic],  # (n,) human ratings
    *,
    name: str = "the scores",  # name of the scores in error messages
) -> TiedPairs:
    """Pairs with the smallest of the best ε, whose accuracy is acc*_eq (Deutsch et al. 2023).

    The exact maximum of acc_eq over all ε, without listing the n (n - 1) / 2 differences. acc_eq at one ε costs
    O(n log n). Between two values of ε it gains at most the pairs with equal ratings whose score difference lies
    between them. Intervals that cannot reach the best value so far are dropped, others are bisected, and those with few
    pairs are listed. Memory is O(n).

    Raises StatisticError: NaN or infinite values.
    """
    x, y = merged(finite_vector(scores, name)), merged(finite_vector(human, "the human ratings"))
    windows = Windows(x, y)
    start = windows.counts(0.0)
    best_value, best_epsilon = start.concordant + start.ties_both, 0.0
    # An interval (a, b] of ε: the counts at a and at b.
    intervals = [(start, windows.counts(windows.range))]

    def bound(interval: tuple[TiedPairs, TiedPairs]) -> int:
        """Upper bound of acc_eq's numerator between two values of ε."""
        return interval[0].concordant + interval[1].ties_both

    while intervals:
        # The most promising interval first, so that more intervals are dropped.
        intervals.sort(key=bound)
        low, high = intervals.pop()
        most = bound((low, high))
        if most < best_value or (most == best_value and low.epsilon >= best_epsilon):
            continue
        middle = low.epsilon + (high.epsilon - low.epsilon) / 2
        listed = high.ties_metric + high.ties_both - low.ties_metric - low.ties_both
        if listed <= LEAF or not low.epsilon < middle < high.epsilon:
            value, epsilon = _best_between(windows, low, high.epsilon)
            if value > best_value or (value == best_value and epsilon < best_epsilon):
                best_value, best_epsilon = value, epsilon
            continue
        counts = windows.counts(middle)
        intervals += [(low, counts), (counts, high)]
    return windows.counts(best_epsilon)


def chance_level(human: NDArray[np.generic], image: NDArray[np.generic] | None = None) -> tuple[float, bool]:
    """acc*_eq that scores without information reach.

    If scores do not depend on the ratings and an ε ties a share q of their pairs, the expected acc_eq is
    ``q t + (1 - q) (1 - t) / 2``, t the share of pairs with equal ratings. The maximum is ``max(t, (1 - t) / 2)``.

    ``human``: (n,) human ratings; ``image``: (n,) image of each rating, if pairs are compared within images: t is then
    the mean of their shares.

    Returns the chance level, and True if it is reached with all pairs tied, False with none.

    Raises StatisticError: there is no pair.
    """
    codes = rank_encode(merged(np.asarray(human, dtype=np.float64))).codes
    images = np.zeros(len(codes), dtype=np.int64) if image is None else np.unique(image, return_inverse=True)[1]
    sizes = np.bincount(images).astype(np.float64)
    runs, counts = np.unique(np.stack([images, codes]), axis=1, return_counts=True)
    tied = np.bincount(runs[0], weights=counts * (counts - 1) / 2, minlength=len(sizes))
    several = sizes > 1
    if not several.any():
        raise StatisticError("there is no pair of ratings", code="too-few", value=len(codes))
    share = float((tied[several] / (sizes[several] * (sizes[several] - 1) / 2)).mean())
    return max(share, (1 - share) / 2), share >= (1 - share) / 2


def _best_between(windows: Windows, low: TiedPairs, high: float) -> tuple[int, float]:
    """The maximum C + T_hm for ε in (low, high], and its smallest ε, from a list of these pairs; -1 without any."""
    difference, gain, last = windows.between(low.epsilon, high)
    if not len(last):
        return -1, high
    gained = np.cumsum(gain)
    best = int(np.argmax(gained[last]))
    return low.concordant + low.ties_both + int(gained[last[best]]), float(difference[last[best]])


class Windows:
    """Cells (distinct score and rating) in ascending order of the score, with counts of pairs over windows.

    ``x``: (n,) scores, finite, whose largest difference is finite; no two are different and equal up to rounding.
    """

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        codes = rank_encode(y)
        order = np.lexsort((codes.codes, x))
        x, rating = x[order], codes.codes[order]
        first = run_starts(x, rating)
        self._x: FloatArray = x[first] + 0.0  # no negative zeros
        self._rating: IntArray = rating[first]
        self._weight: IntArray = np.diff(first, append=len(x)).astype(np.int64)
        self.range = float(self._x[-1] - self._x[0])  # the largest difference of two scores
        self._largest = float(np.abs(self._x).max())
        self._table = WaveletMatrix(self._rating, self._weight, codes.levels)
        self._before = np.concatenate([[0], np.cumsum(self._weight)]).astype(np.int64)
        self.pairs = len(x) * (len(x) - 1) // 2  # of data points
        sizes = np.bincount(rating)
        self._human_ties = int((sizes * (sizes - 1) // 2).sum())

    def counts(self, epsilon: float) -> TiedPairs:
        """Counts of all pairs with this ε."""
        ends = self._ends(epsilon)
        below, equal = self._table.below_and_equal(ends, self._rating)
        concordant, ties_human, beyond = (
            int((self._weight * each).sum()) for each in (below, equal, self._before[ends])
        )
        ties_both = self._human_ties - ties_human
        ties_metric = self.pairs - beyond - ties_both
        discordant = self.pairs - concordant - ties_human - ties_metric - ties_both
        return TiedPairs(epsilon, concordant, discordant, ties_human, ties_metric, ties_both)

    def _ends(self, epsilon: float) -> IntArray:
        """(m,) position after the last cell that is more than ε below each cell, by bisection."""
        low, high = np.zeros(len(self._x), dtype=np.int64), np.arange(len(self._x))
        while (searched := low < high).any():
            middle = (low + high) // 2
            beyond = self._x - self._x[middle] > epsilon
            low = np.where(searched & beyond, middle + 1, low)
            high = np.where(searched & ~beyond, middle, high)
        return low

    def between(self, low: float, high: float) -> tuple[FloatArray, IntArray, IntArray]:
        """Pairs of cells whose difference is in (low, high]: (p,) differences, ascending, and gains.

        The gain is the number of right pairs that are won if the metric ties these, negative if they are lost. The last
        array has the position of the last pair of each run of differences that are equal up to rounding. Such runs are
        listed to their end, even if it is above ``high``; differences above that belong to no run.
        """
        outer, inner = self._ends(high + 2 * difference_rounding(high, self._largest)), self._ends(low)
        many = inner - outer
        upper = np.repeat(np.arange(len(many)), many)
        lower = np.arange(len(upper)) - np.repeat(np.cumsum(many) - many, many) + outer[upper]
        difference = self._x[upper] - self._x[lower]
        # A new tie is right for pairs with equal ratings, and wrong for pairs that were in the right order.
        rating_up, rating_low = self._rating[upper], self._rating[lower]
        gain = self._weight[upper] * self._weight[lower] * ((rating_up == rating_low) - 1 * (rating_up > rating_low))
        order = np.argsort(difference, kind="stable")
        difference, operand = difference[order], np.maximum(np.abs(self._x[upper]), np.abs(self._x[lower]))[order]
        last = last_of_equals(difference, operand)
        first = np.append(0, last[:-1] + 1)[: len(last)]
        return difference, gain[order], last[difference[first] <= high]
