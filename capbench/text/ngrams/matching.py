"""N-gram matches and the longest common subsequence of a candidate and a reference.

Captions are short, so that comparing every word of a candidate with every word of a reference is the
fastest way there is, provided that thousands of pairs are compared at once. Row i of that comparison
is 1 at j where candidate word i equals reference word j. An n-gram that begins at (i, j) is
matched where that entry is 1 and the (n-1)-gram at (i+1, j+1) is; how often the candidate's n-gram
at i occurs in the reference is the sum of such a row; and the longest common subsequence grows by one
row at a time as ``max(above, above-left + equal)`` and a running maximum along the row. The pair is
the last axis of every array, so that each of these is one sweep through contiguous memory.

Comparing every word with every word takes too long for texts of thousands of words. For them n-grams are numbered and
counted, and the longest common subsequence is found for all words of one text at once, as bits of one number (Hyyrö,
"Bit-parallel LCS-length computation revisited", AWOCA 2004).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import IntArray
from capbench.text.ngrams.corpus import EncodedCorpus, OrderMatches, Subsequences

__all__ = ["MAX_ORDER", "common_subsequence", "matches_of", "ngram_counts", "repeated_ngrams", "subsequences_of"]


_OFTEN = 32  # the places of a word that stands so often are kept as bits; for a rarer one they are quickly set anew


def ngram_counts(ours: NDArray[np.int32], theirs: NDArray[np.int32], longest: int) -> list[IntArray]:
    """How often one text holds the n-grams of another.

    Args:
        ours: (words,) word numbers of the text whose n-grams are asked about.
        theirs: word numbers of the text that is searched.
        longest: the longest n-gram, in words.

    Returns:
        For n = 1 to ``longest``: (words,) how often ``theirs`` holds the n-gram that begins at each place of ``ours``.
    """
    counts = []
    for numbers in _numbers(np.concatenate([ours, theirs]), (len(ours), len(theirs)), longest):
        here, there = numbers[: len(ours)], numbers[len(ours) :]
        occurrences = np.bincount(there[there >= 0], minlength=int(numbers.max(initial=0)) + 1)
        counts.append(np.where(here >= 0, occurrences[here], 0))
    return counts


def repeated_ngrams(words: NDArray[np.int32], longest: int) -> list[tuple[IntArray, IntArray]]:
    """How often a text holds its own n-grams.

    Args:
        words: (words,) word numbers.
        longest: the longest n-gram, in words.

    Returns:
        For n = 1 to ``longest``: (words,) how often the text holds the n-gram that begins at each place, and (words,)
        how often before that place.
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
    """Length, in words, of the longest common subsequence of two texts, given as word numbers."""
    if len(ours) < len(theirs):
        ours, theirs = theirs, ours  # one step for each of the longer text, on numbers with a bit for each of the other
    places: dict[int, list[int]] = {}
    for place, word in enumerate(theirs.tolist()):
        places.setdefault(word, []).append(place)
    often = {word: _bits(at) for word, at in places.items() if len(at) >= _OFTEN}
    all_bits = (1 << len(theirs)) - 1
    row = all_bits  # a bit is 0 where the longest common subsequence grows by one
    for word in ours.tolist():
        if word in places:
            matched = row & (often[word] if word in often else _bits(places[word]))
            row = (row + matched | row - matched) & all_bits
    return len(theirs) - row.bit_count()


