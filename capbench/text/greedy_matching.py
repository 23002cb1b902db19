"""Greedy matching of the word vectors of two texts by cosine (Zhang et al., BERTScore, ICLR 2020, section 3).

Precision matches every token of the candidate with the most similar token of the reference, recall every token of the
reference with the most similar token of the candidate; F is their harmonic mean. ViLBERTScore (Lee et al., Eval4NLP
2020, equations 1 to 3) uses the same matching, but its first two equations exchange candidate and reference. The caller
chooses which tokens may be matched and their weights in the mean: special tokens, inverse document frequencies and
padding are passed in that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray

# Floats per batch (vectors and similarities): two megabytes fit into the processor cache; larger batches are ten
# times slower.
_AT_ONCE = 1 << 19
_STEP = 8  # tokens; texts are padded to multiples of it


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of one text.

    Attributes:
        vectors: (..., m, D) float32 of length 1 (:func:`unit`); leading axes can be layers.
        weights: (m,) weight of each token in the mean.
        scale: (m,) factors of the similarities, applied before the most similar token is determined; None for 1.
        padded: True if the text is shorter than the length to which it was padded. A token of the other text without a
            similar token then matches the padding, with similarity 0.
    """

    vectors: NDArray[np.float32]
    weights: FloatArray
    scale: FloatArray | None = None
    padded: bool = False


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Normalise vectors (..., D) to length 1; a zero vector stays zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)


def similarities(candidate: Tokens, reference: Tokens) -> FloatArray:
    """(..., m, n) similarities of a candidate's m and a reference's n tokens, scales included."""
    products = (candidate.vectors @ reference.vectors.swapaxes(-1, -2)).astype(np.float64)
    if candidate.scale is not None:
        products = products * candidate.scale[:, None]
    if reference.scale is not None:
        products = products * reference.scale
    return products


def f_score(precision: FloatArray, recall: FloatArray) -> FloatArray:
    """Harmonic mean 2PR / (P + R); 0 where P + R is 0."""
    total = precision + recall
    return np.asarray(2.0 * precision * recall / np.where(total == 0, 1.0, total) * (total != 0))


def greedy_matching(candidates: Sequence[Tokens], references: Sequence[Tokens]) -> FloatArray:
    """Precision, recall and F of pairs.

    Args:
        candidates: (k); their vectors have the same leading axes.
        references: (k).

    Returns:
        (k, ..., 3). If all weights of a text are 0, its mean is unweighted. If one text has no tokens, all three are 0.
    """
    if not candidates:
        return np.empty((0, 3))
    leading = candidates[0].vectors.shape[:-2]
    scores = np.empty((len(candidates), *leading, 3))
    for (m, n), places in _portions(candidates, references, math.prod(leading)):
        left, right = _Side([candidates[k] for k in places], m), _Side([references[k] for k in places], n)
        products = (left.vectors @ right.vectors.swapaxes(-1, -2)).astype(np.float64)  # (k, ..., m, n)
        products *= _spread(left.scale[:, :, None] * right.scale[:, None], products.ndim)
        present = left.present[:, :, None] & right.present[:, None]
        products = np.where(_spread(present, products.ndim), products, -np.inf)
        precision = left.mean(right.floor(products.max(axis=-1)))
        recall = right.mean(left.floor(products.max(axis=-2)))
        scores[places] = np.stack((precision, recall, f_score(precision, recall)), axis=-1)
    return scores


def _portions(
    candidates: Sequence[Tokens], references: Sequence[Tokens], layers: int
) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Batches of pairs: the lengths to which both sides are padded, and the places of the pairs.

    These lengths depend only on the pair itself, so that its score does not depend on the batch (bitwise).
    """
    by_lengths: dict[tuple[int, int], list[int]] = {}
    for k, pair in enumerate(zip(candidates, references, strict=True)):
        m, n = (max(1, -(-len(side.weights) // _STEP)) * _STEP for side in pair)
        by_lengths.setdefault((m, n), []).append(k)
    width = candidates[0].vectors.shape[-1]
    for (m, n), places in by_lengths.items():
        number = max(1, _AT_ONCE // (layers * ((m + n) * width + m * n)))
        for start in range(0, len(places), number):
            yield (m, n), places[start : start + number]


def _spread(values: NDArray[Any], axes: int) -> NDArray[Any]:
    """Values (k, ...), reshaped to broadcast over the leading axes of vectors."""
    return values.reshape(values.shape[0], *[1] * (axes - values.ndim), *values.shape[1:])


class _Side:
    """The candidates or the references of a batch, padded to ``m`` tokens."""

    def __init__(self, texts: Sequence[Tokens], m: int) -> None:
        lengths = [len(text.weights) for text in texts]
        *leading, _, width = texts[0].vectors.shape
        self.vectors = np.zeros((len(texts), *leading, m, width), dtype=np.float32)
        self.weights, self.scale = np.zeros((len(texts), m)), np.ones((len(texts), m))
        self.present = np.arange(m) < np.array(lengths)[:, None]
        self.padded = np.array([text.padded for text in texts])
        for row, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            self.vectors[row, ..., :length, :] = text.vectors
            self.weights[row, :length] = text.weights
            if text.scale is not None:
                self.scale[row, :length] = text.scale
        total = self.weights.sum(axis=1, keepdims=True)
        even = self.present / np.maximum(self.present.sum(axis=1, keepdims=True), 1)
        self.weights = np.where(total > 0, self.weights / np.where(total > 0, total, 1.0), even)

    def floor(self, best: FloatArray) -> FloatArray:
        """Best similarities of the other side's tokens (k, ..., m): at least 0 with padding, 0 if there are none."""
        padded = best.reshape(len(best), -1)
        padded = np.where(self.padded[:, None], np.maximum(padded, 0.0), padded)
        return np.where(np.isfinite(padded), padded, 0.0).reshape(best.shape)

    def mean(self, best: FloatArray) -> FloatArray:
        """Weighted mean over this side's tokens: (k, ..., m) → (k, ...)."""
        weights = _spread(self.weights, best.ndim)
        return np.asarray((best * weights).sum(axis=-1))


class Frequencies:
    """Inverse document frequencies of tokens as in BERTScore: ln((n + 1) / (df + 1)) over n documents.

    Args:
        documents: the tokens of each document; repeats within a document count once.
    """

    def __init__(self, documents: Iterable[Sequence[int]]) -> None:
        self.documents = 0
        self._counts: dict[int, int] = {}
        for tokens in documents:
            self.documents += 1
            for token in set(tokens):
                self._counts[token] = self._counts.get(token, 0) + 1

    @property
    def counts(self) -> Mapping[int, int]:
        """Document frequency of each token."""
        return self._counts

    def weight(self, token: int) -> float:
        """Inverse document frequency of a token; the maximum for a token in no document."""
        return math.log((self.documents + 1) / (self._counts.get(token, 0) + 1))
