"""Captions as numbers: every distinct text is encoded once, every distinct n-gram has one number.

Texts are PTB tokens joined by spaces. All n-gram metrics share an :class:`EncodedCorpus`: candidates, references and
any subset of the references.

A :class:`ReferenceOrder` defines the order in which references are added. Every reference of an item has a *rank*, its
index in this order. A *step* k scores with the references of rank below k.
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

_TEXTS_AT_ONCE = 10_000  # texts whose words exist as Python strings at the same time
_KEYS_AT_ONCE = 1 << 17  # keys sorted at the same time (more for very many tokens, because of the next limit)
_MAX_SHARES = 24  # each share reads all tokens
_NONE = -1
_KEEP_NUMBERS = 4_000_000  # maximum number of tokens for which n-gram numbers are cached


@dataclass(frozen=True)
class NgramNumbers:
    """The n-grams of one order.

    Attributes:
        at: (tokens,) number of the n-gram that begins at a token; ``count`` if none begins there (too near the end).
        count: number of distinct n-grams.
    """

    at: NDArray[np.int32]
    count: int


@dataclass(frozen=True)
class OrderMatches:
    """Occurrences of the candidates' n-grams of one order in the references.

    Attributes:
        pair: (entries,) the pair.
        token: (entries,) the candidate's token at which the n-gram begins, counted over the whole corpus.
        count: (entries,) number of occurrences in the reference; never 0.
        repeated: (repeats,) tokens, of all texts, at which an n-gram begins that occurs more than once in the same
            text.
        own_count: (repeats,) its number of occurrences in that text.
        earlier: (repeats,) its number of occurrences before this token.
    """

    pair: NDArray[np.int32]
    token: NDArray[np.int32]
    count: NDArray[np.signedinteger[Any]]
    repeated: NDArray[np.int32]
    own_count: NDArray[np.signedinteger[Any]]
    earlier: NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Subsequences:
    """Longest common subsequences of the pairs of a corpus, over words split at single spaces.

    Attributes:
        lcs: (pairs,) their lengths.
        spaced_candidate, spaced_reference: (pairs,) lengths of the texts in words split at single spaces.
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
        first_pair: (items + 1,) index of each item's first pair.
        words: (tokens,) word numbers of all texts in sequence.
        first_token: (texts + 1,) index of each text's first word.
        vocabulary: word → number. Several corpora may share one that grows; only its first ``n_words`` words belong to
            this corpus.
        n_words: number of words of this corpus's vocabulary.
        spaced: text → row of its words split at single spaces only, for the few texts where that differs from splitting
            at white space (empty texts, hard spaces), as required by ROUGE-L. These rows follow the texts in
            ``first_token``.
        matches: result of :func:`capbench.text.ngrams.matching.matches_of` after its first call.
        subsequences: result of :func:`capbench.text.ngrams.matching.subsequences_of` after its first call.
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
        """Encode candidates and references that are PTB tokens joined by spaces.

        Args:
            candidates: one text for each item.
            references: each item's references, at least one.

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
        """Encode candidates and references as published.

        Args:
            candidates: one caption for each item.
            references: each item's references, at least one.
            encoder: tokenises the captions; the corpus uses its vocabulary.

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
        """(texts,) number of words of each text."""
        return np.diff(self.first_token)

    @cached_property
    def small_int(self) -> type[np.signedinteger[Any]]:
        """Integer type for the number of occurrences of an n-gram in a text."""
        return np.int8 if self.lengths.max(initial=0) < 1 << 7 else np.int32

    @cached_property
    def item_of_pair(self) -> NDArray[np.int32]:
        """(pairs,) item of each pair."""
        return np.repeat(np.arange(self.items, dtype=np.int32), np.diff(self.first_pair))

    def ngrams(self, order: int) -> NgramNumbers:
        """N-grams of an order, numbered over all texts of the corpus."""
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
        """N-grams of orders 1 to ``longest``, in ascending order.

        In a large corpus the array of one order is overwritten with the next order: use it before requesting the next.
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
        """Number the n-grams of an order from those of the order below, whose array is overwritten.

        Args:
            order: words of an n-gram, at least 2.
            shorter: the n-grams one word shorter.
        """
        size, tokens, at = self.n_words, len(self.words), shorter.at
        # The shorter n-grams are processed in ascending shares, which keeps each sort small. Limits come from a sample,
        # since a few n-grams make up most of a text.
        sample = at[:: max(1, tokens >> 16)]
        sample = np.sort(sample[sample >= 0])
        shares = min(-(-tokens // _KEYS_AT_ONCE), _MAX_SHARES) if len(sample) else 0
        cuts = [int(sample[len(sample) * share // shares]) for share in range(1, shares)]
        for back in range(1, order):  # places followed by fewer than ``order`` words of the text
            ends = self.first_token[1:] - back
            at[ends[ends >= self.first_token[:-1]]] = _NONE
        left = at.view(np.uint32)  # finished entries and _NONE are negative, so they exceed every number as unsigned
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
    """Number of references of each item. Raises MetricError if the lists differ in length or an item has none."""
    if len(candidates) != len(references):
        raise MetricError(
            f"there are {len(candidates)} candidates but {len(references)} lists of references", code="mismatch"
        )
    sizes = np.fromiter(map(len, references), np.int64, len(references))
    if len(sizes) and sizes.min() == 0:
        raise MetricError(
            "a candidate has no references",
            code="missing-references",
            row=f"item {int(sizes.argmin()) + 1}",
            hint="Provide at least one reference for every candidate",
        )
    return sizes


def _indexed(
    candidates: Sequence[str], references: Sequence[Sequence[str]], pairs: int
) -> tuple[list[str], NDArray[np.int32], NDArray[np.int32]]:
    """The distinct texts, and the indices of candidates and references among them."""
    index: dict[str, int] = WordNumbers()
    candidate = np.fromiter(map(index.__getitem__, candidates), np.int32, len(candidates))
    reference = np.fromiter(map(index.__getitem__, chain.from_iterable(references)), np.int32, pairs)
    return list(index), candidate, reference


def _encode(texts: Sequence[str]) -> tuple[NDArray[np.int32], IntArray, dict[str, int], dict[int, int]]:
    """Words, beginnings of rows, vocabulary, and the rows of texts that ROUGE-L splits differently."""
    vocabulary = WordNumbers()
    # One array for all words, since growing or concatenating parts would double the memory. The estimate is exact
    # except for white space other than single spaces, and unused space takes no memory.
    spaces = np.fromiter(map(methodcaller("count", " "), texts), np.int64, len(texts))
    room = int(spaces.sum()) + len(texts)
    words = np.empty(room + room // 64 + _TEXTS_AT_ONCE, dtype=np.int32)
    lengths = np.zeros(len(texts), dtype=np.int64)
    other_rows: list[list[str]] = []  # words split at single spaces, of texts with two splittings
    other_texts: list[int] = []
    filled = 0

    def add(new: Sequence[str]) -> None:
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
        # The space is the only printable white space. If the number of words is one more than the number of spaces, no
        # text has adjacent, leading or trailing spaces or is empty.
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
    """The order in which references are added.

    Attributes:
        rank: (pairs,) index of each reference in the order, from 0; negative for one that is never used.
        steps: ascending numbers of references to score with.
    """

    rank: NDArray[np.int32]
    steps: tuple[int, ...]


def reference_order(
    corpus: EncodedCorpus, steps: Iterable[int], order: Sequence[Sequence[int]] | None = None
) -> ReferenceOrder:
    """References in the stored order, or in a custom order.

    Args:
        corpus: candidates and references.
        steps: numbers of references to score with. An item with fewer references is scored with all of them.
        order: for every item, indices of its references (from 0) in the order in which they are added; references that
            are not listed are never used. By default the stored order.

    Raises:
        MetricError: a step is below 1, or an order is invalid.
    """
    numbers = tuple(sorted({int(step) for step in steps}))
    if not numbers or numbers[0] < 1:
        raise MetricError("a sweep requires numbers of references, each at least 1", code="out-of-range")
    sizes = np.diff(corpus.first_pair)
    if order is None:
        rank = np.arange(len(corpus.reference)) - np.repeat(corpus.first_pair[:-1], sizes)
        return ReferenceOrder(rank.astype(np.int32), numbers)
    if len(order) != corpus.items:
        raise MetricError(
            f"there are orders of references for {len(order)} items, but {corpus.items} items",
            code="mismatch",
            value=len(order),
        )
    rank = np.full(len(corpus.reference), -1, dtype=np.int64)
    for i, places in enumerate(order):
        if not len(places) or len(set(places)) < len(places) or min(places) < 0 or max(places) >= sizes[i]:
            raise MetricError(
                f"the order of references is invalid for {sizes[i]} references",
                code="wrong-value",
                value=[*places],
                row=f"item {i + 1}",
                hint="List at least one reference, each at most once, by its index from 0",
            )
        rank[corpus.first_pair[i] + np.asarray(places)] = np.arange(len(places))
    return ReferenceOrder(rank.astype(np.int32), numbers)


def all_references(corpus: EncodedCorpus, keep: NDArray[np.bool_] | None = None) -> ReferenceOrder:
    """One step with all references, or with a subset of the pairs.

    Args:
        corpus: candidates and references.
        keep: (pairs,) True for references to use; by default all.

    Raises:
        MetricError: an item has no remaining references.
    """
    if keep is None:
        return ReferenceOrder(np.zeros(len(corpus.reference), dtype=np.int32), (1,))
    if keep.shape != corpus.reference.shape:
        raise MetricError(
            f"the mask has {keep.size} entries for {corpus.reference.size} references",
            code="wrong-shape",
            value=keep.size,
        )
    left = np.bincount(corpus.item_of_pair[keep], minlength=corpus.items)
    if corpus.items and left.min() == 0:
        raise MetricError(
            "a candidate has no remaining references", code="missing-references", row=f"item {int(left.argmin()) + 1}"
        )
    return ReferenceOrder(np.where(keep, 0, -1).astype(np.int32), (1,))
