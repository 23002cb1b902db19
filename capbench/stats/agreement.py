"""Scores of several metrics on the same human judgements, the input of intervals and of tests between metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray, IntArray, TieRule
from capbench.stats.correlation import checked_sides
from capbench.stats.pairwise_accuracy import TIE_CREDIT, pairwise_accuracy
from capbench.stats.permutation import LinearSwap, SwapTerm, swap_difference
from capbench.stats.resampling import (
    AccuracyStatistic,
    PearsonStatistic,
    RankStatistic,
    WeightedStatistic,
    mean_statistic,
    tie_calibrated,
    unit_codes,
)
from capbench.stats.ties import merged, order
from capbench.stats.vectors import draws_of, finite_vector

Numbers = Sequence[float] | NDArray[np.generic]
Labels = Sequence[object] | NDArray[np.generic]


class Agreement(ABC):
    """Agreement of several metrics with the same human judgements. Units are resampled, or their scores swapped.

    Subclasses are created by their method ``of``, which checks all arguments.
    """

    scores: Mapping[str, FloatArray]  # (draws, …) by metric; the statistic is the mean over samples of references
    unit: IntArray  # (n,) number of each data point's unit
    units: int  # number of units
    labels: NDArray[Any]  # (units,) label of each unit, ascending
    coefficient: Any
    prefix: ClassVar[str] = ""  # of the coefficient in the name of the statistic

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics."""
        return tuple(self.scores)

    @property
    def label(self) -> str:
        """Name of the statistic."""
        return f"{self.prefix}{self.coefficient}"

    @property
    def n(self) -> int:
        """Number of data points behind a value."""
        return len(self.unit)

    @property
    def points(self) -> int:
        """Number of data points that are resampled."""
        return len(self.unit)

    def check_resampling(self) -> None:  # noqa: B027 - most statistics can be resampled
        """Raise StatisticError if the statistic is too slow for intervals and tests by resampling."""

    @abstractmethod
    def of_draw(self, scores: FloatArray) -> WeightedStatistic:
        """The statistic of one metric and one sample of references, for (B, U) weights of U units."""

    @abstractmethod
    def swap_of_draw(self, first: FloatArray, second: FloatArray) -> WeightedStatistic:
        """See :meth:`swaps`."""

    def statistic(self, name: str) -> WeightedStatistic:
        """The statistic of one metric under resampling, for (B, U) weights of U units."""
        return mean_statistic([self.of_draw(scores) for scores in self.scores[name]])

    def swaps(self, first: str, second: str) -> list[WeightedStatistic]:
        """Difference (first - second) after swapping two metrics on some units (PERM-BOTH), by sample of references.

        The scores are first put on a common scale: ranks with tau and Spearman's rho, which are invariant under
        increasing maps, and z-scores with Pearson's r, as in Deutsch, Dror and Roth (2021).

        Returns statistics of (B, U) weights 0 (unchanged) and 1 (swapped).
        """
        self.check_resampling()
        return [self.swap_of_draw(a, b) for a, b in zip(self.scores[first], self.scores[second], strict=True)]

    def swap_terms(self, first: str, second: str, weight: float, place: IntArray | slice) -> list[SwapTerm]:
        """The mean of :meth:`swaps`, times ``weight``; ``place``: (units,) of its units among all that are swapped."""
        parts = self.swaps(first, second)
        return [SwapTerm(weight / len(parts), place, part) for part in parts]


def rated(scores: Mapping[str, Numbers], human: Numbers) -> tuple[dict[str, FloatArray], FloatArray]:
    """(draws, n) scores by metric and (n,) ratings of the same captions. Raises StatisticError: not finite."""
    return {name: draws_of(values, name) for name, values in scores.items()}, finite_vector(human, "the human ratings")


def named(names: Labels, what: str) -> NDArray[np.str_]:
    """(n,) names of the captions' authors. Raises StatisticError if a caption has none."""
    found = np.asarray(names, dtype=np.str_)
    if unnamed := int((found == "").sum()):
        message = f"{unnamed:,} of {len(found):,} captions have no {what}"
        hint = "Name the author of every caption (system), or choose a statistic over all captions, such as tau-b"
        raise StatisticError(message, code="missing-value", value=unnamed, hint=hint)
    return found


