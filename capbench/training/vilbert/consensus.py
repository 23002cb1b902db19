"""What other captions of an image say of a caption: the order that ``loss.ranking`` teaches.

A metric must put a fair caption of another image above a poor one, not only an image's own captions above all others.
Nobody rates training images; but the captions that an image has can be asked what they share with a candidate. The
reference that the network compares the candidate with is not asked: what the others would say of it must be told from
the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import DataError
from capbench.training.captions import Pairs

__all__ = ["Consensus"]

_ORDERS = 4  # n-grams of 1 to 4 pieces, each order weighing the same (CIDEr: Vedantam et al. 2015, equation 3)
_ALIKE = 50  # images that another one's candidates are drawn from, by text and by look
_AT_ONCE = 1000


class Consensus:
    """Captions as vectors of n-grams, and which images are alike.

    Args:
        pairs: captions and images that are learned from.
        captions: their word pieces, ``[CLS]`` first and ``[SEP]`` last.
        looks: (images, d) a vector an image: the mean of its regions.

    Raises:
        DataError: there is only one image.
    """

    def __init__(self, pairs: Pairs, captions: Sequence[Sequence[int]], looks: NDArray[np.floating]) -> None:
        if len(pairs.images) < 2:
            raise DataError("needs two images or more to draw captions of others from", path=pairs.source)
        self._counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
        self._firsts = np.cumsum(self._counts) - self._counts
        self._vectors = _vectors(captions, pairs.image_of, len(pairs.images))
        texts = _by_image(self._vectors, pairs.image_of, len(pairs.images))
        self._alike = (_most_similar(texts), _most_similar(_unit(looks - looks.mean(axis=0))))

    def draw(self, image_of: NDArray[np.int64], number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Captions of images that are alike, by text and by look in turn.

        Args:
            image_of: (b,) images.
            number: of captions for each.
            rng: draws.

        Returns:
            (b, number) places of captions, none of them of the image itself.
        """
        columns = []
        for which in range(number):
            alike = self._alike[which % len(self._alike)]
            images = alike[image_of, rng.integers(alike.shape[1], size=len(image_of))]
            columns.append(self._firsts[images] + rng.integers(self._counts[images]))
        return np.stack(columns, axis=1)

    def shared(
        self, image_of: NDArray[np.int64], left_out: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """How much of candidates the captions of images share.

        Args:
            image_of: (b,) images.
            left_out: (b, k) captions of them that are not asked, as long as others are left.
            candidates: (c,) captions.

        Returns:
            (b, c) from 0 to 1: the mean cosine with the captions that are asked.
        """
        from scipy import sparse

        asked = []
        for image, without in zip(image_of.tolist(), left_out.tolist(), strict=True):
            every = range(self._firsts[image], self._firsts[image] + self._counts[image])
            asked.append([caption for caption in every if caption not in without] or list(every))
        sizes = np.array([len(captions) for captions in asked])
        rows, columns = np.repeat(np.arange(len(asked)), sizes), np.concatenate(asked)
        weights = (1.0 / sizes[rows]).astype(np.float32)
        means = sparse.csr_array((weights, (rows, columns)), shape=(len(asked), self._vectors.shape[0])) @ self._vectors
        return np.asarray((means @ self._vectors[candidates].T).toarray(), dtype=np.float32)


def _vectors(captions: Sequence[Sequence[int]], image_of: NDArray[np.int64], images: int) -> Any:
    """(captions, n-grams) sparse: counts times ln(images / images with it), of unit length in each order."""
    from scipy import sparse

    parts = []
    for order in range(1, _ORDERS + 1):
        place: dict[tuple[int, ...], int] = {}
        rows, columns = [], []
        for row, caption in enumerate(captions):
            words = caption[1:-1]
            for start in range(len(words) - order + 1):
                rows.append(row)
                columns.append(place.setdefault(tuple(words[start : start + order]), len(place)))
        counts = sparse.coo_array(
            (np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(len(captions), max(1, len(place)))
        ).tocsr()
        counts.sum_duplicates()
        in_image = _by_image(counts, image_of, images, normal=False) > 0
        rarity = np.log(images / np.maximum(1, in_image.sum(axis=0))).astype(np.float32)
        counts.data *= rarity[counts.indices]
        parts.append(_unit_rows(counts))
    return (sparse.hstack(parts) / np.sqrt(_ORDERS)).tocsr().astype(np.float32)


def _by_image(vectors: Any, image_of: NDArray[np.int64], images: int, normal: bool = True) -> Any:
    """(images, n-grams): the sums of their captions, of unit length if ``normal``."""
    from scipy import sparse

    ones = np.ones(len(image_of), dtype=np.float32)
    sums = sparse.csr_array((ones, (image_of, np.arange(len(image_of)))), shape=(images, len(image_of))) @ vectors
    return _unit_rows(sums.tocsr()) if normal else sums


def _unit_rows(matrix: Any) -> Any:
    """The rows of a sparse matrix, of unit length; empty ones stay."""
    from scipy import sparse

    norms = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    return (sparse.diags_array(1.0 / np.where(norms > 0, norms, 1.0)) @ matrix).tocsr().astype(np.float32)


def _unit(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1.0), dtype=np.float32)


def _most_similar(vectors: Any) -> NDArray[np.int64]:
    """(images, k) the other images that are most similar to each, by the product of their vectors."""
    number = vectors.shape[0]
    kept = min(_ALIKE, number - 1)
    places = np.empty((number, kept), dtype=np.int64)
    for start in range(0, number, _AT_ONCE):
        product = vectors[start : start + _AT_ONCE] @ vectors.T
        similar = product if isinstance(product, np.ndarray) else product.toarray()
        rows = np.arange(len(similar))
        similar[rows, start + rows] = -np.inf
        order = np.argpartition(-similar, kept - 1, axis=1)[:, :kept]
        places[start : start + _AT_ONCE] = np.sort(order, axis=1)
    return places
