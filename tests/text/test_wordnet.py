"""WordNet's synonym sets of words and their base forms."""

from __future__ import annotations

import pytest

from capbench.text.wordnet import WordNet, wordnet

_WORDS = "dog 1 2/box 3/child 4 5/glass 6/hot_dog 7/bake 8/walk 9/large 10/postman 11/as 12/berry 13/men 14/man 15"
_MORE = "essay 20/singe 21/sing 22/axe 23/ax 24/lens 25/childe 26"
WORDS = WordNet(
    [(word, numbers) for word, _, numbers in (pair.partition(" ") for pair in f"{_WORDS}/{_MORE}".split("/"))],
    [("child", "children childs"), ("kid", "children"), ("childe", "childes")],
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["dog", "dogs", "  dog ", "DOGS"], {1, 2}),
        (["boxes"], {3}),
        (["hot dog", "Hot Dogs"], {7}),
        (["baking", "baked"], {8}),
        (["walked", "walking"], {9}),
        (["largest", "larger"], {10}),
        (["postmen"], {11}),
        (["berries"], {13}),
        (["men"], {14, 15}),  # itself and its base form
        (["glass"], {6}),  # an ending ss stays
        (["as"], {12}),  # so do words of two letters
        (["children", "childs"], {4, 5}),  # irregular forms have the sets of all their bases
        (["childes"], {26}),  # and of no other: endings are not removed
        (["essays"], {20}),
        (["singing"], {21}),  # -ing becomes -e before it goes: the first form that is a word counts
        (["axes"], {23}),
        (["unknown", "", "s"], set()),
    ],
)
def test_synonym_sets_of_a_word_and_its_base_form(words: list[str], expected: set[int]) -> None:
    for word in [*words, *words]:  # the second time from memory
        assert WORDS.synsets(word) == expected


def test_meteors_wordnet() -> None:
    words = wordnet()
    assert words.synsets("couch") & words.synsets("sofas")
    assert words.synsets("kids") & words.synsets("child")
    assert words.synsets("geese") >= words.synsets("goose")
    assert not words.synsets("dog") & words.synsets("umbrella")
