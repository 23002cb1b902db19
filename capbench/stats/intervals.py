"""Confidence intervals by the bootstrap: percentile and BCa.

Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap, chapters 13 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from capbench.core.arguments import BootstrapMethod
from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray
from capbench.stats.agreement import Agreement
from capbench.stats.resampling import Bootstrap, LeaveOneOut, evaluate, observed_value

_UNDEFINED = 0.05  # a bootstrap is rejected if a larger share of its resamples has no value


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    value: float  # the statistic on the full data
    low: float  # lower end
    high: float  # upper end
    units: int  # number of resampled units
    resamples: int
    seed: int
    undefined: int = 0  # number of resamples excluded because the statistic is not defined on them (a constant side)


@dataclass(frozen=True, eq=False)
class BootstrapSample:
    """Values of all metrics on the same resamples."""

    estimates: Mapping[str, float]  # by metric, on the full data
    values: Mapping[str, FloatArray]  # (R,) by metric, on the resamples; NaN where the statistic is not defined
    units: int
    seed: int

    @property
    def resamples(self) -> int:
        """Number of resamples, R."""
        return len(next(iter(self.values.values())))

    def difference_interval(self, first: str, second: str, level: float) -> tuple[float, float]:
        """The ends of the percentile interval of the difference of two metrics."""
        differences = self.values[first] - self.values[second]
        low, high = np.quantile(differences[~np.isnan(differences)], ((1 - level) / 2, (1 + level) / 2)).tolist()
        return low, high


def draw_bootstrap(
    data: Agreement,  # the metrics and the human side; its units are drawn
    *,
    resamples: int = 1000,  # 1,000 are recommended for 95 % intervals, 2,000 for BCa
    seed: int = 0,
) -> BootstrapSample:
    """Draw units with replacement and evaluate all metrics on each resample (Efron 1979).

    Raises StatisticError: a statistic that is undefined on more than 5 % of the resamples, or too slow for resampling.
    """
    data.check_resampling()
    draws = Bootstrap(data.units, resamples, seed)
    estimates, values = {}, {}
    for name in data.names:  # one at a time, since each requires tables of all scores
        statistic = data.statistic(name)
        estimates[name] = observed_value(statistic)
        values[name] = evaluate([statistic], draws)[0]
        undefined = int(np.isnan(values[name]).sum())
        if undefined > _UNDEFINED * resamples:
            raise StatisticError(
                f"{data.label} of {name} is not defined on {undefined} of {resamples} resamples of {data.units} units",
                value=name,
                hint="The data set is too small for a bootstrap: add images, or compute no intervals",
            )
    return BootstrapSample(estimates, values, data.units, seed)


def bootstrap_intervals(
    data: Agreement,  # the metrics and the human side
    sample: BootstrapSample,  # their bootstrap, from :func:`draw_bootstrap`
    *,
    # ``percentile`` uses the quantiles of the bootstrap values; ``bca`` corrects them for bias and for a spread that
    # depends on the value, at the cost of one more evaluation per unit (Efron 1987)
    method: BootstrapMethod = "percentile",
    level: float = 0.95,  # nominal coverage, in (0, 1)
) -> dict[str, Interval]:
    """Bootstrap intervals of all metrics. Raises StatisticError: BCa with all resamples on one side of the estimate."""
    left_out = None
    if method == "bca":
        left_out = evaluate([data.statistic(name) for name in data.names], LeaveOneOut(data.units))
    intervals = {}
    for i, (name, value) in enumerate(sample.estimates.items()):
        values = sample.values[name][~np.isnan(sample.values[name])]
        shares = ((1 - level) / 2, (1 + level) / 2)
        if left_out is not None:
            shares = _bca_shares(name, value, values, left_out[i], level)
        low, high = (float(q) for q in np.quantile(values, shares))
        drawn = sample.units, sample.resamples, sample.seed
        intervals[name] = Interval(value, low, high, *drawn, undefined=sample.resamples - len(values))
    return intervals


def _bca_shares(name: str, value: float, values: FloatArray, left_out: FloatArray, level: float) -> tuple[float, float]:
    """The quantiles that BCa uses (Efron and Tibshirani 1993, equations 14.9 to 14.15)."""
    from scipy.special import ndtr, ndtri

    if np.isnan(left_out).any():
        message = f"BCa is not defined for {name}: without one of its units the statistic has no value"
        raise StatisticError(message, value=name, hint="Use percentile")
    # Resamples that equal the estimate count half on either side.
    share = float(np.mean(values < value) + np.mean(values <= value)) / 2
    if not 0 < share < 1:
        message = f"BCa is not defined for {name}: all resamples are on one side of the estimate"
        raise StatisticError(message, value=name, hint="Use percentile")
    bias = float(ndtri(share))
    influence = left_out.mean() - left_out
    squares = float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * squares**1.5) if squares > 0 else 0.0
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + float(ndtri(tail))
        ends.append(float(ndtr(bias + z / (1 - acceleration * z))))
    return ends[0], ends[1]
