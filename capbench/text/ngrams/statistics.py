"""BLEU, ROUGE-L and CIDEr-D over encoded captions: pycocoevalcap's scores, computed many times faster.

Usage::

    corpus = EncodedCorpus.build(candidates, references)   # PTB tokens joined by spaces
    bleu = bleu_scores(bleu_statistics(corpus))            # (items, 4)
    rouge = rouge_l(corpus)                                # (items,)
    cider = cider_d(corpus)                                # (items,)
    by_references = sweep(corpus, range(1, 51))            # all of them with the first 1, 2, …, 50 references

The reference implementation is pycocoevalcap 1.2 (``BleuScorer`` with the closest reference length, ``Rouge``,
``CiderScorer``); tests compare the scores of every caption. :func:`encoded_items` encodes captions that several metrics
score in sequence only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import is_

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray, IntArray, Item
from capbench.text.ngrams.corpus import EncodedCorpus, all_references, reference_order
from capbench.text.ngrams.frequencies import DocumentFrequencies, DocumentWords, count_documents, document_frequencies
from capbench.text.ngrams.matching import MAX_ORDER
from capbench.text.ngrams.sweep import bleu_sweep, cider_d_sweep, rouge_l_sweep
from capbench.text.ptb import CaptionEncoder

__all__ = [
    "DocumentFrequencies",
    "EncodedCorpus",
    "NativeEngine",
    "Sweep",
    "bleu_scores",
    "bleu_statistics",
    "cider_d",
    "document_frequencies",
    "encoded_items",
    "rouge_l",
    "sweep",
]


# As in pycocoevalcap: a score without a match is tiny, not zero.
_TINY, _SMALL = 1e-15, 1e-9


def bleu_statistics(corpus: EncodedCorpus, keep: NDArray[np.bool_] | None = None) -> FloatArray:
    """Sufficient statistics of BLEU (Papineni et al., ACL 2002).

    Args:
        corpus: candidates and references.
        keep: (pairs,) True for references to use; by default all.

    Returns:
        (items, 10): clipped matches of 1- to 4-grams, n-grams of the candidate, its length, and the length of the
        closest reference (ties go to the shorter one). Corpus BLEU is computed from their sums.

    Raises:
        MetricError: an item has no remaining references.
    """
    scores: FloatArray = bleu_sweep(corpus, all_references(corpus, keep))[0]
    return scores


def bleu_scores(statistics: FloatArray) -> FloatArray:
    """BLEU-1 to BLEU-4 of each item (Papineni et al., ACL 2002), smoothed as in pycocoevalcap.

    Args:
        statistics: (…, 10) from :func:`bleu_statistics`.

    Returns:
        (…, 4)
    """
    correct, guesses = statistics[..., :MAX_ORDER], statistics[..., MAX_ORDER : 2 * MAX_ORDER]
    length, nearest = statistics[..., 2 * MAX_ORDER], statistics[..., 2 * MAX_ORDER + 1]
    precision = np.cumprod((correct + _TINY) / (guesses + _SMALL), axis=-1)
    scores = precision ** (1.0 / np.arange(1, MAX_ORDER + 1))
    ratio = (length + _TINY) / (nearest + _SMALL)
    penalty = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1.0)), 1.0)
    return np.asarray(scores * penalty[..., None], dtype=np.float64)


def rouge_l(corpus: EncodedCorpus, keep: NDArray[np.bool_] | None = None, beta: float = 1.2) -> FloatArray:
    """ROUGE-L of each item (Lin, 2004): F of the best precision and the best recall over references.

    Args:
        corpus: candidates and references.
        keep: (pairs,) True for references to use; by default all.
        beta: weight of recall.

    Returns:
        (items,), from 0 to 1.

    Raises:
        MetricError: an item has no remaining references.
    """
    scores: FloatArray = rouge_l_sweep(corpus, all_references(corpus, keep), beta)[0]
    return scores


def cider_d(
    corpus: EncodedCorpus,
    df: DocumentFrequencies | None = None,
    keep: NDArray[np.bool_] | None = None,
    n: int = MAX_ORDER,
    sigma: float = 6.0,
) -> FloatArray:
    """CIDEr-D of each item (Vedantam et al., CVPR 2015), which pycocoevalcap calls CIDEr.

    Args:
        corpus: candidates and references.
        df: document frequencies; by default those of the references in use, one document for each item, repeats
            included. For a single item all weights are then 0, and so is the score.
        keep: (pairs,) True for references to use; by default all.
        n: length of the longest n-gram, at most 4.
        sigma: width of the penalty for differing lengths.

    Returns:
        (items,), from 0 to 10.

    Raises:
        MetricError: an option is out of range, or an item has no remaining references.
    """
    scores: FloatArray = cider_d_sweep(corpus, all_references(corpus, keep), df, n, sigma)[0]
    return scores


@dataclass(frozen=True)
class Sweep:
    """Scores by number of references.

    Attributes:
        steps: numbers of references, ascending.
        bleu: (steps, items, 10) statistics, for :func:`bleu_scores`.
        rouge_l: (steps, items).
        cider_d: (steps, items).
    """

    steps: tuple[int, ...]
    bleu: FloatArray
    rouge_l: FloatArray
    cider_d: FloatArray


def sweep(
    corpus: EncodedCorpus,
    steps: Iterable[int],
    order: Sequence[Sequence[int]] | None = None,
    df: DocumentFrequencies | None = None,
) -> Sweep:
    """Score the same candidates with the first k references, for each k.

    Args:
        corpus: candidates and references.
        steps: the numbers k. An item with fewer references is scored with all of them.
        order: for every item, indices of its references in the order in which they are added (for example a random
            order); by default the stored order.
        df: document frequencies for CIDEr-D; by default those of the references of each step.

    Raises:
        MetricError: a step is below 1, or an order is invalid.
    """
    added = reference_order(corpus, steps, order)
    return Sweep(
        steps=added.steps,
        bleu=bleu_sweep(corpus, added),
        rouge_l=rouge_l_sweep(corpus, added),
        cider_d=cider_d_sweep(corpus, added, df),
    )


_last: list[tuple[tuple[Item, ...], EncodedCorpus]] = []


def encoded_items(items: Sequence[Item], encoder: CaptionEncoder) -> EncodedCorpus:
    """Items' captions as numbers; the last result is cached, so that metrics on the same items encode them once."""
    if _last:
        known, corpus = _last[0]
        if corpus.vocabulary is encoder.vocabulary and len(known) == len(items) and all(map(is_, known, items)):
            return corpus
        _last.clear()
    corpus = EncodedCorpus.of_captions([item.candidate for item in items], [i.references for i in items], encoder)
    _last.append((tuple(items), corpus))
    return corpus


class NativeEngine:
    """pycocoevalcap's scores, computed by vectorised operations on encoded captions."""

    version = "native-1"
    """Part of signatures."""

    def bleu(self, corpus: EncodedCorpus) -> FloatArray:
        """(n, 10) clipped matches of 1- to 4-grams, the candidate's 1- to 4-grams, its and the closest length."""
        return bleu_statistics(corpus)

    def rouge_l(self, corpus: EncodedCorpus, beta: float) -> FloatArray:
        """(n,) F-measure of the best precision and the best recall of the longest common subsequence."""
        return rouge_l(corpus, beta=beta)

    def document_frequencies(self, documents: DocumentWords, counts: IntArray) -> DocumentFrequencies:
        """Number of documents (distinct ones, each ``counts`` times) that contain each 1- to 4-gram."""
        return count_documents(documents, times=counts)

    def cider(
        self, corpus: EncodedCorpus, frequencies: DocumentFrequencies, n_documents: int, sigma: float
    ) -> FloatArray:
        """(n,) CIDEr-D with frequencies from :meth:`document_frequencies`."""
        return cider_d(corpus, replace(frequencies, documents=n_documents), sigma=sigma)
