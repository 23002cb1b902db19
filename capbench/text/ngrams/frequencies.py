"""Document frequencies of n-grams: in how many documents (reference sets) an n-gram occurs.

CIDEr weighs an n-gram by log(documents) − log(document frequency) (Vedantam et al., CVPR 2015, eq. 1), and
where the documents come from decides its value: the evaluated references, or a named corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from capbench.records import IntArray
from capbench.text.ngrams.corpus import EncodedCorpus, NgramNumbers

__all__ = ["DocumentFrequencies", "Documents"]

_TOKENS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies of a corpus, to weigh n-grams of another one.

    Beyond single words, only n-grams of more than one document are kept: CIDEr gives those of one document the weight
    of those of none, and most n-grams stand in one.

    Attributes:
        vocabulary: word → number; only the first ``n_words`` words count, for others may be added.
        n_words: see there.
        keys: for n = 1, 2, …: the corpus's n-grams, ascending; each as the place of its first n-1 words in the keys
            below times vocabulary size plus its last word (for n = 1: the word itself).
        counts: for n = 1, 2, …: in how many documents each of them occurs.
        documents: number of documents.
    """

    vocabulary: Mapping[str, int]
    n_words: int
    keys: tuple[IntArray, ...]
    counts: tuple[NDArray[np.int32], ...]
    documents: int

    def of(self, corpus: EncodedCorpus) -> Iterator[NDArray[np.int32]]:
        """For n = 1, 2, …: (tokens,) the frequency here of the n-gram that begins at each token of a corpus.

        It is 0 where the n-gram is not kept here, and -1 where none begins (too near the end of its text).
        """
        size = self.n_words
        if corpus.vocabulary is self.vocabulary:
            words = corpus.words.astype(np.int64)
        else:
            here = [self.vocabulary.get(word, -1) for word in islice(corpus.vocabulary, corpus.n_words)]
            number_here = np.array(here, dtype=np.int64)
            words = number_here[corpus.words] if len(number_here) else np.empty(0, dtype=np.int64)
        words[words >= size] = -1
        places = words.copy()
        too_late = np.zeros(len(words), dtype=bool)
        for order, (keys, counts) in enumerate(zip(self.keys, self.counts, strict=True), 1):
            if order > 1:
                ends = corpus.first_token[1:] - order + 1
                too_late[ends[ends >= corpus.first_token[:-1]]] = True
                places[too_late] = -1
                last_word = np.append(words[order - 1 :], np.full(min(order - 1, len(words)), -1))
                known = np.flatnonzero((places >= 0) & (last_word >= 0))
                longer = _find(keys, places[known] * size + last_word[known])
                places.fill(-1)
                places[known] = longer
            frequency = np.where(places >= 0, counts[places] if len(counts) else 0, 0).astype(np.int32)
            frequency[too_late] = -1
            yield frequency

    def __getitem__(self, ngram: str) -> int:
        """Frequency of one n-gram, its words joined by spaces; 0 if it is not kept."""
        words = [self.vocabulary.get(word, -1) for word in ngram.split()]
        if not words or min(words) < 0 or max(words) >= self.n_words or len(words) > len(self.keys):
            return 0
        place = words[0]
        for keys, word in zip(self.keys[1:], words[1:], strict=False):
            place = int(_find(keys, np.array([place * self.n_words + word]))[0])
            if place < 0:
                return 0
        return int(self.counts[len(words) - 1][place])