def _bits(places: list[int]) -> int:
    octets = bytearray((places[-1] >> 3) + 1)
    for place in places:
        octets[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(octets, "little")


def _numbers(words: NDArray[np.int32], lengths: tuple[int, ...], longest: int) -> list[IntArray]:
    """For n = 1 to ``longest``: (words,) number of the n-gram at each place of texts run together; -1 where none is."""
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
_CELLS = 1 << 17  # entries of one row over all pairs of a batch: several such rows fit into a processor's cache
_LONG = 1 << 16  # words times words from which pairs are compared one by one, in another way
_WIDTH = 6  # candidates of a batch differ by less than this in length


def matches_of(corpus: EncodedCorpus) -> tuple[OrderMatches, ...]:
    """For n = 1 to 4, the n-grams that each pair has in common; computed at first use and kept with the corpus."""
    if corpus.matches is None:
        corpus.matches = _match(corpus)
    return corpus.matches


def subsequences_of(corpus: EncodedCorpus) -> Subsequences:
    """The longest common subsequence of each pair; computed at first use and kept with the corpus."""
    if corpus.subsequences is None:
        corpus.subsequences = _subsequences(corpus)
    return corpus.subsequences


def _match(corpus: EncodedCorpus) -> tuple[OrderMatches, ...]:
    """Compare every candidate with each of its references, and every text with itself."""
    left = corpus.candidate[corpus.item_of_pair]
    right = corpus.reference
    # No candidate has more n-grams in common with a reference than it has n-grams.
    kinds = (np.int32, np.int32, corpus.small_int)
    entries = [_Room(int(np.maximum(corpus.lengths[left] - n, 0).sum()), kinds) for n in range(MAX_ORDER)]
    for batch in _batches(corpus, left, right):
        counts, _ = _compare(corpus, left[batch], right[batch])
        starts = corpus.first_token[left[batch]]
        for order, rows in enumerate(counts):
            at, which = np.nonzero(rows)
            token = starts[which] + at
            entries[order].add(batch[which], token, rows[at, which])
    repeats = _repeats(corpus)
    return tuple(
        OrderMatches(*room.entries(), *places.entries()) for room, places in zip(entries, repeats, strict=True)
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


def _repeats(corpus: EncodedCorpus) -> list[_Room]:
    """Where texts repeat n-grams of their own, for each order: place, how often, how often before.

    Half of all captions repeat a word ("a"), few repeat two in a row: only those are searched for longer n-grams.
    """
    words = _own(corpus, _texts_with_repeats(corpus), 1)[0]
    repeated = np.zeros(len(corpus.words) + 1, dtype=bool)
    repeated[words.entries()[0]] = True
    pairs = np.flatnonzero(repeated[:-1] & repeated[1:])
    texts = np.unique(np.searchsorted(corpus.first_token, pairs, side="right") - 1).astype(np.int32)
    return [words, *_own(corpus, texts, MAX_ORDER)[1:]]


def _own(corpus: EncodedCorpus, texts: NDArray[np.int32], orders: int) -> list[_Room]:
    room = int(corpus.lengths[texts].sum())
    repeats = [_Room(room, (np.int32, corpus.small_int, corpus.small_int)) for _ in range(orders)]
    for batch in _batches(corpus, texts, texts):
        counts, earlier = _compare(corpus, texts[batch], texts[batch], orders, with_itself=True)
        starts = corpus.first_token[texts[batch]]
        for order in range(orders):
            at, which = np.nonzero(counts[order] > 1)
            repeats[order].add(starts[which] + at, counts[order][at, which], earlier[order][at, which])
    return repeats


class _Room:
    """Entries of three fields that come in parts, written where they stay: joining parts would hold them twice.

    Args:
        most: entries that there can be; what is not written to takes no memory.
        kinds: type of each field.
    """

    def __init__(self, most: int, kinds: tuple[type[np.signedinteger[Any]], ...]) -> None:
        self._fields = tuple(np.empty(most, dtype=kind) for kind in kinds)
        self._filled = 0

    def add(self, *values_by_field: NDArray[np.integer[Any]]) -> None:
        """Append entries, given by field."""
        begin, self._filled = self._filled, self._filled + len(values_by_field[0])
        for field, values in zip(self._fields, values_by_field, strict=True):
            field[begin : self._filled] = values

    def entries(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """What was added, by field; the room that is left is given back."""
        for field in self._fields:
            field.resize(self._filled, refcheck=False)
        first, second, third = self._fields
        return first, second, third


def _texts_with_repeats(corpus: EncodedCorpus) -> NDArray[np.int32]:
    """Texts that hold some word twice, found by sorting the words of texts of one length."""
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
    """Pairs in batches of nearly equal lengths, so that little is padding and a row fits into the cache."""
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
            # As many as fit: the last is the longest, and all are padded to it.
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
        for each order, (longest left text, pairs) how often the right text holds the n-gram at a place of the left
        one; and like it, how often before that place (only ``with_itself``).
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
        for n in range(orders - 1, 0, -1):  # from the longest, which needs the shorter one of the row below
            np.logical_and(equal, matched[n - 1][1:], out=matched[n][:-1])
        matched[0][:-1] = equal
        for n in range(orders):
            np.add.reduce(matched[n][:-1].view(np.uint8), axis=0, dtype=kind, out=counts[n][i])
            if with_itself:
                np.add.reduce(matched[n][:i].view(np.uint8), axis=0, dtype=kind, out=earlier[n][i])
    return counts, earlier


def _longest(corpus: EncodedCorpus, left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int32]:
    """(pairs,) longest common subsequences of texts, compared pairwise."""
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
    # From the last word to the first, rows and columns: a subsequence read backwards is as long.
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
    """What :func:`_compare` gives, for long texts, a pair at a time."""
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
    """(longest, texts) words of texts, one a column, filled up with a number that is no word."""
    lengths = corpus.lengths[texts]
    at = np.arange(int(lengths.max()))[:, None]
    inside = at < lengths
    token = np.where(inside, corpus.first_token[texts] + at, 0)
    return np.where(inside, corpus.words[token], np.int32(padding))
