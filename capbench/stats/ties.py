"""Values that are equal up to rounding: scores, and differences and means of decimals.

Decimals are binary in memory, so that .9 - .6 differs from .6 - .3, and the mean of (.2, .2, .2) from that of
(.1, .2, .3), in the last bit. Scores that agree to 12 digits are one value, and so are differences and means that agree
to 8 units in the last place of their operands. Statistics replace such values once, before pairs are counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray, IntArray

SCORE_ROUNDING = 1e-12
"""Scores are equal up to this fraction of them."""

SUM_ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Differences and means are equal up to this fraction of their operands."""


def merged(values: FloatArray, operands: FloatArray | None = None) -> FloatArray:
    """Replace values that are equal up to rounding by the largest of them.

    ``values``: (n,) finite values; ``operands``: (n,) for differences and means, the magnitude of what they are
    computed from: the larger absolute value of two operands, or the sum of the absolute values; None for scores and
    ratings.

    Returns (n,) values. All others are unchanged.
    """
    if operands is None and not _any_rounded(np.sort(values)):  # much faster than the order
        return values
    by_value = np.argsort(values, kind="stable")
    ordered = values[by_value]
    last = last_of_equals(ordered, None if operands is None else operands[by_value])
    result = np.empty(len(values))
    result[by_value] = np.repeat(ordered[last], np.diff(last, prepend=-1))
    return result


def last_of_equals(values: FloatArray, operands: FloatArray | None = None) -> IntArray:
    """Positions of the last of each run of equal values; as :func:`merged`, for values in ascending order."""
    if operands is None:
        apart = ~_near(values[1:], values[:-1])
    else:
        apart = np.diff(values) > SUM_ROUNDING * np.maximum(operands[1:], operands[:-1])
    return np.flatnonzero(np.append(apart, True)[: len(values)])


def _any_rounded(values: FloatArray) -> bool:
    """True if two neighbours differ, but are equal up to rounding."""
    return bool((_near(values[1:], values[:-1]) & (values[1:] != values[:-1])).any())


def difference_rounding(difference: float, largest: float) -> float:
    """The distance up to which differences of two scores are equal to a given one.

    ``difference``: the difference; ``largest``: the largest absolute score. Different scores differ in the 12th digit
    or before, which also limits the operands of the difference.
    """
    return SUM_ROUNDING * min(largest, difference / SCORE_ROUNDING)


def _near(first: FloatArray, second: FloatArray) -> NDArray[np.bool_]:
    """True where two scores, or means of few scores, agree to 12 digits."""
    with np.errstate(over="ignore"):
        return np.asarray(
            np.abs(first - second) <= SCORE_ROUNDING * np.maximum(np.abs(first), np.abs(second)), dtype=np.bool_
        )


def order(first: FloatArray, second: FloatArray) -> FloatArray:
    """+1 where the first score is larger, -1 where the second is, 0 where they are equal up to rounding."""
    # Not the sign of a difference: that of two huge scores overflows.
    return np.where(_near(first, second), 0.0, (first > second).astype(np.float64) - (first < second))


def is_constant(values: FloatArray) -> bool:
    """True if all scores are equal up to rounding."""
    return bool(_near(values.min(), values.max()))
