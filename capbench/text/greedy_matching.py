"""Greedy matching of two texts' word vectors by cosine (Zhang et al., BERTScore, ICLR 2020, section 3).

Every token of a candidate is matched with the most similar token of a reference, which gives precision, and the other
way round, which gives recall; F is their harmonic mean. So it stands in ViLBERTScore (Lee et al., Eval4NLP 2020,
equations 1 to 3), too; the first two there have candidate and reference the wrong way round. Which token may be
matched, and how much it weighs in the mean, is the caller's to say: special tokens, inverse document frequencies and
padding come in that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray

__all__ = ["Frequencies", "Tokens", "f_score", "greedy_matching", "similarities", "unit"]

# Numbers of gathered vectors and similarities: two megabytes stay in a cache, many more take ten times as long.
_AT_ONCE = 1 << 19
_STEP = 8  # tokens; texts are filled up to multiples of it


@dataclass(frozen=True, eq=False)
class Tokens:
    """One text's tokens.

    Attributes:
        vectors: (..., m, D) float32 of length 1 (:func:`unit`); what stands before are layers, say.
        weights: (m,) what each counts in the mean over tokens.
        scale: (m,) what its similarities are multiplied with before the most similar token is sought; None for 1.
        padded: whether it is shorter than what it was padded to: a token of the other text that has no similar one
            then matches the padding, with similarity 0.
    """

    vectors: NDArray[np.float32]
    weights: FloatArray
    scale: FloatArray | None = None
    padded: bool = False


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Vectors (..., D) at length 1; a zero vector stays zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)


def similarities(candidate: Tokens, reference: Tokens) -> FloatArray:
    """(..., m, n) of a candidate's m and a reference's n tokens, as the matching takes them, scales included."""
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
        (k, ..., 3). A side none of whose tokens weighs anything is averaged with equal weights; against or of a text
        without tokens everything is 0.
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
    """Pairs that are worked on together: to which lengths their sides are filled up, and their places.

    A pair's own lengths decide these, so that its last digits do not hang on the pairs that are scored with it.
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
    """Values (k, ...) over the leading axes of pairs' vectors."""
    return values.reshape(values.shape[0], *[1] * (axes - values.ndim), *values.shape[1:])


class _Side:
    """The candidates or the references of some pairs, filled up to ``m`` tokens."""

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
        """The other side's best similarities (k, ..., m), where this side's padding may be better, and 0 for none."""
        padded = best.reshape(len(best), -1)
        padded = np.where(self.padded[:, None], np.maximum(padded, 0.0), padded)
        return np.where(np.isfinite(padded), padded, 0.0).reshape(best.shape)

    def mean(self, best: FloatArray) -> FloatArray:
        """Weighted mean of this side's tokens: (k, ..., m) → (k, ...)."""
        weights = _spread(self.weights, best.ndim)
        return np.asarray((best * weights).sum(axis=-1))


class Frequencies:
    """Inverse document frequencies of tokens, as BERTScore takes them: ln((n + 1) / (df + 1)) over n documents.

    Args:
        documents: each one's tokens; repeats within a document count once.
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
        """In how many documents each token stands."""
        return self._counts

    def weight(self, token: int) -> float:
        """A token's inverse document frequency; the highest for one that stands in none."""
        return math.log((self.documents + 1) / (self._counts.get(token, 0) + 1))
