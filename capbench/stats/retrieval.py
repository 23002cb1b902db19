"""Recall of images by captions and of captions by images, from a similarity matrix.

As in Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments" (CVPR 2015), and Lee et al. (ECCV 2018), R@K is the
percentage of queries with a right answer among the first K. The original code sorts, so a network with constant
similarities gets the recall of the file order. Here, answers as similar as the right one are ranked before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.stats.ties import SCORE_ROUNDING

RECALLS = (1, 5, 10)
"""Values of K in R@K."""
_NAMES = (*(f"r@{k}" for k in RECALLS), "median_rank", "mean_rank")


def ranks(
    similarities: NDArray[np.floating[Any]], image_of: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks of the first right answers, from 1.

    ``similarities``: (images, captions); higher is more similar; ``image_of``: (captions,) row of each caption's image;
    every image has one caption or more.

    Returns (images,) the rank of the image's best caption among all captions, not counting its other captions; and
    (captions,) the rank of the caption's image among all images. Raises StatisticError: a similarity is not finite.
    """
    n, m = similarities.shape
    if not np.isfinite(similarities).all():
        hint = "The model is damaged or has diverged"
        raise StatisticError("a similarity is NaN or infinite", code="not-a-number", hint=hint)
    of_pairs = similarities[image_of, np.arange(m)]  # (m,) of each caption with its own image
    best = np.full(n, -np.inf, dtype=similarities.dtype)
    np.maximum.at(best, image_of, of_pairs)
    # Similarities that are equal up to rounding count as equal.
    least, least_of_pairs = (right - SCORE_ROUNDING * np.abs(right) for right in (best, of_pairs))
    # Subtract the image's captions that are as similar as its best one, including the best itself.
    reaching = np.bincount(image_of[of_pairs >= least[image_of]], minlength=n)
    to_text = np.count_nonzero(similarities >= least[:, None], axis=1) - reaching + 1
    return to_text, np.count_nonzero(similarities >= least_of_pairs, axis=0)


def retrieval(
    similarities: NDArray[np.floating[Any]], image_of: NDArray[np.integer[Any]], folds: int = 1
) -> dict[str, Any]:
    """R@1, R@5, R@10, median and mean rank in both directions (``image_to_text``: images are queries), and the sum of
    all recalls, the criterion for choosing models, to six decimals, as JSON; arguments as of :func:`ranks`.

    With ``folds``, the images are split in order into equal parts, of which their number must be a multiple, and the
    results are means over the parts (COCO's 5,000 test images are often reported as five times 1,000).
    """
    n, parts = len(similarities), []
    for rows in np.split(np.arange(n), folds):
        inside = np.flatnonzero(np.isin(image_of, rows))
        of_part = similarities if folds == 1 else similarities[np.ix_(rows, inside)]
        parts.append([_numbers(of_queries) for of_queries in ranks(of_part, image_of[inside] - rows[0])])
    to_text, to_image = means = np.mean(parts, axis=0)
    return {
        "images": n,
        "captions": len(image_of),
        "recall_sum": round(float(means[:, : len(RECALLS)].sum()), 6),
        "image_to_text": dict(zip(_NAMES, to_text.round(6).tolist(), strict=True)),
        "text_to_image": dict(zip(_NAMES, to_image.round(6).tolist(), strict=True)),
    }


def _numbers(of_queries: NDArray[np.int64]) -> list[float]:
    """The recalls, the median and the mean of ranks."""
    recalls = [float(100 * np.count_nonzero(of_queries <= k) / len(of_queries)) for k in RECALLS]
    return [*recalls, float(np.median(of_queries)), float(of_queries.mean())]
