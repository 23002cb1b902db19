"""Paired tests between captioning systems on the same images, and corpus scores under resampling.

Corpus scores are functions of sums over images (BLEU of summed n-gram counts), so that a block of resamples is one
matrix product, and no caption is scored again.

References:
    Koehn, P. (2004). Statistical significance tests for machine translation evaluation. EMNLP.
    Riezler, S. and Maxwell, J. T. (2005). On some pitfalls in automatic evaluation and significance testing for MT.
    ACL workshop on intrinsic and extrinsic evaluation measures for machine translation and/or summarization.
    Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap, chapter 16.
    Phipson, B. and Smyth, G. K. (2010). Permutation p-values should never be zero. Statistical Applications in Genetics
    and Molecular Biology 9 (1).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.arguments import SystemTest
from capbench.core.errors import StatisticError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, IntArray
from capbench.stats.intervals import Interval
from capbench.stats.pairs import Correction
from capbench.stats.resampling import BLOCK, Bootstrap, Draws, Swaps
from capbench.stats.significance import PERMUTATIONS, RESAMPLES, adjust, permutations_needed

_LEVEL = 0.95
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class SumScores:
    """Corpus scores (the C columns of one metric) of one system, a function of sums over U units."""

    terms: FloatArray  # (U, t) of each unit
    scores: Callable[[FloatArray], FloatArray]  # (r, t) sums → (r, C) scores

    @classmethod
    def of_items(
        cls, terms: FloatArray, unit: IntArray, units: int, scores: Callable[[FloatArray], FloatArray]
    ) -> SumScores:
        """From terms (n, t) of items and their units ``unit`` (n,) in [0, units)."""
        by_unit = [np.bincount(unit, weights=column, minlength=units) for column in terms.T]
        return cls(np.column_stack(by_unit), scores)

    def drawn(self, weights: NDArray[np.integer]) -> FloatArray:
        """(B, C) scores with the units weighted by (B, U) weights."""
        return self.scores(weights.astype(np.float64) @ self.terms)

    def swapped(self, other: SumScores, swaps: NDArray[np.integer]) -> tuple[FloatArray, FloatArray]:
        """(B, C) scores of this system and of another one after exchanging the units with 1 in (B, U) swaps."""
        exchanged = swaps.astype(np.float64)
        gained = exchanged @ other.terms - exchanged @ self.terms  # the other system loses the same amount
        return self.scores(self.terms.sum(axis=0) + gained), other.scores(other.terms.sum(axis=0) - gained)


@dataclass(frozen=True, eq=False)
class CorpusGroup:
    """Corpus scores from the same statistics: the C columns of one metric, by system name."""

    names: tuple[str, ...]
    systems: Mapping[str, SumScores]


def _blocks(draws: Draws, progress: Progress) -> Iterator[tuple[slice, NDArray[np.integer]]]:
    """The places and the weights of each block of resamples."""
    from threadpoolctl import threadpool_limits

    # The products are so small that synchronising several threads takes longer than multiplying.
    with threadpool_limits(1, user_api="blas"):
        for index in range(-(-draws.count // BLOCK)):
            weights = draws.block(index)
            yield slice(index * BLOCK, index * BLOCK + len(weights)), weights
            progress(len(weights))


def draw_corpora(
    groups: Sequence[CorpusGroup], draws: Bootstrap, progress: Progress = lambda _: None
) -> dict[str, dict[str, FloatArray]]:
    """Corpus scores on R resamples of units, the same ones for all systems and scores (Koehn 2004).

    Returns (R,) values by score name and system name; raises StatisticError where one is not finite.
    """
    if draws.units < 2:
        message = "there is only one image: nothing to resample"
        raise StatisticError(message, code="too-few", value=draws.units, hint="Provide captions of more images")
    values = {name: {s: np.empty(draws.count) for s in group.systems} for group in groups for name in group.names}
    for at, weights in _blocks(draws, progress):
        for group in groups:
            for system, scores in group.systems.items():
                for name, column in zip(group.names, scores.drawn(weights).T, strict=True):
                    values[name][system][at] = column
    for name, by_system in values.items():
        for system, of_system in by_system.items():
            if not np.isfinite(of_system).all():
                message = f"{name} of {system} is not defined on some resamples of {draws.units} images"
                raise StatisticError(message, value=name)
    return values


def percentile_interval(value: float, values: FloatArray, units: int, seed: int) -> Interval:
    """The 95 % percentile bootstrap interval over images (Efron and Tibshirani 1993, chapter 13).

    ``value`` is that of the full data, ``values`` are (R,) those of the resamples.
    """
    low, high = (float(q) for q in np.quantile(values, ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2)))
    return Interval(value, low, high, units, len(values), seed)


def corpus_intervals(
    groups: Sequence[CorpusGroup],
    estimates: Mapping[str, Mapping[str, float]],
    draws: Bootstrap,
    *,
    progress: Progress = lambda _: None,
) -> dict[str, dict[str, Interval]]:
    """Percentile intervals over images, by score name and system name, as are ``estimates`` on the full data."""
    return _intervals(draw_corpora(groups, draws, progress), estimates, draws.units, draws.seed)


def _intervals(
    values: Mapping[str, Mapping[str, FloatArray]],
    estimates: Mapping[str, Mapping[str, float]],
    units: int,
    seed: int,
) -> dict[str, dict[str, Interval]]:
    return {
        name: {
            system: percentile_interval(estimates[name][system], of_system, units, seed)
            for system, of_system in by_system.items()
        }
        for name, by_system in values.items()
    }


@dataclass(frozen=True)
class SystemPair:
    """One pair of systems under one corpus score, like :class:`~capbench.stats.pairs.Pair` of metrics."""

    score: str
    system: str
    other: str  # the baseline, or an earlier system
    difference: float  # value of system minus value of other
    low: float
    high: float
    p_value: float
    p_adjusted: float
    significant: bool


@dataclass(frozen=True)
class SystemTable:
    """Systems under corpus scores, with tests."""

    test: SystemTest
    correction: Correction  # for the number of comparisons: scores times pairs
    alpha: float
    units: int  # images
    resamples: int
    permutations: int | None  # None for the bootstrap test
    seed: int
    intervals: dict[str, dict[str, Interval]]  # by score name and system name, with the values of the scores
    pairs: tuple[SystemPair, ...]  # score by score


@dataclass(frozen=True, kw_only=True)
class SystemTests:
    """Settings of a comparison of systems."""

    test: SystemTest = "permutation"
    correction: Correction = "holm"  # for the number of comparisons
    alpha: float = 0.05
    resamples: int | None = None  # 1,000 by default; also the number of permutations, unless that is given
    permutations: int | None = None  # 10,000 by default; more if the comparisons require them
    seed: int = 0
    all_pairs: bool = False  # each system with every earlier one, not only with the first

    def pairs(self, systems: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs (system, other)."""
        if self.all_pairs:
            return [(second, first) for first, second in itertools.combinations(systems, 2)]
        return [(system, systems[0]) for system in systems[1:]]

    def draws(self, comparisons: int) -> tuple[int, int]:
        """Numbers of bootstrap resamples and of the test's draws, with which a single difference can be significant.

        Too few draws of the test are replaced by twice
        :func:`~capbench.stats.significance.permutations_needed`. The draws of a bootstrap test are the resamples.
        """
        resamples = RESAMPLES if self.resamples is None else self.resamples
        draws = resamples
        if self.test == "permutation":
            usual = PERMUTATIONS if self.resamples is None else self.resamples
            draws = usual if self.permutations is None else self.permutations
        needed = permutations_needed(comparisons, self.alpha, self.correction)
        draws = draws if draws >= needed else 2 * needed
        return (draws if self.test == "bootstrap" else resamples), draws


