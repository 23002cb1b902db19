"""Scores of several metrics on the same human judgements, the input of intervals and of tests between metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray, IntArray, TieRule
from capbench.stats.correlation import checked_sides
from capbench.stats.permutation import Scale, SwapDifference, TauCSwap, swap_difference
from capbench.stats.resampling import (
    AccuracyStatistic,
    PearsonStatistic,
    RankStatistic,
    TieCalibratedStatistic,
    WeightedStatistic,
    mean_statistic,
    unit_codes,
)
from capbench.stats.ties import merged, order
from capbench.stats.vectors import draws_of, finite_vector, same_draws

_TIE_CREDIT: dict[TieRule, float] = {"strict": 0.0, "ties-right": 1.0, "ties-half": 0.5}


class Agreement(ABC):
    """Agreement of several metrics with the same human judgements. Units are resampled, or their scores swapped."""

    scores: Mapping[str, FloatArray]  # (draws, …) by metric; the statistic is the mean over samples of references
    unit: IntArray  # (n,) number of each data point's unit
    units: int  # number of units
    labels: NDArray[Any]  # (units,) label of each unit, ascending

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics."""
        return tuple(self.scores)

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the statistic."""

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
    def statistic(self, name: str) -> WeightedStatistic:
        """The statistic of one metric under resampling, for (B, U) weights of U units."""

    @abstractmethod
    def swapped(self, first: str, second: str, scale: Scale | None = None) -> WeightedStatistic:
        """Difference (first - second) after swapping two metrics on some units (PERM-BOTH).

        ``scale``: common scale of their scores, ``z-scores`` as in Deutsch, Dror and Roth (2021), or ``ranks``; None
        for ranks with tau and Spearman's rho, which are invariant under increasing maps, and z-scores with Pearson's r.

        Returns a statistic of (B, U) weights 0 (unchanged) and 1 (swapped).
        """

    def swap_effects(self, first: str, second: str) -> FloatArray | None:
        """(units,) effects ``d`` if :meth:`swapped` is ``Σ σ d``, σ = -1 on swapped units, 1 on others; else None."""
        return None

    def both(self, first: str, second: str) -> Iterator[tuple[FloatArray, FloatArray]]:
        """The scores of two metrics, for each sample of references."""
        return zip(self.scores[first], self.scores[second], strict=True)


def rated(
    scores: Mapping[str, Sequence[float] | NDArray[np.generic]],
    human: Sequence[float] | NDArray[np.generic],
    **lists: Sequence[object] | NDArray[np.generic],
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Check (n,) or (draws, n) scores by metric, (n,) ratings, and further (n,) lists of the same captions.

    Returns (draws, n) scores by metric, and the ratings. Raises StatisticError: unequal lengths, values that are NaN or
    infinite, no metrics, or metrics with different numbers of draws.
    """
    ratings = finite_vector(human, "the human ratings")
    arrays = {name: draws_of(values, name) for name, values in scores.items()}
    same_draws(arrays)
    lengths = {name: values.shape[1] for name, values in arrays.items()}
    lengths |= {f"the list of {name}": len(values) for name, values in lists.items()}
    for name, length in lengths.items():
        if length != len(ratings):
            message = f"{name} has {length} values for {len(ratings)} ratings"
            raise StatisticError(message, code="mismatch", value=name)
    return arrays, ratings


