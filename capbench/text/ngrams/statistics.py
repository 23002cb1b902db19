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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import is_
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, IntArray, Item
from capbench.text.ngrams.corpus import EncodedCorpus, OrderMatches, ReferenceOrder, all_references, reference_order
from capbench.text.ngrams.frequencies import (
    DocumentFrequencies,
    Documents,
    DocumentWords,
    count_documents,
)
from capbench.text.ngrams.matching import MAX_ORDER, matches_of, subsequences_of
from capbench.text.ptb import CaptionEncoder

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


# Growing sets of references. Ranks and steps are those of :mod:`capbench.text.ngrams.corpus`. The matches of a
# candidate with one reference do not depend on the others, so they are computed once
# (:mod:`capbench.text.ngrams.matching`); a step only adds those of its new references. Ordinary scoring is a sweep with
# one step in which all references have rank 0.

_Places = TypeVar("_Places", IntArray, NDArray[np.int32])
_TEXTS_AT_ONCE = 20_000
_ENTRIES_AT_ONCE = 1 << 17


def bleu_sweep(corpus: EncodedCorpus, order: ReferenceOrder) -> FloatArray:
    """Sufficient statistics of BLEU at each step (Papineni et al., ACL 2002).

    Args:
        corpus: candidates and references.
        order: the order in which references are added.

    Returns:
        (steps, items, 10): clipped matches of 1- to 4-grams, n-grams of the candidate, its length, and the length of
        the closest reference (ties go to the shorter one).
    """
    shared = matches_of(corpus)  # first, while little else is in memory
    lengths = corpus.lengths[corpus.candidate]
    statistics = np.zeros((len(order.steps), corpus.items, 2 * MAX_ORDER + 2))
    for n in range(MAX_ORDER):
        statistics[:, :, MAX_ORDER + n] = np.maximum(lengths - n, 0)
    statistics[:, :, 2 * MAX_ORDER] = lengths

    theirs = corpus.lengths[corpus.reference]
    scale = int(corpus.lengths.max(initial=0)) + 1
    # Distance and length packed into one number: the minimum is the closest, and of ties the shorter.
    near = np.abs(theirs - lengths[corpus.item_of_pair]) * scale + theirs
    nearest = np.full(corpus.items, np.iinfo(np.int64).max)
    for step, pairs in _added(order):
        np.minimum.at(nearest, corpus.item_of_pair[pairs], near[pairs])
        statistics[step, :, -1] = nearest % scale

    # Tokens of all candidates in sequence, including repeated texts.
    first = np.concatenate([[0], np.cumsum(lengths)])
    shift = (first[:-1] - corpus.first_token[corpus.candidate]).astype(np.int32)
    tokens = np.arange(first[-1], dtype=np.int32)
    tokens -= np.repeat(shift, lengths)
    for n, matches in enumerate(shared):
        # An occurrence counts if fewer occurrences precede it than one reference contains at most.
        before = np.zeros(len(corpus.words), dtype=corpus.small_int)
        before[matches.repeated] = matches.earlier
        before = before[tokens]
        maximum = np.zeros(len(tokens), dtype=np.int32)
        for step, entries in _added(order, matches.pair):
            for block in _blocks(entries):
                place = matches.token[block] + shift[corpus.item_of_pair[matches.pair[block]]]
                np.maximum.at(maximum, place, matches.count[block].astype(np.int32))
            clipped = np.concatenate([[0], np.cumsum(before < maximum)])
            statistics[step, :, n] = clipped[first[1:]] - clipped[first[:-1]]
    return statistics


