"""How a metric's scores lie: by rating, within images and between them, over systems, and beside people's by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capbench.analyses.score_groups import MAX_LEVELS, binned
from capbench.errors import StatisticError
from capbench.records import FloatArray
from capbench.stats.correlation import correlation
from capbench.stats.resampling import unit_codes
from capbench.stats.within import within_images
from capbench.studies.item_scores import ItemScores

__all__ = [
    "ImageLevels",
    "ScoreLevel",
    "SystemMean",
    "by_level",
    "disagreement",
    "human_percentiles",
    "image_levels",
    "percentiles",
    "share_between_images",
    "system_means",
]


@dataclass(frozen=True)
class ScoreLevel:
    """The scores of the captions of one rating.

    Attributes:
        rating: the rating, or the middle of its bin.
        n: captions.
        mean: their mean score.
        sd: sample standard deviation of their scores; None for a single one.
        counts: (bins,) how many captions have a score in each bin of the metric's range.
    """

    rating: float
    n: int
    mean: float
    sd: float | None
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ImageLevels:
    """Agreement with people inside images and between them.

    Attributes:
        within: Kendall's tau-b of each image's captions, averaged over images; None where it is not defined.
        images: images that count for it.
        between: Kendall's tau-b of the images' mean scores and mean ratings; None where it is not defined.
        images_between: images behind it.
        share: share of the scores' variance that lies between images (eta squared), in [0, 1]; None if all scores are
            equal.
        human_share: the same of people's ratings.
    """

    within: float | None
    images: int
    between: float | None
    images_between: int
    share: float | None
    human_share: float | None


@dataclass(frozen=True)
class SystemMean:
    """One system's captions.

    Attributes:
        system: its name.
        n: captions with a score.
        human: mean rating.
        score: mean score.
    """

    system: str
    n: int
    human: float
    score: float


def by_level(scores: FloatArray, human: FloatArray, *, bins: int = 24) -> tuple[tuple[ScoreLevel, ...], FloatArray]:
    """Scores by rating, with a histogram of each rating's scores.

    Args:
        scores: (n,) scores.
        human: (n,) ratings; more than :data:`~capbench.analyses.score_groups.MAX_LEVELS` different ones are binned.
        bins: bins of equal width over the range of all scores.

    Returns:
        One entry for each rating, ascending, and the (bins + 1,) edges of the bins.
    """
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    ratings = binned(human) if len(np.unique(human)) > MAX_LEVELS else human
    levels = []
    for rating in np.unique(ratings):
        chosen = scores[ratings == rating]
        counts = tuple(np.histogram(chosen, edges)[0].tolist())
        sd = float(chosen.std(ddof=1)) if len(chosen) > 1 else None
        levels.append(ScoreLevel(float(rating), len(chosen), float(chosen.mean()), sd, counts))
    return tuple(levels), edges


def image_levels(scores: FloatArray, human: FloatArray, images: Sequence[str]) -> ImageLevels:
    """Agreement within images and between them, and how much of the scores' variance lies between images.

    Args:
        scores: (n,) scores of captions.
        human: (n,) their ratings.
        images: (n,) their images.
    """
    within, counting = None, 0
    try:
        result = within_images("tau-b", scores, human, list(images))
        within, counting = result.value, result.images
    except StatisticError:
        pass  # one caption an image, or equal ratings: there is nothing within images
    codes, units = unit_codes(list(images))
    sizes = np.bincount(codes, minlength=units)
    score_means, human_means = (np.bincount(codes, values, units) / sizes for values in (scores, human))
    try:
        between = correlation("tau-b", score_means, human_means).value
    except StatisticError:
        between = None
    return ImageLevels(
        within,
        counting,
        between,
        units,
        share_between_images(scores, images),
        share_between_images(human, images),
    )


def share_between_images(values: FloatArray, images: Sequence[str]) -> float | None:
    """Share of the variance of (n,) values that lies between images: eta squared of a one-way analysis of variance.

    None if all values are equal.
    """
    codes, units = unit_codes(list(images))
    sizes = np.bincount(codes, minlength=units)
    means = np.bincount(codes, values, units) / sizes
    total = float(((values - values.mean()) ** 2).sum())
    if total == 0.0:
        return None
    return min(1.0, float((sizes * (means - values.mean()) ** 2).sum()) / total)


def system_means(scores: FloatArray, human: FloatArray, systems: Sequence[str]) -> tuple[SystemMean, ...]:
    """Mean score and mean rating of each system, the one that people like best first; none without two systems."""
    names = np.array(systems, dtype=np.str_)
    means = [
        SystemMean(str(name), int(chosen.sum()), float(human[chosen].mean()), float(scores[chosen].mean()))
        for name in np.unique(names)
        if name
        for chosen in [names == name]
    ]
    return tuple(sorted(means, key=lambda mean: -mean.human)) if len(means) > 1 else ()


def percentiles(values: FloatArray) -> FloatArray:
    """(n,) percentiles in (0, 100): the share of values below, with half of those that are equal.

    >>> percentiles(np.array([3.0, 1.0, 2.0, 2.0])).tolist()
    [87.5, 12.5, 50.0, 50.0]
    """
    from scipy.stats import rankdata

    return np.asarray(100 * (rankdata(values) - 0.5) / max(len(values), 1), dtype=np.float64)


def human_percentiles(table: ItemScores) -> FloatArray:
    """(n,) percentiles of what people said. Of pairs it is 100: nothing is above the order that people want."""
    return np.full(len(table), 100.0) if table.kind == "preferences" else percentiles(table.human_values)


def disagreement(table: ItemScores) -> FloatArray:
    """(n,) the greatest distance between people's percentile and a metric's, over all metrics of a table."""
    human, greatest = human_percentiles(table), np.zeros(len(table))
    for name in table.scores:
        places, scores = table.points(name)
        greatest[places] = np.maximum(greatest[places], np.abs(percentiles(scores) - human[places]))
    return greatest
