"""METEOR 1.5 without Java: counts of captions, and scores from counts (Denkowski and Lavie 2014, section 2).

METEOR uses the best reference. A pair of texts is aligned at most once for all orders and numbers of references, and
only if the upper bound of its score exceeds the best score so far.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray
from capbench.text.meteor.aligner import N_COUNTS, Lexicon, Matches, Text, align, covered_words, find_matches
from capbench.text.meteor.stemmer import words

# The jar's defaults, tuned for English on human rankings of translations.
_ALPHA: Final = 0.85
_BETA: Final = 0.2
_GAMMA: Final = 0.6
_DELTA: Final = 0.75
_WEIGHTS: Final = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
# Place, weight and share of the counts of content words, then of function words, of candidate and reference. The sums
# are in the jar's order: its rounding decides between references of equal score.
_MATCHED: Final = tuple(
    [
        (place + 4 * stage, weight, share)
        for place, share in ((4 + i, _DELTA), (6 + i, 1.0 - _DELTA))
        for stage, weight in enumerate(_WEIGHTS)
    ]
    for i in (0, 1)
)
VERSION: Final = "1.5"
LONGEST: Final = 1_000
"""Maximum number of words of a caption. If all words are equal, the search time grows with the third power."""
_ROUNDING: Final = 1e-9  # exceeds the rounding error of a score


def normalised_words(text: str) -> tuple[str, ...]:
    """Words of a text after METEOR's normaliser. Raises MetricError: it is not valid Unicode, or has too many words."""
    try:
        normalised = words(text)
    except UnicodeEncodeError as error:
        message = f"a caption is not valid Unicode: {ascii(text)[:80]}"
        raise MetricError(message, code="unreadable", value=text, hint="Remove the lone surrogate") from error
    if len(normalised) > LONGEST:
        message = f"a caption of {len(normalised):,} words is too long for METEOR ('{text[:60]}…')"
        hint = f"METEOR aligns at most {LONGEST:,} words: shorten the caption, or omit METEOR"
        raise MetricError(message, code="too-large", value=len(normalised), hint=hint)
    return normalised


def match_bound(covered: Sequence[int], candidate: Text, reference: Text) -> float:
    """Upper bound of the score of any alignment of two texts, from their :func:`covered_words`.

    Every word that takes part in a match counts, at its best stage, and all words form one chunk.
    """
    exact, stem, synonym, paraphrase = covered
    synonym &= ~exact
    weaker = (stem | paraphrase) & ~exact & ~synonym
    n = reference.length
    shares = []
    matched = 0
    for shift, text in ((0, reference), (n, candidate)):
        length, function = text.length, text.function
        mask = (1 << length) - 1
        total = 0.0
        for words_of_stage, weight in ((exact, 1.0), (synonym, 0.8), (weaker, 0.6)):
            covered_here = (words_of_stage >> shift) & mask
            if covered_here:
                count, functions = covered_here.bit_count(), (covered_here & function).bit_count()
                matched += count
                total += weight * (_DELTA * (count - functions) + (1.0 - _DELTA) * functions)
        if not total:
            return 0.0
        functions = function.bit_count()
        shares.append(total / (_DELTA * (length - functions) + (1.0 - _DELTA) * functions))
    recall, precision = shares
    return _score(precision, recall, 0.0 if matched == n + candidate.length else 2.0 / matched) + _ROUNDING


def meteor_score(counts: Sequence[float]) -> float:
    """METEOR of 23 counts (section 2; :func:`capbench.text.meteor.aligner.align` lists them); 0 without matches."""
    chunks, matched = counts[20], counts[21] + counts[22]
    if not matched:
        return 0.0
    weighted = [0.0, 0.0]
    for i in (0, 1):
        total = 0.0
        for place, weight, share in _MATCHED[i]:
            total += counts[place] * weight * share
        weighted[i] = total / (_DELTA * (counts[i] - counts[2 + i]) + (1.0 - _DELTA) * counts[2 + i])
    complete = chunks == 1 and counts[21] == counts[0] and counts[22] == counts[1]
    return max(_score(weighted[0], weighted[1], 0.0 if complete else chunks / (matched / 2.0)), 0.0)


def _score(precision: float, recall: float, fragmentation: float) -> float:
    """The weighted harmonic mean with the penalty for chunks, which are a share of the matched words."""
    f_mean = 1.0 / ((1.0 - _ALPHA) / precision + _ALPHA / recall)
    return float(f_mean * (1.0 - _GAMMA * fragmentation**_BETA))


def meteor_scores(statistics: FloatArray) -> FloatArray:
    """(n,) METEOR of every row of (n, 23) counts; 0 without matches."""
    return np.array([meteor_score(row) for row in statistics.tolist()], dtype=np.float64)


def corpus_counts(statistics: FloatArray) -> FloatArray:
    """(n, 23) contribution of (n, 23) counts to the sums of a corpus.

    As in the jar, a candidate that matches its reference completely in one chunk adds no chunk.
    """
    counts = np.array(statistics, dtype=np.float64)
    complete = (counts[:, 20] == 1) & (counts[:, 4:20:2].sum(axis=1) == counts[:, 0])
    complete &= counts[:, 5:20:2].sum(axis=1) == counts[:, 1]
    counts[complete, 20] = 0.0
    return counts


