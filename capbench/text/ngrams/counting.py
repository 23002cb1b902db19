"""Counts in how many documents each n-gram stands, share by share, so that little beside the words is in memory.

An n-gram of two words and more belongs to the share of its first two words. Within a share n-grams are counted one
order after the other, and only what begins an n-gram of more than one document is looked at again. Shares ascend, and
so do the n-grams that they give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.records import IntArray
from capbench.text.ngrams.corpus import EncodedCorpus
from capbench.text.ngrams.frequencies import DocumentFrequencies
from capbench.text.ptb.encoding import CaptionEncoder

__all__ = ["DocumentWords", "count_documents", "document_frequencies"]

_DOCUMENTS_AT_ONCE = 4096
_MOST_SHORT = 1 << 16  # words whose numbers have 16 bits
_TOKENS_AT_ONCE = 1 << 17
_PLACES_AT_ONCE = 1 << 20
_MOST_SHARES = 48  # for each share all tokens are looked at
_SAMPLED = 1 << 16


def document_frequencies(
    references: Sequence[Sequence[str]], n: int = 4, times: Sequence[int] | IntArray | None = None
) -> DocumentFrequencies:
    """Count in how many reference sets each n-gram occurs, one document an item, repeats included.

    Args:
        references: one list of texts (PTB tokens joined by spaces) an item.
        n: longest n-gram.
        times: how many documents each list stands for; by default one.

    Raises:
        MetricError: an item has no references.
    """
    corpus = EncodedCorpus.build([""] * len(references), references)
    return count_documents(DocumentWords.of_corpus(corpus), n, times)


@dataclass(frozen=True)
class DocumentWords:
    """Documents as numbers, one after the other.

    Attributes:
        words: (tokens,) word numbers; of 16 bits, if these hold them.
        left: (tokens,) words of the text from a token on, with it; 127 stands for more, too.
        first: (documents + 1,) where the tokens of a document begin.
        vocabulary: word → number; only its first ``n_words`` words count.
        n_words: see there.
    """

    words: NDArray[np.integer[Any]]
    left: NDArray[np.int8]
    first: IntArray
    vocabulary: Mapping[str, int]
    n_words: int

    @classmethod
    def of_corpus(cls, corpus: EncodedCorpus) -> DocumentWords:
        """The references of each item of a corpus."""
        lengths = corpus.lengths[corpus.reference]
        first_token = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(corpus.first_token[corpus.reference] - first_token[:-1], lengths)
        at += np.arange(len(at))
        first = first_token[corpus.first_pair]
        return cls(corpus.words[at], _left(lengths), first, corpus.vocabulary, corpus.n_words)

    @classmethod
    def of_captions(cls, documents: Iterable[Sequence[str]], encoder: CaptionEncoder) -> DocumentWords:
        """Documents as they were published, of which only a few are in hand at once.

        Raises:
            DataError, ToolError: a caption could not be tokenised.
        """
        # Pieces of memory that grow: parts that are joined at the end would stand in it twice.
        words, left = bytearray(), bytearray()
        kind: np.dtype[Any] = np.dtype(np.uint16)
        sizes = [np.zeros(1, dtype=np.int64)]
        documents = iter(documents)
        while batch := list(islice(documents, _DOCUMENTS_AT_ONCE)):
            new = encoder.encode(list(chain.from_iterable(batch)))
            if kind.itemsize == 2 and len(encoder.vocabulary) > _MOST_SHORT:
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
    """In how many of the documents, each ``times`` times, each n-gram occurs."""
    weight = np.ones(len(documents.first) - 1, np.int32) if times is None else np.asarray(times, dtype=np.int32)
    n_words = documents.n_words
    keys: list[list[IntArray]] = [[np.arange(n_words, dtype=np.int64)], *([] for _ in range(1, n))]
    counts: list[list[NDArray[np.int32]]] = [[_words(documents, weight)], *([] for _ in range(1, n))]
    kept = [0] * n
    for low, high in pairwise(_cuts(documents) if n > 1 else ()):
        place, document, key = _share(documents, low, high)
        for order in range(2, n + 1):
            distinct, frequency, place, document, key = _count(weight, place, document, key)
            recurs = frequency > 1
            keys[order - 1].append(distinct[recurs])
            counts[order - 1].append(frequency[recurs])
            if order < n:
                # What goes on: tokens of n-grams of several documents that have a word behind them.
                number = np.cumsum(recurs) - 1 + kept[order - 1]
                goes_on = recurs[key]
                goes_on &= documents.left[place] > order
                place, document = place[goes_on], document[goes_on]
                key = number[key[goes_on]] * n_words + documents.words[place + order]
            kept[order - 1] += int(recurs.sum())
    none = np.empty(0, dtype=np.int64)
    return DocumentFrequencies(
        documents.vocabulary,
        n_words,
        tuple(np.concatenate([none, *of_order]) for of_order in keys),
        tuple(np.concatenate([none.astype(np.int32), *of_order]) for of_order in counts),
        int(weight.sum()),
    )


def _left(lengths: IntArray) -> NDArray[np.int8]:
    """(tokens,) words of a text from a token on, at most 127, for texts of these lengths."""
    left = np.repeat(np.cumsum(lengths), lengths)
    left -= np.arange(len(left))
    return np.minimum(left, 127, out=left).astype(np.int8)


def _words(documents: DocumentWords, weight: NDArray[np.int32]) -> NDArray[np.int32]:
    """(words,) document frequencies of single words."""
    counts = np.zeros(documents.n_words, dtype=np.int32)
    first, bits = documents.first, documents.n_words.bit_length()
    begin = 0
    while begin < len(weight):
        # Whole documents, a limited number of tokens at a time.
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
    """Where shares begin and end: numbers of two words, the first times the size of the vocabulary plus the second.

    A sample tells where to cut, since a few words make up most of a text.
    """
    words, n_words = documents.words, documents.n_words
    step = max(1, len(words) // _SAMPLED)
    sample = np.flatnonzero(documents.left[::step] > 1) * step
    key = np.sort(words[sample].astype(np.int64) * n_words + words[sample + 1]) if len(sample) else sample
    shares = min(-(-len(words) // _TOKENS_AT_ONCE), _MOST_SHARES) if len(sample) else 0
    inner = {int(key[len(key) * share // shares]) for share in range(1, shares)}
    return sorted({0, *inner, n_words * n_words})


def _share(documents: DocumentWords, low: int, high: int) -> tuple[IntArray, NDArray[np.int32], IntArray]:
    """Tokens at which two words of a share begin, the documents that they are in, and the two words' number."""
    n_words = documents.n_words
    first_word = low // n_words
    span = (high - 1) // n_words - first_word
    places, keys = [], []
    for begin in range(0, len(documents.words), _PLACES_AT_ONCE):
        block = documents.words[begin : begin + _PLACES_AT_ONCE].astype(np.int32)
        block -= first_word
        # A smaller number is a very large one without its sign.
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
    """Distinct keys, ascending, and in how many documents each stands; and tokens by key.

    Args:
        weight: (documents,) how often each counts.
        place: (m,) tokens; of equal keys they ascend.
        document: (m,) their documents.
        key: (m,) their n-grams.

    Returns:
        distinct: (d,); frequency: (d,); then place and document (m,) in the order of the keys, and the place of each
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
    """Where the keys in ascending order stand, equal ones in their order; and the keys in that order."""
    if not len(key):
        return key, key
    least, bits = int(key.min()), len(key).bit_length()
    if (int(key.max()) - least).bit_length() + bits < 64:  # key and place as one number: no sort is quicker
        both = key - least
        both <<= bits
        both |= np.arange(len(key))
        both.sort()
        order = both & ((1 << bits) - 1)
        both >>= bits
        both += least
        return order, both
    order = np.argsort(key, kind="stable")
    return order, key[order]


def _begins(key: IntArray) -> NDArray[np.bool_]:
    """Whether a key differs from the one before."""
    begins = np.ones(len(key), dtype=np.bool_)
    np.not_equal(key[1:], key[:-1], out=begins[1:])
    return begins
