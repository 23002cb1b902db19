"""Scores by rating, and scores mapped onto the scale of the ratings (TIGEr, Figures 4 and 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from capbench.core.records import FloatArray
from capbench.stats.ties import merged

RATING_BINS = 10  # of equal width, from the lowest rating to the highest, that replace an n-point scale


def binned(human: FloatArray) -> FloatArray:
    """(n,) the middle of each rating's bin, of :data:`RATING_BINS` of equal width; a border is of the upper one."""
    edges = np.linspace(human.min(), human.max(), RATING_BINS + 1)
    middles: FloatArray = (edges[:-1] + edges[1:]) / 2
    return middles[np.searchsorted(edges[1:-1], human, side="right")]


class RatingGroup(NamedTuple):
    """The n data points of one rating: mean and sample standard deviation of their scores (None for one point)."""

    rating: float
    n: int
    mean: float
    sd: float | None


def by_rating(scores: FloatArray, human: FloatArray) -> list[RatingGroup]:
    """The data points of each rating, by ascending rating (TIGEr, Figure 4)."""
    groups = {float(rating): scores[human == rating] for rating in np.unique(human)}
    spread = {rating: float(of.std(ddof=1)) if len(of) > 1 else None for rating, of in groups.items()}
    return [RatingGroup(rating, len(of), float(of.mean()), spread[rating]) for rating, of in groups.items()]


def score_groups(scores: FloatArray, human: FloatArray) -> FloatArray:
    """(n,) scores on the human scale (TIGEr, appendix A.1): the rating that each data point is mapped to.

    If a share p of the ratings is 1, the lowest share p of the scores is 1, and so on. Points with equal scores have
    their mean rank and so belong to the same group.
    """
    from scipy.stats import rankdata

    levels, counts = np.unique(human, return_counts=True)
    place = rankdata(merged(scores)) - 0.5
    groups: FloatArray = levels[np.searchsorted(np.cumsum(counts), place, side="right")]
    return groups


class GroupDifferences(NamedTuple):
    """Differences between score groups and human ratings (TIGEr, Figure 8)."""

    differences: tuple[float, ...]  # (d,) all possible ones, score group minus rating, ascending
    shares: dict[str, tuple[float, ...]]  # (d,) of the data points at each difference, by title
    chance: tuple[float, ...]  # (d,) the same for a metric without ties that is independent of the ratings


def group_differences(scores: Mapping[str, FloatArray], human: FloatArray) -> GroupDifferences:
    """Differences between score groups and ratings. ``scores``: (n,) by title; ``human``: (n,) ratings."""
    levels, codes, counts = np.unique(human, return_inverse=True, return_counts=True)
    sizes = np.maximum.outer(np.abs(levels), np.abs(levels))
    grid = merged(np.subtract.outer(levels, levels).ravel(), sizes.ravel()).reshape(sizes.shape)
    differences, chances = np.unique(grid), np.outer(counts, counts) / counts.sum() ** 2
    shares = {}
    for title, of_metric in scores.items():
        distances = grid[np.searchsorted(levels, score_groups(of_metric, human)), codes]
        shares[title] = tuple(float(np.mean(distances == difference)) for difference in differences)
    chance = tuple(float(chances[grid == difference].sum()) for difference in differences)
    return GroupDifferences(tuple(differences.tolist()), shares, chance)
