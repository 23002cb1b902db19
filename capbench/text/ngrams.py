"""BLEU, ROUGE-L and CIDEr-D over PTB tokens: the scores of pycocoevalcap 1.2, caption by caption.

The n-grams of all texts are the columns of sparse count matrices, and the definitions are operations on their rows. A
*pair* is a candidate with one of its references. Pairs are in the order of the items, and within an item in that of its
references; ``rank`` (pairs,) is the place at which a reference is added, and a step s scores with the references of
rank below s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from capbench.core.records import FloatArray, IntArray

ORDERS: Final = 4
ALL: Final = (np.iinfo(np.int64).max,)  # one step, with all references
_TINY, _SMALL = 1e-15, 1e-9  # pycocoevalcap's: a score without a match is tiny, not zero, which decides ties
_CELLS = 1 << 17  # words of a pair's reference, over all pairs of a batch


class _Numbers(dict[str, int]):
    """String → number, in order of first occurrence."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


class Ngrams:
    """Numbers and counts of the n-grams of texts, for n = 1 to 4.

    N-grams are numbered in the alphabetical order of their words. Sums over the n-grams of a text therefore have the
    same order, and the same last digit, whatever the other texts are.

    ``lengths``: (texts,) number of words; ``words``: word → number; ``keys``: for each n, ascending keys of its
    n-grams: number of the first n-1 words × words + number of the last; ``counts``: for each n, (texts, n-grams)
    occurrences.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        found = _Numbers()
        self.lengths = np.fromiter(map(len, map(str.split, texts)), np.int64, len(texts))
        flat = np.fromiter(map(found.__getitem__, chain.from_iterable(map(str.split, texts))), np.int32)
        self.words = {word: place for place, word in enumerate(sorted(found))}
        flat = np.fromiter(map(self.words.__getitem__, found), np.int32, len(found))[flat]
        ends = np.cumsum(self.lengths, dtype=np.int32)
        left = np.repeat(ends, self.lengths) - np.arange(len(flat), dtype=np.int32)  # words to the end of the text
        self.keys: list[IntArray] = []
        self.counts: list[csr_array[Any]] = []
        ngram = np.zeros(len(flat), np.int32)  # of n-1 words that begins at each token
        for n in range(1, ORDERS + 1):
            begins = np.flatnonzero(left >= n)
            key = ngram[begins] * np.int64(len(found)) + flat[begins + n - 1]
            order = np.argsort(key)
            key = key[order]
            is_new = np.append(True, key[1:] != key[:-1])[: len(key)]
            ngram[begins[order]] = np.cumsum(is_new) - 1
            self.keys.append(key[is_new])
            rows = np.append(0, np.cumsum(np.maximum(self.lengths - n + 1, 0))).astype(np.int32)
            occurrences = np.ones(len(key), np.int32), ngram[begins], rows
            self.counts.append(csr_array(occurrences, (len(texts), len(self.keys[-1]))))
            self.counts[-1].sum_duplicates()


class Corpus:
    """Candidates and their references, as tokens joined by spaces.

    ``candidates``: one text for each item; ``references``: each item's references, at least one.

    ``candidate``: (items,) text of each candidate; text 0 is empty; ``reference``: (pairs,) text of each reference;
    ``item``: (pairs,) its item; ``sizes``: (items,) number of references; ``ngrams``: those of the distinct texts.
    """

    def __init__(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        place = _Numbers({"": 0})
        self.candidate = np.fromiter(map(place.__getitem__, candidates), np.int32, len(candidates))
        self.sizes = np.fromiter(map(len, references), np.int64, len(references))
        self.item = np.repeat(np.arange(len(candidates), dtype=np.int32), self.sizes)
        self.reference = np.fromiter(map(place.__getitem__, chain.from_iterable(references)), np.int32)
        self._texts = list(place)
        self.ngrams = Ngrams(self._texts)

    def rank(self, orders: Sequence[Sequence[int]] | None = None) -> IntArray:
        """(pairs,) place of each reference; ``orders`` lists each item's references, by default in the stored order."""
        first = np.cumsum(self.sizes) - self.sizes
        if orders is None:
            return np.arange(len(self.item)) - np.repeat(first, self.sizes)
        rank = np.empty(len(self.item), np.int64)
        rank[np.fromiter(chain.from_iterable(orders), np.int64) + np.repeat(first, self.sizes)] = self.rank()
        return rank

    @cached_property
    def subsequences(self) -> tuple[IntArray, IntArray, IntArray]:
        """(pairs,) words of the candidate, of the reference, and of their longest common subsequence.

        Words are split at single spaces, as in pycocoevalcap: an empty text has one empty word.
        """
        numbers = _Numbers()
        rows = [np.fromiter(map(numbers.__getitem__, text.split(" ")), np.int64) for text in self._texts]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ours, theirs = lengths[self.candidate[self.item]], lengths[self.reference]
        longest = np.zeros(len(ours), np.int64)
        for words in np.unique(ours).tolist():  # candidates of one length, which require no padding
            group = np.flatnonzero(ours == words)
            group = group[np.argsort(theirs[group], kind="stable")]
            for part in np.array_split(group, len(group) * theirs[group[-1]] // _CELLS + 1):
                candidate = np.stack([rows[text] for text in self.candidate[self.item[part]]])
                reference = np.full((len(part), theirs[part[-1]]), -1)
                reference[np.arange(theirs[part[-1]]) < theirs[part, None]] = np.concatenate(
                    [rows[text] for text in self.reference[part]]
                )
                row = np.zeros((len(part), theirs[part[-1]] + 1), np.int32)  # with the first 0, 1, ... reference words
                for word in candidate.T:
                    grown = np.maximum(row[:, 1:], row[:, :-1] + (reference == word[:, None]))
                    np.maximum.accumulate(grown, axis=1, out=row[:, 1:])
                longest[part] = row[:, -1]
        return ours, theirs, longest


def bleu_counts(corpus: Corpus, steps: Sequence[int] = ALL, rank: IntArray | None = None) -> FloatArray:
    """(steps, items, 10) statistics of BLEU (Papineni et al., ACL 2002), whose sums over items give corpus BLEU.

    Clipped matches of 1- to 4-grams, 1- to 4-grams of the candidate, its length, and the length of the closest
    reference (of two equally close ones the shorter).
    """
    rank = corpus.rank() if rank is None else rank
    lengths, items = corpus.ngrams.lengths, len(corpus.candidate)
    ours, theirs = lengths[corpus.candidate], lengths[corpus.reference]
    out = np.empty((len(steps), items, 10))
    out[:, :, 4:8] = np.maximum(ours[:, None] - np.arange(4), 0)
    out[:, :, 8] = ours
    for n, counts in enumerate(corpus.ngrams.counts):
        candidate, done = counts[corpus.candidate], 0
        most = csr_array(candidate.shape)  # (items, n-grams) largest count in a reference so far
        for place, step in enumerate(steps):
            for next_rank in range(done, min(step, corpus.sizes.max(initial=0))):
                reference = np.zeros(items, np.int32)  # the empty text for items with fewer references
                reference[corpus.item[rank == next_rank]] = corpus.reference[rank == next_rank]
                most = most.maximum(counts[reference])
            out[place, :, n] = candidate.minimum(most).sum(axis=1)  # min(count, max reference count), section 2.1
            done = step
    scale = lengths.max() + 1  # distance and length in one number: the least is the closest, and of ties the shorter
    near = np.abs(theirs - ours[corpus.item]) * scale + theirs
    nearest = np.full(items, np.iinfo(np.int64).max)
    for place, added in enumerate(_added(steps, rank)):
        np.minimum.at(nearest, corpus.item[added], near[added])
        out[place, :, 9] = nearest % scale
    return out


def _added(steps: Sequence[int], rank: IntArray) -> Iterator[IntArray]:
    """For each step, the pairs that it adds to the step before, by their rank."""
    by_rank = np.argsort(rank, kind="stable")
    ends = np.searchsorted(rank[by_rank], steps).tolist()
    return (by_rank[low:high] for low, high in pairwise([0, *ends]))


def bleu(counts: FloatArray) -> FloatArray:
    """(…, 4) BLEU-1 to BLEU-4 (Papineni et al., section 2.3) of (…, 10) :func:`bleu_counts`, or of sums of them.

    Geometric mean of the precisions up to order n, times the brevity penalty.
    """
    precision = np.cumprod((counts[..., :4] + _TINY) / (counts[..., 4:8] + _SMALL), axis=-1)
    ratio = (counts[..., 8] + _TINY) / (counts[..., 9] + _SMALL)
    # Python's power and exponential: numpy's differ in the last bit on some machines, and equal counts must give equal
    # scores everywhere.
    mean = np.vectorize(lambda product, n: product ** (1.0 / n), otypes=[float])(precision, np.arange(1, ORDERS + 1))
    penalty = np.vectorize(lambda r: math.exp(1 - 1 / r) if r < 1 else 1.0, otypes=[float])(ratio)
    return np.asarray(mean * penalty[..., None], np.float64)


def rouge_l(corpus: Corpus, steps: Sequence[int] = ALL, rank: IntArray | None = None, beta: float = 1.2) -> FloatArray:
    """(steps, items) ROUGE-L (Lin, 2004, equations 2 to 4), from 0 to 1.

    F of the best precision and the best recall over references; ``beta`` is the weight of recall.
    """
    rank = corpus.rank() if rank is None else rank
    ours, theirs, longest = corpus.subsequences
    best = np.zeros((2, len(corpus.candidate)))
    out = np.zeros((len(steps), len(corpus.candidate)))
    for place, added in enumerate(_added(steps, rank)):
        np.maximum.at(best[0], corpus.item[added], longest[added] / ours[added])
        np.maximum.at(best[1], corpus.item[added], longest[added] / theirs[added])
        p, r = best
        np.divide((1 + beta**2) * p * r, r + beta**2 * p, out=out[place], where=p > 0)  # 0 without a common word
    return out


def document_counts(corpus: Corpus, used: IntArray, times: FloatArray) -> Iterator[FloatArray]:
    """For each n, (n-grams,) number of documents with an n-gram.

    A document is the set of an item's references among the pairs ``used``, ``times`` (items,) times.
    """
    shape = (len(corpus.candidate), len(corpus.ngrams.lengths))
    sets = csr_array((np.ones(len(used), np.int32), (corpus.item[used], corpus.reference[used])), shape)
    for counts in corpus.ngrams.counts:
        found = sets @ counts  # (items, n-grams)
        weights = np.repeat(times, np.diff(found.indptr))
        yield np.asarray(np.bincount(found.indices, weights, counts.shape[1]), np.float64)


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies of one corpus, which weigh the n-grams of any corpus.

    ``words, keys``: as in :class:`Ngrams`.
    """

    words: dict[str, int]
    keys: list[IntArray]
    counts: list[FloatArray]  # for each n, (n-grams,) number of documents with an n-gram
    documents: int  # number of documents

    @classmethod
    def count(cls, documents: Sequence[Sequence[str]], times: Sequence[int]) -> DocumentFrequencies:
        """Count documents (lists of texts, each at least one), each ``times`` times."""
        corpus = Corpus([""] * len(documents), documents)
        pairs = np.arange(len(corpus.item))
        counts = list(document_counts(corpus, pairs, np.array(times, np.float64)))
        return cls(corpus.ngrams.words, corpus.ngrams.keys, counts, sum(times))

    def of(self, ngrams: Ngrams) -> Iterator[FloatArray]:
        """For each n, (n-grams,) number of documents with an n-gram of other texts; 0 for an unknown one."""
        word = np.fromiter((self.words.get(word, -1) for word in ngrams.words), np.int64, len(ngrams.words))
        place = np.zeros(1, np.int64)  # of an n-gram here; -1 if unknown
        for theirs, keys, counts in zip(ngrams.keys, self.keys, self.counts, strict=True):
            first, last = np.divmod(theirs, max(1, len(word)))
            known = (place[first] >= 0) & (word[last] >= 0)
            key = place[first] * len(self.words) + word[last]
            found = np.searchsorted(keys, key)
            known &= np.append(keys, -1)[found] == key
            place = np.where(known, found, -1)
            yield np.where(known, np.append(counts, 0.0)[found], 0.0)


def cider_d(
    corpus: Corpus,
    steps: Sequence[int] = ALL,
    rank: IntArray | None = None,
    df: DocumentFrequencies | None = None,
    sigma: float = 6.0,
    orders: int = ORDERS,
) -> FloatArray:
    """(steps, items) CIDEr-D, from 0 to 10 (Vedantam et al., CVPR 2015), which pycocoevalcap calls CIDEr.

    Without ``df`` the documents are the references of each step, one document for each item, repeats included: for a
    single item all weights are 0, and so is the score. ``sigma`` is the width of the penalty for differing lengths (in
    bigrams), and ``orders`` the words of the longest n-gram, at most 4.
    """
    rank = corpus.rank() if rank is None else rank
    by_rank = np.argsort(rank, kind="stable")
    used = [by_rank[:end] for end in np.searchsorted(rank[by_rank], steps)]
    item, ours, theirs = corpus.item[by_rank], corpus.candidate[corpus.item[by_rank]], corpus.reference[by_rank]
    bigrams = np.maximum(corpus.ngrams.lengths - 1, 0)
    penalty = np.exp(-((bigrams[ours] - bigrams[theirs]) ** 2) / (2 * sigma**2))
    items = len(corpus.candidate)
    documents = df.documents if df else max(1, items)
    frequencies = [df.of(corpus.ngrams) if df else document_counts(corpus, pairs, np.ones(items)) for pairs in used]
    total = np.zeros((len(steps), items))
    for counts in corpus.ngrams.counts[:orders]:
        # min(tf-idf, tf-idf') · tf-idf' of candidate and reference, without their common factor idf²
        clipped = counts[ours].minimum(counts[theirs]).multiply(counts[theirs]).tocsr()
        squares = counts.multiply(counts).tocsr()
        for place, end in enumerate(map(len, used)):
            idf = np.log(documents) - np.log(np.maximum(next(frequencies[place]), 1.0))  # equation 1
            norm = np.sqrt(squares @ idf**2)
            lengths = norm[ours[:end]] * norm[theirs[:end]]
            similar = (clipped[:end] @ idf**2) / np.where(lengths > 0, lengths, 1.0)  # 0 if all weights are 0
            total[place] += np.bincount(item[:end], similar * penalty[:end], items)
    sizes = np.stack([np.bincount(item[: len(pairs)], minlength=items) for pairs in used])
    return total / orders / sizes * 10.0
