"""METEOR 1.5's aligner: matches between two texts, and the beam search for the best alignment.

Denkowski and Lavie 2014, section 2: among all alignments that use each word at most once, the aligner chooses the one
with the most covered words (a match other than exact counts half, rounded down), then the fewest chunks, then the
smallest sum of distances between the starts of matches. The search processes the reference from left to right with a
beam of 40 partial alignments; ties depend on the order in which alignments are generated. This module follows the jar
in every detail that affects the result, also where it differs from the paper:

- the distance of a match is added to the alignment that it extends, not to the extended one, so it affects all later
  extensions of the same alignment;
- matches of a word are ordered by stage, and within a stage by the candidate's words.

A *unit* is a word, or a phrase of several words that occurs in the paraphrase table and can match something in these
texts. Relations between units are computed once for all texts, so that a pair of texts requires only set intersections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np

from capbench.text.meteor import paraphrases
from capbench.text.meteor.paraphrases import ParaphraseTable, paraphrase_table
from capbench.text.meteor.stemmer import stem
from capbench.text.wordnet import wordnet

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)

Rank = tuple[int, int, int, int, int, int]
"""A match of two units: its rank in the search (the stage, or PARAPHRASE + 1 if the table lists the candidate's phrase
first), the index of the paraphrase in the table, the stage, the number of words of the reference's and of the
candidate's unit, and the number of covered words that it adds: all words of both units at stage EXACT, at other stages
half of each, rounded down."""


def java_hash(word: str) -> int:
    """Java's ``String.hashCode`` as an unsigned number of 32 bits.

    METEOR treats words and stems with equal hashes as equal.
    """
    value = 0
    for unit in memoryview(word.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


@dataclass(frozen=True, eq=False)
class Text:
    """One text in units."""

    length: int
    keys: tuple[int, ...]  # the words' hashes
    function: int  # bit i is set if word i is a function word
    places: dict[int, list[int]]  # unit → starts, ascending
    present: frozenset[int]


class Lexicon:
    """Units of a set of texts and the relations between them.

    ``related``: unit → all units that it can match, including itself if it is a word.

    ``texts``: distinct texts as tuples of normalised words.
    """

    _SHIFT: Final = 32

    def __init__(self, texts: Iterable[tuple[str, ...]]) -> None:
        self._texts = list(dict.fromkeys(texts))
        numbers: dict[str, int] = {}
        for text in self._texts:
            for word in text:
                numbers.setdefault(word, len(numbers))
        self._numbers = numbers
        self._words = list(numbers)
        self._keys = [java_hash(word) for word in self._words]
        self._stems = [java_hash(stem(word)) for word in self._words]
        self._synsets = list(map(wordnet().synsets, self._words))
        self._lengths = [1] * len(self._words)
        self.related: list[set[int]] = [{unit} for unit in range(len(self._words))]
        self._relate_words()
        self._orders: dict[int, list[int]] = {}
        self._spans = self._relate_phrases(paraphrase_table())
        self._ranks: dict[int, tuple[Rank, ...]] = {}
        self._reach: dict[Text, set[int]] = {}

    def texts(self) -> dict[tuple[str, ...], Text]:
        """Units of every text, indexed by its words."""
        function = paraphrases.function_words()
        is_function = [word in function for word in self._words]
        units = {}
        for text, spans in zip(self._texts, self._spans, strict=True):
            words = [self._numbers[word] for word in text]
            places: dict[int, list[int]] = {}
            for start, unit in [*enumerate(words), *spans]:
                places.setdefault(unit, []).append(start)
            units[text] = Text(
                len(text),
                tuple(self._keys[word] for word in words),
                sum(1 << i for i, word in enumerate(words) if is_function[word]),
                places,
                frozenset(places),
            )
        return units

    def reach(self, text: Text) -> set[int]:
        """All units that can match a unit of the text."""
        reach = self._reach.get(text)
        if reach is None:
            reach = self._reach[text] = set().union(*map(self.related.__getitem__, text.present))
        return reach

    def ranks(self, reference: int, candidate: int) -> tuple[Rank, ...]:
        """METEOR's matches between a unit of the reference and a unit of the candidate; empty if there are none."""
        key = (reference << self._SHIFT) | candidate
        ranks = self._ranks.get(key)
        if ranks is None:
            ranks = self._ranks[key] = tuple(self._rank(reference, candidate))
        return ranks

    def _rank(self, reference: int, candidate: int) -> list[Rank]:
        ranks: list[tuple[int, int]] = []
        if reference < len(self._words) and candidate < len(self._words):
            if self._keys[reference] == self._keys[candidate]:
                ranks.append((EXACT, 0))
            else:
                if self._stems[reference] == self._stems[candidate]:
                    ranks.append((STEM, 0))
                if not self._synsets[reference].isdisjoint(self._synsets[candidate]):
                    ranks.append((SYNONYM, 0))
        ranks += [(PARAPHRASE, order) for order in self._orders.get((reference << self._SHIFT) | candidate, ())]
        ranks += [(PARAPHRASE + 1, order) for order in self._orders.get((candidate << self._SHIFT) | reference, ())]
        length, width = self._lengths[reference], self._lengths[candidate]
        half = length // 2 + width // 2
        return [
            (rank, order, min(rank, PARAPHRASE), length, width, length + width if rank == EXACT else half)
            for rank, order in ranks
        ]

    def _relate_words(self) -> None:
        groups: dict[tuple[int, int], list[int]] = {}
        for word in range(len(self._words)):
            groups.setdefault((EXACT, self._keys[word]), []).append(word)
            groups.setdefault((STEM, self._stems[word]), []).append(word)
            for synset in self._synsets[word]:
                groups.setdefault((SYNONYM, synset), []).append(word)
        for members in groups.values():
            if len(members) > 1:
                for word in members:
                    self.related[word].update(members)

    def _relate_phrases(self, table: ParaphraseTable) -> list[list[tuple[int, int]]]:
        """Add relations from the table; returns the spans of phrases of several words in every text."""
        # The texts in sequence, with a gap after each, and all phrases of the table in them.
        own = np.array([n for text in self._texts for n in (*map(self._numbers.__getitem__, text), -1)], dtype=np.int64)
        words = np.array([*(table.words.get(word, -1) for word in self._words), -1], dtype=np.int64)[own]
        places, states = np.arange(len(words)), np.zeros(len(words), dtype=np.int64)
        phrases = []
        for length in range(1, table.longest + 1):
            inside = places + length <= len(words)
            places, states = places[inside], states[inside]
            states = table.step(states, words[places + length - 1])
            places, states = places[states > 0], states[states > 0]
            phrases.append(np.stack([places, np.full_like(places, length), states]))
        places, lengths, states = np.concatenate(phrases, axis=1)
        known = np.unique(states)
        index, targets, orders = table.paraphrases(known)
        in_texts = np.isin(targets, known)
        sources, targets, orders = known[index[in_texts]], targets[in_texts], orders[in_texts]
        useful = np.isin(states, np.concatenate([sources, targets]))
        places, lengths, states = places[useful], lengths[useful], states[useful]
        begins = np.cumsum([0, *(len(text) + 1 for text in self._texts)])
        owners = np.searchsorted(begins, places, side="right") - 1
        units: dict[int, int] = {}  # by state: that of the word if the phrase is one word, else a new one
        spans: list[list[tuple[int, int]]] = [[] for _ in self._texts]
        found = (own[places], places - begins[owners], lengths, states, owners)
        for word, start, length, state, owner in zip(*(part.tolist() for part in found), strict=True):
            if state not in units:
                units[state] = word if length == 1 else len(self._lengths)
                if length > 1:
                    self._lengths.append(length)
                    self.related.append(set())
            if length > 1:
                spans[owner].append((start, units[state]))
        for first, second, order in zip(sources.tolist(), targets.tolist(), orders.tolist(), strict=True):
            unit, other = units[first], units[second]
            self._orders.setdefault((unit << self._SHIFT) | other, []).append(order)
            self.related[unit].add(other)
            self.related[other].add(unit)
        return spans


