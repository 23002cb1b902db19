"""Analyses of scores next to human ratings: by image, by rating, and by facts about the captions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from capbench.core.records import FloatArray, IntArray
from capbench.stats.correlation import correlation

__all__ = ["by_rating", "columns_by_image", "image_means", "residuals", "share_between"]


def image_means(values: FloatArray, codes: IntArray) -> FloatArray:
    """(images,) mean of the values of each image."""
    return np.asarray(np.bincount(codes, values) / np.bincount(codes), dtype=np.float64)


def share_between(values: FloatArray, codes: IntArray) -> float:
    """Share of the variance that is between images: that of each value's image mean over that of the value."""
    return float(np.var(image_means(values, codes)[codes]) / np.var(values))


def columns_by_image(
    scores: Mapping[str, FloatArray], codes: IntArray, human: FloatArray
) -> dict[str, dict[str, float]]:
    """What of each column tells images apart, and what candidates of one image.

    Args:
        scores: (n,) of each column.
        codes: (n,) number of each item's image.
        human: (n,) mean rating of each item.
    """
    rated = image_means(human, codes)
    return {
        name: {
            "share between images": share_between(values, codes),
            "tau-b between images": correlation("tau-b", image_means(values, codes), rated).value,
            "tau-b within images": correlation(
                "tau-b", values - image_means(values, codes)[codes], np.round(human - rated[codes], 9)
            ).value,
        }
        for name, values in scores.items()
    }


def by_rating(scores: Mapping[str, FloatArray], item: IntArray, rating: FloatArray) -> dict[str, dict[str, float]]:
    """Mean score of the ratings of each value (TIGEr's Figure 4), and the steps in standard deviations of the score.

    Args:
        scores: (items,) of each column.
        item: (n,) item of each rating.
        rating: (n,) its value.
    """
    rows = {}
    for name, values in scores.items():
        means = {f"{value:g}": float(values[item[rating == value]].mean()) for value in np.unique(rating)}
        levels = list(means.values())
        spread = float(values[item].std())
        steps = {f"step to {k}": (b - a) / spread for k, a, b in zip(list(means)[1:], levels, levels[1:], strict=False)}
        rows[name] = means | steps
    return rows


def residuals(score: FloatArray, human: FloatArray, facts: Mapping[str, FloatArray]) -> dict[str, float]:
    """Spearman's rho of facts about candidates with (rank of the score - rank of the rating): who is overrated."""
    from scipy.stats import rankdata

    surplus = rankdata(score) - rankdata(human)
    return {name: correlation("spearman", values, surplus).value for name, values in facts.items()}
