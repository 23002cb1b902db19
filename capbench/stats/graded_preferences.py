"""Graded preferences between two captions, and agreement with preferences that is controlled for length.

A graded preference has a sign (the preferred caption) and a strength (+2: the first is much better, 0: no difference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray, GradedCoefficient, IntArray
from capbench.stats.agreement import Correlations, Labels, Numbers
from capbench.stats.ties import merged
from capbench.stats.vectors import draws_of, finite_vector


@dataclass(frozen=True, eq=False)
class GradedPairs(Correlations):
    """Correlations of score differences with graded preferences.

    The order of a pair's captions is arbitrary, and reversing a pair reverses the signs of its difference and its
    grade. Each pair therefore counts in both orders, so that no order changes the number. With m pairs, differences d
    and grades g, Pearson's r is then the correlation through the origin::

        r = Σ d g / sqrt(Σ d² · Σ g²)

    and Kendall's tau-b is computed from the 2 m points (d, g) and (-d, -g). Differences as data points: DiIanni and
    Deutsch (2025). Created by :meth:`of_pairs`; the attributes are those of the 2 m points.
    """

    prefix = "graded-"

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.human) // 2

    @classmethod
    def of_pairs(
        cls,
        coefficient: GradedCoefficient,
        first: Mapping[str, Numbers],  # (m,) or (draws, m) scores of the pairs' first captions, by metric
        second: Mapping[str, Numbers],  # the same for the second captions
        grade: Numbers,  # (m,) grades, positive if the first caption is preferred, 0 without a preference
        unit: Labels,  # (m,) label of each pair's unit
    ) -> GradedPairs:
        """Raises StatisticError: values that are NaN or infinite, differences or grades that are all 0, one unit."""
        grades, labels = finite_vector(grade, "the graded preferences"), np.asarray(unit)
        differences = {}
        for name in first:
            draws = zip(draws_of(first[name], name), draws_of(second[name], name), strict=True)
            differences[name] = np.stack([_differences(*row) for row in draws])
        both = np.concatenate([grades, -grades])
        return cast(GradedPairs, cls.of(coefficient, differences, both, np.concatenate([labels, labels])))


def _differences(first: FloatArray, second: FloatArray) -> FloatArray:
    """(2 m,) differences in both orders; those that are equal up to rounding are equal."""
    both = np.concatenate([first, second])
    left, right = np.split(merged(both), 2)
    sizes = np.maximum(np.abs(left), np.abs(right))
    return merged(np.concatenate([left - right, right - left]), np.tile(sizes, 2))


def length_sides(
    preferred: Sequence[int] | NDArray[np.integer], difference: Sequence[float] | FloatArray, groups: Sequence[str]
) -> IntArray:
    """The side of each pair in a length-balanced accuracy: +1 if raters prefer its longer caption, -1 the shorter.

    The length-balanced accuracy of a group of pairs is the mean of two accuracies: on pairs whose longer caption is
    preferred, and on pairs whose shorter one is. It is the balanced accuracy (Brodersen and others 2010) of the
    decision between longer and shorter. With ties that count one half, a metric whose choice between two captions
    depends on their lengths alone, at random or not, has exactly 50 %.

    ``preferred``: (m,) +1 if raters prefer the first caption, -1 the second, 0 none; ``difference``: (m,) length of the
    first caption minus that of the second; ``groups``: (m,) group of each pair. Pairs without a preference or with
    captions of equal length have no side, and so do all pairs of a group without pairs on both sides.
    """
    sides = np.asarray(preferred, dtype=np.int64) * np.sign(np.asarray(difference, dtype=np.float64)).astype(np.int64)
    names = np.array(groups, dtype=object)
    both = set(names[sides > 0].tolist()) & set(names[sides < 0].tolist())
    return np.where([name in both for name in groups], sides, 0) if len(sides) else sides
