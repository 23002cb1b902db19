"""Recall of images by captions and of captions by images, from a similarity matrix.

As in Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments" (CVPR 2015), and Lee et al. (ECCV 2018), R@K is the
percentage of queries with a right answer among the first K. The original code sorts, so a network with constant
similarities gets the recall of the file order. Here, answers as similar as the right one are ranked before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.stats.ties import SCORE_ROUNDING

RECALLS = (1, 5, 10)
"""Values of K in R@K."""
_BLOCK = 1 << 22  # similarities that are compared at once


@dataclass(frozen=True)
class Direction:
    """One direction of retrieval."""

    recalls: tuple[float, ...]  # percentages of queries, for each K of RECALLS
    median_rank: float  # of a query's first right answer; the best is 1
    mean_rank: float

    def to_dict(self) -> dict[str, float]:
        """``r@1``, ``r@5``, ``r@10``, ``median_rank``, ``mean_rank``, rounded to six decimals."""
        named = {f"r@{k}": value for k, value in zip(RECALLS, self.recalls, strict=True)}
        named |= {"median_rank": self.median_rank, "mean_rank": self.mean_rank}
        return {key: round(value, 6) for key, value in named.items()}


@dataclass(frozen=True)
class Retrieval:
    """Both directions on one set of images and captions."""

    image_to_text: Direction  # an image is the query, its captions are the right answers
    text_to_image: Direction  # a caption is the query, its image is the right answer
    images: int
    captions: int

    @property
    def recall_sum(self) -> float:
        """Sum of the six recalls, the criterion for choosing models; at most 600."""
        return float(sum(self.image_to_text.recalls) + sum(self.text_to_image.recalls))

    def to_dict(self) -> dict[str, Any]:
        """All numbers as a dictionary for JSON, rounded to six decimals."""
        return {
            "images": self.images,
            "captions": self.captions,
            "recall_sum": round(self.recall_sum, 6),
            "image_to_text": self.image_to_text.to_dict(),
            "text_to_image": self.text_to_image.to_dict(),
        }


def ranks(
    similarities: NDArray[np.floating[Any]], image_of: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks of the first right answers, from 1.

    The matrix is read in blocks of rows (it may be memory-mapped).

    ``similarities``: (images, captions); higher is more similar; ``image_of``: (captions,) row of each caption's image;
    every image has one caption or more.

    Returns (images,) the rank of the image's best caption among all captions, not counting its other captions; and
    (captions,) the rank of the caption's image among all images. Raises StatisticError: a similarity is not finite.
    """
    n, m = similarities.shape
    rows = max(1, _BLOCK // m)
    for first in range(0, n, rows):
        if not np.isfinite(similarities[first : first + rows]).all():
            hint = "The model is damaged or has diverged"
            raise StatisticError("a similarity is NaN or infinite", code="not-a-number", hint=hint)
    of_pairs = similarities[image_of, np.arange(m)]  # (m,) of each caption with its own image
    best = np.full(n, -np.inf, dtype=similarities.dtype)
    np.maximum.at(best, image_of, of_pairs)
    # Similarities that are equal up to rounding count as equal.
    least, least_of_pairs = (right - SCORE_ROUNDING * np.abs(right) for right in (best, of_pairs))
    to_text, to_image = np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64)
    for first in range(0, n, rows):
        block = similarities[first : first + rows]
        to_text[first : first + rows] = np.count_nonzero(block >= least[first : first + rows, None], axis=1)
        to_image += np.count_nonzero(block >= least_of_pairs, axis=0)
    # Subtract the image's captions that are as similar as its best one, including the best itself.
    reaching = np.bincount(image_of[of_pairs >= least[image_of]], minlength=n)
    return to_text - reaching + 1, to_image


def retrieval(similarities: NDArray[np.floating[Any]], image_of: NDArray[np.integer[Any]], folds: int = 1) -> Retrieval:
    """R@1, R@5, R@10, median and mean rank in both directions; arguments as of :func:`ranks`.

    With ``folds``, the images are split in order into equal parts, of which their number must be a multiple, and the
    results are means over the parts (COCO's 5,000 test images are often reported as five times 1,000).
    """
    n = len(similarities)
    parts = []
    for first in range(0, n, n // folds):
        last = first + n // folds
        inside = np.flatnonzero((image_of >= first) & (image_of < last))
        of_part = similarities if folds == 1 else similarities[first:last, inside]
        parts.append([_numbers(of_queries) for of_queries in ranks(of_part, image_of[inside] - first)])
    to_text, to_image = (Direction(tuple(row[:-2]), *row[-2:]) for row in np.mean(parts, axis=0).tolist())
    return Retrieval(to_text, to_image, n, len(image_of))


def _numbers(of_queries: NDArray[np.int64]) -> list[float]:
    """The recalls, the median and the mean of ranks."""
    recalls = [float(100 * np.count_nonzero(of_queries <= k) / len(of_queries)) for k in RECALLS]
    return [*recalls, float(np.median(of_queries)), float(of_queries.mean())]
