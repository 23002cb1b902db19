"""Significance tests between all pairs of metrics, corrections for multiple tests, and significance clusters.

:func:`williams`, :func:`steiger` and :func:`mcnemar` are closed-form tests for independent data points; :func:`compare`
offers them next to permutation and bootstrap tests.

References:
    Williams, E. J. (1959). The comparison of regression variables. Journal of the Royal Statistical Society B 21 (2).
    Steiger, J. H. (1980). Tests for comparing elements of a correlation matrix. Psychological Bulletin 87 (2).
    Graham, Y. and Baldwin, T. (2014). Testing for significance of increased correlation with human judgment. EMNLP.
    McNemar, Q. (1947). Note on the sampling error of the difference between correlated proportions or percentages.
    Psychometrika 12 (2).
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.
    Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate. Journal of the Royal Statistical
    Society B 57 (1).
    Deutsch, D., Dror, R. and Roth, D. (2021). A statistical analysis of summarization evaluation metrics using
    resampling methods. Transactions of the ACL 9.
    Phipson, B. and Smyth, G. K. (2010). Permutation p-values should never be zero. Statistical Applications in Genetics
    and Molecular Biology 9 (1).
    Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap, chapter 16.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capbench.core.arguments import MOST_RESAMPLES
from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray
from capbench.stats.agreement import Agreement, Correlations
from capbench.stats.correlation import correlation, t_p_value
from capbench.stats.intervals import BootstrapSample
from capbench.stats.pairs import Correction, Pair, Test, Tests, Unit
from capbench.stats.permutation import SwapSum, permutation_p_values, swap_p_values
from capbench.stats.resampling import observed_value


class FormulaTest(NamedTuple):
    """A test statistic and its two-sided p-value."""

    statistic: float  # t, z, or the number of pairs on which only the first metric is right
    p_value: float


def williams(r12: float, r13: float, r23: float, n: int) -> FormulaTest:
    """Williams' t test for equal correlations of variable 1 (human ratings) with variables 2 and 3 (two metrics).

    ::

        t = (r12 - r13) sqrt( (n - 1) (1 + r23) / ( 2 K (n - 1) / (n - 3) + ((r12 + r13) / 2)² (1 - r23)³ ) )
        K = 1 - r12² - r13² - r23² + 2 r12 r13 r23        with n - 3 degrees of freedom

    (Williams 1959, in the form of Steiger 1980.) It is for Pearson's r of n ≥ 4 independent data points; for
    Spearman's rho it is an approximation, and for tau it is not defined.
    """
    if r12 == r13:
        return FormulaTest(0.0, 1.0)
    k = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    mean = (r12 + r13) / 2
    below = 2 * k * (n - 1) / (n - 3) + mean**2 * (1 - r23) ** 3
    if below <= 0:
        raise StatisticError(f"Williams' test is not defined for the correlations {r12:g}, {r13:g} and {r23:g}")
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / below)
    degrees = n - 3
    return FormulaTest(t, t_p_value(degrees / (degrees + t * t), degrees))


def steiger(r12: float, r13: float, r23: float, n: int) -> FormulaTest:
    """Steiger's z test: Fisher's transform of both correlations, with their covariance at the mean correlation.

    ::

        z = (atanh(r12) - atanh(r13)) sqrt(n - 3) / sqrt(2 - 2 s)
        s = (r23 (1 - 2 r²) - r² (1 - 2 r² - r23²) / 2) / (1 - r²)²,   r = (r12 + r13) / 2

    (Steiger 1980; a modification of Dunn and Clark 1969.) Like :func:`williams`, it is for Pearson's r of independent
    data points; it is not defined for a correlation of exactly 1 or -1, whose transform is infinite.
    """
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

    Under the null hypothesis, each of the two metrics is right on half of the independent pairs on which exactly one
    is right. The p-value is twice the binomial probability, at most 1.
    """
    n, fewer = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return FormulaTest(0.0, 1.0)
    from scipy.special import bdtr

    return FormulaTest(float(only_first), min(1.0, 2 * float(bdtr(fewer, n, 0.5))))