def rouge_l_sweep(corpus: EncodedCorpus, order: ReferenceOrder, beta: float = 1.2) -> FloatArray:
    """ROUGE-L at each step (Lin, 2004): F of the best precision and the best recall over references.

    Args:
        corpus: candidates and references.
        order: the order in which references are added.
        beta: weight of recall.

    Returns:
        (steps, items)
    """
    common = subsequences_of(corpus)
    lcs = common.lcs.astype(np.float64)
    precision, recall = lcs / common.spaced_candidate, lcs / common.spaced_reference
    best_precision, best_recall = np.zeros(corpus.items), np.zeros(corpus.items)
    scores = np.zeros((len(order.steps), corpus.items))
    for step, pairs in _added(order):
        items = corpus.item_of_pair[pairs]
        np.maximum.at(best_precision, items, precision[pairs])
        np.maximum.at(best_recall, items, recall[pairs])
        p, r = best_precision, best_recall
        with np.errstate(invalid="ignore"):  # 0 / 0 where nothing is in common: the score is 0
            scores[step] = np.where((p != 0) & (r != 0), ((1 + beta**2) * p * r) / (r + beta**2 * p), 0.0)
    return scores


def cider_d_sweep(
    corpus: EncodedCorpus,
    order: ReferenceOrder,
    frequencies: DocumentFrequencies | None = None,
    n: int = MAX_ORDER,
    sigma: float = 6.0,
) -> FloatArray:
    """CIDEr-D at each step (Vedantam et al., CVPR 2015, section 6).

    Args:
        corpus: candidates and references.
        order: the order in which references are added.
        frequencies: document frequencies; by default those of the references of each step, one document an item.
        n: length of the longest n-gram, at most 4.
        sigma: width of the penalty for differing lengths.

    Returns:
        (steps, items), from 0 to 10.

    Raises:
        MetricError: ``n`` or ``sigma`` is out of range, or ``frequencies`` has no n-grams of that length.
    """
    if not 1 <= n <= MAX_ORDER or not sigma > 0:
        raise MetricError(
            f"CIDEr-D with n = {n} and sigma = {sigma} is not defined",
            code="out-of-range",
            hint="Choose n = 1…4, sigma > 0",
        )
    if frequencies is not None and len(frequencies.counts) < n:
        raise MetricError(
            f"the document frequencies have n-grams up to {len(frequencies.counts)} words; {n} are required",
            code="missing-data",
            value=len(frequencies.counts),
        )
    if frequencies is not None and max(int(c.max(initial=0)) for c in frequencies.counts) > frequencies.documents:
        raise MetricError(
            f"an n-gram has a document frequency above the number of documents ({frequencies.documents})",
            code="mismatch",
            value=frequencies.documents,
        )
    log_documents = float(np.log(float(corpus.items if frequencies is None else frequencies.documents) or 1.0))
    documents = Documents(corpus, order.rank) if frequencies is None else None
    known = frequencies.of(corpus) if frequencies is not None else None

    used = np.flatnonzero(order.rank >= 0).astype(np.int32)
    if order.rank.any():
        used = used[np.argsort(order.rank[used], kind="stable")]
    ends = np.searchsorted(order.rank[used], order.steps)
    sizes = np.stack([np.bincount(corpus.item_of_pair[used[:end]], minlength=corpus.items) for end in ends])

    # Many steps use the same entries, so the penalties are computed once.
    every = np.arange(len(order.rank) if len(order.steps) > 1 else 0, dtype=np.int32)
    penalty = _length_penalty(corpus, corpus.item_of_pair, every, sigma) if len(order.steps) > 1 else None

    total = np.zeros((len(order.steps), corpus.items))
    numbers = corpus.ngrams_up_to(n)
    tokens = np.arange(len(corpus.words), dtype=np.int32)
    for size in range(1, n + 1):
        frequency_by_step: Iterable[NDArray[np.int32]]
        if documents is not None:
            ngrams = next(numbers)
            at, frequency_by_step = ngrams.at, documents.frequencies(ngrams, order.steps)
            del ngrams  # frees a large array
        else:
            # External frequencies are indexed by token, so the n-grams require no numbers.
            assert known is not None
            at, frequency_by_step = tokens, repeat(next(known))
        _add_similarities(total, corpus, order, size, at, frequency_by_step, log_documents, used, ends, sigma, penalty)
        del at, frequency_by_step
    return total / n / sizes * 10.0


