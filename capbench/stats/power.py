"""How much data it takes to tell two metrics apart.

The standard error of the difference is found by resampling the data at hand at several sizes, which also shows whether
it falls with the square root of the size, as the extrapolation takes for granted.

Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap, chapter 25.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from capbench.core.errors import StatisticError
from capbench.stats.agreement import Agreement, Unit
from capbench.stats.resampling import Bootstrap, evaluate

__all__ = ["Power", "PowerPoint", "power"]

_SMALLEST = 10


@dataclass(frozen=True)
class PowerPoint:
    """Power at one size.

    Attributes:
        units: number of units.
        standard_error: of the difference, from resamples of so many units.
        power: how often a two-sided test at α finds the gap: the share of resamples with the difference, moved to the
            gap, beyond ``z_{1-α/2}`` standard errors.
    """

    units: int
    standard_error: float
    power: float


@dataclass(frozen=True)
class Power:
    """How many units separate two metrics.

    Attributes:
        first: one metric.
        second: the other one.
        difference: first minus second on the data at hand.
        gap: the difference to be found.
        alpha: significance level, two-sided.
        target: wanted power.
        unit: what a unit is.
        units: number of units at hand.
        needed: units that reach the target, ``((z_{1-α/2} + z_target) σ / gap)²``, where σ² is the mean of
            units · standard_error² over the sizes.
        points: power at several sizes.
        resamples: resamples at each size.
        seed: their seed.
    """

    first: str
    second: str
    difference: float
    gap: float
    alpha: float
    target: float
    unit: Unit
    units: int
    needed: int
    points: tuple[PowerPoint, ...]
    resamples: int
    seed: int


def power(
    data: Agreement,
    first: str,
    second: str,
    *,
    gap: float | None = None,
    sizes: Sequence[int] | None = None,
    alpha: float = 0.05,
    target: float = 0.8,
    resamples: int = 500,
    seed: int = 0,
    unit: Unit = "image",
    workers: int | None = None,
) -> Power:
    """Find how many units are needed to separate two metrics.

    Args:
        data: the metrics and the human side.
        first: one metric.
        second: the other one.
        gap: the difference to be found; None for the one at hand. Power for the observed difference only restates
            its p-value at the size at hand; what it is good for is another size.
        sizes: numbers of units to resample, 10 or more each; None for a quarter, a half, one and two times those at
            hand.
        alpha: significance level, two-sided.
        target: wanted power.
        resamples: resamples at each size, 100 or more.
        seed: their seed.
        unit: what ``data`` calls a unit; recorded only.
        workers: threads; None for the available cores. The values do not depend on it.

    Raises:
        StatisticError: unknown metrics; a gap of 0; sizes or numbers that do not fit; metrics that differ on no
            resample; or a statistic that is undefined on more than 5 % of the resamples.
    """
    for name in (first, second):
        if name not in data.names:
            raise StatisticError(f"there is no metric '{name}'", hint=f"Choices: {', '.join(data.names)}")
    if not (0 < alpha < 1 and 0 < target < 1 and alpha < target):
        raise StatisticError(f"a power of {target:g} at the significance level {alpha:g} does not make sense")
    if resamples < 100:
        raise StatisticError(f"{resamples} resamples are too few for a standard error", hint="Give 100 or more")
    data.check_resampling()
    statistics = [data.statistic(first), data.statistic(second)]
    whole = np.ones((1, data.units), dtype=np.int32)
    difference = float(statistics[0](whole)[0] - statistics[1](whole)[0])
    wanted = abs(difference) if gap is None else abs(gap)
    if wanted == 0:
        raise StatisticError(f"{first} and {second} are equal: no data tells them apart", hint="Give a gap to look for")
    if sizes is None:
        sizes = sorted({max(_SMALLEST, data.units * quarters // 4) for quarters in (1, 2, 4, 8)})
    if not sizes or min(sizes) < _SMALLEST:
        raise StatisticError(f"sizes of fewer than {_SMALLEST} units are too small for a standard error")
    z = NormalDist().inv_cdf(1 - alpha / 2)
    points, variances = [], []
    for size in sizes:
        drawn = evaluate(statistics, Bootstrap(data.units, resamples, seed, size), workers)
        values = drawn[0] - drawn[1]
        values = values[~np.isnan(values)]
        if len(values) < 0.95 * resamples:
            raise StatisticError(
                f"{data.label} is not defined on {resamples - len(values)} of {resamples} resamples of {size} units",
                hint="Leave this size out",
            )
        error = float(values.std(ddof=1))
        if error == 0:
            raise StatisticError(f"{first} and {second} never differ: no data tells them apart")
        detected = np.abs(values - difference + wanted) > z * error
        points.append(PowerPoint(int(size), error, float(detected.mean())))
        variances.append(size * error * error)
    needed = math.ceil((z + NormalDist().inv_cdf(target)) ** 2 * float(np.mean(variances)) / wanted**2)
    return Power(
        first, second, difference, wanted, alpha, target, unit, data.units, needed, tuple(points), resamples, seed
    )
