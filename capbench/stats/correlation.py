"""Correlations of metrics with human ratings: Kendall's tau-b and tau-c, Spearman's rho, Pearson's r, and acc*_eq.

The four correlations agree with :mod:`scipy.stats` up to rounding, on values that are not equal up to rounding
(:mod:`capbench.stats.ties`); Pearson's r is computed from the values as they are. Data without a correlation (constant
sides, NaN) raise an error and never return NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray, IntArray
from capbench.stats.kendall import RankCode, kendall_p_value, pair_counts, rank_encode, tau_b, tau_c
from capbench.stats.tie_calibration import calibrate_ties
from capbench.stats.ties import merged
from capbench.stats.vectors import finite_vector, scaled_values


@dataclass(frozen=True)
class CorrelationResult:
    """A correlation coefficient."""

    value: float  # the coefficient, in [-1, 1]; acc*_eq in [0, 1]
    n: int  # number of data points
    # two-sided p-value under the hypothesis of no association, see :func:`correlation`; None for acc*_eq
    p_value: float | None
    ties: int  # pairs of data points with equal scores, whether or not the ratings are equal too


def correlation(
    coefficient: Coefficient,
    x: Sequence[float] | NDArray[np.generic],  # (n,) scores of a metric
    y: Sequence[float] | NDArray[np.generic],  # (n,) human ratings of the same data points
    *,
    name_x: str = "the scores",  # name of x in error messages
    name_y: str = "the human ratings",  # name of y in error messages
) -> CorrelationResult:
    """Correlate scores with human ratings.

    ========  ==========================================================  =======================================
    name      formula                                                     p-value
    ========  ==========================================================  =======================================
    tau-b     ``(C - D) / sqrt((N - Tx) (N - Ty))`` (Kendall 1945)        exact or normal, see ``kendall_p_value``
    tau-c     ``2 (C - D) / (n² (m - 1) / m)`` (Stuart 1953)              the same as tau-b's
    spearman  Pearson's r of the average ranks (Spearman 1904)            ``I(1 - r²; (n - 2) / 2, 1/2)``
    pearson   ``Σ dx dy / sqrt(Σ dx² Σ dy²)``, d = deviation from mean    ``I(1 - r²; (n - 2) / 2, 1/2)``
    acc-eq    ``(C + Txy) / N``, x tied up to the best ε (Deutsch 2023)   none
    ========  ==========================================================  =======================================

    C and D are the numbers of concordant and discordant pairs among N, Tx and Ty the tied ones, m the smaller
    number of distinct values in the data of the two sides (also scipy's rule for tau-c). I is the
    regularised incomplete beta function, equivalent to Student's t with n - 2 degrees of freedom; with n = 2
    the p-value is 1. A p-value below the smallest float is 0.0.

    P-values assume independent data points. Several ratings of one caption are dependent, so p-values of unaggregated
    ratings are too small.

    Raises StatisticError: fewer than two data points, a value that is NaN or infinite, or a side on
    which all values are equal.
    """
    xs, ys = checked_sides(coefficient, x, y, name_x, name_y)
    n, x_code, y_code = len(xs), rank_encode(xs), rank_encode(ys)
    p_value: float | None = None
    if coefficient in ("tau-b", "tau-c"):
        counts = pair_counts(x_code, y_code)
        value = tau_b(counts) if coefficient == "tau-b" else tau_c(counts)
        p_value = kendall_p_value(x_code, y_code, counts)
    elif coefficient == "acc-eq":
        value = calibrate_ties(xs, ys, name=name_x).accuracy
    else:
        if coefficient == "spearman":
            value, rest = _spearman(x_code, y_code)
        else:
            a, b = _unit_deviation(finite_vector(x, name_x)), _unit_deviation(finite_vector(y, name_y))
            value = max(-1.0, min(1.0, float((a * b).sum())))
            rest = (1.0 - value) * (1.0 + value)
        p_value = 1.0 if n == 2 else t_p_value(rest, n - 2)
    return CorrelationResult(value, n, p_value, x_code.ties())


def checked_sides(
    coefficient: Coefficient,
    x: Sequence[float] | NDArray[np.generic],
    y: Sequence[float] | NDArray[np.generic],
    name_x: str = "the scores",
    name_y: str = "the human ratings",
) -> tuple[FloatArray, FloatArray]:
    """Both sides as (n,) float64 arrays for which :func:`correlation` is defined; the same arguments and errors.

    Values that are equal up to rounding are equal in the result.
    """
    xs, ys = merged(finite_vector(x, name_x)), merged(finite_vector(y, name_y))
    if len(xs) < 2:
        message = f"a correlation of {name_x} with {name_y} requires two data points or more, got {len(xs)}"
        raise StatisticError(message, code="too-few", value=len(xs))
    for values, name in ((xs, name_x), (ys, name_y)):
        if values.min() == values.max():
            raise StatisticError(
                f"the correlation of {name_x} with {name_y} is not defined: all {len(values)} values of {name} "
                f"are equal to {float(values[0]):g}",
                value=name,
            )
    return xs, ys


def t_p_value(rest: float, degrees: int) -> float:
    """Two-sided p-value of Student's t: ``I(rest; degrees / 2, 1/2)``, I the regularised incomplete beta function.

    ``rest``: ``degrees / (degrees + t²)``, from 0 to 1; ``1 - r²`` for a correlation r of n points.
    """
    from scipy.special import betainc

    return float(betainc(degrees / 2, 0.5, rest))


def _spearman(x: RankCode, y: RankCode) -> tuple[float, float]:
    """Rho and 1 - rho². Doubled average ranks are integers, so all sums are exact."""
    a, b = x.doubled_ranks(), y.doubled_ranks()
    ab, aa, bb = exact_dot(a, b), exact_dot(a, a), exact_dot(b, b)
    return max(-1.0, min(1.0, ab / math.sqrt(aa * bb))), (aa * bb - ab * ab) / (aa * bb)


def exact_dot(a: IntArray, b: IntArray) -> int:
    """``Σ a b`` as a Python integer. The sum over ranks grows with n³ and passes 2**63 near n = 3,000,000.

    The largest product of an element of each is below 2**63.
    """
    largest = max(1, int(np.abs(a).max()) * int(np.abs(b).max()))
    step = max(1, (2**63 - 1) // largest)
    return sum(int((a[i : i + step] * b[i : i + step]).sum()) for i in range(0, len(a), step))


def _unit_deviation(values: FloatArray) -> FloatArray:
    """Deviations from the mean, scaled to length 1, without overflow or underflow of any finite input."""
    # First the values are scaled, so that their sum cannot overflow ...
    scaled = scaled_values(values)
    deviation = scaled - scaled.mean()
    # ... the second pass removes the rounding error of the mean, which matters for nearly equal values ...
    deviation -= deviation.mean()
    # ... and the deviations, so that their squares do not underflow.
    deviation = scaled_values(deviation)
    return np.asarray(deviation / math.sqrt(float((deviation * deviation).sum())), dtype=np.float64)
