"""N-gram matches and the longest common subsequence of a candidate and a reference.

Captions are short, so comparing every word of a candidate with every word of a reference is fastest if thousands of
pairs are compared at once. Row i of this comparison is 1 at j if candidate word i equals reference word j. An n-gram
that begins at (i, j) matches if this entry is 1 and the (n-1)-gram at (i+1, j+1) matches; the sum of such a row is the
number of occurrences of the candidate's n-gram at i in the reference; and the longest common subsequence grows row by
row as ``max(above, above-left + equal)`` and a running maximum along the row. The pair is the last axis of every array,
so that each of these operations is one pass through contiguous memory.

For texts of thousands of words this comparison is too slow. Their n-grams are numbered and counted, and the longest
common subsequence is computed for all words of one text at once, as bits of one number (Hyyrö, "Bit-parallel LCS-length
computation revisited", AWOCA 2004).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import IntArray
from capbench.text.ngrams.corpus import EncodedCorpus, OrderMatches, Subsequences

_FREQUENT = 32  # occurrences from which the bits of a word are cached; for rarer words they are recomputed


def ngram_counts(ours: NDArray[np.int32], theirs: NDArray[np.int32], longest: int) -> list[IntArray]:
    """Number of occurrences of one text's n-grams in another text.

    Args:
        ours: (words,) word numbers of the text with the n-grams.
        theirs: word numbers of the text that is searched.
        longest: length of the longest n-gram, in words.

    Returns:
        For n = 1 to ``longest``: (words,) number of occurrences in ``theirs`` of the n-gram that begins at each place
        of ``ours``.
    """
    counts = []
    for numbers in _numbers(np.concatenate([ours, theirs]), (len(ours), len(theirs)), longest):
        left, right = numbers[: len(ours)], numbers[len(ours) :]
        occurrences = np.bincount(right[right >= 0], minlength=int(numbers.max(initial=0)) + 1)
        counts.append(np.where(left >= 0, occurrences[left], 0))
    return counts


def repeated_ngrams(words: NDArray[np.int32], longest: int) -> list[tuple[IntArray, IntArray]]:
    """Number of occurrences of a text's n-grams in the same text.

    Args:
        words: (words,) word numbers.
        longest: length of the longest n-gram, in words.

    Returns:
        For n = 1 to ``longest``: (words,) number of occurrences of the n-gram that begins at each place, and (words,)
        number of its occurrences before that place.
    """
    repeats = []
    for numbers in _numbers(words, (len(words),), longest):
        by_number = np.argsort(numbers, kind="stable")
        ascending = numbers[by_number]
        first = np.searchsorted(ascending, ascending)
        earlier = np.empty(len(words), dtype=np.int64)
        earlier[by_number] = np.arange(len(words)) - first
        occurrences = np.bincount(numbers[numbers >= 0], minlength=int(numbers.max(initial=0)) + 1)
        repeats.append((np.where(numbers >= 0, occurrences[numbers], 0), np.where(numbers >= 0, earlier, 0)))
    return repeats


def common_subsequence(ours: NDArray[np.int32], theirs: NDArray[np.int32]) -> int:
    """Length, in words, of the longest common subsequence of two texts, passed as word numbers."""
    if len(ours) < len(theirs):
        ours, theirs = theirs, ours  # a step per word of the longer text, a bit per word of the other
    places: dict[int, list[int]] = {}
    for place, word in enumerate(theirs.tolist()):
        places.setdefault(word, []).append(place)
    frequent = {word: _bits(at) for word, at in places.items() if len(at) >= _FREQUENT}
    all_bits = (1 << len(theirs)) - 1
    row = all_bits  # a bit is 0 if the longest common subsequence grows by one there
    for word in ours.tolist():
        if word in places:
            matched = row & (frequent[word] if word in frequent else _bits(places[word]))
            row = (row + matched | row - matched) & all_bits
    return len(theirs) - row.bit_count()


def _bits(places: list[int]) -> int:
    octets = bytearray((places[-1] >> 3) + 1)
    for place in places:
        octets[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(octets, "little")


def _numbers(words: NDArray[np.int32], lengths: tuple[int, ...], longest: int) -> list[IntArray]:
    """For n = 1 to ``longest``: (words,) n-gram number at each place of concatenated texts; -1 if there is none."""
    left = np.concatenate([np.arange(length, 0, -1) for length in lengths])  # words to the end of the text
    word = np.unique(words, return_inverse=True)[1].reshape(-1).astype(np.int64)
    numbers = [word]
    for n in range(2, longest + 1):
        begins = np.flatnonzero(left >= n)
        longer = np.full(len(words), -1, dtype=np.int64)
        keys = numbers[-1][begins] * (len(words) + 1) + word[begins + n - 1]
        longer[begins] = np.unique(keys, return_inverse=True)[1].reshape(-1)
        numbers.append(longer)
    return numbers


MAX_ORDER = 4
_CELLS = 1 << 17  # entries of one row over all pairs of a batch; several rows fit into the processor cache
_LONG = 1 << 16  # product of lengths from which pairs are compared individually
_WIDTH = 6  # candidates of a batch differ by less than this in length


def matches_of(corpus: EncodedCorpus) -> tuple[OrderMatches, ...]:
    """N-grams that each pair has in common, for n = 1 to 4; computed on first use and stored in the corpus."""
    if corpus.matches is None:
        corpus.matches = _match(corpus)
    return corpus.matches


def subsequences_of(corpus: EncodedCorpus) -> Subsequences:
    """The longest common subsequence of each pair; computed on first use and stored in the corpus."""
    if corpus.subsequences is None:
        corpus.subsequences = _subsequences(corpus)
    return corpus.subsequences


def _match(corpus: EncodedCorpus) -> tuple[OrderMatches, ...]:
    """Compare every candidate with each of its references, and every text with itself."""
    left = corpus.candidate[corpus.item_of_pair]
    right = corpus.reference
    # The number of a candidate's n-grams bounds the number of its matches.
    kinds = (np.int32, np.int32, corpus.small_int)
    entries = [_Entries(int(np.maximum(corpus.lengths[left] - n, 0).sum()), kinds) for n in range(MAX_ORDER)]
    for batch in _batches(corpus, left, right):
        counts, _ = _compare(corpus, left[batch], right[batch])
        starts = corpus.first_token[left[batch]]
        for order, rows in enumerate(counts):
            at, which = np.nonzero(rows)
            token = starts[which] + at
            entries[order].add(batch[which], token, rows[at, which])
    repeats = _repeats(corpus)
    return tuple(
        OrderMatches(*matched.entries(), *repeated.entries())
        for matched, repeated in zip(entries, repeats, strict=True)
    )


def _subsequences(corpus: EncodedCorpus) -> Subsequences:
    rows = np.arange(len(corpus.lengths), dtype=np.int32)
    for text, row in corpus.spaced.items():
        rows[text] = row
    left, right = rows[corpus.candidate[corpus.item_of_pair]], rows[corpus.reference]
    lcs = np.zeros(len(left), dtype=np.int32)
    for batch in _batches(corpus, left, right):
        lcs[batch] = _longest(corpus, left[batch], right[batch])
    lengths = corpus.lengths.astype(np.int32)
    return Subsequences(lcs, lengths[left], lengths[right])


def _repeats(corpus: EncodedCorpus) -> list[_Entries]:
    """Repeated n-grams within texts, for each order: place, number of occurrences, number of earlier occurrences.

    Half of all captions repeat a word ("a"), few repeat two in sequence: only those are searched for longer n-grams.
    """
    words = _repeats_of(corpus, _texts_with_repeats(corpus), 1)[0]
    repeated = np.zeros(len(corpus.words) + 1, dtype=bool)
    repeated[words.entries()[0]] = True
    pairs = np.flatnonzero(repeated[:-1] & repeated[1:])
    texts = np.unique(np.searchsorted(corpus.first_token, pairs, side="right") - 1).astype(np.int32)
    return [words, *_repeats_of(corpus, texts, MAX_ORDER)[1:]]


def _repeats_of(corpus: EncodedCorpus, texts: NDArray[np.int32], orders: int) -> list[_Entries]:
    maximum = int(corpus.lengths[texts].sum())
    repeats = [_Entries(maximum, (np.int32, corpus.small_int, corpus.small_int)) for _ in range(orders)]
    for batch in _batches(corpus, texts, texts):
        counts, earlier = _compare(corpus, texts[batch], texts[batch], orders, with_itself=True)
        starts = corpus.first_token[texts[batch]]
        for order in range(orders):
            at, which = np.nonzero(counts[order] > 1)
            repeats[order].add(starts[which] + at, counts[order][at, which], earlier[order][at, which])
    return repeats


class _Entries:
    """Entries of three fields that are added in parts, in preallocated arrays: concatenating parts would double the
    memory.

    Args:
        maximum: maximum number of entries; unused space takes no memory.
        kinds: type of each field.
    """

    def __init__(self, maximum: int, kinds: tuple[type[np.signedinteger[Any]], ...]) -> None:
        self._fields = tuple(np.empty(maximum, dtype=kind) for kind in kinds)
        self._filled = 0

    def add(self, *values_by_field: NDArray[np.integer[Any]]) -> None:
        """Append entries, by field."""
        begin, self._filled = self._filled, self._filled + len(values_by_field[0])
        for field, values in zip(self._fields, values_by_field, strict=True):
            field[begin : self._filled] = values

    def entries(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The entries by field; releases unused space."""
        for field in self._fields:
            field.resize(self._filled, refcheck=False)
        first, second, third = self._fields
        return first, second, third


