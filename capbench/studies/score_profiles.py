"""Distributions of a metric's scores: by rating, within images and between them, over systems, and by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray
from capbench.stats.correlation import correlation
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.resampling import observed_value, unit_codes
from capbench.stats.ties import merged
from capbench.stats.variance import share_between
from capbench.stats.within_images import WithinImages
from capbench.studies.examples import MAX_LEVELS, RatingGroup, binned, by_rating
from capbench.studies.item_scores import ItemScores


@dataclass(frozen=True)
class ScoreLevel(RatingGroup):
    """The scores of the captions of one rating, or of one bin of ratings, which its middle names."""

    counts: tuple[int, ...]  # (bins,) number of captions with a score in each bin of the metric's range


@dataclass(frozen=True)
class ImageLevels:
    """Agreement with human ratings within images and between them; None for what is undefined."""

    within: float | None  # Kendall's tau-b of each image's captions, averaged over images
    images: int  # in this average
    between: float | None  # Kendall's tau-b of the images' mean scores and mean ratings
    images_between: int
    share: float | None  # of the scores' variance that lies between images (eta squared), in [0, 1]
    human_share: float | None  # the same for human ratings


@dataclass(frozen=True)
class SystemMean:
    """The mean score and mean rating of one system's n captions."""

    system: str
    n: int
    human: float
    score: float


def by_level(scores: FloatArray, human: FloatArray, *, bins: int = 24) -> tuple[tuple[ScoreLevel, ...], FloatArray]:
    """Scores by ascending rating, with a histogram of each rating's scores, and the (bins + 1,) edges of the bins.

    The bins have equal width over the range of all scores. More than :data:`~capbench.studies.examples.MAX_LEVELS`
    distinct ratings are binned.
    """
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    ratings = binned(human) if len(np.unique(human)) > MAX_LEVELS else human
    levels = []
    for group in by_rating(scores, ratings):
        counts = np.histogram(scores[ratings == group.rating], edges)[0]
        levels.append(ScoreLevel(**vars(group), counts=tuple(counts.tolist())))
    return tuple(levels), edges


def image_levels(scores: FloatArray, human: FloatArray, images: Sequence[str]) -> ImageLevels:
    """Agreement within images and between them, and how much of the (n,) scores' variance lies between images."""
    within, counting = None, 0
    try:
        data = WithinImages.of("tau-b", {"": scores}, human, images, minimum=1)
        within, counting = observed_value(data.statistic("")), data.images
    except StatisticError:
        pass  # one caption for each image, or equal ratings: nothing can be compared within images
    codes, units = unit_codes(list(images))
    score_means, human_means = (aggregate(codes, values, "mean")[1] for values in (scores, human))
    try:
        between = correlation("tau-b", score_means, human_means).value
    except StatisticError:
        between = None
    return ImageLevels(
        within,
        counting,
        between,
        units,
        share_between(scores, images),
        share_between(human, images),
    )


def system_means(scores: FloatArray, human: FloatArray, systems: Sequence[str]) -> tuple[SystemMean, ...]:
    """Mean score and mean rating of each system, the highest rated first; empty with fewer than two systems."""
    names = np.array(systems, dtype=np.str_)
    means = [
        SystemMean(str(name), int(chosen.sum()), float(human[chosen].mean()), float(scores[chosen].mean()))
        for name in np.unique(names)
        if name
        for chosen in [names == name]
    ]
    return tuple(sorted(means, key=lambda mean: -mean.human)) if len(means) > 1 else ()


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
