"""Validation of input vectors, operations on them, and two-sided p-values of Student's t.

The p-values do not use :mod:`scipy.special`, whose import takes longer than a whole table of correlations. Both agree
up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def same_draws(arrays: Mapping[str, FloatArray]) -> None:
    """Raise StatisticError if there are no metrics, or metrics with different numbers of draws."""
    if not arrays:
        raise StatisticError("there are no metrics to compare", code="too-few")
    draws = {name: len(rows) for name, rows in arrays.items()}
    if len(set(draws.values())) > 1:
        raise StatisticError(f"the metrics have different numbers of samples of references: {draws}", code="mismatch")


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


_MANY = 100.0  # from here on the series of the ratio of gamma functions is exact up to rounding
_RATIO_SERIES = (1.0, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144, 869 / 4194304)
_FAR = 3.0  # above this t² the tail is computed, below it the probability between -t and t
_MAX_STEPS = 10_000  # at most about 150 are needed


def t_p_value(rest: float, degrees: int) -> float:
    """Two-sided p-value of t: ``I(rest; degrees / 2, 1/2)``, I the regularised incomplete beta function.

    The tail is the continued fraction of DiDonato and Morris (ACM TOMS 18, 1992), the probability between -t and t the
    series DLMF 8.17.8. Neither subtracts nearly equal numbers, so the error is only rounding.

    ``rest``: ``degrees / (degrees + t²)``, from 0 to 1; ``1 - r²`` for a correlation r of n points; ``degrees``:
    degrees of freedom, 1 or more.

    Returns the p-value; 0.0 below the smallest float.
    """
    if rest <= 0.0:
        return 0.0
    if rest >= 1.0:
        return 1.0
    a = degrees / 2
    # x^a y^b / B(a, b) with b = 1/2.
    factor = math.pow(rest, a) * math.sqrt(1.0 - rest) * _gamma_ratio(a) / math.sqrt(math.pi)
    if degrees * (1.0 - rest) >= _FAR * rest:
        return factor * _tail(rest, a)
    return 1.0 - 2.0 * factor * _between(1.0 - rest, a)


def _gamma_ratio(a: float) -> float:
    """``Γ(a + 1/2) / Γ(a) = √π / B(a, 1/2)``, B the beta function."""
    if a < _MANY:
        return math.gamma(a + 0.5) / math.gamma(a)
    return math.sqrt(a) * sum(term / a**power for power, term in enumerate(_RATIO_SERIES))


def _tail(x: float, a: float) -> float:
    """The continued fraction ``1 / (β1 + α1 / (β2 + α2 / …))``, evaluated with Lentz's method."""
    b, y = 0.5, 1.0 - x
    gap = (a + b) * y - b  # a - (a + b) x without cancellation
    value = c = a / (a + 1.0) * (gap + 1.0)
    d = 0.0
    for n in range(1, _MAX_STEPS):
        alpha = (a + n - 1) * (a + b + n - 1) * n * (b - n) * (x / (a + 2 * n - 1)) ** 2
        beta = n + n * (b - n) * x / (a + 2 * n - 1) + (a + n) / (a + 2 * n + 1) * (gap + 1.0 + n * (1.0 + y))
        d = 1.0 / (beta + alpha * d)
        c = beta + alpha / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return 1.0 / value


def _between(y: float, a: float) -> float:
    """``Σ (a + 1/2)_k / (3/2)_k y^k``; all terms are positive."""
    total = term = 1.0
    for k in range(_MAX_STEPS):
        term *= (a + 0.5 + k) / (1.5 + k) * y
        total += term
        if term < 1e-17 * total:
            break
    return total