def _texts_with_repeats(corpus: EncodedCorpus) -> NDArray[np.int32]:
    """Texts that contain a word twice, found by sorting the words of texts of equal length."""
    lengths = corpus.lengths
    order = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    repeating = []
    for group in np.split(order, cuts):
        if len(group) and (length := int(lengths[group[0]])) > 1:
            for texts in np.array_split(group, -(-len(group) * length // _CELLS)):
                rows = np.sort(corpus.words[corpus.first_token[texts][:, None] + np.arange(length)], axis=1)
                repeating.append(texts[(rows[:, 1:] == rows[:, :-1]).any(axis=1)])
    return np.concatenate(repeating).astype(np.int32) if repeating else np.empty(0, dtype=np.int32)


def _batches(corpus: EncodedCorpus, left: NDArray[np.int32], right: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Batches of pairs of similar lengths, so that padding is small and a row fits into the cache."""
    lengths = corpus.lengths.astype(np.int32)
    ours, theirs = lengths[left], lengths[right]
    del lengths
    width = ours // _WIDTH
    order = np.lexsort((theirs, width)).astype(np.int32)
    if not (ours.min(initial=1) and theirs.min(initial=1)):
        order = order[(ours > 0)[order] & (theirs > 0)[order]]  # nothing matches an empty text
    del ours
    cuts = np.flatnonzero(np.diff(width[order])) + 1
    for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        while begin < end:
            # As many pairs as fit; all are padded to the last, which is the longest.
            widths = theirs[order[begin : min(end, begin + _CELLS)]].astype(np.int64)
            fit = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), _CELLS, side="right"))
            stop = begin + max(1, fit)
            yield order[begin:stop]
            begin = stop


def _compare(
    corpus: EncodedCorpus,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    orders: int = MAX_ORDER,
    with_itself: bool = False,
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Compare texts pairwise.

    Returns:
        For each order, (longest left text, pairs): number of occurrences in the right text of the n-gram at a place of
        the left one; and, only ``with_itself``, number of its occurrences before that place.
    """
    if _are_long(corpus, left, right):
        return _compare_long(corpus, left, right, orders, with_itself)
    ours = _padded(corpus, left, -1)
    theirs = _padded(corpus, right, -2)
    rows, columns, pairs = len(ours), len(theirs), len(left)
    kind = np.uint8 if max(rows, columns) < 256 else np.int32
    counts = [np.zeros((rows, pairs), dtype=kind) for _ in range(orders)]
    earlier = [np.zeros((rows, pairs), dtype=kind) for _ in range(orders if with_itself else 0)]
    # matched[n] is the row below for n-grams; one column more, because an n-gram continues down and to the right.
    matched = [np.zeros((columns + 1, pairs), dtype=bool) for _ in range(orders)]
    equal = np.empty((columns, pairs), dtype=bool)
    for i in range(rows - 1, -1, -1):
        np.equal(theirs, ours[i], out=equal)
        for n in range(orders - 1, 0, -1):  # longest first, since each requires the shorter one of the row below
            np.logical_and(equal, matched[n - 1][1:], out=matched[n][:-1])
        matched[0][:-1] = equal
        for n in range(orders):
            np.add.reduce(matched[n][:-1].view(np.uint8), axis=0, dtype=kind, out=counts[n][i])
            if with_itself:
                np.add.reduce(matched[n][:i].view(np.uint8), axis=0, dtype=kind, out=earlier[n][i])
    return counts, earlier


def _longest(corpus: EncodedCorpus, left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int32]:
    """(pairs,) lengths of the longest common subsequences of texts, compared pairwise."""
    if _are_long(corpus, left, right):
        pairs = zip(_words(corpus, left), _words(corpus, right), strict=True)
        return np.array([common_subsequence(ours, theirs) for ours, theirs in pairs], dtype=np.int32)
    ours = _padded(corpus, left, -1)
    theirs = _padded(corpus, right, -2)
    columns, n_pairs = len(theirs), len(left)
    kind = np.uint8 if max(len(ours), columns) < 256 else np.int32
    longest = np.zeros((columns + 1, n_pairs), dtype=kind)
    equal = np.empty((columns, n_pairs), dtype=bool)
    grown = np.empty((columns, n_pairs), dtype=kind)
    # From the last word to the first; the length of a subsequence is the same backwards.
    for word in ours[::-1]:
        np.equal(theirs, word, out=equal)
        np.add(longest[1:], equal, out=grown)
        np.maximum(grown, longest[:-1], out=grown)
        for j in range(columns - 1, -1, -1):  # numpy's running maximum is slow along the first axis
            np.maximum(grown[j], longest[j + 1], out=longest[j])
    lcs: NDArray[np.int32] = longest[0].astype(np.int32)
    return lcs


def _are_long(corpus: EncodedCorpus, left: NDArray[np.int32], right: NDArray[np.int32]) -> bool:
    return int(corpus.lengths[left].max()) * int(corpus.lengths[right].max()) > _LONG


def _words(corpus: EncodedCorpus, texts: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for text in texts.tolist():
        yield corpus.words[corpus.first_token[text] : corpus.first_token[text + 1]]


def _compare_long(
    corpus: EncodedCorpus, left: NDArray[np.int32], right: NDArray[np.int32], orders: int, with_itself: bool
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """The result of :func:`_compare` for long texts, one pair at a time."""
    shape = (int(corpus.lengths[left].max()), len(left))
    counts = [np.zeros(shape, dtype=np.int32) for _ in range(orders)]
    earlier = [np.zeros(shape, dtype=np.int32) for _ in range(orders if with_itself else 0)]
    for pair, (ours, theirs) in enumerate(zip(_words(corpus, left), _words(corpus, right), strict=True)):
        if with_itself:
            for n, (count, before) in enumerate(repeated_ngrams(ours, orders)):
                counts[n][: len(ours), pair], earlier[n][: len(ours), pair] = count, before
        else:
            for n, count in enumerate(ngram_counts(ours, theirs, orders)):
                counts[n][: len(ours), pair] = count
    return counts, earlier


def _padded(corpus: EncodedCorpus, texts: NDArray[np.int32], padding: int) -> NDArray[np.int32]:
    """(longest, texts) words of texts as columns, padded with a number that is not a word."""
    lengths = corpus.lengths[texts]
    at = np.arange(int(lengths.max()))[:, None]
    inside = at < lengths
    token = np.where(inside, corpus.first_token[texts] + at, 0)
    return np.where(inside, corpus.words[token], np.int32(padding))