N_COUNTS: Final = 23
_BEAM: Final = 40

# A match is a tuple, for speed. Its first four numbers sort the matches of one word of the reference in the jar's
# order; then follow start and length in the reference, place and width in the candidate, the stage, the number of
# covered words that it adds, and the bits of its words: the reference's, then the candidate's.
_Match = tuple[int, int, int, int, int, int, int, int, int, int, int]
_START, _LENGTH, _PLACE, _WIDTH, _STAGE, _GAIN, _MASK = range(4, 11)
_Chain = tuple[_Match, "_Chain | None"]
Matches = list[list[_Match]]


def find_matches(candidate: Text, reference: Text, lexicon: Lexicon) -> Matches:
    """All matches of a pair of texts, in the jar's order: for each word of the reference, those that begin there."""
    n = reference.length
    if candidate.keys == reference.keys:  # the jar finds matches of texts with the same words at the exact stage only
        return [
            [
                (EXACT, j, 0, 0, i, 1, j, 1, EXACT, 2, (1 << i) | (1 << (n + j)))
                for j, other in enumerate(candidate.keys)
                if other == key
            ]
            for i, key in enumerate(reference.keys)
        ]
    matches: Matches = [[] for _ in range(n)]
    present, places, ranks = candidate.present, candidate.places, lexicon.ranks
    unsorted = set()
    for unit in reference.present & lexicon.reach(candidate):
        for other in lexicon.related[unit] & present:
            for rank, order, stage, length, width, gain in ranks(unit, other):
                bits = (1 << length) - 1
                reach = ((1 << width) - 1) << n
                for start in reference.places[unit]:
                    matches_of_word = matches[start]
                    if matches_of_word:
                        unsorted.add(start)
                    for place in places[other]:
                        if rank < PARAPHRASE:
                            key = (rank, place, 0, 0)
                        elif rank == PARAPHRASE:
                            key = (rank, length, order, place)
                        else:
                            key = (rank, place, width, order)
                        mask = (bits << start) | (reach << place)
                        matches_of_word.append((*key, start, length, place, width, stage, gain, mask))
    for start in unsorted:
        matches[start].sort()
    return matches


