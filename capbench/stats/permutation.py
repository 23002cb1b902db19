"""PERM-BOTH: the permutation test between two metrics, prepared once for all permutations.

Deutsch, D., Dror, R. and Roth, D. (2021). A statistical analysis of summarization evaluation metrics using resampling
methods. Transactions of the ACL 9. The paper swaps scores of systems or inputs. Here there are no systems: the two
metrics' scores are put on a common scale and swapped image by image.

The scores of both metrics form one list of 2n data points. For the first metric, a permutation gives each unit's points
in one half the weight 1 and those in the other half 0; the second metric gets the opposite weights, so most of its sums
follow from those of the first.

For tau-b and Spearman's rho, bounds decide most permutations, and only the others are counted. A coefficient is
S / √(f h). S is the number of concordant minus discordant pairs (tau-b), or the sum of products of doubled, centred
average ranks (Spearman); f is the spread of the scores and h that of the ratings. For two swapped lists of scores,
S₁ - S₂ is linear in the swaps and fast to compute; S₁ + S₂ is not. But coefficients are within ±1, so their
difference::

    S₁ / √(f₁ h) - S₂ / √(f₂ h) = (S₁ - S₂) / √(f₁ h) + r₂ (√(f₂ / f₁) - 1),  |r₂| ≤ 1

has a lower and an upper bound. They are close together, since f₁ and f₂ differ only by ties. A p-value counts
differences as large as the observed one, so a permutation is decided if both bounds agree. The first step bounds f₁ and
f₂, which is fastest; the second step computes them; the last step counts the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import Coefficient, FloatArray, IntArray
from capbench.stats.kendall import RankCode, pair_counts, partner_differences, rank_encode
from capbench.stats.resampling import (
    PearsonStatistic,
    RankStatistic,
    Swaps,
    Weighted,
    WeightedStatistic,
    evaluate,
    standardise,
)
from capbench.stats.ties import merged

# Tables of permutations hold at most this many values at a time.
_VALUES = 1_000_000
# Rounding changes a bound by far less than this.
_MARGIN = 1e-9
_ROUNDING = 1e-12

#: (B,) minimum and (B,) maximum spread of the first list, and of the second list.
_Spreads = tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


class BoundedSwap:
    """Difference (first - second) of two correlations after swapping the metrics on some units."""

    def __init__(
        self,
        coefficient: Literal["tau-b", "spearman"],
        first: FloatArray,  # (n,) scores of the first metric
        second: FloatArray,  # (n,) scores of the second metric, on the same scale
        human: FloatArray,  # (n,) human ratings
        unit: IntArray,  # (n,) unit of each data point, in [0, units)
        units: int,
    ) -> None:
        import scipy.sparse

        csr_array: Any = scipy.sparse.csr_array  # its stubs do not declare (values, (rows, columns))
        self.units = units
        self._coefficient = coefficient
        self._human_ratings, self._unit, self._both = human, unit, np.concatenate([first, second])
        ratings, scores = rank_encode(human), rank_encode(self._both)
        lists = rank_encode(first), rank_encode(second)
        self._n = len(human)
        if coefficient == "tau-b":
            counts = [pair_counts(code, ratings) for code in lists]
            self._sums = [float(pairs.concordant - pairs.discordant) for pairs in counts]
            self._human = float(self._n) ** 2 - float((ratings.counts**2).sum())
            twice = np.tile(ratings.codes, 2)
            partners = partner_differences(scores.codes, twice, scores.levels, ratings.levels)
        else:
            ranks = ratings.doubled_ranks().astype(np.float64)
            self._sums = [float((code.doubled_ranks() * ranks).sum()) for code in lists]
            self._human = float((ranks * ranks).sum())
            partners = _partner_products(scores, ranks)
        place, sign = np.tile(unit, 2), np.repeat([1, -1], self._n).astype(np.int32)
        # With σ_u = 1 for unchanged units and -1 for swapped ones, S₁ - S₂ = ½ Σ_u σ_u d_u.
        self._linear = np.bincount(place, weights=sign * partners, minlength=units) / 2
        sizes = scores.counts.astype(np.float64)
        self._surplus = csr_array((sign, (scores.codes, place)), shape=(scores.levels, units))
        self._surplus.sum_duplicates()
        # The part of the sums of squares (or cubes) of tied points that is linear in σ; the maximum |g| of each score.
        self._uneven = self._surplus.T @ (sizes if coefficient == "tau-b" else 0.75 * sizes**2)
        self._whole_linear, self._whole_uneven = float(self._linear.sum()), float(self._uneven.sum())
        max_surplus = np.asarray(abs(self._surplus).sum(axis=1), dtype=np.float64).ravel()
        if coefficient == "tau-b":
            self._size_sum = float((sizes**2).sum())
            self._max_even, self._max_cubes = float((max_surplus**2).sum()), 0.0
        else:
            self._sizes = sizes
            self._size_sum = float((sizes**3).sum())
            self._max_even, self._max_cubes = float((sizes * max_surplus**2).sum()), float((max_surplus**3).sum())

    @cached_property
    def _exact(self) -> WeightedStatistic:
        """Made when it is needed: most pairs of metrics are decided by bounds, and many are prepared at a time."""
        twice, place = np.tile(self._human_ratings, 2), np.concatenate([self._unit, self._unit + self.units])
        return swapped(RankStatistic(self._coefficient, self._both, twice, place, 2 * self.units))

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        """(B,) exact values of (B, U) weights."""
        return self._exact(weights)

    @property
    def unswapped(self) -> float:
        """The observed difference, without swaps; neither metric may be constant."""
        spreads = self._spreads(np.zeros((1, self.units), dtype=np.int32), np.zeros((1, self.units)))
        values = [
            self._factor * total / np.sqrt(float(spread[0]) * self._human)
            for total, (spread, _) in zip(self._sums, spreads, strict=True)
        ]
        return float(values[0] - values[1])

    def bounds(self, weights: NDArray[np.integer], *, closely: bool) -> tuple[FloatArray, FloatArray]:
        """Bounds of the difference.

        ``weights``: (B, U) zeros (unchanged) and ones (swapped); ``closely``: True to compute the spreads of both
        lists, False to bound them.

        Returns (B,) lower and (B,) upper bounds; NaN where a list may be constant.
        """
        drawn = weights.astype(np.float64)
        spreads = self._spreads(weights, drawn) if closely else self._spread_bounds(drawn)
        # Σ σ d with σ = 1 - 2 weight, exact in any order. The threads of a matrix product would compete with those that
        # evaluate other blocks.
        apart = self._whole_linear - 2 * np.einsum("bu,u->b", drawn, self._linear)
        with np.errstate(divide="ignore", invalid="ignore"):
            (min_first, max_first), (min_second, max_second) = (
                (np.sqrt(low * self._human) / self._factor, np.sqrt(high * self._human) / self._factor)
                for low, high in spreads
            )
            rest = np.maximum(max_second / min_first - 1, 1 - min_second / max_first)
            ends = apart / min_first, apart / max_first
        return np.minimum(*ends) - rest, np.maximum(*ends) + rest

    @property
    def _factor(self) -> float:
        return 2.0 if self._coefficient == "tau-b" else 1.0

    def _spreads(self, weights: NDArray[np.integer], drawn: FloatArray) -> _Spreads:
        """Spread of each list's scores: n² - Σ t² (tau-b) or Σ rank² = (n³ - Σ t³) / 3, t points with one score.

        With T points of both lists at a score, and g more from the first list than from the second, t = (T ± g) / 2.
        """
        even, cubes = np.zeros(len(weights)), np.zeros(len(weights))
        together = max(2, _VALUES // self._surplus.shape[0])
        for start in range(0, len(weights), together):
            at = slice(start, start + together)
            signs = 1 - 2 * np.ascontiguousarray(weights[at].T, dtype=np.int32)
            surplus = (self._surplus @ signs).astype(np.float64)
            squares = surplus * surplus
            if self._coefficient == "tau-b":
                even[at] = squares.sum(axis=0)
            else:
                even[at] = self._sizes @ squares
                squares *= surplus
                cubes[at] = squares.sum(axis=0)
        return self._from_ties(drawn, (even, even), (cubes, cubes))

    def _spread_bounds(self, drawn: FloatArray) -> _Spreads:
        """Minimum and maximum spreads, from the maximum |g| of each score."""
        return self._from_ties(drawn, (0.0, self._max_even), (-self._max_cubes, self._max_cubes))

    def _from_ties(
        self,
        drawn: FloatArray,
        even: tuple[FloatArray | float, FloatArray | float],
        cubes: tuple[FloatArray | float, FloatArray | float],
    ) -> _Spreads:
        """Spreads of both lists from the minimum and maximum of Σ g² (tau-b), or of Σ T g² and Σ g³ (Spearman)."""
        n = float(self._n)
        uneven = self._whole_uneven - 2 * np.einsum("bu,u->b", drawn, self._uneven)
        power = 2 if self._coefficient == "tau-b" else 3
        together = [(self._size_sum + (2 * power - 3) * value) / (2 * power - 2) for value in even]
        lists = []
        for side in (1, -1):
            # Σ t² or Σ t³ of the first list is half of (together + apart), of the second half of (together - apart).
            apart = [side * uneven + (value / 4 if power == 3 else 0.0) for value in (side * cubes[0], side * cubes[1])]
            low, high = (together[0] + np.minimum(*apart)) / 2, (together[1] + np.maximum(*apart)) / 2
            scale = 1 if power == 2 else 3
            lists.append(((n**power - high) / scale, (n**power - low) / scale))
        return lists[0], lists[1]


class LinearSwap:
    """A difference that is linear in the swaps: ``Σ σ d``, with σ = -1 on swapped units and 1 on others."""

    def __init__(self, effects: FloatArray) -> None:
        self.units = len(effects)
        self.effects = effects  # (U,) d
        self._sum = float(effects.sum())

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        # σ = 1 - 2 weight. Not a matrix product: its rounding may depend on the number of threads.
        return np.asarray(self._sum - 2 * np.einsum("bu,u->b", weights, self.effects), dtype=np.float64)


class SwapTerm(NamedTuple):
    """A part of the difference of two metrics, in all tasks or on the mean over samples of references."""

    weight: float
    place: IntArray | slice  # of its units among those that are swapped
    statistic: WeightedStatistic

    def of(self, weights: NDArray[np.integer]) -> NDArray[np.integer]:
        """The weights of its units."""
        return np.ascontiguousarray(weights[:, self.place])


class SwapSum:
    """Difference of two metrics after swapping them on some of U units, the weighted sum of its terms.

    A value that bounds decide is replaced: by infinity if its absolute value is at least that of the observed
    difference, by 0 if it is smaller.
    """

    def __init__(self, units: int, terms: Sequence[SwapTerm]) -> None:
        self.units = units
        self._bounded = [(term, term.statistic) for term in terms if isinstance(term.statistic, BoundedSwap)]
        self._exact = [term for term in terms if not isinstance(term.statistic, BoundedSwap | LinearSwap)]
        effects = np.zeros(units)
        for weight, place, statistic in terms:
            if isinstance(statistic, LinearSwap):
                effects[place] += weight * statistic.effects
        self._linear = LinearSwap(effects) if effects.any() else None
        unchanged = np.zeros((1, self.units), dtype=np.int32)
        self.observed = float(self._known(unchanged)[0]) + sum(
            term.weight * swap.unswapped for term, swap in self._bounded
        )

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        values = self._known(weights)
        if not self._bounded:
            return values
        undecided = np.arange(len(weights))
        limit = abs(self.observed)
        for closely in (False, True):
            some = weights[undecided] if closely else weights
            low, high = values[undecided], values[undecided]
            for term, swap in self._bounded:
                ends = swap.bounds(term.of(some), closely=closely)
                low += term.weight * ends[0]
                high += term.weight * ends[1]
            larger = (low > limit + _MARGIN) | (high < -limit - _MARGIN)
            smaller = (low > _MARGIN - limit) & (high < limit - _MARGIN)
            decided = larger | smaller
            values[undecided[decided]] = np.where(larger[decided], np.inf, 0.0)
            undecided = undecided[~decided]  # NaN too
            if not len(undecided):
                return values
        for term, swap in self._bounded:
            values[undecided] += term.weight * swap(term.of(weights[undecided]))
        return values

    def _known(self, weights: NDArray[np.integer]) -> FloatArray:
        """(B,) sum of the parts without bounds."""
        values = np.zeros(len(weights)) if self._linear is None else self._linear(weights)
        for term in self._exact:
            values += term.weight * term.statistic(term.of(weights))
        return values


def swap_p_values(differences: Sequence[SwapSum], permutations: int, seed: int) -> list[float]:
    """Two-sided p-values of the observed differences, of permutations that all share."""
    values = np.abs(evaluate(differences, Swaps(differences[0].units, permutations, seed)))
    p_values: list[float] = permutation_p_values(values, np.array([abs(d.observed) for d in differences])).tolist()
    return p_values


def permutation_p_values(values: FloatArray, observed: FloatArray) -> FloatArray:
    """P-values ``(1 + c) / (1 + R)``, c the number of values as extreme as the observed one (Phipson and Smyth 2010).

    ``values`` are (T, R) absolute differences, of which undefined ones (NaN) count as extreme; ``observed`` is (T,).
    """
    # Differences that are equal up to rounding count as extreme, which is conservative.
    extreme = ~(values < observed[:, None] - _ROUNDING)
    return np.asarray((1 + extreme.sum(axis=1)) / (1 + values.shape[1]), dtype=np.float64)


def _partner_products(scores: RankCode, ranks: FloatArray) -> FloatArray:
    """(2 n,) ``Σ_q (h_p - h_q) sgn(c_p - c_q)`` over the list of both metrics, h doubled and centred ranks."""
    both = np.tile(ranks, 2)
    by_score = np.bincount(scores.codes, weights=both)
    of_smaller = 2 * np.cumsum(by_score) - by_score - by_score.sum()
    return np.asarray(both * scores.doubled_ranks() - of_smaller[scores.codes], dtype=np.float64)


def swap_difference(
    coefficient: Coefficient,
    first: FloatArray,  # (n,) scores of the first metric, on any scale
    second: FloatArray,  # (n,) scores of the second metric, on any scale
    human: FloatArray,  # (n,) human ratings
    unit: IntArray,  # (n,) unit of each data point, in [0, units)
    units: int,
    *,
    rating_levels: bool = False,  # see :class:`capbench.stats.agreement.Correlations`
) -> WeightedStatistic:
    """Difference of two correlations (first - second) after swapping the metrics on some units.

    Returns a statistic of (B, U) weights 0 (unchanged) and 1 (swapped).
    """
    twice, place = np.tile(human, 2), np.concatenate([unit, unit + units])
    if coefficient == "pearson":
        # z-scores that are equal up to rounding are tied.
        z_scores = merged(np.concatenate([standardise(first), standardise(second)]))
        return swapped(PearsonStatistic(z_scores, twice, place, 2 * units))
    first, second = (rank_encode(scores).doubled_ranks().astype(np.float64) for scores in (first, second))
    if coefficient in ("tau-b", "spearman"):
        return BoundedSwap(coefficient, first, second, human, unit, units)
    both, n, levels = np.concatenate([first, second]), len(human), rank_encode(human).levels
    if rating_levels or keeps_levels(rank_encode(both).codes, place, units, levels):
        # The denominator is the same for both metrics, so that the difference is linear.
        return LinearSwap(2.0 * levels / (n * n * (levels - 1)) * tau_effects(both, twice, place, units))
    return swapped(RankStatistic(coefficient, both, twice, place, 2 * units))


def swapped(both: WeightedStatistic) -> WeightedStatistic:
    """Difference of a statistic between two metrics that are swapped on some of U units (PERM-BOTH).

    ``both``: a statistic of 2 U units: the first U with the scores of one metric, the others with those of the second.
    """

    def difference(weights: NDArray[np.integer]) -> FloatArray:
        stay = 1 - weights
        first = both(np.concatenate([stay, weights], axis=1))
        return first - both(np.concatenate([weights, stay], axis=1))

    return Weighted(both.units // 2, difference)


def keeps_levels(codes: IntArray, place: IntArray, units: int, levels: int) -> bool:
    """True if a swapped metric has at least ``levels`` distinct values for any choice of swapped units.

    This holds if there are that many units of which no two share a value on either side.
    """
    order = np.argsort(place % units, kind="stable")
    ends = np.cumsum(np.bincount(place % units, minlength=units))
    used: set[int] = set()
    apart = start = 0
    for end in ends.tolist():
        values = set(codes[order[start:end]].tolist())
        start = end
        if used.isdisjoint(values):
            used |= values
            apart += 1
            if apart == levels:
                return True
    return False


def tau_effects(both: FloatArray, twice: FloatArray, place: IntArray, units: int) -> FloatArray:
    """(U,) effects (see :class:`LinearSwap`) of swaps on C - D of the first metric minus that of the second.

    With σ = +1 for points of the first metric and -1 for those of the second, ``S₁ - S₂ = ½ Σ_i σ_i d_i``, where
    d_i is the number of concordant minus discordant partners of point i in the whole list.
    """
    a, b = rank_encode(both), rank_encode(twice)
    partners = partner_differences(a.codes, b.codes, a.levels, b.levels)
    sums = np.bincount(place, weights=partners, minlength=2 * units)
    return np.asarray(0.5 * (sums[:units] - sums[units:]), dtype=np.float64)
