"""Shares of the variance of ratings or scores that lie between groups: between images, and between sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray
from capbench.stats.resampling import unit_codes
from capbench.stats.ties import is_constant
from capbench.stats.vectors import centred, finite_vector


def share_between(values: FloatArray, groups: Sequence[str] | NDArray[np.str_]) -> float | None:
    """Share of the variance of (n,) values that lies between groups: eta squared of a one-way analysis of variance.

    None if all values are equal.
    """
    if is_constant(values):
        return None
    codes, units = unit_codes(groups)
    sizes = np.bincount(codes, minlength=units)
    means = np.bincount(codes, values, units) / sizes
    total = float(((values - values.mean()) ** 2).sum())
    return min(1.0, float((sizes * (means - values.mean()) ** 2).sum()) / total)


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the variance of captions' ratings, in [0, 1]; None if undefined.

    If every image has one caption of every source, ``sources``, ``images`` and ``within`` add up to 1. In other designs
    the shares of sources and images overlap.
    """

    captions: int  # number of captions, n
    n_sources: int  # number of sources; 0 if the sources are unknown
    n_images: int
    sources: float | None  # share between sources (eta squared); None if there are not two known sources
    images: float | None  # share between images (eta squared); None if every image has one caption
    # share that remains within both: the residual of the least-squares fit of an effect of each source plus an effect
    # of each image; None if every image has one caption. With unknown sources, within images
    within: float | None
    # expected share between sources if the ratings were assigned to the captions at random, ``(sources - 1) / (n - 1)``
    sources_by_chance: float | None
    images_by_chance: float | None  # the same for images
    source_means: Mapping[str, float]  # mean rating of each source; empty if there are not two known sources


def variance_shares(
    values: Sequence[float] | NDArray[np.generic],  # (n,) rating of each caption
    images: Sequence[str] | NDArray[np.str_],  # (n,) image of each caption
    sources: Sequence[str] | NDArray[np.str_],  # (n,) source of each caption; if any is ``""``, the sources are unknown
) -> VarianceShares:
    """Analysis of variance of captions' ratings with the factors source and image, without their interaction.

    Raises StatisticError: a value that is not finite.
    """
    ratings = finite_vector(values, "the human ratings")
    image_labels, source_labels = np.asarray(images, dtype=np.str_), np.asarray(sources, dtype=np.str_)
    n, n_images = len(ratings), len(np.unique(image_labels))
    n_sources = len(np.unique(source_labels)) if (source_labels != "").all() else 0
    several_sources, several_captions = n_sources > 1, n_images < n
    varied = n > 1 and not is_constant(ratings)
    within = None
    if varied and several_captions:
        deviation = ratings - ratings.mean()
        total = float(deviation @ deviation)
        code, _ = unit_codes(image_labels)
        residual = centred(deviation, code)
        rest = float(residual @ residual)
        if several_sources:
            rest -= _explained(residual, code, unit_codes(source_labels)[0], n_images, n_sources)
        within = min(1.0, max(0.0, rest / total))
    return VarianceShares(
        n,
        n_sources,
        n_images,
        share_between(ratings, source_labels) if varied and several_sources else None,
        share_between(ratings, image_labels) if varied and several_captions else None,
        within,
        (n_sources - 1) / (n - 1) if several_sources else None,
        (n_images - 1) / (n - 1) if several_captions else None,
        {str(name): float(ratings[source_labels == name].mean()) for name in np.unique(source_labels)}
        if several_sources
        else {},
    )


def _explained(
    residual: FloatArray, image: NDArray[np.integer], source: NDArray[np.integer], n_images: int, n_sources: int
) -> float:
    """Sum of squares that the sources explain in addition to the images, from residuals within images."""
    captions = np.bincount(image * n_sources + source, minlength=n_images * n_sources).reshape(n_images, n_sources)
    sums = np.bincount(source, residual, n_sources)
    products = np.diag(captions.sum(axis=0)) - (captions / captions.sum(axis=1, keepdims=True)).T @ captions
    effects = np.linalg.lstsq(products, sums, rcond=None)[0]
    return float(effects @ sums)
