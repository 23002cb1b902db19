"""SPICE's scene graphs with merged concepts, and the counts of matched tuples of candidates and references.

A parser's tuple is ``(object,)``, ``(object, attribute)`` or ``(subject, object, relation)``. Tuples of several
captions of one image form one graph: an object that shares a word or a synonym set with an earlier one is merged into
it, and likewise attributes of one object and relations between the same two objects (Anderson et al. 2016, section
3.1). Where the paper is not specific, the module follows SPICE 1.0:

- a new object that could be merged into several objects is merged into the most similar one: one with the same word,
  else the one with the greatest Jaccard index of synonym sets; ties go to the first;
- attributes and relations are merged into the first that shares a word or a synonym set;
- a merged concept has all words and all synonym sets, so that the order of the captions can matter;
- a leading ``be`` is removed from a relation (``be on`` becomes ``on``).

If a new attribute could be merged into several attributes, SPICE 1.0 chooses an arbitrary one (the order of a Java hash
set, which changes from run to run); here it is the first. This concerns one or two of the 5,664 items of Flickr8k
Expert and 11,985 of Composite, and never their score: only their counts of colours vary between runs of SPICE 1.0.

A candidate's tuple is matched if the references have a tuple of the same length whose concepts share a word or a
synonym set at every position (section 3.2). A tuple of the references may match any number of the candidate's tuples,
so false negatives can be negative and recall can exceed 1, as in SPICE 1.0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from capbench.core.records import FloatArray
from capbench.text.wordnet import wordnet

TupleList = Sequence[Sequence[str]]  # The tuples of one caption, in the parser's order


@dataclass(slots=True)
class Concept:
    """Words that are treated as one, with all their synonym sets."""

    words: set[str]  # the words
    synsets: set[int]  # numbers of the WordNet synonym sets that contain any of them

    @classmethod
    def of(cls, word: str) -> Concept:
        """A single word."""
        return cls({word}, set(wordnet().synsets(word)))

    def similar(self, other: Concept) -> bool:
        """True if a word or a synonym set is shared."""
        return not (self.synsets.isdisjoint(other.synsets) and self.words.isdisjoint(other.words))

    def merge(self, other: Concept) -> None:
        """Add the words and synonym sets of another concept."""
        self.words |= other.words
        self.synsets |= other.synsets

    @property
    def features(self) -> frozenset[str | int]:
        """Words and synonym sets in one set: two concepts are similar if these sets overlap."""
        return frozenset(self.words).union(self.synsets)


@dataclass(slots=True)
class Node:
    """An object of a graph."""

    concept: Concept  # the object's words
    attributes: list[Concept] = field(default_factory=list)  # its attributes in the order of their first occurrence


@dataclass(slots=True)
class Relation:
    """A relation between two objects of the same graph."""

    source: Node  # the subject
    target: Node  # the object
    concept: Concept  # the relation's words


class Graph:
    """A scene graph that grows caption by caption; ``captions`` are the tuples of the first ones."""

    def __init__(self, captions: Iterable[TupleList] = ()) -> None:
        self.nodes: list[Node] = []
        self.relations: list[Relation] = []
        for tuples in captions:
            self.add(tuples)

    def add(self, tuples: TupleList) -> None:
        """Merge the tuples of one caption into the graph. Tuples of lengths other than 1, 2 and 3 are ignored."""
        for parts in tuples:
            if len(parts) == 1:
                self._node(parts[0])
            elif len(parts) == 2:
                _merge_or_append(self._node(parts[0]).attributes, Concept.of(parts[1]))
            elif len(parts) == 3:
                source, target = self._node(parts[0]), self._node(parts[1])
                same = [r.concept for r in self.relations if r.source is source and r.target is target]
                concept = Concept.of(parts[2].removeprefix("be "))
                if _merge_or_append(same, concept):
                    self.relations.append(Relation(source, target, concept))

    def _node(self, word: str) -> Node:
        new = Concept.of(word)
        best: Node | None = None
        best_similarity = 0.0
        for node in self.nodes:
            synsets = node.concept.synsets
            if word in node.concept.words:
                if node.concept == new:
                    return node
                similarity = 1.0
            elif common := len(synsets & new.synsets):
                similarity = common / (len(synsets) + len(new.synsets) - common)
            else:
                continue
            if similarity > best_similarity:
                best, best_similarity = node, similarity
        if best is None:
            best = Node(new)
            self.nodes.append(best)
        else:
            best.concept.merge(new)
        return best


def _merge_or_append(concepts: list[Concept], new: Concept) -> bool:
    """Add a concept to a list, merging it into an equal or the first similar one; True if it was appended."""
    if new in concepts:
        return False
    for concept in concepts:
        if concept.similar(new):
            concept.merge(new)
            return False
    concepts.append(new)
    return True


CATEGORIES = ("All", "Object", "Relation", "Attribute", "Color", "Cardinality", "Size")
"""Categories of tuples, in the order of the columns; Color, Cardinality and Size are attributes with certain words."""

COUNTS = tuple(f"{category} {count}" for category in CATEGORIES for count in ("tp", "fp", "fn"))
"""Names of the 21 columns of counts: true positives, false positives and false negatives of each category."""

# SPICE 1.0's words for colours, small numbers and sizes (class TupleFilter of its program).
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

_Parts = tuple[frozenset[str | int], ...]  # a tuple of the graph, as the features of its concepts
_Tuples = list[list[_Parts]]  # the tuples of one graph by category, Object first


def match_counts(
    candidates: Sequence[TupleList],  # (n) the tuples of each candidate
    references: Sequence[TupleList],  # the tuples of each reference, in the order in which they are added
    numbers: Sequence[int] = (sys.maxsize,),  # ascending numbers of references; larger numbers mean all references
) -> FloatArray:
    """(numbers, n, 21) counts of n candidates against growing sets of the same references, merging each once."""
    graph = Graph()
    of_candidates = [_collect(Graph([candidate])) for candidate in candidates]
    counts = np.empty((len(numbers), len(candidates), len(COUNTS)))
    added = 0
    for step, number in enumerate(numbers):
        for tuples in references[added:number]:
            graph.add(tuples)
        added = number
        merged = _collect(graph)
        counts[step] = [_count(of_candidate, merged) for of_candidate in of_candidates]
    return counts


def _collect(graph: Graph) -> _Tuples:
    features = {id(node): node.concept.features for node in graph.nodes}
    objects: list[_Parts] = [(features[id(node)],) for node in graph.nodes]
    pairs = [(node, attribute) for node in graph.nodes for attribute in node.attributes]
    attributes: list[_Parts] = [(features[id(node)], attribute.features) for node, attribute in pairs]
    relations: list[_Parts] = [
        (features[id(r.source)], features[id(r.target)], r.concept.features) for r in graph.relations
    ]
    # A merged attribute ("grey" and "gray") has no kind, because SPICE 1.0 looks up its joined name.
    kinds = [
        [parts for parts, (_, a) in zip(attributes, pairs, strict=True) if len(a.words) == 1 and a.words <= words]
        for words in _KINDS
    ]
    return [objects, relations, attributes, *kinds]


def _count(candidate: _Tuples, references: _Tuples) -> list[int]:
    counts: list[int] = []
    for ours, theirs in zip(candidate, references, strict=True):
        matched = sum(_is_matched(parts, theirs) for parts in ours)
        counts += (matched, len(ours) - matched, len(theirs) - matched)
    # All is objects, relations and attributes, which never match each other.
    return [*(sum(counts[i:9:3]) for i in range(3)), *counts]


def _is_matched(parts: _Parts, others: list[_Parts]) -> bool:
    return any(not any(a.isdisjoint(b) for a, b in zip(parts, other, strict=True)) for other in others)


def f_scores(counts: FloatArray, category: str = "All") -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precision, recall and F-measure of one category, each (n,).

    ``counts``: (n, 21) in the order of :data:`COUNTS`; ``category``: one of :data:`CATEGORIES`. If the references have
    no tuple of the category, all three are NaN, except for ``All``, where they are 0. A candidate without tuples has
    precision 0.
    """
    start = 3 * CATEGORIES.index(category)
    tp, fp, fn = counts[:, start : start + 3].T
    undefined = tp + fn == 0
    precision = np.divide(tp, tp + fp, out=np.zeros(len(counts)), where=(tp + fp > 0) & ~undefined)
    recall = np.divide(tp, tp + fn, out=np.zeros(len(counts)), where=~undefined)
    f = np.divide(2.0 * (precision * recall), precision + recall, out=np.zeros(len(counts)), where=tp > 0)
    if category != "All":
        for values in (precision, recall, f):
            values[undefined] = np.nan
    return precision, recall, f