def compare_corpora(
    groups: Sequence[CorpusGroup],
    estimates: Mapping[str, Mapping[str, float]],
    units: int,
    settings: SystemTests,
    progress: Progress = lambda _: None,
) -> SystemTable:
    """Intervals of corpus scores, and two-sided tests of their differences.

    ===========  ====================================================================================================
    permutation  paired approximate randomisation (Riezler and Maxwell 2005): under the null hypothesis the two systems
                 are exchangeable, so their captions are swapped on random images.
                 ``p = (1 + #{|δ*| ≥ |δ|}) / (1 + R)``.
    bootstrap    paired bootstrap (Koehn 2004), its distribution shifted to the null hypothesis (Efron and Tibshirani
                 1993, chapter 16): ``p = (1 + #{|δ* - δ| ≥ |δ|}) / (1 + R)``, δ* the difference on resampled images.
    ===========  ====================================================================================================

    The correction is over scores times pairs, all of which share the draws. ``estimates`` are the values on the
    full data, by score name and system name; the first system is the baseline.
    """
    systems = list(groups[0].systems)
    names = [name for group in groups for name in group.names]
    pairs, test, seed, alpha = settings.pairs(systems), settings.test, settings.seed, settings.alpha
    resamples, permutations = settings.draws(len(names) * len(pairs))
    values = draw_corpora(groups, Bootstrap(units, resamples, seed), progress)
    extreme: dict[tuple[str, str, str], int] = {}
    if test == "permutation":
        extreme = _permuted(groups, pairs, estimates, Swaps(units, permutations, seed), progress)
    compared = [(name, system, other) for name in names for system, other in pairs]
    p_values, differences = [], []
    for name, system, other in compared:
        first, second = estimates[name][system], estimates[name][other]
        drawn = values[name][system] - values[name][other]
        if test == "bootstrap":
            extreme[name, system, other] = _extreme(drawn - (first - second), first, second)
        p_values.append((1 + extreme[name, system, other]) / (1 + permutations))
        differences.append(percentile_interval(first - second, drawn, units, seed))
    adjusted = adjust(p_values, settings.correction).tolist()
    tested = tuple(
        SystemPair(*pair, interval.value, interval.low, interval.high, p, q, q <= alpha)
        for pair, interval, p, q in zip(compared, differences, p_values, adjusted, strict=True)
    )
    intervals = _intervals(values, estimates, units, seed)
    permuted = permutations if test == "permutation" else None
    return SystemTable(test, settings.correction, alpha, units, resamples, permuted, seed, intervals, tested)


