"""Confidence intervals: bootstrap (percentile, BCa), and closed formulas for comparison.

References:
    Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap, chapters 13 and 14.
    Fisher, R. A. (1921). On the "probable error" of a coefficient of correlation. Metron 1.
    Bonett, D. G. and Wright, T. A. (2000). Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations. Psychometrika 65 (1).
    Brown, M. B. and Benedetti, J. K. (1977). Sampling behavior of tests for correlation in two-way
    contingency tables. Journal of the American Statistical Association 72 (358).
    Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. Journal of
    the American Statistical Association 22 (158).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError, check_choice
from capbench.core.records import Coefficient, FloatArray
from capbench.stats.agreement import Agreement
from capbench.stats.correlation import checked_sides, correlation
from capbench.stats.kendall import partner_differences, rank_encode
from capbench.stats.pairs import Unit
from capbench.stats.resampling import Bootstrap, LeaveOneOut, evaluate, observed_value

IntervalMethod = Literal["percentile", "bca", "fisher", "asymptotic", "wilson"]

# A bootstrap is rejected if a larger share of its resamples has no value.
_UNDEFINED = 0.05


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Attributes:
        value: the statistic on the full data.
        low: lower end.
        high: upper end.
        level: nominal coverage (0.95).
        method: ``percentile`` or ``bca`` (bootstrap), ``fisher``, ``asymptotic`` or ``wilson`` (formulas, which assume
            independent data points).
        standard_error: standard deviation of the bootstrap values, or of the formula; None if there is none.
        unit: unit of resampling; None for formulas.
        units: number of units, or of data points for formulas.
        resamples: number of resamples; None for formulas.
        seed: seed of the resamples; None for formulas.
        undefined: number of resamples excluded because the statistic is not defined on them (a constant side).
    """

    value: float
    low: float
    high: float
    level: float
    method: IntervalMethod
    standard_error: float | None
    unit: Unit | None
    units: int
    resamples: int | None = None
    seed: int | None = None
    undefined: int = 0


@dataclass(frozen=True, eq=False)
class BootstrapSample:
    """Values of all metrics on the same resamples.

    Attributes:
        names: the metrics.
        label: name of the statistic.
        estimates: (S,) values on the full data.
        values: (S, R) values on the resamples; NaN where the statistic is not defined.
        unit: unit of resampling.
        units: number of units.
        seed: seed of the resamples.
    """

    names: tuple[str, ...]
    label: str
    estimates: FloatArray
    values: FloatArray
    unit: Unit
    units: int
    seed: int

    @property
    def resamples(self) -> int:
        """Number of resamples, R."""
        return int(self.values.shape[1])


def draw_bootstrap(
    data: Agreement,
    *,
    resamples: int = 1000,
    seed: int = 0,
    unit: Unit = "image",
    workers: int | None = None,
) -> BootstrapSample:
    """Draw units with replacement and evaluate all metrics on each resample (Efron 1979).

    Args:
        data: the metrics and the human side; its units are drawn.
        resamples: number of resamples, 100 or more; 1,000 are recommended for 95 % intervals, 2,000 for BCa.
        seed: seed of the resamples.
        unit: name of the units of ``data``; recorded only.
        workers: threads; None for the available cores. The values do not depend on it.

    Raises:
        StatisticError: too few resamples, a statistic that is undefined on more than 5 % of them, or one that is
            too slow for resampling.
    """
    if resamples < 100:
        message = f"{resamples} resamples are too few for an interval"
        raise StatisticError(message, code="too-few", value=resamples, hint="Use 100 or more")
    data.check_resampling()
    draws = Bootstrap(data.units, resamples, seed)
    estimates, values = np.empty(len(data.names)), np.empty((len(data.names), resamples))
    for place, name in enumerate(data.names):  # one at a time, since each requires tables of all scores
        statistic = data.statistic(name)
        estimates[place] = observed_value(statistic)
        values[place] = evaluate([statistic], draws, workers)[0]
    for name, undefined in zip(data.names, np.isnan(values).sum(axis=1).tolist(), strict=True):
        if undefined > _UNDEFINED * resamples:
            raise StatisticError(
                f"{data.label} of {name} is not defined on {undefined} of {resamples} resamples of {data.units} units",
                value=name,
                hint="The data set is too small for a bootstrap: add images, or compute no intervals",
            )
    return BootstrapSample(data.names, data.label, estimates, values, unit, data.units, seed)


def bootstrap_intervals(
    data: Agreement,
    sample: BootstrapSample,
    *,
    method: Literal["percentile", "bca"] = "percentile",
    level: float = 0.95,
    workers: int | None = None,
) -> dict[str, Interval]:
    """Bootstrap intervals of all metrics.

    Args:
        data: the metrics and the human side.
        sample: their bootstrap, from :func:`draw_bootstrap`.
        method: ``percentile`` uses the quantiles of the bootstrap values; ``bca`` corrects them for bias and for a
            spread that depends on the value, at the cost of one more evaluation per unit (Efron 1987).
        level: nominal coverage, in (0, 1).
        workers: threads; None for the available cores. The values do not depend on it.

    Raises:
        StatisticError: an invalid argument, or BCa with all resamples on one side of the estimate.
    """
    check_choice("interval", method, ("percentile", "bca"), StatisticError)
    _check_level(level)
    left_out = None
    if method == "bca":
        left_out = evaluate([data.statistic(name) for name in data.names], LeaveOneOut(data.units), workers)
    intervals = {}
    for i, name in enumerate(sample.names):
        value, values = float(sample.estimates[i]), sample.values[i]
        values = values[~np.isnan(values)]
        shares = ((1 - level) / 2, (1 + level) / 2)
        if left_out is not None:
            shares = _bca_shares(name, value, values, left_out[i], level)
        low, high = (float(q) for q in np.quantile(values, shares))
        intervals[name] = Interval(
            value,
            low,
            high,
            level,
            method,
            float(values.std(ddof=1)),
            sample.unit,
            sample.units,
            sample.resamples,
            sample.seed,
            sample.resamples - len(values),
        )
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


