"""Where a grounding metric and people part: by image, and by rating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capbench.core.records import FloatArray, IntArray
from capbench.stats.correlation import correlation
from scripts.flickr8k_grid import Grounded


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


def by_image(
    scores: Mapping[str, FloatArray], grounded: Grounded, images: Sequence[str], human: FloatArray
) -> dict[str, Any]:
    """What of a score tells images apart, and what candidates of one image.

    Args:
        scores: (n,) of each column.
        grounded: the items' grounding vectors.
        images: (n,) ids.
        human: (n,) mean rating of each item.

    Returns:
        For each column the share of its variance between images, tau-b of image means with mean ratings, and tau-b of
        scores and ratings after the image's mean is taken from both; and what the references' level goes with.
    """
    _, codes = np.unique(np.array(images), return_inverse=True)
    rated = image_means(human, codes)
    columns = columns_by_image(scores, codes, human)
    level = image_means(np.linalg.norm(grounded.references, axis=1), codes)
    candidate_level = image_means(np.linalg.norm(grounded.candidate, axis=1), codes)
    return {
        "images": len(rated),
        "columns": columns,
        "share of people's variance between images": share_between(human, codes),
        "references' level with mean rating (Pearson)": correlation("pearson", level, rated).value,
        "references' level with mean rating (Spearman)": correlation("spearman", level, rated).value,
        "references' level with candidates' mean level (Pearson)": correlation("pearson", level, candidate_level).value,
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


def parts_of_distance(grounded: Grounded, human: FloatArray) -> dict[str, float]:
    """tau-b with mean ratings of the parts of D = KL + ln‖reference‖ - ln‖candidate‖, one by one.

    Signs are turned so that higher should be better everywhere; the references' level is the odd one out: by the
    formula a higher one makes the score lower.
    """
    statistics = grounded.statistics()
    parts = {
        "-KL": -statistics["kl"],
        "ln‖candidate‖": np.log(statistics["norm_candidate_released"]),
        "-ln‖reference‖": -np.log(statistics["norm_reference_released"]),
        "ln‖reference‖ (not turned)": np.log(statistics["norm_reference_released"]),
        "-D_rel": np.log(statistics["norm_candidate_released"]) - np.log(statistics["norm_reference_released"]),
        "ln‖candidate‖ + ln‖reference‖": np.log(statistics["norm_candidate_released"])
        + np.log(statistics["norm_reference_released"]),
    }
    return {name: correlation("tau-b", values, human).value for name, values in parts.items()}


def residuals(score: FloatArray, human: FloatArray, facts: Mapping[str, FloatArray]) -> dict[str, float]:
    """Spearman's rho of facts about candidates with (rank of the score - rank of the rating): who is overrated."""
    from scipy.stats import rankdata

    surplus = rankdata(score) - rankdata(human)
    return {name: correlation("spearman", values, surplus).value for name, values in facts.items()}
