"""Captions as numbers: every distinct text encoded once, every n-gram numbered once.

Texts are PTB tokens joined by spaces. An :class:`EncodedCorpus` is what all n-gram metrics share:
candidates, references and any choice among the references.

A :class:`ReferenceOrder` states in which order references are added. Every reference of an item has a *rank*: the place
at which it is added. A *step* k scores with the references of rank below k.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError
from capbench.core.records import IntArray
from capbench.text.ptb import CaptionEncoder, WordNumbers

__all__ = [
    "EncodedCorpus",
    "NgramNumbers",
    "OrderMatches",
    "ReferenceOrder",
    "Subsequences",
    "all_references",
    "reference_order",
]


_TEXTS_AT_ONCE = 10_000  # the words of so many texts exist as Python strings at the same time
_KEYS_AT_ONCE = 1 << 17  # so many keys are sorted at the same time, or more of many tokens:
_MOST_SHARES = 24  # for each share all tokens are looked at
_NONE = -1
_KEEP_NUMBERS = 4_000_000  # tokens up to which n-gram numbers are kept between calls


@dataclass(frozen=True)
class NgramNumbers:
    """The n-grams of one order.

    Attributes:
        at: (tokens,) number of the n-gram that begins at a token; ``count`` where none does (too near the end).
        count: how many different n-grams there are.
    """

    at: NDArray[np.int32]
    count: int


@dataclass(frozen=True)
class OrderMatches:
    """Where a candidate's n-grams of one order occur in a reference.

    Attributes:
        pair: (entries,) the pair.
        token: (entries,) the candidate's token at which the n-gram begins, counted over the whole corpus.
        count: (entries,) how often the reference holds it; never 0.
        repeated: (repeats,) tokens, of all texts, at which an n-gram begins that its own text holds more than once.
        own_count: (repeats,) how often.
        earlier: (repeats,) how often before this place.
    """

    pair: NDArray[np.int32]
    token: NDArray[np.int32]
    count: NDArray[np.signedinteger[Any]]
    repeated: NDArray[np.int32]
    own_count: NDArray[np.signedinteger[Any]]
    earlier: NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Subsequences:
    """Longest common subsequences of the pairs of a corpus, over words cut at single spaces.

    Attributes:
        lcs: (pairs,) their lengths.
        spaced_candidate, spaced_reference: (pairs,) lengths that ``lcs`` refers to.
    """

    lcs: NDArray[np.int32]
    spaced_candidate: NDArray[np.int32]
    spaced_reference: NDArray[np.int32]


@dataclass
class EncodedCorpus:
    """Candidates and their references over one vocabulary.

    A *text* is a distinct string; a *pair* is a candidate with one of its references. Pairs are in the order of the
    items, and within an item in the order of its references.

    Attributes:
        candidate: (items,) text of each candidate.
        reference: (pairs,) text of each reference.
        first_pair: (items + 1,) where the pairs of an item begin.
        words: (tokens,) word numbers of all texts, one after the other.
        first_token: (texts + 1,) where the words of a text begin.
        vocabulary: word → number. Corpora may share one, which grows: only its first ``n_words`` words count here.
        n_words: see there.
        spaced: text → row of its words cut at single spaces only, for the few texts where that differs from cutting at
            white space (empty texts, hard spaces): ROUGE-L cuts so. Those rows follow the texts in ``first_token``.
        matches: what the pairs have in common, once :func:`capbench.text.ngrams.matching.matches_of` was asked.
        subsequences: the same for :func:`capbench.text.ngrams.matching.subsequences_of`.
    """

    candidate: NDArray[np.int32]
    reference: NDArray[np.int32]
    first_pair: IntArray
    words: NDArray[np.int32]
    first_token: IntArray
    vocabulary: dict[str, int]
    n_words: int
    spaced: dict[int, int]
    matches: tuple[OrderMatches, ...] | None = field(default=None, repr=False)
    subsequences: Subsequences | None = field(default=None, repr=False)
    _numbers: dict[int, NgramNumbers] = field(default_factory=dict, repr=False)

    @classmethod
    def build(cls, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> EncodedCorpus:
        """Encode candidates and their references, given as PTB tokens joined by spaces.

        Args:
            candidates: one text an item.
            references: the item's references, at least one.

        Raises:
            MetricError: the lists differ in length, or an item has no references.
        """
        sizes = _sizes(candidates, references)
        texts, candidate, reference = _indexed(candidates, references, int(sizes.sum()))
        words, first_token, vocabulary, spaced = _encode(texts)
        pairs = np.concatenate([[0], np.cumsum(sizes)])
        return cls(candidate, reference, pairs, words, first_token, vocabulary, len(vocabulary), spaced)

    @classmethod
    def of_captions(
        cls, candidates: Sequence[str], references: Sequence[Sequence[str]], encoder: CaptionEncoder
    ) -> EncodedCorpus:
        """Encode candidates and references as they were published.

        Args:
            candidates: one caption an item.
            references: the item's references, at least one.
            encoder: tokenises; its vocabulary is the corpus's.

        Raises:
            MetricError: the lists differ in length, or an item has no references.
            DataError, ToolError: a caption could not be tokenised.
        """
        sizes = _sizes(candidates, references)
        texts, candidate, reference = _indexed(candidates, references, int(sizes.sum()))
        words, lengths, spaced = encoder.encode(texts)
        if spaced:
            rows = spaced.values()
            words = np.concatenate([words, np.fromiter(chain.from_iterable(rows), np.int32)])
            lengths = np.concatenate([lengths, np.fromiter(map(len, rows), np.int64, len(rows))])
        return cls(
            candidate=candidate,
            reference=reference,
            first_pair=np.concatenate([[0], np.cumsum(sizes)]),
            words=words,
            first_token=np.concatenate([[0], np.cumsum(lengths)]),
            vocabulary=encoder.vocabulary,
            n_words=len(encoder.vocabulary),
            spaced={text: len(texts) + row for row, text in enumerate(spaced)},
        )

    @property
    def items(self) -> int:
        """Number of candidates."""
        return len(self.candidate)

    @cached_property
    def lengths(self) -> IntArray:
        """(texts,) words of each text."""
        return np.diff(self.first_token)

    @cached_property
    def small_int(self) -> type[np.signedinteger[Any]]:
        """Type that holds how often an n-gram can occur in a text."""
        return np.int8 if self.lengths.max(initial=0) < 1 << 7 else np.int32

    @cached_property
    def item_of_pair(self) -> NDArray[np.int32]:
        """(pairs,) the item that a pair belongs to."""
        return np.repeat(np.arange(self.items, dtype=np.int32), np.diff(self.first_pair))

    def ngrams(self, order: int) -> NgramNumbers:
        """The n-grams of an order, numbered over all texts of the corpus."""
        if order == 1:
            return NgramNumbers(self.words, self.n_words)
        numbers = self._numbers.get(order)
        if numbers is None:
            shorter = self.ngrams(order - 1)
            numbers = self.number(order, NgramNumbers(shorter.at.copy(), shorter.count))
            if len(self.words) > _KEEP_NUMBERS:
                self._numbers.clear()
            self._numbers[order] = numbers
        return numbers

    def ngrams_up_to(self, longest: int) -> Iterator[NgramNumbers]:
        """The n-grams of orders 1 to ``longest``, one after the other.

        In a large corpus the numbers of an order are made in the place of those below: what was handed out is
        overwritten when the next is asked for.
        """
        if len(self.words) <= _KEEP_NUMBERS:
            yield from map(self.ngrams, range(1, longest + 1))
            return
        self._numbers.clear()
        numbers = self.ngrams(1)
        yield numbers
        if longest > 1:
            numbers = NgramNumbers(self.words.copy(), numbers.count)
        for order in range(2, longest + 1):
            numbers = self.number(order, numbers)
            yield numbers

    def number(self, order: int, shorter: NgramNumbers) -> NgramNumbers:
        """Number the n-grams of an order from those of the order below, whose array is overwritten with them.

        Args:
            order: words of an n-gram, at least 2.
            shorter: the n-grams one word shorter.
        """
        size, tokens, at = self.n_words, len(self.words), shorter.at
        # Shares of the shorter n-grams, in their order: keys ascend over the shares, and no sort is large.
        # A sample tells where to cut, since a few n-grams make up most of a text.
        sample = at[:: max(1, tokens >> 16)]
        sample = np.sort(sample[sample >= 0])
        shares = min(-(-tokens // _KEYS_AT_ONCE), _MOST_SHARES) if len(sample) else 0
        cuts = [int(sample[len(sample) * share // shares]) for share in range(1, shares)]
        for back in range(1, order):  # places from which fewer than ``order`` words are left in the text
            ends = self.first_token[1:] - back
            at[ends[ends >= self.first_token[:-1]]] = _NONE
        left = at.view(np.uint32)  # what is done, and _NONE, is below 0 and so above every number
        count = 0
        for high in sorted({*cuts, shorter.count}):
            where = np.flatnonzero(left < high)
            key = at[where].astype(np.int64) * size + self.words[where + order - 1]
            distinct, inverse = np.unique(key, return_inverse=True)
            at[where] = _NONE - 1 - count - inverse
            count += len(distinct)
        np.subtract(_NONE - 1, at, out=at)
        at[at < 0] = count
        return NgramNumbers(at, count)


def _sizes(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> IntArray:
    """How many references each item has. Raises MetricError where the lists do not fit or an item has none."""
    if len(candidates) != len(references):
        raise MetricError(f"{len(candidates)} candidates, but reference lists for {len(references)}")
    sizes = np.fromiter(map(len, references), np.int64, len(references))
    if len(sizes) and sizes.min() == 0:
        raise MetricError(
            f"item {int(sizes.argmin()) + 1} has no references", hint="Give every candidate at least one reference"
        )
    return sizes


def _indexed(
    candidates: Sequence[str], references: Sequence[Sequence[str]], pairs: int
) -> tuple[list[str], NDArray[np.int32], NDArray[np.int32]]:
    """The distinct texts, and the places among them of candidates and of references."""
    index: dict[str, int] = WordNumbers()
    candidate = np.fromiter(map(index.__getitem__, candidates), np.int32, len(candidates))
    reference = np.fromiter(map(index.__getitem__, chain.from_iterable(references)), np.int32, pairs)
    return list(index), candidate, reference


def _encode(texts: Sequence[str]) -> tuple[NDArray[np.int32], IntArray, dict[str, int], dict[int, int]]:
    """Words, row beginnings, vocabulary, and the rows of texts that ROUGE-L cuts differently."""
    vocabulary = WordNumbers()
    # Room for all words at once: parts that grow or are joined at the end would stand in memory twice. It is exact but
    # for white space other than single spaces, and what is not used takes no memory.
    spaces = np.fromiter(map(methodcaller("count", " "), texts), np.int64, len(texts))
    room = int(spaces.sum()) + len(texts)
    words = np.empty(room + room // 64 + _TEXTS_AT_ONCE, dtype=np.int32)
    lengths = np.zeros(len(texts), dtype=np.int64)
    other_rows: list[list[str]] = []  # words of the texts that are cut in two ways, cut at single spaces
    other_texts: list[int] = []
    filled = 0

    def add(new: Sequence[str]) -> None:
        """Append words."""
        nonlocal words, filled
        begin, filled = filled, filled + len(new)
        if filled > len(words):
            words = np.concatenate([words[:begin], np.empty(2 * filled - begin, dtype=np.int32)])
        words[begin:filled] = np.fromiter(map(vocabulary.__getitem__, new), np.int32, len(new))

    for begin in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = texts[begin : begin + _TEXTS_AT_ONCE]
        joined = " ".join(batch)
        all_words = joined.split()
        expected = spaces[begin : begin + len(batch)] + 1
        # No printable character but the plain space is white space; and no two spaces, no end and no empty text hides
        # in as many words as there are spaces between them.
        if len(all_words) != expected.sum() or not joined.isprintable():
            rows = [text.split() for text in batch]
            expected = np.fromiter(map(len, rows), np.int64, len(rows))
            for i, text in enumerate(batch):
                if text.count(" ") + 1 != len(rows[i]) or not text.isprintable():
                    other_texts.append(begin + i)
                    other_rows.append(text.split(" "))
        lengths[begin : begin + len(batch)] = expected
        add(all_words)
    add(list(chain.from_iterable(other_rows)))
    sizes = np.concatenate([[0], lengths, np.fromiter(map(len, other_rows), np.int64, len(other_rows))])
    return words[:filled], np.cumsum(sizes), dict(vocabulary), {t: len(texts) + i for i, t in enumerate(other_texts)}


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

    Args:
        corpus: candidates and references.
        keep: (pairs,) which references to use; by default all.

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
