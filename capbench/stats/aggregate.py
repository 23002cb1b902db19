"""Several ratings of one item → one, or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from capbench.errors import StatisticError, suggest
from capbench.records import FloatArray, IntArray
from capbench.stats.vectors import finite_vector

__all__ = ["Aggregation", "aggregate"]

Aggregation = Literal["unaggregated", "mean", "median", "mode"]


def aggregate(
    item: Sequence[int] | NDArray[np.integer],
    value: Sequence[float] | NDArray[np.generic],
    how: Aggregation,
    *,
    name: str = "the human ratings",
) -> tuple[IntArray, FloatArray]:
    """Turn ratings into data points.

    Args:
        item: (n,) index of the rated item.
        value: (n,) its rating.
        how: ``unaggregated`` keeps every rating; ``mean``, ``median`` (of an even number: the mean of the middle
            two) and ``mode`` (the most frequent rating; among equally frequent ones the lowest) give one data
            point for every rated item. Items with the same ratings in any order get exactly the same mean,
            so that rounding neither makes nor breaks a tie.
        name: what the values are, for error messages.

    Returns:
        (m,) item of each data point and (m,) its value: in the given order if unaggregated, else by
        ascending item.

    Raises:
        StatisticError: no ratings, unequal lengths, or a rating that is NaN or infinite.
    """
    if how not in get_args(Aggregation):
        raise StatisticError(f"unknown aggregation '{how}'", hint=suggest(str(how), list(get_args(Aggregation))))
    items = np.ascontiguousarray(item, dtype=np.int64)
    values = finite_vector(value, name)
    if items.shape != values.shape:
        raise StatisticError(f"{name} has {len(values)} values for {items.size} items")
    if not len(values):
        raise StatisticError(f"{name} is empty: there is nothing to aggregate")
    if how == "unaggregated":
        return items, values
    order = np.lexsort((values, items))
    items, values = items[order], values[order]
    starts = np.flatnonzero(np.diff(items, prepend=items[0] - 1))
    counts = np.diff(starts, append=len(items))
    if how == "mean":
        return items[starts], np.add.reduceat(values, starts) / counts
    if how == "median":
        low, high = values[starts + (counts - 1) // 2], values[starts + counts // 2]
        # Halved first: the sum of two huge ratings may overflow. Equal middles stay exactly as they are.
        return items[starts], np.where(low == high, low, low / 2 + high / 2)
    return _modes(items, values)


def _modes(items: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Most frequent value of each item, the lowest among equals; sorted by item, then value."""
    new = np.ones(len(items), dtype=np.bool_)
    new[1:] = (items[1:] != items[:-1]) | (values[1:] != values[:-1])
    runs = np.flatnonzero(new)
    lengths = np.diff(runs, append=len(items))
    # Longest run of each item first; the sort is stable, so the lowest value stays first among equals.
    order = np.lexsort((-lengths, items[runs]))
    chosen = runs[order]
    first = np.flatnonzero(np.diff(items[chosen], prepend=items[0] - 1))
    return items[chosen[first]], values[chosen[first]]
