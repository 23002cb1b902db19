"""Tests from formulas between two metrics on the same judgements, for independent data points.

References:
    Williams, E. J. (1959). The comparison of regression variables. Journal of the Royal Statistical Society B 21 (2).
    Steiger, J. H. (1980). Tests for comparing elements of a correlation matrix. Psychological Bulletin 87 (2).
    Graham, Y. and Baldwin, T. (2014). Testing for significance of increased correlation with human judgment. EMNLP.
    McNemar, Q. (1947). Note on the sampling error of the difference between correlated proportions or percentages.
    Psychometrika 12 (2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from capbench.errors import StatisticError
from capbench.stats.student import t_p_value

__all__ = ["FormulaTest", "mcnemar", "steiger", "williams"]


@dataclass(frozen=True)
class FormulaTest:
    """A test statistic and its two-sided p-value.

    Attributes:
        statistic: t, z, or the number of pairs that only the first metric has right.
        p_value: two-sided.
        degrees: degrees of freedom of t; None for other statistics.
    """

    statistic: float
    p_value: float
    degrees: int | None = None


def williams(r12: float, r13: float, r23: float, n: int) -> FormulaTest:
    """Williams' t: does variable 1 (people) correlate differently with 2 and 3 (two metrics)?

    ::

        t = (r12 - r13) sqrt( (n - 1) (1 + r23) / ( 2 K (n - 1) / (n - 3) + ((r12 + r13) / 2)² (1 - r23)³ ) )
        K = 1 - r12² - r13² - r23² + 2 r12 r13 r23        with n - 3 degrees of freedom

    (Williams 1959, in the form that Steiger 1980 gives.) It is for Pearson's r of independent data points; for
    Spearman's rho it is an approximation, and for tau it is not defined.

    Args:
        r12: correlation of people with the first metric.
        r13: correlation of people with the second one.
        r23: correlation of the two metrics.
        n: number of data points, 4 or more.

    Raises:
        StatisticError: fewer data points, or three numbers that cannot be correlations of three variables.
    """
    _check(r12, r13, r23, n)
    if r12 == r13:
        return FormulaTest(0.0, 1.0, n - 3)
    k = _determinant(r12, r13, r23)
    mean = (r12 + r13) / 2
    below = 2 * k * (n - 1) / (n - 3) + mean**2 * (1 - r23) ** 3
    if below <= 0:
        raise StatisticError(f"Williams' test is not defined for the correlations {r12:g}, {r13:g} and {r23:g}")
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / below)
    degrees = n - 3
    return FormulaTest(t, t_p_value(degrees / (degrees + t * t), degrees), degrees)


def steiger(r12: float, r13: float, r23: float, n: int) -> FormulaTest:
    """Steiger's z: Fisher's transform of both correlations, with their covariance at the mean correlation.

    ::

        z = (atanh(r12) - atanh(r13)) sqrt(n - 3) / sqrt(2 - 2 s)
        s = (r23 (1 - 2 r²) - r² (1 - 2 r² - r23²) / 2) / (1 - r²)²,   r = (r12 + r13) / 2

    (Steiger 1980; a modification of Dunn and Clark 1969.) It is for Pearson's r of independent data points, as
    :func:`williams` is.

    Args:
        r12: correlation of people with the first metric.
        r13: correlation of people with the second one.
        r23: correlation of the two metrics.
        n: number of data points, 4 or more.

    Raises:
        StatisticError: as :func:`williams`; or a correlation of exactly 1 or -1, whose transform is infinite.
    """
    _check(r12, r13, r23, n)
    if r12 == r13:
        return FormulaTest(0.0, 1.0)
    mean = (r12 + r13) / 2
    if max(abs(r12), abs(r13)) == 1:
        raise StatisticError("Steiger's test is not defined for a correlation of 1 or -1")
    square = mean * mean
    s = (r23 * (1 - 2 * square) - square * (1 - 2 * square - r23 * r23) / 2) / (1 - square) ** 2
    if s >= 1:
        raise StatisticError(f"Steiger's test is not defined for the correlations {r12:g}, {r13:g} and {r23:g}")
    z = (math.atanh(r12) - math.atanh(r13)) * math.sqrt((n - 3) / (2 - 2 * s))
    return FormulaTest(z, math.erfc(abs(z) / math.sqrt(2)))


def mcnemar(only_first: int, only_second: int) -> FormulaTest:
    """McNemar's exact test of two accuracies on the same pairs.

    Of the pairs that just one of the two metrics has right, each has one half under the null hypothesis;
    the p-value is the binomial one, doubled and at most 1. For independent pairs.

    Args:
        only_first: pairs that only the first metric has right.
        only_second: pairs that only the second one has right.

    Raises:
        StatisticError: a negative number.
    """
    if only_first < 0 or only_second < 0:
        raise StatisticError("McNemar's test wants numbers of pairs from 0")
    n, fewer = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return FormulaTest(0.0, 1.0)
    from scipy.special import bdtr

    return FormulaTest(float(only_first), min(1.0, 2 * float(bdtr(fewer, n, 0.5))))


def _determinant(r12: float, r13: float, r23: float) -> float:
    return 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23


def _check(r12: float, r13: float, r23: float, n: int) -> None:
    if n < 4:
        raise StatisticError(f"a test between two correlations needs four data points or more, got {n}")
    # A determinant of 0 is allowed (a metric that follows from the others), with what rounding does to it.
    if not all(-1 <= r <= 1 for r in (r12, r13, r23)) or _determinant(r12, r13, r23) < -1e-9:
        raise StatisticError(f"{r12:g}, {r13:g} and {r23:g} are not the correlations of three variables")
