"""SPICE's merged graphs and matched tuples, compared with SPICE 1.0's own classes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.records import FloatArray
from capbench.text.java import run_lines
from capbench.text.spice import matching
from capbench.text.spice.matching import CATEGORIES, COUNTS, Graph, f_scores, match_counts
from capbench.text.spice.parser import class_path
from capbench.text.wordnet import WordNet
from tests.installed_parser import installed_parser
from tests.text.parsed_captions import CAPTIONS

_PAIRS = "couch 1 2/sofa 1 2 3/bench 3/dog 10/hound 10 11/chase 11/big 20/large 20/on 30/atop 30/side 40"
WORDS = WordNet([(word, numbers) for word, _, numbers in (pair.partition(" ") for pair in _PAIRS.split("/"))])
Tuples = list[list[str]]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "wordnet", lambda: WORDS)


def _counts(candidates: Sequence[Tuples], references: Sequence[Sequence[Tuples]]) -> FloatArray:
    return np.concatenate([match_counts([c], r)[0] for c, r in zip(candidates, references, strict=True)])


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("captions", "objects"),
    [
        # Synonyms of several captions become one object, named by attributes and relations, too.
        ([[["couch"]], [["sofa"]], [["dog"]]], [{"couch", "sofa"}, {"dog"}]),
        ([[["dog", "big"], ["hound", "mat", "on"]]], [{"dog", "hound"}, {"mat"}]),
        # sofa {1 2 3}: couch {1 2} has two of three, bench {3} one of three.
        ([[["bench"], ["couch"], ["sofa"]]], [{"bench"}, {"couch", "sofa"}]),
        # An object with the word comes before one with more sets in common; of equals the first takes it.
        ([[["dog"], ["chase"], ["hound"], ["hound"]]], [{"dog", "hound"}, {"chase"}]),
        ([[["chase"], ["dog"], ["hound"]]], [{"chase", "hound"}, {"dog"}]),
        # Words outside WordNet equal only themselves; tuples of four do not count.
        ([[["qwop"], ["zorp"]], [["qwop"], ["a", "b", "c", "d"]]], [{"qwop"}, {"zorp"}]),
    ],
)
def test_objects_with_a_common_word_or_synonym_set_are_merged(captions: list[Tuples], objects: list[set[str]]) -> None:
    assert [node.concept.words for node in Graph(captions).nodes] == objects


@pytest.mark.usefixtures("words")
def test_attributes_of_one_object_and_relations_of_the_same_objects_are_merged() -> None:
    graph = Graph([[["dog", "big"]], [["hound", "large"], ["couch", "large"], ["dog", "wet"], ["dog", "wet"]]])
    assert [[a.words for a in node.attributes] for node in graph.nodes] == [[{"big", "large"}, {"wet"}], [{"large"}]]
    several = [["hound", "sofa", "atop"], ["couch", "dog", "on"], ["dog", "couch", "beat"], ["dog", "couch", "be on"]]
    graph = Graph([[["dog", "couch", "on"]], several])
    assert [r.concept.words for r in graph.relations] == [{"on", "atop"}, {"on"}, {"beat"}]
    (relation,) = Graph([[["dog", "hound", "on"]]]).relations
    assert relation.source is relation.target


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("given", "kept"), [("be on", "on"), ("beside", "beside"), ("be", "be"), ("maybe on", "maybe on")]
)
def test_a_relation_loses_a_leading_be(given: str, kept: str) -> None:
    (relation,) = Graph([[["dog", "couch", given]]]).relations
    assert (relation.concept.words, relation.concept.synsets) == ({kept}, set(WORDS.synsets(kept)))


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("candidate", "references", "expected"),
    [
        (
            [["sofa"], ["sofa", "large"], ["dog", "sofa", "atop"]],
            [[["couch", "big"]], [["dog", "couch", "on"], ["cat"]]],
            {"All": (4, 0, 1), "Object": (2, 0, 1), "Attribute": (1, 0, 0), "Relation": (1, 0, 0)},
        ),
        # Every place of a tuple must match.
        (
            [["dog", "red"], ["dog", "cat", "on"]],
            [[["dog", "blue"], ["cat", "dog", "on"]]],
            {"Object": (2, 0, 0), "Attribute": (0, 1, 1), "Relation": (0, 1, 1)},
        ),
        (
            [["dog", "red"], ["dog", "two"], ["dog", "tiny"], ["dog", "wet"]],
            [[["dog", "red"], ["dog", "three"], ["dog", "tiny"]]],
            {"Color": (1, 0, 0), "Cardinality": (0, 1, 1), "Size": (1, 0, 0), "Attribute": (2, 2, 1)},
        ),
        # A merged attribute has no kind.
        ([["dog", "big"]], [[["dog", "big"]], [["dog", "large"]]], {"Attribute": (1, 0, 0), "Size": (0, 1, 0)}),
        # One tuple of the references may match several of the candidate.
        ([["couch"], ["bench"]], [[["sofa"]]], {"All": (2, 0, -1)}),
    ],
)
def test_counts(candidate: Tuples, references: list[Tuples], expected: dict[str, tuple[int, ...]]) -> None:
    (row,) = match_counts([candidate], references)[0].astype(int).tolist()
    found = {category: tuple(row[3 * i : 3 * i + 3]) for i, category in enumerate(CATEGORIES)}
    assert {category: found[category] for category in expected} == expected


@pytest.mark.usefixtures("words")
def test_precision_recall_and_f() -> None:
    rows = np.zeros((2, len(COUNTS)))
    rows[:, :3] = (2, 1, 3), (2, 0, -1)
    assert np.transpose(f_scores(rows)) == pytest.approx(np.array([[2 / 3, 2 / 5, 0.5], [1, 2, 4 / 3]]), abs=1e-15)
    rows = _counts([[], [["dog"]], []], [[[["dog"]]], [[]], [[], []]])
    assert rows[:, :3].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert f_scores(rows)[2].tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(f_scores(rows, "Object")[2]).tolist() == [False, True, True]


_NAMES = st.sampled_from(["couch", "sofa", "dog", "cat", "big", "large", "on", "atop", "beside", "red", "two"])
_LISTS = st.lists(st.lists(_NAMES, min_size=1, max_size=3), max_size=8)


@settings(deadline=None)
@given(_LISTS, st.lists(_LISTS, min_size=1, max_size=4))
def test_a_sweep_counts_the_first_references(candidate: Tuples, references: list[Tuples]) -> None:
    numbers = range(1, len(references) + 1)
    expected = _counts([candidate] * len(references), [references[:number] for number in numbers])
    found = match_counts([[], candidate], references, numbers)
    assert found[:, 1].tolist() == expected.tolist()


@settings(deadline=None)
@given(_LISTS)
def test_a_caption_against_itself_scores_one_and_all_is_the_sum_of_the_kinds(candidate: Tuples) -> None:
    (counts,) = match_counts([candidate], [candidate])
    assert f_scores(counts)[2][0] == (1.0 if candidate else 0.0)
    assert counts[0, :3].tolist() == counts[0, 3:12].reshape(3, 3).sum(axis=0).tolist()


@pytest.mark.java
def test_counts_are_those_of_spices_own_classes() -> None:
    rng = random.Random(7)
    words = """
        dog hound puppy man person guy couch sofa child kid red crimson gray grey big large two pair run running beside
        behind in zorp bear have carry beat at hit become go
    """.split()  # noqa: SIM905
    words += ["sit on", "be in", "be hit"]

    def caption() -> Tuples:
        return [rng.choices(words, k=rng.randint(1, 3)) for _ in range(rng.randint(0, 9))]

    items = [(caption(), [caption() for _ in range(rng.randint(1, 5))]) for _ in range(400)]
    items += [(c, [r, c, r]) for c in CAPTIONS.values() for r in CAPTIONS.values()]
    script = Path(__file__).with_name("spice_oracle.js")
    with installed_parser() as folder:
        lines = run_lines(
            ["-cp", class_path(folder), "org.mozilla.javascript.tools.shell.Main", str(script)],
            (json.dumps({"candidate": c, "references": r}) for c, r in items),
            name="SPICE 1.0",
            folder=folder,
        )
        theirs = list(map(json.loads, lines))
    counts = _counts([c for c, _ in items], [r for _, r in items])
    assert [row["counts"] for row in theirs] == counts.tolist()
    for i, category in enumerate(CATEGORIES):
        expected = np.array([[float(number) for number in row["scores"][3 * i : 3 * i + 3]] for row in theirs])
        np.testing.assert_array_equal(np.transpose(f_scores(counts, category)), expected)