@dataclass(frozen=True, eq=False)
class Correlations(Agreement):
    """Correlations of several metrics with the same human ratings.

    Created by :meth:`of`, which checks all arguments.
    """

    coefficient: Coefficient  # ``tau-b``, ``tau-c``, ``spearman``, ``pearson`` or ``acc-eq``
    # (draws, n) scores of each metric at the n data points; one row for each sample of references. The statistic is the
    # mean over rows. Values that are equal up to rounding are equal, except for ``pearson``
    scores: Mapping[str, FloatArray]
    human: FloatArray  # (n,) human ratings, likewise
    unit: IntArray  # (n,) number of each data point's unit
    units: int
    labels: NDArray[Any]  # (units,) label of each unit, ascending
    rating_levels: bool = False  # see :func:`capbench.stats.correlation.correlation`

    @classmethod
    def of(
        cls,
        coefficient: Coefficient,
        scores: Mapping[str, Sequence[float] | NDArray[np.generic]],  # (n,) or (draws, n) scores by metric
        human: Sequence[float] | NDArray[np.generic],  # (n,) ratings of the same data points
        # (n,) label of the unit of each data point (the image id); None if each is a separate unit
        unit: Sequence[object] | NDArray[np.generic] | None = None,
        *,
        rating_levels: bool = False,  # see :func:`capbench.stats.correlation.correlation`
    ) -> Correlations:
        """Check and encode the data.

        Raises StatisticError: see :func:`capbench.stats.correlation.correlation`; also fewer than two units.
        """
        ratings = finite_vector(human, "the human ratings")
        arrays = {}
        for name, values in scores.items():
            arrays[name] = draws_of(values, name)
            rows = [checked_sides(coefficient, row, ratings, name)[0] for row in arrays[name]]
            if coefficient != "pearson":
                arrays[name] = np.stack(rows)
        ratings = ratings if coefficient == "pearson" else merged(ratings)
        codes, labels = _units(unit, len(ratings))
        same_draws(arrays)
        return cls(coefficient, arrays, ratings, codes, len(labels), labels, rating_levels)

    @property
    def label(self) -> str:
        """Name of the statistic."""
        return self.coefficient

    def check_resampling(self) -> None:
        """Raise StatisticError if the statistic is too slow for intervals and tests by resampling."""
        if self.coefficient == "acc-eq":
            raise StatisticError(
                "acc-eq takes too long for resampling: its ε is calibrated again for every resample",
                code="unsupported",
                value=self.coefficient,
                hint="Choose a correlation for intervals and tests",
            )

    def statistic(self, name: str) -> WeightedStatistic:
        """The correlation of one metric under resampling: a statistic of (B, U) weights, U the number of units."""
        return mean_statistic([self._prepare(row, self.human, self.unit, self.units) for row in self.scores[name]])

    def swapped(self, first: str, second: str, scale: Scale | None = None) -> WeightedStatistic:
        """See :meth:`Agreement.swapped`. Raises StatisticError: the coefficient is acc*_eq, which is too slow."""
        return mean_statistic(self.swaps(first, second, scale))

    def swaps(self, first: str, second: str, scale: Scale | None = None) -> list[WeightedStatistic]:
        """One statistic for each sample of references, whose mean is :meth:`swapped`; the arguments are the same."""
        self.check_resampling()
        chosen = scale or ("z-scores" if self.coefficient == "pearson" else "ranks")
        return [
            swap_difference(
                self.coefficient,
                a,
                b,
                self.human,
                self.unit,
                self.units,
                chosen,
                rating_levels=self.rating_levels,
            )
            for a, b in self.both(first, second)
        ]

    def swap_effects(self, first: str, second: str) -> FloatArray | None:
        """Those of tau-c, unless a swap can change its number of levels."""
        if self.coefficient != "tau-c":
            return None
        parts = [part.effects for part in self.swaps(first, second) if isinstance(part, TauCSwap)]
        return np.mean(parts, axis=0) if len(parts) == len(self.scores[first]) else None

    def _prepare(self, x: FloatArray, y: FloatArray, unit: IntArray, units: int) -> WeightedStatistic:
        if self.coefficient == "pearson":
            return PearsonStatistic(x, y, unit, units)
        if self.coefficient == "acc-eq":
            return TieCalibratedStatistic(x, y, unit, units)
        return RankStatistic(self.coefficient, x, y, unit, units, rating_levels=self.rating_levels)


