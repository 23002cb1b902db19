"""Validation of input vectors, and operations on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray


def finite_vector(values: Sequence[float] | NDArray[np.generic], name: str) -> FloatArray:
    """Numbers as a (n,) float64 array; ``name``: their name in error messages.

    Raises StatisticError: not numbers, or a value is NaN or infinite (its position, counted from 0, is named).
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
        raise StatisticError(f"{name} is not a list of numbers", code="wrong-type", value=name)
    vector = np.ascontiguousarray(array, dtype=np.float64)
    finite = np.isfinite(vector)
    if not finite.all():
        where = int(np.argmin(finite))
        count = int(np.count_nonzero(~finite))
        problem = "is NaN" if math.isnan(vector[where]) else "is infinite"
        more = f" ({count} such values)" if count > 1 else ""
        raise StatisticError(f"{name}: the value at position {where} {problem}{more}", code="not-a-number", value=name)
    return vector


def draws_of(values: Sequence[float] | NDArray[np.generic], name: str) -> FloatArray:
    """(n,) or (draws, n) values as a (draws, n) array. Raises the errors of :func:`finite_vector`."""
    if np.ndim(values) == 2:
        rows = np.asarray(values)
        return np.stack([finite_vector(row, f"{name} (draw {i + 1})") for i, row in enumerate(rows)])
    return finite_vector(values, name)[None, :]


def run_starts(*columns: NDArray[np.generic]) -> IntArray:
    """Start positions of the runs of elements that are equal in all (n,) columns."""
    new = np.ones(len(columns[0]), dtype=np.bool_)
    new[1:] = reduce(np.logical_or, (column[1:] != column[:-1] for column in columns))
    return np.flatnonzero(new)


def scaled_values(values: FloatArray) -> FloatArray:
    """Values scaled below 1 by a power of two, which is exact and keeps sums and squares in range."""
    return np.asarray(np.ldexp(values, -int(np.frexp(np.abs(values).max())[1])), dtype=np.float64)


def centred(values: FloatArray, group: IntArray) -> FloatArray:
    """(n,) deviations from the mean of the group, exactly 0 if all values of a group are equal."""
    # Relative to a value of the group first, so that the mean of equal values is exact.
    deviation = values - values[np.unique(group, return_index=True)[1]][group]
    return np.asarray(deviation - (np.bincount(group, weights=deviation) / np.bincount(group))[group])