def correlation_interval(
    coefficient: Coefficient,
    x: Sequence[float] | NDArray[np.generic],
    y: Sequence[float] | NDArray[np.generic],
    *,
    level: float = 0.95,
    name: str = "the scores",
) -> Interval:
    """A closed-form interval for independent data points.

    ``pearson``: ``tanh(atanh(r) ± z / sqrt(n - 3))`` (Fisher 1921). ``spearman``: the same with
    ``sqrt((1 + r²/2) / (n - 3))`` (Bonett and Wright 2000). ``tau-b`` and ``tau-c``: value ± z ·
    asymptotic standard error (Brown and Benedetti 1977), which accounts for ties, clipped to ±1.

    Several ratings of one image are dependent, which makes these intervals too short. They are for comparison only.

    Args:
        coefficient: ``tau-b``, ``tau-c``, ``spearman`` or ``pearson``.
        x: (n,) scores of a metric.
        y: (n,) human ratings of the same data points.
        level: nominal coverage, in (0, 1).
        name: name of x in error messages.

    Raises:
        StatisticError: see :func:`~capbench.stats.correlation.correlation`; fewer than four data points; acc*_eq,
            which has no formula.
    """
    _check_level(level)
    if coefficient == "acc-eq":
        raise StatisticError("acc-eq has no closed-form interval", code="unsupported", value=coefficient)
    value = correlation(coefficient, x, y, name_x=name).value
    xs, ys = checked_sides(coefficient, x, y, name)
    n = len(xs)
    if n < 4:
        message = f"an interval of {coefficient} of {name} requires four data points or more, got {n}"
        raise StatisticError(message, code="too-few", value=n)
    z = _normal_quantile((1 + level) / 2)
    if coefficient in ("pearson", "spearman"):
        if abs(value) == 1:
            return Interval(value, value, value, level, "fisher", None, None, n)
        width = z * math.sqrt((1 if coefficient == "pearson" else 1 + value**2 / 2) / (n - 3))
        centre = math.atanh(value)
        return Interval(value, math.tanh(centre - width), math.tanh(centre + width), level, "fisher", None, None, n)
    error = _kendall_error(coefficient, xs, ys)
    low, high = max(-1.0, value - z * error), min(1.0, value + z * error)
    return Interval(value, low, high, level, "asymptotic", error, None, n)


def _kendall_error(coefficient: Coefficient, x: FloatArray, y: FloatArray) -> float:
    """Asymptotic standard error of tau-b or tau-c under multinomial sampling (Brown and Benedetti 1977).

    With ``d_i`` the concordant minus the discordant partners of data point i, ``t_i`` and ``u_i`` the numbers
    of data points with its x and its y, ``a = n² - Σ t²``, ``b = n² - Σ u²`` (sums over distinct values)::

        var(tau-c) = (2 m / ((m - 1) n²))² (Σ d_i² - (Σ d_i)² / n)
        var(tau-b) = (Σ (2 w d_i + tau-b · v_i)² - n³ tau-b² (a + b)²) / w⁴,  w = sqrt(a b),  v_i = t_i b + u_i a
    """
    a, b = rank_encode(x), rank_encode(y)
    n = len(x)
    partners = partner_differences(a.codes, b.codes, a.levels, b.levels)
    if coefficient == "tau-c":
        m = min(a.levels, b.levels)
        spread = float((partners * partners).sum()) - float(partners.sum()) ** 2 / n
        return 2 * m / ((m - 1) * n * n) * math.sqrt(max(0.0, spread))
    free_a = float(n * n - int((a.counts**2).sum()))
    free_b = float(n * n - int((b.counts**2).sum()))
    w = math.sqrt(free_a * free_b)
    tau = float(partners.sum()) / w
    v = a.counts[a.codes] * free_b + b.counts[b.codes] * free_a
    spread = float(((2 * w * partners + tau * v) ** 2).sum()) - n**3 * tau**2 * (free_a + free_b) ** 2
    return math.sqrt(max(0.0, spread)) / w**2


def accuracy_interval(right: float, n: int, *, level: float = 0.95) -> Interval:
    """Wilson's (1927) score interval of an accuracy on n independent pairs.

    Args:
        right: number of pairs that count as right, may be a multiple of one half.
        n: number of pairs.
        level: nominal coverage.

    Raises:
        StatisticError: no pairs, or a number of right ones outside [0, n].
    """
    _check_level(level)
    if n < 1 or not 0 <= right <= n:
        raise StatisticError(f"an accuracy of {right:g} right pairs among {n} is not defined", value=right)
    z = _normal_quantile((1 + level) / 2)
    share = right / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    error = math.sqrt(share * (1 - share) / n)
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), level, "wilson", error, None, n)


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        message = f"the level of an interval is {level:g}"
        raise StatisticError(message, code="out-of-range", value=level, hint="Use a number between 0 and 1 (0.95)")
