"""Greedy matching of the word vectors of two texts by cosine (Zhang et al., BERTScore, ICLR 2020, section 3).

ViLBERTScore (Lee et al., Eval4NLP 2020, equations 1 to 3) uses the same matching, but its first two equations exchange
candidate and reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of one text that may be matched."""

    vectors: NDArray[np.float32]  # (..., m, D) float32 of length 1 (:func:`unit`); leading axes can be layers
    weights: FloatArray  # (m,) weight of each token in the mean, such as 0 for special tokens
    # (m,) factors of the similarities, applied before the most similar token is determined; None for 1
    scale: FloatArray | None = None
    # True if the text is padded: tokens of the other text may match the padding, with similarity 0
    padded: bool = False


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Normalise vectors (..., D) to length 1; a zero vector stays zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)


def similarities(candidate: Tokens, reference: Tokens) -> FloatArray:
    """(..., m, n) cosines of a candidate's m and a reference's n tokens, times their scales."""
    cosines = (candidate.vectors @ reference.vectors.swapaxes(-1, -2)).astype(np.float64)
    if candidate.scale is None or reference.scale is None:
        return cosines
    return np.asarray(cosines * np.outer(candidate.scale, reference.scale))


def match(candidate: Tokens, reference: Tokens) -> FloatArray:
    """(..., 3) precision, recall and F = 2PR / (P + R) of a candidate and a reference.

    Precision matches every token of the candidate with the most similar token of the reference, recall the reverse.

    F is 0 if P + R is 0. All three are 0 for a text without tokens. A mean is unweighted if all of its weights are 0.
    """
    if not len(candidate.weights) or not len(reference.weights):
        return np.zeros((*candidate.vectors.shape[:-2], 3))
    similar = similarities(candidate, reference)
    best, best_back = similar.max(axis=-1), similar.max(axis=-2)
    precision = _mean(np.maximum(best, 0.0) if reference.padded else best, candidate.weights)
    recall = _mean(np.maximum(best_back, 0.0) if candidate.padded else best_back, reference.weights)
    total = precision + recall
    f = 2.0 * precision * recall / np.where(total == 0, 1.0, total)
    return np.stack((precision, recall, np.where(total == 0, 0.0, f)), axis=-1)


def _mean(best: FloatArray, weights: FloatArray) -> FloatArray:
    total = weights.sum()
    return np.asarray(best @ (weights / total) if total > 0 else best.mean(axis=-1))


class Frequencies:
    """Inverse document frequencies of tokens as in BERTScore: ln((n + 1) / (df + 1)) over n documents.

    ``documents``: the tokens of each document; repeats within a document count once.
    """

    def __init__(self, documents: Iterable[Sequence[int]]) -> None:
        distinct = [set(tokens) for tokens in documents]
        self.documents, self.counts = len(distinct), Counter(token for tokens in distinct for token in tokens)

    def weight(self, token: int) -> float:
        """Inverse document frequency of a token; the maximum for a token in no document."""
        return math.log((self.documents + 1) / (self.counts[token] + 1))