@dataclass(frozen=True, eq=False)
class Correlations(Agreement):
    """Correlations of several metrics with the same human ratings."""

    coefficient: Coefficient
    # (draws, n) scores of each metric. Values that are equal up to rounding are equal, except for ``pearson``
    scores: Mapping[str, FloatArray]
    human: FloatArray  # (n,) human ratings, likewise
    unit: IntArray
    units: int
    labels: NDArray[Any]
    # True if m of tau-c is the number of distinct ratings, even of scores with fewer values, whose denominator is then
    # that of others
    rating_levels: bool = False

    @classmethod
    def of(
        cls,
        coefficient: Coefficient,
        scores: Mapping[str, Numbers],  # (n,) or (draws, n) scores by metric
        human: Numbers,  # (n,) ratings of the same data points
        unit: Labels | None = None,  # (n,) label of the unit of each data point; None if each is a separate unit
        *,
        rating_levels: bool = False,
    ) -> Correlations:
        """Raises StatisticError: as :func:`capbench.stats.correlation.correlation`; also fewer than two units."""
        ratings = finite_vector(human, "the human ratings")
        arrays = {}
        for name, values in scores.items():
            arrays[name] = draws_of(values, name)
            rows = [checked_sides(coefficient, row, ratings, name)[0] for row in arrays[name]]
            if coefficient != "pearson":
                arrays[name] = np.stack(rows)
        ratings = ratings if coefficient == "pearson" else merged(ratings)
        codes, labels = unit_numbers(unit, len(ratings))
        return cls(coefficient, arrays, ratings, codes, len(labels), labels, rating_levels)

    def check_resampling(self) -> None:
        if self.coefficient == "acc-eq":
            raise StatisticError(
                "acc-eq takes too long for resampling: its ε is calibrated again for every resample",
                code="unsupported",
                value=self.coefficient,
                hint="Choose a correlation for intervals and tests",
            )

    def of_draw(self, scores: FloatArray) -> WeightedStatistic:
        if self.coefficient == "pearson":
            return PearsonStatistic(scores, self.human, self.unit, self.units)
        if self.coefficient == "acc-eq":
            return tie_calibrated(scores, self.human, self.unit, self.units)
        return RankStatistic(
            self.coefficient, scores, self.human, self.unit, self.units, rating_levels=self.rating_levels
        )

    def swap_of_draw(self, first: FloatArray, second: FloatArray) -> WeightedStatistic:
        sides = first, second, self.human, self.unit, self.units
        return swap_difference(self.coefficient, *sides, rating_levels=self.rating_levels)


@dataclass(frozen=True, eq=False)
class Accuracies(Agreement):
    """Pairwise accuracies of several metrics on the same human preferences.

    Pairs without a human preference have no right answer and are excluded.
    """

    ties: TieRule  # tie rule of the metric
    scores: Mapping[str, FloatArray]  # (draws, n) credit of each metric on the n pairs, in [0, 1]
    group: IntArray  # (n,) number of each pair's group; the statistic is the mean of the groups' accuracies
    unit: IntArray
    units: int
    labels: NDArray[Any]

    @classmethod
    def of(
        cls,
        ties: TieRule,
        first: Mapping[str, Numbers],  # (n,) or (draws, n) scores of the pairs' first captions, by metric
        second: Mapping[str, Numbers],  # the same for the second captions
        # (n,) +1 if raters prefer the first, -1 the second, 0 without a preference
        preferred: Sequence[int] | NDArray[np.integer],
        groups: Sequence[str] | None = None,  # (n,) group of each pair; None for a single group
        unit: Labels | None = None,  # (n,) label of each pair's unit; None if each pair is a separate unit
    ) -> Accuracies:
        """Raises StatisticError: as :func:`pairwise_accuracy`; also fewer than two units."""
        credit = {}
        choice = np.asarray(preferred)
        for name in first:
            ones, others = draws_of(first[name], name), draws_of(second[name], name)
            for a, b in zip(ones, others, strict=True):
                pairwise_accuracy(a, b, choice, ties, name=name)  # raises where it is not defined
            orders = order(ones, others)
            credit[name] = np.where(orders == choice, 1.0, np.where(orders == 0, TIE_CREDIT[ties], 0.0))
        clear = choice != 0
        pairs = int(clear.sum())
        group = np.zeros(pairs, np.int64) if groups is None else unit_codes(np.asarray(groups)[clear])[0]
        codes, known = unit_numbers(np.asarray(np.arange(len(choice)) if unit is None else unit)[clear], pairs)
        return cls(ties, {name: c[:, clear] for name, c in credit.items()}, group, codes, len(known), known)

    @property
    def label(self) -> str:
        return f"accuracy ({self.ties})"

    def of_draw(self, scores: FloatArray) -> WeightedStatistic:
        return AccuracyStatistic(scores, self.group, self.unit, self.units)

    def swap_of_draw(self, first: FloatArray, second: FloatArray) -> WeightedStatistic:
        """The credits are swapped, which have the same scale."""
        sizes = np.bincount(self.group)
        weights = (first - second) / (sizes[self.group] * len(sizes))
        return LinearSwap(np.bincount(self.unit, weights=weights, minlength=self.units).astype(np.float64))


def unit_numbers(labels: Labels | None, n: int) -> tuple[IntArray, NDArray[Any]]:
    """(n,) number of each data point's unit, and (U,) labels of the units, by default of each point alone.

    Raises StatisticError if there is one only.
    """
    names, codes = np.unique(np.arange(n) if labels is None else np.asarray(labels), return_inverse=True)
    if len(names) < 2:
        message, hint = "all data points are of one unit: nothing can be resampled", "Resample a smaller unit (rating)"
        raise StatisticError(message, code="too-few", value=len(names), hint=hint)
    return np.ascontiguousarray(codes, dtype=np.int64), names
