from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.text.java import run_lines
from capbench.text.spice.matching import CATEGORIES, COUNTS, Scorer, f_scores
from capbench.text.spice.parser import class_path
from capbench.text.wordnet import WordNet
from tests.installed_parser import installed_parser
from tests.text.parsed_captions import CAPTIONS

WORDS = WordNet([("couch", "1"), ("sofa", "1"), ("big", "20"), ("large", "20"), ("on", "30"), ("atop", "30")])
Tuples = list[list[str]]


def _counts(candidate: Tuples, *references: Tuples) -> dict[str, tuple[int, ...]]:
    (row,) = Scorer(WORDS).counts([candidate], [references]).astype(int).tolist()
    return {category: tuple(row[3 * i : 3 * i + 3]) for i, category in enumerate(CATEGORIES)}


def test_synonyms_match_in_every_place() -> None:
    counts = _counts(
        [["sofa"], ["sofa", "large"], ["dog", "sofa", "atop"]], [["couch", "big"]], [["dog", "couch", "on"], ["cat"]]
    )
    assert counts["Object"] == (2, 0, 1)
    assert counts["Attribute"] == (1, 0, 0)
    assert counts["Relation"] == (1, 0, 0)
    assert counts["All"] == (4, 0, 1)


def test_every_place_of_a_tuple_must_match() -> None:
    counts = _counts([["dog", "red"], ["dog", "cat", "on"]], [["dog", "blue"], ["cat", "dog", "on"]])
    assert counts["Object"] == (2, 0, 0)
    assert counts["Attribute"] == (0, 1, 1)
    assert counts["Relation"] == (0, 1, 1)


def test_one_reference_tuple_may_match_several_of_the_candidate() -> None:
    words = WordNet([("a", "1"), ("b", "2"), ("c", "1 2")])
    row = Scorer(words).counts([[["a"], ["b"]]], [[[["c"]]]])
    assert row[0, :3].tolist() == [2, 0, -1]
    precision, recall, f = f_scores(row)
    assert (precision[0], recall[0], f[0]) == (1.0, 2.0, 2.0 * 2.0 / 3.0)


def test_colours_numbers_and_sizes_are_attributes_of_their_own() -> None:
    candidate = [["dog", "red"], ["dog", "two"], ["dog", "tiny"], ["dog", "wet"]]
    counts = _counts(candidate, [["dog", "red"], ["dog", "three"], ["dog", "tiny"]])
    assert counts["Color"] == (1, 0, 0)
    assert counts["Cardinality"] == (0, 1, 1)
    assert counts["Size"] == (1, 0, 0)
    assert counts["Attribute"] == (2, 2, 1)


def test_a_merged_attribute_is_of_no_kind() -> None:
    counts = _counts([["dog", "big"]], [["dog", "big"]], [["dog", "large"]])
    assert counts["Attribute"] == (1, 0, 0)
    assert counts["Size"] == (0, 1, 0)


def test_nothing_against_something_and_nothing() -> None:
    rows = Scorer(WORDS).counts([[], [["dog"]], []], [[[["dog"]]], [[]], [[], []]])
    assert rows[:, :3].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert f_scores(rows)[2].tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(f_scores(rows, "Object")[2]).tolist() == [False, True, True]
    assert np.isnan(f_scores(rows, "Color")[0]).all()


def test_precision_recall_and_f() -> None:
    rows = np.zeros((1, len(COUNTS)))
    rows[0, :3] = 2, 1, 3
    precision, recall, f = f_scores(rows)
    assert precision[0] == 2 / 3
    assert recall[0] == 2 / 5
    assert f[0] == pytest.approx(0.5, abs=1e-15)


def test_counts_do_not_depend_on_what_was_counted_before() -> None:
    captions = list(CAPTIONS.values())
    scorer = Scorer(graphs=2)
    together = scorer.counts(captions, [captions[:k] for k in range(len(captions))])
    apart = [Scorer().counts([c], [captions[:k]])[0] for k, c in enumerate(captions)]
    assert together.tolist() == np.array(apart).tolist()


_NAMES = st.sampled_from(["couch", "sofa", "dog", "cat", "big", "large", "on", "atop", "beside", "red", "two"])
_LISTS = st.lists(st.lists(_NAMES, min_size=1, max_size=3), max_size=8)


@settings(deadline=None)
@given(_LISTS, st.lists(_LISTS, min_size=1, max_size=4))
def test_a_sweep_counts_the_first_references(candidate: Tuples, references: list[Tuples]) -> None:
    scorer = Scorer(WORDS)
    expected = scorer.counts([candidate] * len(references), [references[: k + 1] for k in range(len(references))])
    numbers = range(1, len(references) + 1)
    assert scorer.sweeps([candidate], references, numbers)[:, 0].tolist() == expected.tolist()


@settings(deadline=None)
@given(_LISTS)
def test_a_caption_against_itself_scores_one(candidate: Tuples) -> None:
    counts = Scorer(WORDS).counts([candidate], [[candidate]])
    assert f_scores(counts)[2][0] == (1.0 if candidate else 0.0)


@settings(deadline=None)
@given(_LISTS, st.lists(_LISTS, min_size=1, max_size=3))
def test_all_is_the_sum_of_objects_relations_and_attributes(candidate: Tuples, references: list[Tuples]) -> None:
    rows = Scorer(WORDS).counts([candidate], [references]).reshape(7, 3)
    assert rows[0].tolist() == rows[1:4].sum(axis=0).tolist()


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

    items = [(caption(), [caption() for _ in range(rng.randint(1, 5))]) for _ in range(1500)]
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
    counts = Scorer().counts([c for c, _ in items], [r for _, r in items])
    assert [row["counts"] for row in theirs] == counts.tolist()
    for i, category in enumerate(CATEGORIES):
        expected = np.array([[float(number) for number in row["scores"][3 * i : 3 * i + 3]] for row in theirs])
        np.testing.assert_array_equal(np.transpose(f_scores(counts, category)), expected)
