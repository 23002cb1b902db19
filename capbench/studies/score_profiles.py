"""Distributions of a metric's scores by rating and by rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capbench.core.records import FloatArray
from capbench.stats.ties import merged
from capbench.studies.examples import MAX_LEVELS, RatingGroup, binned, by_rating
from capbench.studies.item_scores import ItemScores


@dataclass(frozen=True)
class ScoreLevel(RatingGroup):
    """The scores of the captions of one rating, or of one bin of ratings, which its middle names."""

    counts: tuple[int, ...]  # (bins,) number of captions with a score in each bin of the metric's range


def by_level(scores: FloatArray, human: FloatArray, *, bins: int = 24) -> tuple[tuple[ScoreLevel, ...], FloatArray]:
    """Scores by ascending rating, with a histogram of each rating's scores, and the (bins + 1,) edges of the bins."""
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    ratings = binned(human) if len(np.unique(human)) > MAX_LEVELS else human
    levels = []
    for group in by_rating(scores, ratings):
        counts = np.histogram(scores[ratings == group.rating], edges)[0]
        levels.append(ScoreLevel(**vars(group), counts=tuple(counts.tolist())))
    return tuple(levels), edges


def percentiles(values: FloatArray) -> FloatArray:
    """(n,) percentiles in (0, 100): the share of smaller values, plus half the share of equal values.

    >>> percentiles(np.array([3.0, 1.0, 2.0, 2.0])).tolist()
    [87.5, 12.5, 50.0, 50.0]
    """
    from scipy.stats import rankdata

    return np.asarray(100 * (rankdata(merged(values)) - 0.5) / max(len(values), 1), dtype=np.float64)


def human_percentiles(table: ItemScores) -> FloatArray:
    """(n,) percentiles of the human ratings. For pairs it is 100: the preferred order is the maximum."""
    return np.full(len(table), 100.0) if table.kind == "preferences" else percentiles(table.human_values)


def disagreement(table: ItemScores) -> FloatArray:
    """(n,) largest distance between the human percentile and a metric's, over all metrics of a table."""
    human, greatest = human_percentiles(table), np.zeros(len(table))
    for name in table.scores:
        places, scores = table.points(name)
        greatest[places] = np.maximum(greatest[places], np.abs(percentiles(scores) - human[places]))
    return greatest
