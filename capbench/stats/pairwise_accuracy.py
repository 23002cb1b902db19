"""Pairwise accuracy: the share of pairs on which a metric and human raters prefer the same caption; aggregated ratings.

:func:`aggregate` turns several ratings of an item into data points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray, TieRule
from capbench.stats.ties import merged, order
from capbench.stats.vectors import finite_vector, run_starts

TIE_CREDIT: dict[TieRule, float] = {"strict": 0.0, "ties-right": 1.0, "ties-half": 0.5}
"""Credit of a metric for a pair whose captions it scores equally; 1 for the right order, 0 for the wrong one."""


@dataclass(frozen=True)
class PairwiseAccuracy:
    """Accuracy on some pairs."""

    value: float  # accuracy, in [0, 1]
    n: int  # number of pairs with a human preference
    ties: int  # number of these pairs that the metric scores equally
    # expected accuracy of coin flips on the metric's untied pairs, with its ties counted by the same rule
    chance: float


def pairwise_accuracy(
    first_scores: Sequence[float] | NDArray[np.generic],  # (n,) score of each pair's first caption
    second_scores: Sequence[float] | NDArray[np.generic],  # (n,) score of its second caption
    # (n,) +1 if raters prefer the first, -1 the second, 0 without a preference. Pairs without a preference have no
    # right answer and are excluded
    preferred: Sequence[int] | NDArray[np.integer],
    ties: TieRule = "strict",
    *,
    name: str = "the scores",  # name of the scores in error messages
) -> PairwiseAccuracy:
    """Share of pairs that a metric orders as human raters do.

    A metric is right on a pair if it gives the caption that raters prefer the higher score. A tie, two scores that are
    equal up to rounding, counts 0 (``strict``: TIGEr, section 4.3), 1 (``ties-right``: SPICE, Anderson et al. 2016)
    or ½ (``ties-half``). A constant metric therefore has the accuracy 0, 1 or ½, and chance is not ½ for every metric.
    The chance level of each accuracy is the expected accuracy of coin flips on the untied pairs, with the same ties::

        chance = (½ (n - ties) + credit · ties) / n,    credit = 0, 1 or ½

    It is ½ for a metric without ties and under ``ties-half``, lower under ``strict``, higher under ``ties-right``;
    a constant metric is exactly at chance under every rule.

    Raises StatisticError: a score that is NaN or infinite, or no human preference.
    """
    first = finite_vector(first_scores, f"{name} (first of the pair)")
    second = finite_vector(second_scores, f"{name} (second of the pair)")
    choice = finite_vector(preferred, "the human preferences")
    clear = choice != 0
    decided = int(np.count_nonzero(clear))
    if decided == 0:
        message = f"the accuracy of {name} is not defined: raters have no preference on any of {len(choice)} pairs"
        raise StatisticError(message, value=name)
    orders = order(first, second)
    right = int(np.count_nonzero(clear & (orders == choice)))
    tied = int(np.count_nonzero(clear & (orders == 0)))
    credit = TIE_CREDIT[ties]
    chance = (0.5 * (decided - tied) + credit * tied) / decided
    return PairwiseAccuracy((right + credit * tied) / decided, decided, tied, chance)


Aggregation = Literal["unaggregated", "mean", "median", "mode"]


def aggregate(
    item: Sequence[int] | NDArray[np.integer],  # (n,) index of the rated item
    value: Sequence[float] | NDArray[np.generic],  # (n,) its rating
    # ``unaggregated`` keeps every rating; ``mean``, ``median`` (of an even number: the mean of the middle two) and
    # ``mode`` (the most frequent rating; among equally frequent ones the lowest) give one data point for every rated
    # item. Means and medians that are equal up to rounding are equal, so that rounding neither creates nor breaks a tie
    how: Aggregation,
) -> tuple[IntArray, FloatArray]:
    """Turn ratings into data points.

    Returns (m,) item of each data point and (m,) its value: in the order of the input if unaggregated, else by
    ascending item.

    Raises StatisticError: no ratings, or a rating that is NaN or infinite.
    """
    items = np.ascontiguousarray(item, dtype=np.int64)
    values = finite_vector(value, "the human ratings")
    if not len(values):
        raise StatisticError("there are no human ratings: there is nothing to aggregate", code="too-few", value=0)
    if how == "unaggregated":
        return items, values
    by_value = np.lexsort((values, items))
    items, values = items[by_value], values[by_value]
    starts = run_starts(items)
    counts = np.diff(starts, append=len(items))
    if how == "mean":
        sums, sizes = (np.add.reduceat(each, starts) for each in (values, np.abs(values)))
        return items[starts], merged(sums / counts, sizes)
    if how == "median":
        low, high = values[starts + (counts - 1) // 2], values[starts + counts // 2]
        # Halved first, since the sum of two huge ratings may overflow. Equal middle values are unchanged.
        middles = np.where(low == high, low, low / 2 + high / 2)
        return items[starts], merged(middles, np.maximum(np.abs(low), np.abs(high)))
    values = merged(values)
    runs = run_starts(items, values)
    lengths = np.diff(runs, append=len(items))
    # Longest run of each item first; the sort is stable, so the lowest value remains first among ties.
    longest_first = runs[np.lexsort((-lengths, items[runs]))]
    modes = longest_first[run_starts(items[longest_first])]
    return items[modes], values[modes]
