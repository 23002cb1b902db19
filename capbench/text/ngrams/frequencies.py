"""Document frequencies of n-grams: the number of documents (reference sets) that contain an n-gram.

CIDEr weights an n-gram by log(documents) − log(document frequency) (Vedantam et al., CVPR 2015, eq. 1). Its value
depends on the choice of documents: the evaluated references, or a named corpus.

N-grams are counted in shares, to limit the memory. An n-gram of two or more words belongs to the share of its first two
words. Within a share n-grams are counted by ascending order, and only n-grams of more than one document are extended.
Shares and the n-grams within them are in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import IntArray
from capbench.text.ngrams.corpus import EncodedCorpus, NgramNumbers
from capbench.text.ptb import CaptionEncoder

_TOKENS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies of a corpus, used as weights for n-grams of any corpus.

    Of two words and more, only n-grams of more than one document are stored: CIDEr gives n-grams of one document the
    same weight as unknown ones, and most n-grams occur in one document.

    Attributes:
        vocabulary: word → number; only the first ``n_words`` words belong here, since others may be added later.
        n_words: number of words that belong here.
        keys: for n = 1, 2, …: ascending keys of the corpus's n-grams: the index of its first n-1 words in the keys of
            order n-1, times ``n_words``, plus its last word (for n = 1: the word itself).
        counts: for n = 1, 2, …: document frequency of each key.
        documents: number of documents.
    """

    vocabulary: Mapping[str, int]
    n_words: int
    keys: tuple[IntArray, ...]
    counts: tuple[NDArray[np.int32], ...]
    documents: int

    def of(self, corpus: EncodedCorpus) -> Iterator[NDArray[np.int32]]:
        """For n = 1, 2, …: (tokens,) document frequency of the n-gram that begins at each token of a corpus.

        It is 0 for an n-gram that is not stored, and -1 if no n-gram begins there (too near the end of its text).
        """
        size = self.n_words
        if corpus.vocabulary is self.vocabulary:
            words = corpus.words.astype(np.int64)
        else:
            numbers = [self.vocabulary.get(word, -1) for word in islice(corpus.vocabulary, corpus.n_words)]
            own_number = np.array(numbers, dtype=np.int64)
            words = own_number[corpus.words] if len(own_number) else np.empty(0, dtype=np.int64)
        words[words >= size] = -1
        places = words.copy()
        too_near_end = np.zeros(len(words), dtype=bool)
        for order, (keys, counts) in enumerate(zip(self.keys, self.counts, strict=True), 1):
            if order > 1:
                ends = corpus.first_token[1:] - order + 1
                too_near_end[ends[ends >= corpus.first_token[:-1]]] = True
                places[too_near_end] = -1
                last_word = np.append(words[order - 1 :], np.full(min(order - 1, len(words)), -1))
                known = np.flatnonzero((places >= 0) & (last_word >= 0))
                longer = _find(keys, places[known] * size + last_word[known])
                places.fill(-1)
                places[known] = longer
            frequency = np.where(places >= 0, counts[places] if len(counts) else 0, 0).astype(np.int32)
            frequency[too_near_end] = -1
            yield frequency

    def __getitem__(self, ngram: str) -> int:
        """Document frequency of one n-gram, its words joined by spaces; 0 if it is not stored."""
        words = [self.vocabulary.get(word, -1) for word in ngram.split()]
        if not words or min(words) < 0 or max(words) >= self.n_words or len(words) > len(self.keys):
            return 0
        place = words[0]
        for keys, word in zip(self.keys[1:], words[1:], strict=False):
            place = int(_find(keys, np.array([place * self.n_words + word]))[0])
            if place < 0:
                return 0
        return int(self.counts[len(words) - 1][place])


def _find(keys: IntArray, requested: IntArray) -> IntArray:
    """Indices of requested keys among ascending ones, -1 if absent."""
    if not len(keys):
        return np.full(len(requested), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(keys, requested), len(keys) - 1)
    return np.where(keys[places] == requested, places, -1)


