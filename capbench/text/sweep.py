"""BLEU, ROUGE-L and CIDEr-D of the same candidates with growing sets of references.

Every reference of an item has a *rank*: the place at which it is added. A *step* k scores with the
references of rank below k. What a candidate shares with each reference does not depend on the others,
so that it is computed once (:mod:`capbench.text.matching`); a step only adds what its new references bring. Plain
scoring is the sweep of one step in which all references have rank 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from capbench.errors import MetricError
from capbench.records import FloatArray, IntArray
from capbench.text.corpus import EncodedCorpus
from capbench.text.frequencies import DocumentFrequencies, Documents
from capbench.text.matching import MAX_ORDER, OrderMatches

_TEXTS_AT_ONCE = 50_000

__all__ = ["ReferenceOrder", "bleu_sweep", "cider_d_sweep", "reference_order", "rouge_l_sweep"]


@dataclass(frozen=True)
class ReferenceOrder:
    """In which order references are added.

    Attributes:
        rank: (pairs,) place of each reference, from 0; negative for one that is never used.
        steps: ascending numbers of references to score with.
    """

    rank: NDArray[np.int32]
    steps: tuple[int, ...]


def reference_order(
    corpus: EncodedCorpus, steps: Iterable[int], order: Sequence[Sequence[int]] | None = None
) -> ReferenceOrder:
    """References in the order given, or in an order of one's own.

    Args:
        corpus: candidates and references.
        steps: numbers of references to score with. An item that has fewer is scored with all that it has.
        order: for every item, places of its references (from 0) in the order in which they are added; those that are
            not named are never used. By default the order in which they were given.

    Raises:
        MetricError: a step below 1, or an order that does not fit.
    """
    wanted = tuple(sorted({int(step) for step in steps}))
    if not wanted or wanted[0] < 1:
        raise MetricError("a sweep needs numbers of references, each at least 1")
    sizes = np.diff(corpus.first_pair)
    if order is None:
        rank = np.arange(len(corpus.reference)) - np.repeat(corpus.first_pair[:-1], sizes)
        return ReferenceOrder(rank.astype(np.int32), wanted)
    if len(order) != corpus.items:
        raise MetricError(f"an order of references is given for {len(order)} items, not for {corpus.items}")
    rank = np.full(len(corpus.reference), -1, dtype=np.int64)
    for i, places in enumerate(order):
        if not len(places) or len(set(places)) < len(places) or min(places) < 0 or max(places) >= sizes[i]:
            raise MetricError(
                f"the order of references of item {i + 1} does not fit its {sizes[i]} references",
                hint="Name each reference at most once, by its place from 0, and at least one",
            )
        rank[corpus.first_pair[i] + np.asarray(places)] = np.arange(len(places))
    return ReferenceOrder(rank.astype(np.int32), wanted)


def all_references(corpus: EncodedCorpus, keep: NDArray[np.bool_] | None = None) -> ReferenceOrder:
    """One step with all references, or with those of the pairs to keep.

    Raises:
        MetricError: an item is left without references.
    """
    if keep is None:
        return ReferenceOrder(np.zeros(len(corpus.reference), dtype=np.int32), (1,))
    if keep.shape != corpus.reference.shape:
        raise MetricError(f"{keep.size} references are marked, but there are {corpus.reference.size}")
    left = np.bincount(corpus.item_of_pair[keep], minlength=corpus.items)
    if corpus.items and left.min() == 0:
        raise MetricError(f"item {int(left.argmin()) + 1} is left without references")
    return ReferenceOrder(np.where(keep, 0, -1).astype(np.int32), (1,))


def bleu_sweep(corpus: EncodedCorpus, order: ReferenceOrder) -> FloatArray:
    """Sufficient statistics of BLEU at each step (Papineni et al., ACL 2002).

    Returns:
        (steps, items, 10): clipped matches of 1- to 4-grams, n-grams of the candidate, its length, and the length of
        the reference nearest to it (of two as near, the shorter).
    """
    own = corpus.lengths[corpus.candidate]
    found = np.zeros((len(order.steps), corpus.items, 2 * MAX_ORDER + 2))
    for n in range(MAX_ORDER):
        found[:, :, MAX_ORDER + n] = np.maximum(own - n, 0)
    found[:, :, 2 * MAX_ORDER] = own

    theirs = corpus.lengths[corpus.reference]
    scale = int(corpus.lengths.max(initial=0)) + 1
    # Distance and length in one number, so that the smallest is the nearest and, of two as near, the shorter.
    near = np.abs(theirs - own[corpus.item_of_pair]) * scale + theirs
    nearest = np.full(corpus.items, np.iinfo(np.int64).max)
    for step, pairs in _added(order, np.arange(len(near))):
        np.minimum.at(nearest, corpus.item_of_pair[pairs], near[pairs])
        found[step, :, -1] = nearest % scale

    # Places of the candidates' words, one after the other, repeated texts included.
    first = np.concatenate([[0], np.cumsum(own)])
    shift = first[:-1] - corpus.first_token[corpus.candidate]
    tokens = np.arange(first[-1], dtype=np.int32)
    tokens -= np.repeat(shift.astype(np.int32), own)
    for n, matches in enumerate(corpus.matches.orders):
        # An occurrence counts if fewer than the most that one reference holds came before it.
        before = np.zeros(len(corpus.words), dtype=corpus.small_int)
        before[matches.repeated] = matches.earlier
        before = before[tokens]
        most = np.zeros(len(tokens), dtype=np.int32)
        place = matches.token + shift.astype(np.int32)[corpus.item_of_pair[matches.pair]]
        for step, entries in _added(order, matches.pair):
            np.maximum.at(most, place[entries], matches.count[entries].astype(np.int32))
            clipped = np.concatenate([[0], np.cumsum(before < most)])
            found[step, :, n] = clipped[first[1:]] - clipped[first[:-1]]
    return found


def rouge_l_sweep(corpus: EncodedCorpus, order: ReferenceOrder, beta: float = 1.2) -> FloatArray:
    """ROUGE-L at each step (Lin, 2004, with the best precision and the best recall over references): (steps, items)."""
    matches = corpus.matches
    lcs = matches.lcs.astype(np.float64)
    precision, recall = lcs / matches.spaced_candidate, lcs / matches.spaced_reference
    best_precision, best_recall = np.zeros(corpus.items), np.zeros(corpus.items)
    found = np.zeros((len(order.steps), corpus.items))
    for step, pairs in _added(order, np.arange(len(lcs))):
        items = corpus.item_of_pair[pairs]
        np.maximum.at(best_precision, items, precision[pairs])
        np.maximum.at(best_recall, items, recall[pairs])
        p, r = best_precision, best_recall
        with np.errstate(invalid="ignore"):  # 0 / 0 where nothing is in common: the score is 0
            found[step] = np.where((p != 0) & (r != 0), ((1 + beta**2) * p * r) / (r + beta**2 * p), 0.0)
    return found


def cider_d_sweep(
    corpus: EncodedCorpus,
    order: ReferenceOrder,
    frequencies: DocumentFrequencies | None = None,
    n: int = MAX_ORDER,
    sigma: float = 6.0,
) -> FloatArray:
    """CIDEr-D at each step (Vedantam et al., CVPR 2015, section 6): (steps, items).

    Args:
        corpus: candidates and references.
        order: which references are added when.
        frequencies: document frequencies; by default those of the references of each step, one document an item.
        n: longest n-gram, at most 4.
        sigma: width of the penalty for differing lengths.

    Raises:
        MetricError: ``n`` or ``sigma`` does not fit, or ``frequencies`` has no n-grams so long.
    """
    if not 1 <= n <= MAX_ORDER or not sigma > 0:
        raise MetricError(f"CIDEr-D with n = {n} and sigma = {sigma} is not defined", hint="Take n = 1…4, sigma > 0")
    if frequencies is not None and len(frequencies.counts) < n:
        raise MetricError(f"the document frequencies stop at {len(frequencies.counts)}-grams, {n}-grams are needed")
    if frequencies is not None and max(int(c.max(initial=0)) for c in frequencies.counts) > frequencies.documents:
        raise MetricError(f"an n-gram occurs in more than all {frequencies.documents} documents of the frequencies")
    log_documents = float(np.log(float(corpus.items if frequencies is None else frequencies.documents) or 1.0))
    documents = Documents(corpus, order.rank) if frequencies is None else None
    known = frequencies.of(corpus) if frequencies is not None else None

    # The length that the penalty compares is the number of bigrams.
    bigrams = np.maximum(corpus.lengths - 1, 0)
    delta = (bigrams[corpus.candidate][corpus.item_of_pair] - bigrams[corpus.reference]).astype(np.float64)
    penalty = np.exp(-(delta**2) / (2 * sigma**2))
    used = np.flatnonzero(order.rank >= 0)
    used = used[np.argsort(order.rank[used], kind="stable")]
    ends = np.searchsorted(order.rank[used], order.steps)
    sizes = np.stack([np.bincount(corpus.item_of_pair[used[:end]], minlength=corpus.items) for end in ends])

    total = np.zeros((len(order.steps), corpus.items))
    for size in range(1, n + 1):
        found: Iterable[NDArray[np.int32]]
        if documents is not None:
            found = documents.frequencies(corpus.ngrams(size), order.steps)
        else:
            assert known is not None
            found = repeat(next(known))
        _add_similarities(total, corpus, order, size, found, log_documents, used, ends, penalty)
        del found  # what it holds is as large as all n-grams are many
    return total / n / sizes * 10.0


def _add_similarities(
    total: FloatArray,
    corpus: EncodedCorpus,
    order: ReferenceOrder,
    size: int,
    frequencies: Iterable[NDArray[np.int32]],
    log_documents: float,
    used: IntArray,
    ends: IntArray,
    penalty: FloatArray,
) -> None:
    """Add the similarity in n-grams of one size to each step and item. (On its own so that its arrays go at once.)"""
    shared = _Shared(corpus, corpus.matches.orders[size - 1], order.rank, corpus.ngrams(size).at)
    before: NDArray[np.int32] | None = None
    for step, frequency in zip(range(len(order.steps)), frequencies, strict=False):
        if frequency is not before or before is None:
            before = frequency if isinstance(frequencies, repeat) else None
            squared = _Weights(log_documents, frequency)
            norms = shared.norms(squared)
        pairs = used[: ends[step]]
        items = corpus.item_of_pair[pairs]
        product = shared.products(squared, order.steps[step])[pairs]
        length = norms[corpus.candidate[items]] * norms[corpus.reference[pairs]]
        # A text all of whose n-grams weigh nothing has no direction: nothing is similar to it.
        product /= np.where(length != 0, length, 1.0)
        product *= penalty[pairs]
        total[step] += np.bincount(items, product, corpus.items)


class _Weights:
    """Squared weight of every n-gram, looked up by its document frequency; -1, for no n-gram, weighs 0."""

    def __init__(self, log_documents: float, frequency: NDArray[np.int32]) -> None:
        possible = np.arange(int(frequency.max(initial=0)) + 1)
        idf = log_documents - np.log(np.maximum(1.0, possible))
        self._table = np.append(idf * idf, 0.0)
        self._frequency = frequency

    def __getitem__(self, ngram: NDArray[np.int32]) -> FloatArray:
        weights: FloatArray = self._table[self._frequency[ngram]]
        return weights


class _Shared:
    """Sums over n-grams of one order that texts and pairs need again and again as weights change."""

    def __init__(
        self, corpus: EncodedCorpus, matches: OrderMatches, rank: NDArray[np.int32], at: NDArray[np.int32]
    ) -> None:
        self.pairs, self.at = len(rank), at
        self.own_count = np.ones(len(at), dtype=corpus.small_int)
        self.own_count[matches.repeated] = matches.own_count
        earlier = np.zeros(len(at), dtype=corpus.small_int)
        earlier[matches.repeated] = matches.earlier
        self.texts = len(corpus.lengths)
        self.full = np.flatnonzero(corpus.lengths)
        self.starts = np.append(corpus.first_token[:-1][self.full], corpus.first_token[-1])
        # Each n-gram of the candidate once: at its first place.
        once = np.flatnonzero((earlier[matches.token] == 0) & (rank[matches.pair] >= 0)).astype(np.int32)
        del earlier
        if rank.max(initial=0) > 0:
            once = once[np.argsort(rank[matches.pair[once]], kind="stable")]
        token, count = matches.token[once], matches.count[once]
        self.pair, self.ngram = matches.pair[once], at[token]
        self.factor = np.minimum(self.own_count[token], count) * count.astype(np.float64)
        self.rank = rank[self.pair]

    def norms(self, squared: _Weights) -> FloatArray:
        """(texts,) Euclidean norm of each text's weighted counts."""
        norms = np.zeros(self.texts)
        for begin in range(0, len(self.full), _TEXTS_AT_ONCE):
            some = self.full[begin : begin + _TEXTS_AT_ONCE]
            starts = self.starts[begin : begin + len(some) + 1]
            tokens = slice(starts[0], starts[-1])
            # A count c, met at c places, gives c times c.
            norms[some] = np.add.reduceat(squared[self.at[tokens]] * self.own_count[tokens], starts[:-1] - starts[0])
        return np.sqrt(norms, out=norms)

    def products(self, squared: _Weights, step: int) -> FloatArray:
        """(pairs,) clipped product of candidate and reference, for references of rank below ``step``."""
        end = int(np.searchsorted(self.rank, step))
        found = np.bincount(self.pair[:end], self.factor[:end] * squared[self.ngram[:end]], self.pairs)
        return found.astype(np.float64, copy=False)


def _added(order: ReferenceOrder, pair: IntArray | NDArray[np.int32]) -> Iterator[tuple[int, IntArray]]:
    """For each step, its number and the entries that its new references bring, given every entry's pair."""
    rank = order.rank[pair]
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