def meteor_corpus(statistics: FloatArray) -> float:
    """METEOR of a corpus: the formula applied to the sums of :func:`corpus_counts`."""
    return meteor_score(corpus_counts(statistics).sum(axis=0).tolist())


_CHUNK: Final = 2_000  # candidates that share one Lexicon


def meteor_statistics(
    # n captions, tokenised as for the other metrics; METEOR's normaliser is applied to them again
    candidates: Sequence[str],
    # for each candidate its references, at least one; ties go to the first. ``|||`` and line breaks, which the jar's
    # protocol cannot transmit, are ordinary text here.
    references: Sequence[Sequence[str]],
    *,
    progress: Progress = lambda _done: None,  # called with the number of candidates done since the last call
) -> FloatArray:
    """The counts of the jar's ``SCORE`` command, of each candidate with the reference of the highest score.

    Returns (n, 23) float64, see :func:`capbench.text.meteor.aligner.align`.
    """
    in_order = [[range(len(group)) for group in references]]
    (rows,) = meteor_sweep(candidates, references, in_order, [sys.maxsize], progress=progress)
    return rows[0, :, :N_COUNTS]


@dataclass(slots=True)
class _Pair:
    """A candidate with one reference: the upper bound of its score, and the score once it is aligned."""

    bound: float
    matches: Matches | None
    reference: Text
    score: float = -1.0
    row: int = -1


def meteor_sweep(
    candidates: Sequence[str],  # n captions
    references: Sequence[Sequence[str]],  # for each candidate its references
    # for each sample and candidate, indices of its references in the order in which they are added
    orders: Sequence[Sequence[Sequence[int]]],
    counts: Sequence[int],  # ascending numbers of references, each at least 1
    *,
    # called with the number of candidates done since the last call; the total is n
    progress: Progress = lambda _done: None,
) -> Iterator[FloatArray]:
    """METEOR with the first 1, 2, … references of given orders; arguments and errors as of :func:`meteor_statistics`.

    Returns for each sample (counts, n, 24) float64: the counts of :func:`meteor_statistics`, and the score.
    """
    # Row numbers of the best pairs; a row has the 23 counts and the score of a pair.
    best = np.empty((len(orders), len(counts), len(candidates)), dtype=np.int32)
    rows: list[list[float]] = []
    # Captions of one image are cheaper in one chunk.
    by_references = sorted(range(len(candidates)), key=lambda i: tuple(references[i]))
    collecting = gc.isenabled()
    gc.disable()  # millions of small tuples without cycles; garbage collection would take a sixth of the time
    try:
        for start in range(0, len(by_references), _CHUNK):
            places = by_references[start : start + _CHUNK]
            texts = {text: normalised_words(text) for i in places for text in (candidates[i], *references[i])}
            lexicon = Lexicon(texts.values())
            units = lexicon.texts()
            candidate: Text | None = None
            pairs: dict[Text, _Pair] = {}  # by reference, of equal candidates
            for i in sorted(places, key=lambda i: texts[candidates[i]]):
                before, candidate = candidate, units[texts[candidates[i]]]
                pairs = pairs if candidate is before else {}
                others = [units[texts[reference]] for reference in references[i]]
                for reference in others:
                    if reference not in pairs:
                        matches = find_matches(candidate, reference, lexicon)
                        bound = match_bound(covered_words(matches), candidate, reference)
                        pairs[reference] = _Pair(bound, matches, reference)
                for order, of_order in zip(orders, best, strict=True):
                    of_order[:, i] = _best_rows(candidate, [pairs[others[place]] for place in order[i]], counts, rows)
            progress(len(places))
    finally:
        if collecting:
            gc.enable()
    of_pairs = np.array(rows, dtype=np.float64).reshape(-1, N_COUNTS + 1)
    return (of_pairs[numbers] for numbers in best)


def _best_rows(candidate: Text, pairs: Sequence[_Pair], counts: Sequence[int], rows: list[list[float]]) -> list[int]:
    """For each count, the row number of the first best pair among that many pairs.

    Pairs are aligned in descending order of their upper bounds, until no other can score higher.
    """
    chosen = []
    top: _Pair | None = None
    begin = 0
    for count in counts:
        # By descending bound, then in order; of equal scores the first in order wins.
        new = sorted(range(begin, min(count, len(pairs))), key=lambda place: (-pairs[place].bound, place))
        leader, leader_place = top, -1
        for place in new:
            pair = pairs[place]
            if leader is not None and pair.bound < leader.score:
                break
            if pair.matches is not None:
                pair_counts = align(pair.matches, candidate, pair.reference)
                pair.score, pair.row, pair.matches = meteor_score(pair_counts), len(rows), None
                rows.append([*pair_counts, pair.score])
            if leader is None or pair.score > leader.score or (pair.score == leader.score and place < leader_place):
                leader, leader_place = pair, place
        top = leader
        begin = count
        assert top is not None
        chosen.append(top.row)
    return chosen