def adjust(p_values: Sequence[float] | NDArray[np.generic], correction: Correction) -> FloatArray:
    """Adjusted p-values; a test is significant if its adjusted p-value is at most α.

    With the p-values in ascending order, p_(1) ≤ … ≤ p_(m):

    - ``holm``: ``max_{j ≤ i} min(1, (m - j + 1) p_(j))``. Bounds the probability of one or more false differences in
      the table by α, for any dependence between the tests.
    - ``bh``: ``min_{j ≥ i} min(1, m p_(j) / j)``. Bounds the expected share of false differences among the significant
      ones by α, for independent or positively dependent tests.
    - ``none``: unchanged.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if correction == "none" or not len(p):
        return p.copy()
    m = len(p)
    order = np.argsort(p, kind="stable")
    ranks = np.arange(1, m + 1)
    if correction == "holm":
        steps = np.maximum.accumulate((m - ranks + 1) * p[order])
    else:
        steps = np.minimum.accumulate((m * p[order] / ranks)[::-1])[::-1]
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def adjusted_pairs(
    differences: Sequence[tuple[str, str, float]], p_values: Sequence[float], correction: Correction, alpha: float
) -> list[Pair]:
    """Better and worse with their difference as tests, whose p-values are adjusted together."""
    adjusted = adjust(p_values, correction).tolist()
    return [
        Pair(better=better, worse=worse, difference=difference, p_value=p, p_adjusted=q, significant=q <= alpha)
        for (better, worse, difference), p, q in zip(differences, p_values, adjusted, strict=True)
    ]


def significance_ranks(values: Mapping[str, float], differ: Callable[[str, str], bool]) -> dict[str, int]:
    """Significance clusters: ranks with ties as in the WMT metrics task (Freitag et al. 2022, WMT22 shared task).

    From the best metric downwards, metrics get rank 1 until one differs significantly from any metric of rank 1. It
    gets rank 2, and the following metrics are compared with those of rank 2 only, and so on. Larger values are better,
    and equal ones keep their order.
    """
    ranks: dict[str, int] = {}
    rank, members = 1, list[str]()
    for name in sorted(values, key=lambda name: -values[name]):
        if any(differ(name, member) for member in members):
            rank, members = rank + 1, []
        ranks[name] = rank
        members.append(name)
    return ranks


RESAMPLES = 1_000
"""Default number of bootstrap resamples; the ends of 95 % intervals require about this many."""
PERMUTATIONS = 10_000
"""Default number of permutations of a test: 45 pairs of 10 metrics can still reach p = .005 after correction."""

# Number of data points of the pairs of metrics that are prepared at a time: each requires tables of all scores.
_POINTS_TOGETHER = 100_000


def permutations_needed(pairs: int, alpha: float = 0.05, correction: Correction = "holm") -> int:
    """Minimum number of permutations with which a single difference can be significant.

    The smallest possible p-value of R permutations is ``1 / (R + 1)``. After a correction for m pairs it is up to m
    times as large, so R must be ``m / α - 1`` or more. Raises StatisticError: these would be too many.
    """
    needed = max(1, math.ceil((pairs if correction != "none" else 1) / alpha) - 1)
    if needed > MOST_RESAMPLES:
        message = f"{needed:,} permutations, which the level {alpha:g} requires for {pairs} pairs, are too many"
        raise StatisticError(message, code="too-many", value=needed, hint="Use a larger significance level")
    return needed


def at_floor(
    p_value: float, p_adjusted: float, *, pairs: int, resamples: int | None, correction: Correction = "holm"
) -> bool:
    """True if a corrected p-value is only an upper bound, because the number of permutations limits it.

    No permutation of such a pair reached the observed difference, or the correction raised the p-value to the smallest
    one that the number R of permutations allows. This is ``1 / (R + 1)``, which Holm's method multiplies by the number
    of pairs; the method of Benjamini and Hochberg leaves it unchanged if all pairs have it. Closed-form tests
    (``resamples`` None) have no floor.
    """
    if resamples is None:
        return False
    rounding = 1 + 1e-9
    smallest = min(1.0, (pairs if correction == "holm" else 1) / (resamples + 1))
    return p_value * (resamples + 1) <= rounding or p_adjusted <= rounding * smallest


def permutations_to_use(
    requested: int | None,
    metrics: int,
    alpha: float = 0.05,
    correction: Correction = "holm",
    *,
    test: Test = "permutation",
) -> int:
    """Number of permutations (or resamples of the bootstrap test) to draw for all pairs of metrics.

    This is the requested number if a difference can be significant with it; otherwise twice
    :func:`permutations_needed`, so that more than the smallest p-value can be significant. The best metric is
    determined on the same data, so the correction covers all pairs (Hsu 1996, Multiple Comparisons, chapter 4).
    """
    needed = permutations_needed(metrics * (metrics - 1) // 2, alpha, correction)
    if requested is None:
        return max(RESAMPLES if test == "bootstrap" else PERMUTATIONS, 2 * needed)
    return requested if requested >= needed else 2 * needed


def compare(
    data: Agreement,
    *,
    test: Test = "permutation",
    correction: Correction = "holm",
    alpha: float = 0.05,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    unit: Unit = "image",
    sample: BootstrapSample | None = None,
    level: float = 0.95,
) -> Tests:
    """Test every pair of metrics, two-sided.

    ===========  ====================================================================================================
    permutation  PERM-BOTH (Deutsch et al. 2021): under the null hypothesis the two metrics are exchangeable, so their
                 scores of an image on a common scale (for accuracies, their credits for its pairs) are swapped on
                 random images. ``p = (1 + #{|δ*| ≥ |δ|}) / (1 + R)`` (Phipson and Smyth 2010).
    bootstrap    paired bootstrap: ``p = (1 + #{|δ* - δ| ≥ |δ|}) / (1 + R)``, δ* the difference on the same resample of
                 images (Efron and Tibshirani 1993, chapter 16: the distribution is shifted to the null hypothesis).
    williams     Williams' t (1959), Pearson and Spearman only, independent data points.
    steiger      Steiger's z (1980), likewise.
    mcnemar      McNemar's exact test (1947), accuracies only, independent pairs; ties must count 0 or 1.
    ===========  ====================================================================================================

    All pairs share the permutations. ``unit`` is the name of the units of ``data``, and ``sample`` a bootstrap of the
    same data, for intervals of the differences and for the test ``bootstrap``, which requires it.
    :func:`capbench.studies.study.misfit` says which closed-form tests apply.
    """
    value_by_name = {name: observed_value(data.statistic(name)) for name in data.names}
    values = dict(sorted(value_by_name.items(), key=lambda entry: -entry[1]))
    pairs = list(itertools.combinations(values, 2))
    resamples: int | None = None
    if test == "permutation":
        resamples = permutations
        p_values = _permutation(data, pairs, permutations, seed)
    elif test == "bootstrap":
        assert sample is not None
        resamples, seed = sample.resamples, sample.seed
        p_values = _paired_bootstrap(sample, pairs)
    else:
        p_values = np.array([_formula(data, test, *pair).p_value for pair in pairs])
    differences = [(better, worse, values[better] - values[worse]) for better, worse in pairs]
    comparisons = adjusted_pairs(differences, p_values.tolist(), correction, alpha)
    if sample is not None:
        ends = (sample.difference_interval(pair.better, pair.worse, level) for pair in comparisons)
        comparisons = [replace(pair, low=low, high=high) for pair, (low, high) in zip(comparisons, ends, strict=True)]
    apart = {frozenset((c.better, c.worse)) for c in comparisons if c.significant}

    def differ(first: str, second: str) -> bool:
        return frozenset((first, second)) in apart

    drawn = resamples is not None
    return Tests(
        test=test,
        correction=correction,
        alpha=alpha,
        unit=unit if drawn else None,
        units=data.units if drawn else data.points,
        resamples=resamples,
        seed=seed if drawn else None,
        level=None if sample is None else level,
        top=tuple(name for place, name in enumerate(values) if not place or not differ(next(iter(values)), name)),
        ranks=significance_ranks(values, differ),
        pairs=tuple(comparisons),
    )


def better_p_values(
    data: Agreement, pairs: Sequence[tuple[str, str]], *, permutations: int, seed: int = 0
) -> FloatArray:
    """One-sided p-values of the hypothesis that the first metric of a pair agrees better than the second (PERM-BOTH).

    Swapping all units that a permutation does not swap changes the sign of its difference. With each permutation and
    this complement, the one-sided p-value is half of the two-sided one of :func:`compare` if the first metric agrees
    better, and 1 minus that half otherwise.
    """
    data.check_resampling()
    values = {name: observed_value(data.statistic(name)) for name in dict.fromkeys(itertools.chain(*pairs))}
    half = _permutation(data, pairs, permutations, seed) / 2
    is_better = np.array([values[first] > values[second] for first, second in pairs])
    return np.where(is_better, half, 1 - half)


def _permutation(data: Agreement, pairs: Sequence[tuple[str, str]], permutations: int, seed: int) -> FloatArray:
    together = max(1, _POINTS_TOGETHER // data.points)
    p_values: list[float] = []
    for start in range(0, len(pairs), together):
        some = pairs[start : start + together]
        differences = [SwapSum(data.units, data.swap_terms(*pair, 1.0, slice(None))) for pair in some]
        p_values += swap_p_values(differences, permutations, seed)
    return np.array(p_values)


def _paired_bootstrap(sample: BootstrapSample, pairs: list[tuple[str, str]]) -> FloatArray:
    observed = np.array([sample.estimates[a] - sample.estimates[b] for a, b in pairs])
    differences = np.stack([sample.values[a] - sample.values[b] for a, b in pairs])
    return permutation_p_values(np.abs(differences - observed[:, None]), np.abs(observed))


def _formula(data: Agreement, test: Test, first: str, second: str) -> FormulaTest:
    """A closed-form test of one sample of references: for accuracies McNemar's, else a test of correlations."""
    a, b = data.scores[first][0], data.scores[second][0]
    if not isinstance(data, Correlations):
        return mcnemar(int(np.sum(a > b)), int(np.sum(b > a)))
    n = len(data.human)
    if n < 4:
        message = f"a test between two correlations requires four data points or more, got {n}"
        raise StatisticError(message, code="too-few", value=n)
    r12, r13 = (correlation(data.coefficient, scores, data.human).value for scores in (a, b))
    r23 = correlation(data.coefficient, a, b).value
    return (williams if test == "williams" else steiger)(r12, r13, r23, n)