def _length_penalty(
    corpus: EncodedCorpus, items: NDArray[np.int32], pairs: NDArray[np.int32], sigma: float
) -> FloatArray:
    """CIDEr-D's penalty for the difference in length between candidate and reference, for some pairs and their items.

    Length is the number of bigrams.
    """
    ours, theirs = corpus.lengths[corpus.candidate[items]], corpus.lengths[corpus.reference[pairs]]
    delta = (np.maximum(ours - 1, 0) - np.maximum(theirs - 1, 0)).astype(np.float64)
    penalty: FloatArray = np.exp(-(delta**2) / (2 * sigma**2))
    return penalty


def _add_similarities(
    total: FloatArray,
    corpus: EncodedCorpus,
    order: ReferenceOrder,
    size: int,
    at: NDArray[np.int32],
    frequencies: Iterable[NDArray[np.int32]],
    log_documents: float,
    used: NDArray[np.int32],
    ends: IntArray,
    sigma: float,
    penalty: FloatArray | None,
) -> None:
    """Add the similarity in n-grams of one size to each step and item (a function, so that its arrays are freed)."""
    single = penalty is None
    at_once = _ENTRIES_AT_ONCE if single else max(len(order.rank), 1)
    shared = _Shared(corpus, matches_of(corpus)[size - 1], order.rank, at, single)
    before: NDArray[np.int32] | None = None
    for step, frequency in zip(range(len(order.steps)), frequencies, strict=False):
        if frequency is not before or before is None:
            before = frequency if isinstance(frequencies, repeat) else None
            squared = _Weights(log_documents, frequency)
            norms = shared.norms(squared)
        products = shared.products(squared, order.steps[step])
        sums = np.zeros(corpus.items)
        for pairs in _blocks(used[: ends[step]], at_once):
            items = corpus.item_of_pair[pairs]
            product = products[pairs]
            length = norms[corpus.candidate[items]] * norms[corpus.reference[pairs]]
            # If all n-grams of a text have weight 0, its similarity to any text is 0.
            product /= np.where(length != 0, length, 1.0)
            product *= _length_penalty(corpus, items, pairs, sigma) if penalty is None else penalty[pairs]
            _add_at(sums, items, product)
        total[step] += sums


class _Weights:
    """Squared weight of every n-gram, indexed by its document frequency; -1 (no n-gram) has weight 0."""

    def __init__(self, log_documents: float, frequency: NDArray[np.int32]) -> None:
        possible = np.arange(int(frequency.max(initial=0)) + 1)
        idf = log_documents - np.log(np.maximum(1.0, possible))
        self._table = np.append(idf * idf, 0.0)
        self._frequency = frequency

    def __getitem__(self, ngram: NDArray[np.int32]) -> FloatArray:
        weights: FloatArray = self._table[self._frequency[ngram]]
        return weights


