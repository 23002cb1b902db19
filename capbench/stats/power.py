"""Power analysis: the amount of data needed to distinguish two metrics.

The standard error of the difference is estimated by resampling the data at several sizes. This also shows if it
decreases with the square root of the size, as the extrapolation assumes.

Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap, chapter 25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from capbench.core.errors import StatisticError
from capbench.stats.agreement import Agreement
from capbench.stats.pairs import Unit
from capbench.stats.resampling import Bootstrap, evaluate, observed_value

# Resamples of fewer units are too small for a standard error.
_SMALLEST = 10
FEWEST_UNITS = 20
"""Number of units below which an estimate is unreliable: the standard error itself is only known to about 16 %."""


@dataclass(frozen=True)
class PowerPoint:
    """Power at one size."""

    units: int
    standard_error: float  # of the difference, from resamples of this size
    # power of a two-sided test at α for the gap, ``Φ(gap/s - z) + Φ(-gap/s - z)``, at least α; s is the standard error
    # and z is ``z_{1-α/2}``
    power: float


@dataclass(frozen=True)
class Power:
    """Number of units needed to distinguish two metrics."""

    first: str
    second: str
    difference: float  # first minus second on the full data
    gap: float  # the difference to detect
    alpha: float  # significance level, two-sided
    target: float  # target power
    unit: Unit  # unit of resampling
    units: int  # number of units in the data
    # units for the target power, ``((z_{1-α/2} + z_target) σ / gap)²``, where σ² is the mean of units · standard_error²
    # over the sizes, or :func:`fewest_units` if that is more
    needed: int
    points: tuple[PowerPoint, ...]  # power at several sizes
    resamples: int  # resamples at each size
    seed: int


def fewest_units(alpha: float, pairs: int = 1) -> int:
    """The smallest number of units on which a permutation test can find any difference.

    The scores of two metrics can be swapped on n units in 2ⁿ ways, and each of them gives the same absolute difference
    as its complement: the smallest p-value is 2 / 2ⁿ. ``pairs``: number of pairs in the correction of the p-values.
    """
    return math.ceil(1 + math.log2(pairs / alpha))


def power(
    data: Agreement,
    first: str,
    second: str,
    *,
    # the difference to detect; None for the observed one. At the size of the data, power for the observed difference
    # only restates its p-value; it is useful for other sizes
    gap: float | None = None,
    alpha: float = 0.05,  # significance level, two-sided
    target: float = 0.8,  # target power
    resamples: int = 500,  # resamples at each size
    seed: int = 0,
    unit: Unit = "image",  # name of the units of ``data``; recorded only
) -> Power:
    """Estimate the number of units needed to distinguish two metrics, from resamples of ¼ to 2 × the size of the data.

    Raises StatisticError: a gap of 0; a power below the significance level; metrics that never differ on a resample; or
    a statistic that is undefined on more than 5 % of the resamples.
    """
    if alpha >= target:
        message = f"the power {target:g} must be above the significance level {alpha:g}"
        raise StatisticError(message, code="out-of-range", value=target)
    data.check_resampling()
    statistics = [data.statistic(first), data.statistic(second)]
    difference = observed_value(statistics[0]) - observed_value(statistics[1])
    target_gap = abs(difference) if gap is None else abs(gap)
    if target_gap**2 == 0:  # which is what the units needed are divided by
        message = f"{first} and {second} have equal values: no amount of data distinguishes them"
        raise StatisticError(message, value=0, hint="Set the gap to detect")
    sizes = sorted({max(_SMALLEST, data.units * quarters // 4) for quarters in (1, 2, 4, 8)})
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / 2)
    points, variances = [], []
    for size in sizes:
        drawn = evaluate(statistics, Bootstrap(data.units, resamples, seed, size))
        values = drawn[0] - drawn[1]
        values = values[~np.isnan(values)]
        if len(values) < 0.95 * resamples:
            message = f"{data.label} is not defined on {resamples - len(values)} of {resamples} resamples"
            raise StatisticError(f"{message} of {size} units", value=size)
        error = float(values.std(ddof=1))
        if error == 0:
            message = f"{first} and {second} never differ: no amount of data distinguishes them"
            raise StatisticError(message, value=0)
        detected = normal.cdf(target_gap / error - z) + normal.cdf(-target_gap / error - z)
        points.append(PowerPoint(int(size), error, detected))
        variances.append(size * error * error)
    needed = math.ceil((z + normal.inv_cdf(target)) ** 2 * float(np.mean(variances)) / target_gap**2)
    needed = max(needed, fewest_units(alpha))
    aims = difference, target_gap, alpha, target
    return Power(first, second, *aims, unit, data.units, needed, tuple(points), resamples, seed)