@dataclass(frozen=True, eq=False)
class Accuracies(Agreement):
    """Pairwise accuracies of several metrics on the same human preferences.

    Created by :meth:`of`. Pairs without a human preference have no right answer and are excluded.
    """

    ties: TieRule  # tie rule of the metric
    scores: Mapping[str, FloatArray]  # (draws, n) credit of each metric on the n pairs, in [0, 1]
    group: IntArray  # (n,) number of each pair's group; the statistic is the mean of the groups' accuracies
    unit: IntArray  # (n,) number of each pair's unit
    units: int
    labels: NDArray[Any]  # (units,) label of each unit, ascending

    @classmethod
    def of(
        cls,
        ties: TieRule,
        # (n,) or (draws, n) scores of the pairs' first captions, by metric
        first: Mapping[str, Sequence[float] | NDArray[np.generic]],
        second: Mapping[str, Sequence[float] | NDArray[np.generic]],  # the same for the second captions
        # (n,) +1 if raters prefer the first, -1 the second, 0 without a preference
        preferred: Sequence[int] | NDArray[np.integer],
        groups: Sequence[str] | None = None,  # (n,) group of each pair; None for a single group
        # (n,) label of each pair's unit; None if each pair is a separate unit
        unit: Sequence[object] | NDArray[np.generic] | None = None,
    ) -> Accuracies:
        """Check and encode the data.

        Raises StatisticError: no pairs, unequal lengths, a score that is NaN or infinite, a preference that is not -1,
        0 or 1, a group without any human preference, or fewer than two units.
        """
        from capbench.stats.pairwise_accuracy import pairwise_accuracy

        credit = {}
        choice = np.asarray(preferred)
        if set(first) != set(second):
            raise StatisticError("the first and the second scores are of different metrics", code="mismatch")
        for name in first:
            ones, others = draws_of(first[name], name), draws_of(second[name], name)
            if len(ones) != len(others):
                message = f"{name} has {len(ones)} samples of first and {len(others)} of second scores"
                raise StatisticError(message, code="mismatch", value=name)
            for a, b in zip(ones, others, strict=True):
                pairwise_accuracy(a, b, choice, ties, groups, name=name)  # raises where it is not defined
            orders = order(ones, others)
            credit[name] = np.where(orders == choice, 1.0, np.where(orders == 0, _TIE_CREDIT[ties], 0.0))
        same_draws(credit)
        clear = choice != 0
        if groups is None:
            group = np.zeros(int(clear.sum()), dtype=np.int64)
        else:
            group = unit_codes(np.asarray(groups)[clear])[0]
        labels = np.arange(len(choice)) if unit is None else np.asarray(unit)
        if len(labels) != len(choice):
            raise StatisticError(f"there are {len(labels)} units for {len(choice)} preferences", code="mismatch")
        codes, known = _units(labels[clear], int(clear.sum()))
        return cls(ties, {name: c[:, clear] for name, c in credit.items()}, group, codes, len(known), known)

    @property
    def label(self) -> str:
        """Name of the statistic."""
        return f"accuracy ({self.ties})"

    def statistic(self, name: str) -> WeightedStatistic:
        """The accuracy of one metric under resampling: a statistic of (B, U) weights, U the number of units."""
        return mean_statistic([AccuracyStatistic(row, self.group, self.unit, self.units) for row in self.scores[name]])

    def swapped(self, first: str, second: str, scale: Scale | None = None) -> WeightedStatistic:
        """Difference (first - second) after swapping two metrics on some units (PERM-BOTH).

        ``scale``: has no effect: the credits are swapped, which have the same scale.

        Returns a statistic of (B, U) weights 0 (unchanged) and 1 (swapped).
        """
        group, unit = np.tile(self.group, 2), np.concatenate([self.unit, self.unit + self.units])
        parts = [
            AccuracyStatistic(np.concatenate([a, b]), group, unit, 2 * self.units) for a, b in self.both(first, second)
        ]
        return SwapDifference(mean_statistic(parts), self.units)

    def swap_effects(self, first: str, second: str) -> FloatArray:
        """(units,) effects ``d``: :meth:`swapped` is ``Σ σ d`` with σ = -1 on swapped units, 1 on others."""
        sizes = np.bincount(self.group)
        credit = (self.scores[first] - self.scores[second]).mean(axis=0)
        weights = credit / (sizes[self.group] * len(sizes))
        return np.bincount(self.unit, weights=weights, minlength=self.units).astype(np.float64)


def _units(labels: Sequence[object] | NDArray[np.generic] | None, n: int) -> tuple[IntArray, NDArray[Any]]:
    """(n,) number of each data point's unit, and (U,) labels of the units."""
    names, codes = np.unique(np.arange(n) if labels is None else np.asarray(labels), return_inverse=True)
    units = len(names)
    if len(codes) != n:
        raise StatisticError(f"there are {len(codes)} units for {n} data points", code="mismatch")
    if units < 2:
        raise StatisticError(
            "all data points belong to one unit: there is nothing to resample",
            code="too-few",
            value=units,
            hint="Resample a smaller unit (rating)",
        )
    return np.ascontiguousarray(codes, dtype=np.int64), names