class _Shared:
    """Sums over n-grams of one order that are recomputed for different weights."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        matches: OrderMatches,
        rank: NDArray[np.int32],
        at: NDArray[np.int32],
        single: bool,
    ) -> None:
        self.pairs, self.at = len(rank), at
        self.at_once = _ENTRIES_AT_ONCE if single else max(len(matches.pair), 1)
        earlier = np.zeros(len(at), dtype=corpus.small_int)
        earlier[matches.repeated] = matches.earlier
        self.first_token = corpus.first_token
        self.texts = [] if single else list(_full_texts(self.first_token))
        # Each n-gram of the candidate once, at its first occurrence.
        once: NDArray[np.bool_] | IntArray = earlier[matches.token] == 0
        del earlier
        if rank.min(initial=0) < 0:
            once &= rank[matches.pair] >= 0
        if rank.max(initial=0) > 0:
            once = np.flatnonzero(once)
            once = once[np.argsort(rank[matches.pair[once]], kind="stable")]
        self.pair = matches.pair[once]
        self.rank = rank[self.pair] if rank.max(initial=0) > 0 else None
        own_count = np.ones(len(at), dtype=corpus.small_int)
        own_count[matches.repeated] = matches.own_count
        token, count = matches.token[once], matches.count[once]
        del once
        self.ngram = at[token]
        # Longer n-grams rarely recur in a text, so a short list of repeats suffices.
        self.dense = not single or len(matches.repeated) > len(at) >> 4
        by_place = slice(0, 0) if self.dense else np.argsort(matches.repeated, kind="stable")
        self.repeated, self.own_count = (
            matches.repeated[by_place],
            own_count if self.dense else matches.own_count[by_place],
        )
        # The square of a small count fits into two bytes.
        kind = np.int16 if single and corpus.small_int is np.int8 else np.float64
        self.factor = np.minimum(own_count[token], count).astype(kind) * count

    def norms(self, squared: _Weights) -> FloatArray:
        """(texts,) Euclidean norm of each text's weighted counts."""
        norms = np.zeros(len(self.first_token) - 1)
        for texts, tokens, starts in self.texts or _full_texts(self.first_token):
            values = squared[self.at[tokens]]
            # A count c contributes at c places, which gives c squared.
            if self.dense:
                values *= self.own_count[tokens]
            else:
                repeats = slice(*np.searchsorted(self.repeated, (tokens.start, tokens.stop)))
                values[self.repeated[repeats] - tokens.start] *= self.own_count[repeats]
            norms[texts] = np.add.reduceat(values, starts)
        return np.sqrt(norms, out=norms)

    def products(self, squared: _Weights, step: int) -> FloatArray:
        """(pairs,) clipped products of candidate and reference, for references of rank below ``step``."""
        end = len(self.pair) if self.rank is None else int(np.searchsorted(self.rank, step))
        products = np.zeros(self.pairs)
        for block in _blocks(slice(0, end), self.at_once):
            _add_at(products, self.pair[block], self.factor[block] * squared[self.ngram[block]])
        return products


def _full_texts(first_token: IntArray) -> Iterator[tuple[IntArray, slice, IntArray]]:
    """Batches of texts that are not empty (empty ones have no sum): the texts, their tokens, and the start of each text
    in these.
    """
    for begin in range(0, len(first_token) - 1, _TEXTS_AT_ONCE):
        starts = first_token[begin : begin + _TEXTS_AT_ONCE + 1]
        full = np.flatnonzero(np.diff(starts))
        if len(full):
            yield begin + full, slice(int(starts[0]), int(starts[-1])), starts[full] - starts[0]


def _add_at(sums: FloatArray, places: NDArray[np.int32], values: FloatArray) -> None:
    """Add values to the sums at their places, in sequence, so that results do not depend on the blocks."""
    if sums.any():
        np.add.at(sums, places, values)
    else:
        sums[:] = np.bincount(places, values, len(sums))


@overload
def _blocks(entries: slice, at_once: int = _ENTRIES_AT_ONCE) -> Iterator[slice]: ...
@overload
def _blocks(entries: _Places, at_once: int = _ENTRIES_AT_ONCE) -> Iterator[_Places]: ...
def _blocks(entries: slice | _Places, at_once: int = _ENTRIES_AT_ONCE) -> Iterator[slice | _Places]:
    """A limited number of entries at a time, to limit the memory of intermediate results."""
    if isinstance(entries, slice):
        for begin in range(entries.start, entries.stop, at_once):
            yield slice(begin, min(begin + at_once, entries.stop))
    else:
        for begin in range(0, len(entries), at_once):
            yield entries[begin : begin + at_once]


def _added(
    order: ReferenceOrder, pair: IntArray | NDArray[np.int32] | None = None
) -> Iterator[tuple[int, slice | IntArray]]:
    """For each step, its number and the entries of its new references; ``pair`` is the pair of every entry.

    Without ``pair`` the entries are the pairs themselves.
    """
    if len(order.steps) == 1 and not order.rank.any():
        yield 0, slice(0, len(order.rank if pair is None else pair))
        return
    rank = order.rank if pair is None else order.rank[pair]
    if len(order.steps) == 1:
        yield 0, np.flatnonzero((rank >= 0) & (rank < order.steps[0]))
        return
    by_rank = np.argsort(rank, kind="stable")
    ascending = rank[by_rank]
    low = 0
    for step, high in enumerate(order.steps):
        begin, end = np.searchsorted(ascending, [low, high])
        yield step, by_rank[begin:end]
        low = high
