"""The human ceiling: agreement between human raters, an upper bound for metrics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray, IntArray
from capbench.stats.kendall import pair_counts, rank_encode, tau_b
from capbench.stats.resampling import unit_codes
from capbench.stats.ties import is_constant, merged
from capbench.stats.vectors import finite_vector


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Every rating with the mean of the item's other ratings."""

    item: IntArray  # (n,) item of each rating
    rating: FloatArray  # (n,) the rating
    others: FloatArray  # (n,) mean of the other ratings of the same item: the other raters as a metric


def leave_one_rater_out(
    item: Sequence[int] | NDArray[np.integer], value: Sequence[float] | NDArray[np.generic]
) -> LeftOut:
    """Pair every rating with the mean of the item's other ratings.

    The correlation of ``others`` with ``rating`` is the human ceiling for protocols with unaggregated ratings: on the
    human side it has the same data points as a metric's correlation. A mean of few ratings has ties that most metrics
    do not have; τ-b and τ-c treat them differently (see docs/statistics.md).

    ``item``: (n,) index of the rated item; ``value``: (n,) its rating.
    """
    items, values = np.asarray(item, dtype=np.int64), finite_vector(value, "the human ratings")
    by_value = np.lexsort((values, items))  # so that equal ratings in any order have the same sum
    items, values = items[by_value], values[by_value]
    codes, count = unit_codes(items)
    sizes = np.bincount(codes, minlength=count)
    sums, magnitudes = (
        np.bincount(codes, weights=each, minlength=count).astype(np.float64) for each in (values, np.abs(values))
    )
    several = sizes[codes] > 1
    codes, items, values = codes[several], items[several], values[several]
    others = merged((sums[codes] - values) / (sizes[codes] - 1), magnitudes[codes])
    return LeftOut(items, values, others)


def pairwise_tau_b(item: IntArray, value: FloatArray, rater: IntArray) -> tuple[float, int] | None:
    """Mean of Kendall's τ-b between all pairs of raters, and the number of raters.

    ``item``: (n,) index of the rated item; ``value``: (n,) its rating; ``rater``: (n,) number of the rater, from 0.

    Returns None unless two raters or more have rated every item once, and none has given all items one rating.
    """
    raters = int(rater.max(initial=-1)) + 1
    items, codes = np.unique(item, return_inverse=True)
    table = np.full((raters, len(items)), np.nan)
    table[rater, codes] = value
    if raters < 2 or len(value) != table.size or np.isnan(table).any() or any(is_constant(row) for row in table):
        return None
    ranks = [rank_encode(row) for row in table]
    taus = [tau_b(pair_counts(first, second)) for first, second in itertools.combinations(ranks, 2)]
    return float(np.mean(taus)), raters


def vote_credit(votes: NDArray[np.integer]) -> FloatArray:
    """(n,) expected credit of one voter of each pair against the majority of the pair's other voters.

    ``votes``: (n, 2) votes for the first and for the second caption, two or more for each pair.
    """
    first, second = votes[:, 0].astype(np.float64), votes[:, 1].astype(np.float64)
    agree = first * np.heaviside(first - 1 - second, 0.5) + second * np.heaviside(second - 1 - first, 0.5)
    return np.asarray(agree / (first + second), dtype=np.float64)