def _find(keys: IntArray, wanted: IntArray) -> IntArray:
    """Places of wanted keys among ascending ones, -1 where absent."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


class Documents:
    """The distinct reference sets of a corpus, references in an order of their own.

    Args:
        corpus: candidates and references.
        rank: (pairs,) at which place a reference is added to its item's set; negative if never.
        times: (items,) how many documents an item stands for; by default one.
    """

    def __init__(
        self, corpus: EncodedCorpus, rank: NDArray[np.int32], times: Sequence[int] | IntArray | None = None
    ) -> None:
        self.corpus = corpus
        used = rank >= 0
        # Items of one image share their references: each distinct set is counted once and weighed.
        seen: dict[bytes, int] = {}
        both = np.stack([corpus.reference, np.where(used, rank, -1)], axis=1).astype(np.int32)
        raw, size = both.tobytes(), 2 * both.itemsize
        places = [
            seen.setdefault(raw[low * size : high * size], len(seen))
            for low, high in pairwise(corpus.first_pair.tolist())
        ]
        document = np.array(places, dtype=np.int32)
        self.weight = np.bincount(document, times, minlength=len(seen)).astype(np.int32)
        del both, raw, places, seen
        is_first = np.zeros(len(document), dtype=bool)
        is_first[np.unique(document, return_index=True)[1]] = True
        keep = used & is_first[corpus.item_of_pair]
        self.text = corpus.reference[keep]
        self.document = document[corpus.item_of_pair[keep]]
        self.rank = rank[keep]
        sizes = np.cumsum(corpus.lengths[self.text])
        self.sizes = sizes.astype(np.int32) if sizes.max(initial=0) < 1 << 31 else sizes

    def frequencies(self, numbers: NgramNumbers, steps: Sequence[int]) -> Iterator[NDArray[np.int32]]:
        """(n-grams + 1,) document frequencies of an order with the references of rank below each step; -1 at the end.

        Steps ascend. The array that is handed out is the same one every time.
        """
        counts = np.zeros(numbers.count + 1, dtype=np.int32)
        counts[-1] = -1
        if len(steps) == 1:
            for ngram, rank, weight in self._firsts(numbers):
                used = rank < steps[0]
                np.add.at(counts, ngram[used], weight[used])
            yield counts
            return
        parts = list(self._firsts(numbers))
        ngram, rank, weight = map(np.concatenate, zip(*parts, strict=True)) if parts else (np.empty(0, np.int32),) * 3
        order = np.argsort(rank, kind="stable")
        ngram, rank, weight = ngram[order], rank[order], weight[order]
        low = 0
        for high in np.searchsorted(rank, steps).tolist():
            np.add.at(counts, ngram[low:high], weight[low:high])
            low = high
            yield counts

    def _firsts(
        self, numbers: NgramNumbers
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]]:
        """N-gram, lowest rank at which a document holds it, and how many such documents there are."""
        corpus = self.corpus
        of_rank = int(self.rank.max(initial=0)).bit_length()
        of_ngram = numbers.count.bit_length()
        sizes = self.sizes
        begin = 0
        while begin < len(self.text):
            # Whole documents, a limited number of tokens at a time.
            done = int(sizes[begin - 1]) if begin else 0
            end = int(np.searchsorted(sizes, done + _TOKENS_AT_ONCE, side="right"))
            end = int(np.searchsorted(self.document, self.document[max(begin, end - 1)], side="right"))
            text, first = self.text[begin:end], int(self.document[begin])
            lengths = corpus.lengths[text]
            at = np.arange(int(lengths.sum()))
            at += np.repeat(corpus.first_token[text] - np.cumsum(lengths) + lengths, lengths)
            ngram = numbers.at[at].astype(np.int64)
            # Document, n-gram and rank as one number: sorted, the lowest rank of each document and n-gram is first.
            key = (self.document[begin:end] - first).astype(np.int64)
            key <<= of_ngram + of_rank
            key |= self.rank[begin:end]
            key = np.repeat(key, lengths)
            key |= ngram << of_rank
            key = np.sort(key[ngram < numbers.count])
            new = np.ones(len(key), dtype=bool)
            np.not_equal(key[1:] >> of_rank, key[:-1] >> of_rank, out=new[1:])
            key = key[new]
            rank = (key & ((1 << of_rank) - 1)).astype(np.int32)
            key >>= of_rank
            ngram32 = (key & ((1 << of_ngram) - 1)).astype(np.int32)
            yield ngram32, rank, self.weight[(key >> of_ngram) + first]
            begin = end
