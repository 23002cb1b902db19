"""Paired tests between captioning systems on the same images, and corpus scores under resampling.

Most corpus scores are functions of sums over images (BLEU of summed n-gram counts, a mean of a sum and a number). A
block of resamples is then one matrix product (:class:`SumScores`). :class:`RowScores` computes other corpus scores from
the drawn rows. Neither scores a caption again.

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
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError, check_choice
from capbench.core.records import FloatArray, IntArray
from capbench.stats.intervals import Interval
from capbench.stats.pairs import Correction
from capbench.stats.resampling import BLOCK, Bootstrap, Draws, Swaps
from capbench.stats.significance import (
    PERMUTATIONS,
    RESAMPLES,
    adjust,
    check_alpha,
    permutations_needed,
)

_LEVEL = 0.95


Progress = Callable[[int], None]
"""Called with the number of resamples done since the last call."""


@dataclass(frozen=True, eq=False)
class SumScores:
    """Corpus scores of one system that are a function of sums over units.

    Attributes:
        terms: (U, t) terms of each unit.
        scores: (r, t) sums → (r, C) scores.
    """

    terms: FloatArray
    scores: Callable[[FloatArray], FloatArray]

    @classmethod
    def of_items(
        cls, terms: FloatArray, unit: IntArray, units: int, scores: Callable[[FloatArray], FloatArray]
    ) -> SumScores:
        """From terms (n, t) of items and their units ``unit`` (n,) in [0, units)."""
        by_unit = [np.bincount(unit, weights=column, minlength=units) for column in terms.T]
        return cls(np.column_stack(by_unit), scores)


@dataclass(frozen=True, eq=False)
class RowScores:
    """Corpus scores of one system that must be computed from the drawn rows.

    Attributes:
        rows: (n, k) statistics of the items.
        unit: (n,) each item's unit.
        scores: (m, k) rows → (C,) scores.
    """

    rows: FloatArray
    unit: IntArray
    scores: Callable[[FloatArray], FloatArray]

    def drawn(self, weights: NDArray[np.integer]) -> FloatArray:
        """(B, C) scores with the units weighted by (B, U) weights."""
        return np.stack([self.scores(np.repeat(self.rows, counts[self.unit], axis=0)) for counts in weights])

    def swapped(self, other: RowScores, swaps: NDArray[np.integer]) -> tuple[FloatArray, FloatArray]:
        """(B, C) scores of this system and of another one after exchanging the units with 1 in (B, U) swaps.

        Raises:
            StatisticError: the other system's rows belong to other units.
        """
        if not np.array_equal(self.unit, other.unit):
            message = "two systems' scores cannot be exchanged, because they belong to different units"
            raise StatisticError(message, code="mismatch")
        ours, theirs = [], []
        for coins in swaps:
            change = coins[self.unit].astype(bool)[:, None]
            ours.append(self.scores(np.where(change, other.rows, self.rows)))
            theirs.append(other.scores(np.where(change, self.rows, other.rows)))
        return np.stack(ours), np.stack(theirs)


@dataclass(frozen=True, eq=False)
class CorpusGroup:
    """Corpus scores from the same statistics: the columns of one metric.

    Attributes:
        names: (C) names of the scores.
        systems: by system name.
    """

    names: tuple[str, ...]
    systems: Mapping[str, SumScores] | Mapping[str, RowScores]


class Corpora:
    """Groups of corpus scores, evaluated on blocks of resamples with one matrix product for all sums.

    Args:
        groups: the scores, all of the same U units.
    """

    def __init__(self, groups: Sequence[CorpusGroup]) -> None:
        self.groups = tuple(groups)
        self._places: dict[tuple[int, str], slice] = {}
        terms: list[FloatArray] = []
        start = 0
        for number, group in enumerate(self.groups):
            for system, scores in group.systems.items():
                if isinstance(scores, SumScores):
                    width = scores.terms.shape[1]
                    self._places[number, system] = slice(start, start + width)
                    terms.append(scores.terms)
                    start += width
        self._terms = np.column_stack(terms) if terms else None
        self._totals = None if self._terms is None else self._terms.sum(axis=0)

    def drawn(self, weights: NDArray[np.integer]) -> Iterator[tuple[str, str, FloatArray]]:
        """Name, system and (B,) values of every score with the units weighted by (B, U) weights."""
        sums = self._sums(weights)
        for number, group in enumerate(self.groups):
            for system, scores in group.systems.items():
                if isinstance(scores, SumScores):
                    values = scores.scores(sums[:, self._places[number, system]])
                else:
                    values = scores.drawn(weights)
                for name, column in zip(group.names, values.T, strict=True):
                    yield name, system, column

    def differences(
        self, swaps: NDArray[np.integer], pairs: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[str, str, str, FloatArray]]:
        """Name, system, other system and (B,) differences after exchanging the units with 1 in (B, U) swaps."""
        sums = self._sums(swaps)
        for number, group in enumerate(self.groups):
            for system, other in pairs:
                first, second = group.systems[system], group.systems[other]
                if isinstance(first, SumScores) and isinstance(second, SumScores):
                    ours, theirs = self._places[number, system], self._places[number, other]
                    assert self._totals is not None
                    gained = sums[:, theirs] - sums[:, ours]  # the other system loses the same amount
                    a, b = first.scores(self._totals[ours] + gained), second.scores(self._totals[theirs] - gained)
                else:
                    assert isinstance(first, RowScores)
                    assert isinstance(second, RowScores)
                    a, b = first.swapped(second, swaps)
                for name, column in zip(group.names, (a - b).T, strict=True):
                    yield name, system, other, column

    def _sums(self, weights: NDArray[np.integer]) -> FloatArray:
        """(B, T) weighted sums of all terms."""
        if self._terms is None:
            return np.empty((len(weights), 0))
        return np.asarray(weights.astype(np.float64) @ self._terms, dtype=np.float64)


def each_block(draws: Draws, work: Callable[[slice, NDArray[np.integer]], None], progress: Progress) -> None:
    """Call ``work`` with the slice and the weights of each block of resamples."""
    from threadpoolctl import threadpool_limits

    # The products are so small that synchronising several threads takes longer than multiplying.
    with threadpool_limits(1, user_api="blas"):
        for index in range(-(-draws.count // BLOCK)):
            weights = draws.block(index)
            work(slice(index * BLOCK, index * BLOCK + len(weights)), weights)
            progress(len(weights))


def draw_corpora(
    groups: Sequence[CorpusGroup], draws: Bootstrap, progress: Progress = lambda _: None
) -> dict[str, dict[str, FloatArray]]:
    """Corpus scores on resamples of units, the same ones for all systems and scores (Koehn 2004).

    Args:
        groups: the scores.
        draws: R resamples.
        progress: called with the number of resamples done.

    Returns:
        (R,) values by score name and system name.

    Raises:
        StatisticError: fewer than two units or fewer than 100 resamples, or a value that is not finite.
    """
    if draws.units < 2:
        message = "there is only one image: nothing to resample"
        raise StatisticError(message, code="too-few", value=draws.units, hint="Provide captions of more images")
    if draws.count < 100:
        message = f"{draws.count} resamples are too few for an interval"
        raise StatisticError(message, code="too-few", value=draws.count, hint="Use 100 or more")
    values = {name: {s: np.empty(draws.count) for s in group.systems} for group in groups for name in group.names}
    corpora = Corpora(groups)

    def work(at: slice, weights: NDArray[np.integer]) -> None:
        for name, system, column in corpora.drawn(weights):
            values[name][system][at] = column

    each_block(draws, work, progress)
    for name, by_system in values.items():
        for system, of_system in by_system.items():
            if not np.isfinite(of_system).all():
                message = f"{name} of {system} is not defined on some resamples of {draws.units} images"
                raise StatisticError(message, value=name)
    return values


def percentile_interval(value: float, values: FloatArray, units: int, seed: int) -> Interval:
    """The 95 % percentile bootstrap interval over images (Efron and Tibshirani 1993, chapter 13).

    Args:
        value: value on the full data.
        values: (R,) values on the resamples.
        units: number of images.
        seed: seed of the resamples.
    """
    low, high = (float(q) for q in np.quantile(values, ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2)))
    error = float(values.std(ddof=1))
    return Interval(value, low, high, _LEVEL, "percentile", error, "image", units, len(values), seed)


def corpus_intervals(
    groups: Sequence[CorpusGroup],
    estimates: Mapping[str, Mapping[str, float]],
    draws: Bootstrap,
    *,
    progress: Progress = lambda _: None,
) -> dict[str, dict[str, Interval]]:
    """Percentile intervals over images, by score name and system name.

    Args:
        groups: the scores.
        estimates: their values on the full data, by score name and system name.
        draws: the resamples.
        progress: called with the number of resamples done.

    Raises:
        StatisticError: as for :func:`draw_corpora`.
    """
    values = draw_corpora(groups, draws, progress)
    return {
        name: {
            system: percentile_interval(estimates[name][system], of_system, draws.units, draws.seed)
            for system, of_system in by_system.items()
        }
        for name, by_system in values.items()
    }


SystemTest = Literal["permutation", "bootstrap"]

# Differences that are equal up to rounding count as extreme, which is conservative.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class SystemPair:
    """One pair of systems under one corpus score.

    Attributes:
        score: name of the score.
        system: a system.
        other: the system that it is compared with: the baseline, or an earlier one.
        difference: value of ``system`` minus value of ``other``.
        low: lower end of the difference's percentile bootstrap interval.
        high: upper end.
        p_value: two-sided, not corrected.
        p_adjusted: after the correction for all comparisons of the table.
        significant: True if ``p_adjusted`` is at most α.
    """

    score: str
    system: str
    other: str
    difference: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    significant: bool


@dataclass(frozen=True)
class SystemTable:
    """Systems under corpus scores, with tests.

    Attributes:
        test: the test.
        correction: the correction for the number of comparisons.
        alpha: significance level.
        units: number of images.
        resamples: bootstrap resamples.
        permutations: permutations; None for the bootstrap test.
        seed: seed of both.
        intervals: by score name and system name, with the values of the scores.
        pairs: the comparisons, score by score.
    """

    test: SystemTest
    correction: Correction
    alpha: float
    units: int
    resamples: int
    permutations: int | None
    seed: int
    intervals: dict[str, dict[str, Interval]]
    pairs: tuple[SystemPair, ...]


def system_pairs(systems: Sequence[str], *, all_pairs: bool = False) -> list[tuple[str, str]]:
    """Pairs (system, other): each system with the first one, or with every earlier one."""
    if all_pairs:
        return [(second, first) for first, second in itertools.combinations(systems, 2)]
    return [(system, systems[0]) for system in systems[1:]]


def resamples_to_use(
    requested: int | None,
    test: SystemTest,
    comparisons: int,
    alpha: float = 0.05,
    correction: Correction = "holm",
    permutations: int | None = None,
) -> tuple[int, int]:
    """Numbers of bootstrap resamples and of the test's draws, with which a single difference can be significant.

    Args:
        requested: the requested number of both; None for 1,000 resamples and 10,000 permutations.
        test: the test; the draws of a bootstrap test are the resamples.
        comparisons: number of tested differences.
        alpha: significance level.
        correction: for their number.
        permutations: the requested number of permutations; by default that of the resamples.

    Returns:
        The number of resamples, and the number of the test's draws: the requested number, or twice
        :func:`~capbench.stats.significance.permutations_needed` if that is too few.
    """
    needed = permutations_needed(comparisons, alpha, correction)
    draws = requested if requested is not None else (PERMUTATIONS if test == "permutation" else RESAMPLES)
    if test == "permutation" and permutations is not None:
        draws = permutations
    draws = draws if draws >= needed else 2 * needed
    return (draws if test == "bootstrap" else RESAMPLES if requested is None else requested), draws


def compare_corpora(
    groups: Sequence[CorpusGroup],
    estimates: Mapping[str, Mapping[str, float]],
    units: int,
    *,
    test: SystemTest = "permutation",
    correction: Correction = "holm",
    alpha: float = 0.05,
    resamples: int | None = None,
    permutations: int | None = None,
    seed: int = 0,
    all_pairs: bool = False,
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

    Args:
        groups: the scores, each with the same systems in the same order; the first is the baseline.
        estimates: the values on the full data, by score name and system name.
        units: number of images.
        test: the test.
        correction: over all comparisons: scores times pairs.
        alpha: significance level.
        resamples: see :func:`resamples_to_use`.
        permutations: see :func:`resamples_to_use`.
        seed: of resamples and permutations. All systems and scores share them.
        all_pairs: True to compare all pairs; default: each system with the first.
        progress: called with the number of draws done, of both numbers of :func:`resamples_to_use` (only the first for
            the bootstrap test).

    Raises:
        StatisticError: fewer than two systems or two units, an unknown test or correction, too few resamples, or a
            score that is not defined on a resample.
    """
    for value, choices in ((test, get_args(SystemTest)), (correction, get_args(Correction))):
        check_choice("choice", value, choices, StatisticError)
    check_alpha(alpha)
    systems = list(groups[0].systems)
    if len(systems) < 2:
        raise StatisticError("there is only one system: nothing to compare", code="too-few", value=len(systems))
    names = [name for group in groups for name in group.names]
    pairs = system_pairs(systems, all_pairs=all_pairs)
    comparisons = len(names) * len(pairs)
    bootstraps, permutations = resamples_to_use(resamples, test, comparisons, alpha, correction, permutations)
    values = draw_corpora(groups, Bootstrap(units, bootstraps, seed), progress)
    extreme: dict[tuple[str, str, str], int] = {}
    if test == "permutation":
        extreme = _permuted(groups, pairs, estimates, Swaps(units, permutations, seed), progress)
    compared = [(name, system, other) for name in names for system, other in pairs]
    p_values, intervals = [], []
    for name, system, other in compared:
        observed = estimates[name][system] - estimates[name][other]
        differences = values[name][system] - values[name][other]
        if test == "bootstrap":
            rounding = _rounding(estimates[name][system], estimates[name][other])
            extreme[name, system, other] = _count(differences - observed, observed, rounding)
        p_values.append((1 + extreme[name, system, other]) / (1 + permutations))
        intervals.append(percentile_interval(observed, differences, units, seed))
    adjusted = adjust(p_values, correction).tolist()
    return SystemTable(
        test,
        correction,
        alpha,
        units,
        bootstraps,
        permutations if test == "permutation" else None,
        seed,
        {
            name: {s: percentile_interval(estimates[name][s], values[name][s], units, seed) for s in systems}
            for name in names
        },
        tuple(
            SystemPair(*names_of_pair, interval.value, interval.low, interval.high, p, q, q <= alpha)
            for names_of_pair, interval, p, q in zip(compared, intervals, p_values, adjusted, strict=True)
        ),
    )


def _permuted(
    groups: Sequence[CorpusGroup],
    pairs: Sequence[tuple[str, str]],
    estimates: Mapping[str, Mapping[str, float]],
    draws: Swaps,
    progress: Progress,
) -> dict[tuple[str, str, str], int]:
    """Number of permuted differences as large as the observed one, by score, system and other system."""
    extreme = {(name, *pair): 0 for group in groups for name in group.names for pair in pairs}
    corpora = Corpora(groups)

    def work(_: slice, swaps: NDArray[np.integer]) -> None:
        for name, system, other, differences in corpora.differences(swaps, pairs):
            if not np.isfinite(differences).all():
                message = f"{name} of {system} and {other} is not defined on some permutations"
                raise StatisticError(message, value=name)
            first, second = estimates[name][system], estimates[name][other]
            extreme[name, system, other] += _count(differences, first - second, _rounding(first, second))

    each_block(draws, work, progress)
    return extreme


def _count(differences: FloatArray, observed: float, rounding: float) -> int:
    return int(np.count_nonzero(np.abs(differences) >= abs(observed) - rounding))


def _rounding(first: float, second: float) -> float:
    return _ROUNDING * max(1.0, abs(first), abs(second))
