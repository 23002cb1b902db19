"""Two-sided p-values of Student's t, without importing :mod:`scipy.special`.

scipy's function of the same value takes longer to import than a whole table of correlations takes to compute. Both
agree to rounding.
"""

from __future__ import annotations

import math

__all__ = ["t_p_value"]

_MANY = 100.0  # from here on the series of the gamma functions' ratio is exact to rounding
_RATIO_SERIES = (1.0, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144, 869 / 4194304)
_FAR = 3.0  # from this t² on the tail is computed, below it what lies between -t and t
_MOST_STEPS = 10_000  # some 150 are needed where they are needed most


def t_p_value(rest: float, degrees: int) -> float:
    """Probability that abs(t) is as large or larger: ``I(rest; degrees / 2, 1/2)``, I the regularised incomplete beta.

    The tail is the continued fraction of DiDonato and Morris (ACM TOMS 18, 1992), what lies between -t and t the series
    DLMF 8.17.8. In neither does a difference of nearly equal numbers arise, so the error is that of rounding.

    Args:
        rest: ``degrees / (degrees + t²)``, from 0 to 1; of a correlation r of n points, ``1 - r²``.
        degrees: degrees of freedom, 1 or more.

    Returns:
        The p-value; 0.0 below the smallest float.
    """
    if rest <= 0.0:
        return 0.0
    if rest >= 1.0:
        return 1.0
    a = degrees / 2
    # x^a y^b / B(a, b), in which b is 1/2.
    factor = math.pow(rest, a) * math.sqrt(1.0 - rest) * _gamma_ratio(a) / math.sqrt(math.pi)
    if degrees * (1.0 - rest) >= _FAR * rest:
        return factor * _tail(rest, a)
    return 1.0 - 2.0 * factor * _between(1.0 - rest, a)


def _gamma_ratio(a: float) -> float:
    """``Γ(a + 1/2) / Γ(a)``: 1 over the beta function B(a, 1/2), times the root of π."""
    if a < _MANY:
        return math.gamma(a + 0.5) / math.gamma(a)
    return math.sqrt(a) * sum(term / a**power for power, term in enumerate(_RATIO_SERIES))


def _tail(x: float, a: float) -> float:
    """The continued fraction ``1 / (β1 + α1 / (β2 + α2 / …))``, evaluated as Lentz does."""
    b, y = 0.5, 1.0 - x
    gap = (a + b) * y - b  # a - (a + b) x, without taking away what is nearly as large
    value = c = a / (a + 1.0) * (gap + 1.0)
    d = 0.0
    for n in range(1, _MOST_STEPS):
        alpha = (a + n - 1) * (a + b + n - 1) * n * (b - n) * (x / (a + 2 * n - 1)) ** 2
        beta = n + n * (b - n) * x / (a + 2 * n - 1) + (a + n) / (a + 2 * n + 1) * (gap + 1.0 + n * (1.0 + y))
        d = 1.0 / (beta + alpha * d)
        c = beta + alpha / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return 1.0 / value


def _between(y: float, a: float) -> float:
    """``Σ (a + 1/2)_k / (3/2)_k y^k``, all of its terms positive."""
    total = term = 1.0
    for k in range(_MOST_STEPS):
        term *= (a + 0.5 + k) / (1.5 + k) * y
        total += term
        if term < 1e-17 * total:
            break
    return total