def covered_words(matches: Matches) -> list[int]:
    """Words that take part in a match of each of the four stages, as bits: the reference's, then the candidate's."""
    covered = [0, 0, 0, 0]
    for matches_of_word in matches:
        for match in matches_of_word:
            covered[match[_STAGE]] |= match[_MASK]
    return covered


def align(matches: Matches, candidate: Text, reference: Text) -> list[int]:
    """Align two texts by the best of their matches (Denkowski and Lavie 2014, section 2).

    Returns the 23 counts of the jar, in its order: length of candidate and reference; function words of both; for each
    of exact, stem, synonym and paraphrase: content words matched in the candidate and in the reference, function words
    matched in both; chunks; words matched in the candidate and in the reference.
    """
    counts = [0] * N_COUNTS
    counts[0], counts[1] = candidate.length, reference.length
    counts[2], counts[3] = candidate.function.bit_count(), reference.function.bit_count()
    next_start, next_place = -1, -1
    for _, _, _, _, start, length, place, width, stage, _, _ in _resolve(matches):
        at = 4 + 4 * stage
        functions = ((candidate.function >> place) & ((1 << width) - 1)).bit_count()
        counts[at] += width - functions
        counts[at + 2] += functions
        functions = ((reference.function >> start) & ((1 << length) - 1)).bit_count()
        counts[at + 1] += length - functions
        counts[at + 3] += functions
        counts[20] += start != next_start or place != next_place
        counts[21] += width
        counts[22] += length
        next_start, next_place = start + length, place + width
    return counts


def _resolve(matches: Sequence[Sequence[_Match]]) -> list[_Match]:
    """The matches of the best alignment, by place in the reference."""
    n = len(matches)
    # Words in at least one match, and words in more than one: the reference's, then the candidate's.
    once = more = farthest = 0
    for matches_of_word in matches:
        for match in matches_of_word:
            mask = match[_MASK]
            more |= once & mask
            once |= mask
            farthest += abs(match[_START] - match[_PLACE])
    fixed: list[_Match | None] = [None] * n
    chosen: list[_Match] = []
    open_words = once & ((1 << n) - 1)  # words with a choice between matches
    for matches_of_word in matches:
        if len(matches_of_word) == 1:
            match = matches_of_word[0]
            if not match[_MASK] & more:
                fixed[match[_START]] = match
                chosen.append(match)
                open_words &= ~match[_MASK]
    if open_words:
        chain = _search(matches, fixed, open_words, farthest)
        while chain is not None:
            match, chain = chain
            chosen.append(match)
        chosen.sort(key=itemgetter(_START))
    return chosen


def _search(
    matches: Sequence[Sequence[_Match]], fixed: Sequence[_Match | None], open_words: int, farthest: int
) -> _Chain | None:
    """Beam search over the words with a choice.

    A partial alignment is (cost, number, used words, end of the last match in the candidate or -1, its matches). The
    cost packs the jar's criteria: covered words, chunks, distance. The number preserves the order of ties.
    """
    n = len(matches)
    chunk = 1 << farthest.bit_length()
    word = chunk << (n + 2).bit_length()
    states: list[tuple[int, int, int, int, _Chain | None]] = [(0, 0, 0, -1, None)]
    i = 0
    while i < n:
        if len(states) > 1:
            states.sort()
            del states[_BEAM:]
        new: list[tuple[int, int, int, int, _Chain | None]] = []
        number = 0
        bit = 1 << i
        if not open_words & bit:
            # All alignments take the same steps up to the next choice, and end at the same word after the first step.
            begin = fixed[i]
            place = -2 if begin is None else begin[_PLACE]
            last = -1
            while i < n and not open_words >> i & 1:
                match = fixed[i]
                if match is None:
                    last = -1
                    i += 1
                else:
                    last = match[_PLACE] + match[_WIDTH]
                    i += match[_LENGTH]
            for cost, _, taken, end, chain in states:
                new.append((cost + chunk if end not in (-1, place) else cost, number, taken, last, chain))
                number += 1
            states = new
            continue
        options = [
            (m[_GAIN] * word, m[_MASK], m[_PLACE], m[_PLACE] + m[_WIDTH], abs(i - m[_PLACE]), m) for m in matches[i]
        ]
        for cost, _, taken, end, chain in states:
            if not taken & bit:
                for gain, mask, place, last, distance, match in options:
                    if not taken & mask:
                        extended = cost - gain
                        if end not in (-1, place):
                            extended += chunk
                        new.append((extended, number, taken | mask, last, (match, chain)))
                        number += 1
                        cost += distance
                if end != -1:
                    cost += chunk
                    end = -1
            new.append((cost, number, taken, end, chain))
            number += 1
        states = new
        i += 1
    if len(states) > 1:
        states.sort()
        del states[_BEAM:]
    # The first of several best alignments, in the order before their last chunks were counted.
    return min(states, key=lambda state: state[0] if state[3] == -1 else state[0] + chunk)[4]
