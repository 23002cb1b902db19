"""Within-source agreement: does a metric rank the captions of one source as the raters do?

The source of a caption is its author: a captioning system, or humans. A pair of captions counts only if both have the
same source, whatever their images. The pairs of all sources are pooled:

=======  ==============================================================================================================
tau-b    ``Σ (C - D) / sqrt(Σ (N - T_x) Σ (N - T_y))``, sums over sources; each source has N pairs, of which C are
         concordant, D discordant, and T_x and T_y tied in the scores and in the ratings.
tau-c    ``Σ 2 (C - D) m / (m - 1) / Σ n²``, n the captions of a source and m the smaller number of its distinct scores
         and ratings: the mean of the sources' tau-c, weighted by n². A source with constant scores or ratings adds 0 to
         the numerator.
pearson  Pearson's r of the deviations from the mean of the source.
=======  ==============================================================================================================

With a single source, these are the statistics over all captions. Captions whose source has no other caption are
excluded. Images are resampled, with the captions of all sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray, IntArray, SourceCoefficient
from capbench.stats.agreement import Agreement, Labels, Numbers, named, rated, unit_numbers
from capbench.stats.kendall import rank_encode
from capbench.stats.permutation import LinearSwap, keeps_levels, swapped, tau_effects
from capbench.stats.resampling import PearsonStatistic, RankStatistic, WeightedStatistic, standardise, unit_codes
from capbench.stats.ties import merged
from capbench.stats.vectors import centred, scaled_values


@dataclass(frozen=True, eq=False)
class WithinSources(Agreement):
    """Within-source agreement of several metrics; captions whose source has no other caption are excluded."""

    coefficient: SourceCoefficient
    scores: Mapping[str, FloatArray]  # (draws, n) scores of each metric
    human: FloatArray  # (n,) ratings. As in the scores, values that are equal up to rounding are equal
    source: IntArray  # (n,) number of each caption's source
    sources: tuple[str, ...]  # names of the sources, ascending
    few: int  # number of sources that are excluded because they have only one caption
    unit: IntArray  # (n,) number of each caption's image
    units: int
    labels: NDArray[Any]
    prefix = "within-source "

    @classmethod
    def of(
        cls,
        coefficient: SourceCoefficient,
        scores: Mapping[str, Numbers],  # (n,) or (draws, n) scores by metric
        human: Numbers,  # (n,) ratings of the same captions
        source: Sequence[str] | NDArray[np.str_],  # (n,) name of each caption's source
        image: Labels,  # (n,) label of each caption's image, the resampling unit
    ) -> WithinSources:
        """Raises StatisticError: NaN or infinite values, a caption without a
        source, no source with two captions, one image only, or scores or ratings that are constant in every source.
        """
        arrays, ratings = rated(scores, human)
        names = named(source, "source")
        every, place, sizes = np.unique(names, return_inverse=True, return_counts=True)
        several = (sizes > 1)[place]
        few = int((sizes < 2).sum())
        if not several.any():
            raise StatisticError(
                f"none of {len(every)} sources has two captions: there is nothing to compare within sources",
                code="too-few",
                value=len(every),
                hint="Choose a statistic over all captions, such as tau-b",
            )
        unit, labels = unit_numbers(np.asarray(image)[several], int(several.sum()))
        codes, _ = unit_codes(names[several])
        kept = {name: np.stack([merged(row[several]) for row in rows]) for name, rows in arrays.items()}
        rated_values = merged(ratings[several])
        for name, rows in (("the human ratings", rated_values[None]), *kept.items()):
            if not all((centred(scaled_values(row), codes) != 0).any() for row in rows):
                message = f"{name}: all captions of each source have the same value, so no pair can be compared"
                raise StatisticError(message, value=name)
        of_sources = codes, tuple(every[sizes > 1].tolist()), few
        return cls(coefficient, kept, rated_values, *of_sources, unit, len(labels), labels)

    @property
    def sizes(self) -> IntArray:
        """(S,) number of captions of each source."""
        return np.bincount(self.source, minlength=len(self.sources)).astype(np.int64)

    def of_draw(self, scores: FloatArray) -> WeightedStatistic:
        if self.coefficient == "pearson":
            sides = _deviations(scores, self.source), _deviations(self.human, self.source)
            return PearsonStatistic(*sides, self.unit, self.units, self.source)
        return _WithinTau(self.coefficient, scores, self.human, self.source, self.unit, self.units)

    def swap_of_draw(self, first: FloatArray, second: FloatArray) -> WeightedStatistic:
        """Both metrics are put on a common scale in each source: ranks for tau-b and tau-c.

        For Pearson's r, these are the deviations from the source's mean, divided by their standard deviation over all
        captions. The statistic does not depend on differences between sources, so neither does the test.
        """
        both, twice = np.concatenate([self._scaled(first), self._scaled(second)]), np.tile(self.human, 2)
        place, source = np.concatenate([self.unit, self.unit + self.units]), np.tile(self.source, 2)
        if self.coefficient == "pearson":
            sides = _deviations(both, source), _deviations(twice, source)
            return swapped(PearsonStatistic(*sides, place, 2 * self.units, source))
        of_sources = [np.flatnonzero(source == number) for number in range(len(self.sources))]
        if self.coefficient == "tau-c":
            levels = [rank_encode(twice[at]).levels for at in of_sources]
            if all(
                keeps_levels(rank_encode(both[at]).codes, place[at], self.units, count)
                for at, count in zip(of_sources, levels, strict=True)
            ):
                # The denominators are the same for both metrics, so that the difference is linear.
                squares = float((self.sizes**2).sum())
                effects = [
                    2 * count / (count - 1) / squares * tau_effects(both[at], twice[at], place[at], self.units)
                    for at, count in zip(of_sources, levels, strict=True)
                    if count > 1
                ]
                return LinearSwap(np.sum(effects, axis=0))
        return swapped(_WithinTau(self.coefficient, both, twice, source, place, 2 * self.units))

    def _scaled(self, row: FloatArray) -> FloatArray:
        if self.coefficient == "pearson":
            return _deviations(row, self.source)
        ranks = np.empty(len(row))
        for number in range(len(self.sources)):
            at = self.source == number
            ranks[at] = rank_encode(row[at]).doubled_ranks()
        return ranks


class _WithinTau:
    """Tau-b or tau-c over the pairs of captions of one source."""

    def __init__(
        self,
        coefficient: SourceCoefficient,
        x: FloatArray,
        y: FloatArray,
        source: IntArray,
        unit: IntArray,
        units: int,
    ) -> None:
        self.units = units
        self._coefficient = coefficient
        of_sources = [np.flatnonzero(source == number) for number in range(int(source.max()) + 1)]
        kendall: Coefficient = "tau-c" if coefficient == "tau-c" else "tau-b"
        self._parts = [RankStatistic(kendall, x[at], y[at], unit[at], units) for at in of_sources]
        self._sizes = np.stack([np.bincount(unit[at], minlength=units) for at in of_sources], axis=1).astype(np.int64)

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            if self._coefficient == "tau-c":
                values = np.stack([part(weights) for part in self._parts], axis=1)
                squares = (weights.astype(np.int64) @ self._sizes).astype(np.float64) ** 2
                undefined = np.isnan(values)
                value = (np.where(undefined, 0.0, values) * squares).sum(axis=1) / squares.sum(axis=1)
                return np.where(undefined.all(axis=1), np.nan, value)
            score, free_x, free_y = np.sum([part.pair_sums(weights) for part in self._parts], axis=0)
            value = 2 * score / np.sqrt(free_x * free_y)
        return np.where((free_x > 0) & (free_y > 0), np.clip(value, -1.0, 1.0), np.nan)


def _deviations(values: FloatArray, source: IntArray) -> FloatArray:
    """(n,) deviations from the mean of the source, divided by their standard deviation."""
    return standardise(centred(scaled_values(values), source))