class Documents:
    """The distinct reference sets of a corpus.

    Args:
        corpus: candidates and references.
        rank: (pairs,) index at which a reference is added to its item's set; negative if never.
        times: (items,) number of documents that an item represents; by default one.
    """

    def __init__(
        self, corpus: EncodedCorpus, rank: NDArray[np.int32], times: Sequence[int] | IntArray | None = None
    ) -> None:
        self.corpus = corpus
        used = rank >= 0
        # Items of one image have the same references: each distinct set is counted once and weighted.
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
        """(n-grams + 1,) document frequencies of an order with the references of rank below each step; the last entry
        is -1.

        Steps ascend. The same array is yielded every time.
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
        """N-grams, the lowest rank at which a document contains them, and the number of such documents."""
        corpus = self.corpus
        of_rank = int(self.rank.max(initial=0)).bit_length()
        of_ngram = numbers.count.bit_length()
        sizes = self.sizes
        begin = 0
        while begin < len(self.text):
            # Complete documents, with a limited number of tokens at a time.
            done = int(sizes[begin - 1]) if begin else 0
            end = int(np.searchsorted(sizes, done + _TOKENS_AT_ONCE, side="right"))
            end = int(np.searchsorted(self.document, self.document[max(begin, end - 1)], side="right"))
            text, first = self.text[begin:end], int(self.document[begin])
            lengths = corpus.lengths[text]
            at = np.arange(int(lengths.sum()))
            at += np.repeat(corpus.first_token[text] - np.cumsum(lengths) + lengths, lengths)
            ngram = numbers.at[at].astype(np.int64)
            # Document, n-gram and rank packed into one number, so that sorting puts the lowest rank first.
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


_DOCUMENTS_AT_ONCE = 4096
_MAX_SHORT = 1 << 16  # maximum number of words with 16-bit numbers
_PLACES_AT_ONCE = 1 << 20
_MAX_SHARES = 48  # each share reads all tokens
_SAMPLED = 1 << 16


def document_frequencies(
    references: Sequence[Sequence[str]], n: int = 4, times: Sequence[int] | IntArray | None = None
) -> DocumentFrequencies:
    """Count the reference sets that contain each n-gram; each item is one document, repeats included.

    Args:
        references: one list of texts (PTB tokens joined by spaces) for each item.
        n: length of the longest n-gram.
        times: number of documents that each list represents; by default one.

    Raises:
        MetricError: an item has no references.
    """
    corpus = EncodedCorpus.build([""] * len(references), references)
    return count_documents(DocumentWords.of_corpus(corpus), n, times)


@dataclass(frozen=True)
class DocumentWords:
    """Documents as numbers, in sequence.

    Attributes:
        words: (tokens,) word numbers, with 16 bits if possible.
        left: (tokens,) number of words from a token to the end of its text, at most 127.
        first: (documents + 1,) index of each document's first token.
        vocabulary: word → number; only its first ``n_words`` words count.
        n_words: number of words that count.
    """

    words: NDArray[np.integer[Any]]
    left: NDArray[np.int8]
    first: IntArray
    vocabulary: Mapping[str, int]
    n_words: int

    @classmethod
    def of_corpus(cls, corpus: EncodedCorpus) -> DocumentWords:
        """References of each item of a corpus."""
        lengths = corpus.lengths[corpus.reference]
        first_token = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(corpus.first_token[corpus.reference] - first_token[:-1], lengths)
        at += np.arange(len(at))
        first = first_token[corpus.first_pair]
        return cls(corpus.words[at], _left(lengths), first, corpus.vocabulary, corpus.n_words)

    @classmethod
    def of_captions(cls, documents: Iterable[Sequence[str]], encoder: CaptionEncoder) -> DocumentWords:
        """Documents as published; only a few are in memory at the same time.

        Raises:
            DataError, ToolError: a caption could not be tokenised.
        """
        # Growing buffers, since concatenating parts would double the memory.
        words, left = bytearray(), bytearray()
        kind: np.dtype[Any] = np.dtype(np.uint16)
        sizes = [np.zeros(1, dtype=np.int64)]
        documents = iter(documents)
        while batch := list(islice(documents, _DOCUMENTS_AT_ONCE)):
            new = encoder.encode(list(chain.from_iterable(batch)))
            if kind.itemsize == 2 and len(encoder.vocabulary) > _MAX_SHORT:
                kind = np.dtype(np.int32)
                words = bytearray(np.frombuffer(words, dtype=np.uint16).astype(kind).tobytes())
            words += new.words.astype(kind).tobytes()
            left += _left(new.lengths).tobytes()
            ends = np.concatenate([[0], np.cumsum(new.lengths)])
            sizes.append(np.diff(ends[np.cumsum([0, *map(len, batch)])]))
        return cls(
            np.frombuffer(words, dtype=kind),
            np.frombuffer(left, dtype=np.int8),
            np.cumsum(np.concatenate(sizes)),
            encoder.vocabulary,
            len(encoder.vocabulary),
        )


def count_documents(
    documents: DocumentWords, n: int = 4, times: Sequence[int] | IntArray | None = None
) -> DocumentFrequencies:
    """Count the documents, each ``times`` times, that contain each n-gram."""
    weight = np.ones(len(documents.first) - 1, np.int32) if times is None else np.asarray(times, dtype=np.int32)
    n_words = documents.n_words
    # Growing buffers, since concatenating parts would double the memory.
    keys, counts = [bytearray() for _ in range(n)], [bytearray() for _ in range(n)]
    keys[0] += np.arange(n_words, dtype=np.int64).tobytes()
    counts[0] += _words(documents, weight).tobytes()
    stored = [0] * n
    for low, high in pairwise(_cuts(documents) if n > 1 else ()):
        place, document, key = _share(documents, low, high)
        for order in range(2, n + 1):
            distinct, frequency, place, document, key = _count(weight, place, document, key)
            recurs = frequency > 1
            keys[order - 1] += distinct[recurs].tobytes()
            counts[order - 1] += frequency[recurs].tobytes()
            if order < n:
                # Extend the n-grams of several documents that are followed by a word.
                number = np.cumsum(recurs) - 1 + stored[order - 1]
                extends = recurs[key]
                extends &= documents.left[place] > order
                place, document = place[extends], document[extends]
                key = number[key[extends]] * n_words + documents.words[place + order]
            stored[order - 1] += int(recurs.sum())
    return DocumentFrequencies(
        documents.vocabulary,
        n_words,
        tuple(np.frombuffer(of_order, dtype=np.int64) for of_order in keys),
        tuple(np.frombuffer(of_order, dtype=np.int32) for of_order in counts),
        int(weight.sum()),
    )


def _left(lengths: IntArray) -> NDArray[np.int8]:
    """(tokens,) words from each token to the end of its text, at most 127, for texts of these lengths."""
    left = np.repeat(np.cumsum(lengths), lengths)
    left -= np.arange(len(left))
    return np.minimum(left, 127, out=left).astype(np.int8)


def _words(documents: DocumentWords, weight: NDArray[np.int32]) -> NDArray[np.int32]:
    """(words,) document frequencies of single words."""
    counts = np.zeros(documents.n_words, dtype=np.int32)
    first, bits = documents.first, documents.n_words.bit_length()
    begin = 0
    while begin < len(weight):
        # Complete documents, with a limited number of tokens at a time.
        end = int(np.searchsorted(first, first[begin] + _TOKENS_AT_ONCE, side="right")) - 1
        end = min(max(end, begin + 1), len(weight))
        key = np.repeat(np.arange(end - begin, dtype=np.int64), np.diff(first[begin : end + 1]))
        key <<= bits
        key |= documents.words[first[begin] : first[end]]
        key.sort()
        key = key[_begins(key)]
        np.add.at(counts, key & ((1 << bits) - 1), weight[begin + (key >> bits)])
        begin = end
    return counts


def _cuts(documents: DocumentWords) -> list[int]:
    """Limits of the shares, as keys of two words: the first times the size of the vocabulary plus the second.

    They come from a sample, since a few words make up most of a text.
    """
    words, n_words = documents.words, documents.n_words
    step = max(1, len(words) // _SAMPLED)
    sample = np.flatnonzero(documents.left[::step] > 1) * step
    key = np.sort(words[sample].astype(np.int64) * n_words + words[sample + 1]) if len(sample) else sample
    shares = min(-(-len(words) // _TOKENS_AT_ONCE), _MAX_SHARES) if len(sample) else 0
    inner = {int(key[len(key) * share // shares]) for share in range(1, shares)}
    return sorted({0, *inner, n_words * n_words})


def _share(documents: DocumentWords, low: int, high: int) -> tuple[IntArray, NDArray[np.int32], IntArray]:
    """Tokens at which two words of a share begin, their documents, and the keys of the two words."""
    n_words = documents.n_words
    first_word = low // n_words
    span = (high - 1) // n_words - first_word
    places, keys = [], []
    for begin in range(0, len(documents.words), _PLACES_AT_ONCE):
        block = documents.words[begin : begin + _PLACES_AT_ONCE].astype(np.int32)
        block -= first_word
        # As unsigned, negative numbers are very large.
        place = np.flatnonzero(block.view(np.uint32) <= span)
        place += begin
        place = place[documents.left[place] > 1]
        key = documents.words[place].astype(np.int64) * n_words + documents.words[place + 1]
        inside = (key >= low) & (key < high)
        places.append(place[inside])
        keys.append(key[inside])
    place = np.concatenate(places) if places else np.empty(0, dtype=np.int64)
    of_document = np.diff(np.searchsorted(place, documents.first))
    document = np.repeat(np.arange(len(of_document), dtype=np.int32), of_document)
    return place, document, np.concatenate(keys) if keys else place


def _count(
    weight: NDArray[np.int32], place: IntArray, document: NDArray[np.int32], key: IntArray
) -> tuple[IntArray, NDArray[np.int32], IntArray, NDArray[np.int32], IntArray]:
    """Distinct keys in ascending order with their document frequencies; tokens sorted by key.

    Args:
        weight: (documents,) weight of each document.
        place: (m,) tokens; for equal keys they ascend.
        document: (m,) their documents.
        key: (m,) their n-grams.

    Returns:
        distinct: (d,); frequency: (d,); then place and document (m,) in the order of the keys, and the index of each
        one's key among the distinct ones (m,).
    """
    order, key = _sorted(key)
    place, document = place[order], document[order]
    begins = _begins(key)
    number = np.cumsum(begins) - 1
    once = begins.copy()  # the first of an n-gram in a document
    once[1:] |= document[1:] != document[:-1]
    distinct = key[begins]
    frequency = np.bincount(number[once], weight[document[once]], minlength=len(distinct)).astype(np.int32)
    return distinct, frequency, place, document, number


def _sorted(key: IntArray) -> tuple[IntArray, IntArray]:
    """Stable argsort of keys, and the sorted keys."""
    if not len(key):
        return key, key
    lowest, bits = int(key.min()), len(key).bit_length()
    if (int(key.max()) - lowest).bit_length() + bits < 64:  # sorting key and index as one number is fastest
        both = key - lowest
        both <<= bits
        both |= np.arange(len(key))
        both.sort()
        order = both & ((1 << bits) - 1)
        both >>= bits
        both += lowest
        return order, both
    order = np.argsort(key, kind="stable")
    return order, key[order]


def _begins(key: IntArray) -> NDArray[np.bool_]:
    """True for keys that differ from the previous one."""
    begins = np.ones(len(key), dtype=np.bool_)
    np.not_equal(key[1:], key[:-1], out=begins[1:])
    return begins
