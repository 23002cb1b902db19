from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from capbench.core.errors import ToolError
from capbench.text import wordnet as module
from capbench.text.wordnet import WordNet, wordnet
from tests.errors import raises

SYNSETS = {
    "dog": "1 2",
    "box": "3",
    "child": "4 5",
    "glass": "6",
    "hot_dog": "7",
    "bake": "8",
    "walk": "9",
    "large": "10",
    "postman": "11",
    "as": "12",
    "berry": "13",
    "men": "14",
    "man": "15",
}


@pytest.fixture
def words() -> WordNet:
    return WordNet(SYNSETS.items(), [("child", "children childs"), ("kid", "children")])


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dog", {1, 2}),
        ("dogs", {1, 2}),
        ("boxes", {3}),
        ("hot dog", {7}),
        ("Hot Dogs", {7}),
        ("  dog ", {1, 2}),
        ("baking", {8}),
        ("baked", {8}),
        ("walked", {9}),
        ("largest", {10}),
        ("larger", {10}),
        ("postmen", {11}),
        ("berries", {13}),
        ("men", {14, 15}),  # itself and its base form
        ("glass", {6}),  # an ending ss stays
        ("as", {12}),  # so do words of two letters
        ("unknown", set()),
        ("", set()),
        ("s", set()),
    ],
)
def test_synonym_sets_of_a_word_and_its_base_form(words: WordNet, word: str, expected: set[int]) -> None:
    assert words.synsets(word) == expected
    assert words.synsets(word) == expected  # and again from memory


def test_irregular_forms_have_the_sets_of_all_their_bases_and_of_no_other(words: WordNet) -> None:
    assert words.synsets("children") == {4, 5}
    # an irregular form is not looked at for endings: "childs" is child, never "child" by its s alone
    assert WordNet([("childe", "1"), ("child", "2")], [("childe", "childs")]).synsets("childs") == {1}


def test_an_ending_is_replaced_once_at_the_end() -> None:
    assert WordNet([("essay", "1")]).synsets("essays") == {1}
    assert WordNet([("singe", "1"), ("sing", "2")]).synsets("singing") == {1}  # -ing becomes -e before it goes


def test_the_first_form_that_is_a_word_counts() -> None:
    assert WordNet([("axe", "1"), ("ax", "2")]).synsets("axes") == {1}
    assert WordNet([("ax", "2")]).synsets("axes") == {2}


def test_meteors_wordnet() -> None:
    words = wordnet()
    assert words.synsets("couch") & words.synsets("sofas")
    assert words.synsets("men") >= words.synsets("man")  # irregular
    assert words.synsets("children") == words.synsets("child")
    assert words.synsets("geese") >= words.synsets("goose")
    assert not words.synsets("dog") & words.synsets("umbrella")
    assert wordnet() is words


def test_a_damaged_jar_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "meteor.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("synonym/english.exceptions", "a\nb\n")
    monkeypatch.setattr(module, "meteor_jar", lambda: path)
    with raises(ToolError, "unreadable", path=path, value="synonym/english.synsets"):
        wordnet.__wrapped__()