def _permuted(
    groups: Sequence[CorpusGroup],
    pairs: Sequence[tuple[str, str]],
    estimates: Mapping[str, Mapping[str, float]],
    draws: Swaps,
    progress: Progress,
) -> dict[tuple[str, str, str], int]:
    """Number of permuted differences as large as the observed one, by score, system and other system."""
    extreme = {(name, *pair): 0 for group in groups for name in group.names for pair in pairs}
    for _, swaps in _blocks(draws, progress):
        for group, (system, other) in itertools.product(groups, pairs):
            a, b = group.systems[system].swapped(group.systems[other], swaps)
            for name, differences in zip(group.names, (a - b).T, strict=True):
                if not np.isfinite(differences).all():
                    message = f"{name} of {system} and {other} is not defined on some permutations"
                    raise StatisticError(message, value=name)
                first, second = estimates[name][system], estimates[name][other]
                extreme[name, system, other] += _extreme(differences, first, second)
    return extreme


def _extreme(differences: FloatArray, first: float, second: float) -> int:
    """Number of differences as large as the observed one; equal ones up to rounding count, which is conservative."""
    rounding = _ROUNDING * max(1.0, abs(first), abs(second))
    return int(np.count_nonzero(np.abs(differences) >= abs(first - second) - rounding))
