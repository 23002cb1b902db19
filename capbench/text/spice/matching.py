"""Counting the tuples of a candidate's scene graph that its references' graph has.

A candidate's tuple is matched if the references have one of the same length whose concepts overlap, place by
place, in a word or a synonym set (Anderson et al. 2016, section 3.2). A tuple of the references may match any number of
the candidate's, so that false negatives can be negative and recall can exceed 1, as in SPICE 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capbench.records import FloatArray
from capbench.text.spice.graph import Concept, Graph, TupleList
from capbench.text.spice.wordnet import WordNet, wordnet

__all__ = ["CATEGORIES", "COUNTS", "Scorer", "f_scores"]

CATEGORIES = ("All", "Object", "Relation", "Attribute", "Color", "Cardinality", "Size")
"""What is counted, in the order of the columns; Color, Cardinality and Size are attributes of certain words."""

COUNTS = tuple(f"{category} {count}" for category in CATEGORIES for count in ("tp", "fp", "fn"))
"""Names of the 21 columns of counts: true positives, false positives and false negatives of each category."""

# The words that SPICE 1.0 takes for colours, small numbers and sizes (class TupleFilter of its program).
_COLORS = frozenset(
    "beige black blue brown cream dark gray green grey light maroon orange pink purple red violet white yellow".split()  # noqa: SIM905
)
_NUMBERS = frozenset("one two three four five six seven eight nine ten".split())  # noqa: SIM905
_SIZES = frozenset(
    """
    baby beefy big bony boundless brawny broad bulky chunky colossal compact corpulent cosmic cubby curvy elfin
    emaciated endless enormous epic expansive extensive fat fleshy full-size gargantuan gaunt giant gigantic grand
    great heavy hefty huge hulking illimitable immeasurable immense infinitesimal lanky large lean life-size
    limitless little mammoth massive meager measly microscopic mini miniature minuscule minute narrow obese outsized
    oversize overweight paltry petite pint-size plump pocket-size portly pudgy puny rotund scanty scraggy scrawny
    short sizable skeletal skimpy skinny slender slim small squat stocky stout strapping sturdy tall teensy teeny
    teeny-tiny teeny-weeny thick thickset thin tiny titanic towering trifling trim tubby undersized underweight
    unlimited vast wee whopping wide
    """.split()  # noqa: SIM905
)
_KINDS = (_COLORS, _NUMBERS, _SIZES)

_Features = frozenset[str | int]
_Parts = tuple[_Features, ...]


@dataclass(frozen=True, slots=True)
class _Tuples:
    """The tuples of one graph by category, Object first; a tuple is the features of its concepts."""

    categories: tuple[tuple[_Parts, ...], ...]


class Scorer:
    """Counts matches; graphs of captions and of lists of references are kept and used again.

    Args:
        words: where synonym sets come from; METEOR's WordNet if not given.
        graphs: how many graphs are kept.
    """

    def __init__(self, words: WordNet | None = None, *, graphs: int = 20_000) -> None:
        self._wordnet = words or wordnet()
        self._graphs_kept = graphs
        self._graphs: dict[tuple[tuple[tuple[str, ...], ...], ...], _Tuples] = {}

    def counts(self, candidates: Sequence[TupleList], references: Sequence[Sequence[TupleList]]) -> FloatArray:
        """Counts of items.

        Args:
            candidates: (n) the tuples of each candidate.
            references: (n) lists of the tuples of each reference, in order.

        Returns:
            (n, 21) float64 in the order of :data:`COUNTS`.
        """
        counts = np.empty((len(candidates), len(COUNTS)))
        for row, candidate, captions in zip(counts, candidates, references, strict=True):
            row[:] = _count(self._tuples([candidate]), self._tuples(captions))
        return counts

    def sweep(self, candidate: TupleList, references: Sequence[TupleList]) -> FloatArray:
        """Counts of one candidate against its first 1, 2, … k references: (k, 21), merging each of them once."""
        return self.sweeps([candidate], references, range(1, len(references) + 1))[:, 0]

    def sweeps(
        self, candidates: Sequence[TupleList], references: Sequence[TupleList], numbers: Sequence[int]
    ) -> FloatArray:
        """Counts of n candidates against growing sets of the same references, merging each of them once.

        Args:
            candidates: (n) the tuples of each candidate.
            references: the tuples of each reference, in the order in which they are added.
            numbers: ascending numbers of references; one that is too high stands for all.

        Returns:
            (numbers, n, 21).
        """
        graph = Graph(self._wordnet)
        tuples_by_candidate = [self._tuples([candidate]) for candidate in candidates]
        counts = np.empty((len(numbers), len(tuples_by_candidate), len(COUNTS)))
        added = 0
        for step, number in enumerate(numbers):
            for tuples in references[added:number]:
                graph.add(tuples)
            added = max(added, number)
            merged = _collect(graph)
            for row, candidate_tuples in zip(counts[step], tuples_by_candidate, strict=True):
                row[:] = _count(candidate_tuples, merged)
        return counts

    def _tuples(self, captions: Sequence[TupleList]) -> _Tuples:
        key = tuple(tuple(tuple(parts) for parts in tuples) for tuples in captions)
        collected = self._graphs.get(key)
        if collected is None:
            if len(self._graphs) >= self._graphs_kept:
                self._graphs.clear()
            collected = self._graphs[key] = _collect(Graph(self._wordnet, captions))
        return collected


def _collect(graph: Graph) -> _Tuples:
    features = {id(node): node.concept.features for node in graph.nodes}
    objects: list[_Parts] = []
    attributes: list[_Parts] = []
    kinds: list[list[_Parts]] = [[] for _ in _KINDS]
    for node in graph.nodes:
        node_features = features[id(node)]
        objects.append((node_features,))
        for attribute in node.attributes:
            parts: _Parts = (node_features, attribute.features)
            attributes.append(parts)
            for kind, words in zip(kinds, _KINDS, strict=True):
                if _is_one_of(attribute, words):
                    kind.append(parts)
    relations: list[_Parts] = [
        (features[id(r.source)], features[id(r.target)], r.concept.features) for r in graph.relations
    ]
    return _Tuples(tuple(tuple(category) for category in [objects, relations, attributes, *kinds]))


def _is_one_of(concept: Concept, words: frozenset[str]) -> bool:
    # A merged attribute ("grey" and "gray") is of no kind: SPICE 1.0 looks its joined name up.
    return len(concept.words) == 1 and not concept.words.isdisjoint(words)


def _count(candidate: _Tuples, references: _Tuples) -> list[int]:
    counts = [0, 0, 0]
    for number, (ours, theirs) in enumerate(zip(candidate.categories, references.categories, strict=True)):
        matched = sum(_is_matched(parts, theirs) for parts in ours)
        one = (matched, len(ours) - matched, len(theirs) - matched)
        counts += one
        if number < 3:  # All is objects, relations and attributes, which never match each other
            for i in range(3):
                counts[i] += one[i]
    return counts


def _is_matched(parts: _Parts, others: tuple[_Parts, ...]) -> bool:
    first = parts[0]
    for other in others:
        if not first.isdisjoint(other[0]) and not any(
            a.isdisjoint(b) for a, b in zip(parts[1:], other[1:], strict=True)
        ):
            return True
    return False


def f_scores(counts: FloatArray, category: str = "All") -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precision, recall and F-measure of one category, each (n,).

    Args:
        counts: (n, 21) as :meth:`Scorer.counts` gives them.
        category: one of :data:`CATEGORIES`.

    Returns:
        Precision, recall and F. Where the references have no tuple of the category all three are NaN, except for
        ``All``, where they are 0. A candidate without tuples has precision 0.
    """
    start = 3 * CATEGORIES.index(category)
    tp, fp, fn = counts[:, start], counts[:, start + 1], counts[:, start + 2]
    undefined = tp + fn == 0
    precision = np.divide(tp, tp + fp, out=np.zeros(len(counts)), where=(tp + fp > 0) & ~undefined)
    recall = np.divide(tp, tp + fn, out=np.zeros(len(counts)), where=~undefined)
    f = np.divide(2.0 * (precision * recall), precision + recall, out=np.zeros(len(counts)), where=tp > 0)
    if category != "All":
        for values in (precision, recall, f):
            values[undefined] = np.nan
    return precision, recall, f
