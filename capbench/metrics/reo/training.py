"""Fit of the covariance of context vectors in REO's distance (Jiang et al., EMNLP-IJCNLP 2019, eq. 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from capbench.core.errors import DataError, UsageError
from capbench.core.records import FloatArray
from capbench.metrics.grounding.grounding import Attention, GroundingSource, attend, pad
from capbench.metrics.reo.metric import Covariance

__all__ = ["fit_covariance", "oas_shrinkage"]

_TEXTS_AT_ONCE = 2048


def fit_covariance(
    source: GroundingSource,
    captions: Mapping[str, Sequence[str]],
    attention: Attention,
    *,
    corpus: str,
    shrinkage: float | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Covariance:
    """The covariance about the mean of the contexts a_i of all regions of images in their captions.

    Contexts are sums of word vectors, a_i = Σ_j α_ij w_j, so Σ_i a_i a_iᵀ = Wᵀ(ααᵀ)W is computed without the contexts.

    Args:
        source: the model, and features of at least one image of the corpus.
        captions: captions by image; images without features or captions are ignored.
        attention: the attention of regions to words.
        corpus: name of the corpus, for the signature of scores.
        shrinkage: ρ in [0, 1]; by default :func:`oas_shrinkage` with one observation per *caption*, because the
            contexts of one caption are nearly equal.
        progress: called with numbers of images done.

    Raises:
        UsageError: the shrinkage is outside [0, 1].
        DataError: no image of the corpus has features, or there are fewer than two captions.
        FeatureError, ModelError: the store or the model is damaged.
    """
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise UsageError(
            f"the shrinkage is {shrinkage}",
            code="out-of-range",
            value=shrinkage,
            hint="Use a number from 0 to 1, or none to estimate it",
        )
    images = [image for image in sorted(captions) if image in source.store]
    n_captions = sum(len(captions[image]) for image in images)
    if n_captions < 2:
        raise DataError(
            f"of {len(captions):,} images of {corpus}, those with features in {source.store.paths[0]} have "
            f"{n_captions} captions; at least 2 are required",
            code="too-few",
            value=n_captions,
            hint="Use captions of the images in the store, with the same ids",
        )
    size = source.model.options.embed_dim
    total, squares, n = np.zeros(size), np.zeros((size, size)), 0
    for block in _blocks(images, captions):
        words = source.captions(text for image in block for text in captions[image])
        for image in block:
            texts = captions[image]
            if not texts:
                continue
            regions = source.regions(image)
            padded = pad([words[text] for text in texts], attention)
            weights, _ = attend(regions, padded, attention)
            flat = padded.vectors.reshape(-1, size)
            total += weights.sum(axis=2).ravel() @ flat
            mixed = (weights @ weights.transpose(0, 2, 1)) @ padded.vectors
            squares += flat.T @ mixed.reshape(-1, size)
            n += len(texts) * len(regions)
        progress(len(block))
    mean = total / n
    matrix = squares / n - np.outer(mean, mean)
    matrix = (matrix + matrix.T) / 2.0
    if not np.isfinite(matrix).all() or not np.trace(matrix) > 0:
        raise DataError(
            f"the {n:,} contexts of {corpus} are all equal",
            code="undefined",
            value=corpus,
            hint="Use other captions or another model",
        )
    facts = {
        "model": source.model.sha256,
        "corpus": corpus,
        "features": source.store.signature(),
        "attention": f"lambda{attention.smoothing:g}+{attention.norm}+{attention.clip}"
        + ("" if attention.count_ends else "+no-ends"),
        "images": len(images),
        "captions": n_captions,
        "contexts": n,
    }
    return Covariance(matrix, oas_shrinkage(matrix, n_captions) if shrinkage is None else float(shrinkage), facts)


def oas_shrinkage(covariance: FloatArray, observations: int) -> float:
    """Shrinkage of a sample covariance (p, p) towards a multiple of the identity.

    The oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (IEEE Trans. Signal Processing 58, 2010, eq. 23).
    """
    p = len(covariance)
    of_square, square_of = float((covariance * covariance).sum()), float(np.trace(covariance)) ** 2
    above = (1 - 2 / p) * of_square + square_of
    below = (observations + 1 - 2 / p) * (of_square - square_of / p)
    return 1.0 if below <= 0 else min(1.0, above / below)


def _blocks(images: Sequence[str], captions: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Images in blocks with at most ``_TEXTS_AT_ONCE`` captions, or a single image with more."""
    blocks: list[list[str]] = []
    texts = 0  # of the last block
    for image in images:
        if not blocks or texts + len(captions[image]) > _TEXTS_AT_ONCE:
            blocks.append([])
            texts = 0
        blocks[-1].append(image)
        texts += len(captions[image])
    return blocks
