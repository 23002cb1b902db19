"""The rules that replace a word of a caption, on invented captions."""

from __future__ import annotations

import pytest

from capbench.core.errors import DataError
from capbench.text.swaps import COMPONENTS, Swap, find_swaps, lexicon, parse_lexicon, pick
from tests.errors import raises


def swap(caption: str, word: str, *references: str) -> Swap | None:
    found = [s for s in find_swaps(caption, references) if s.word == word]
    assert len(found) <= 1
    return found[0] if found else None


def texts(caption: str, word: str, *references: str) -> tuple[set[str], set[str]]:
    found = swap(caption, word, *references)
    assert found is not None, caption
    return {found.put(new) for new in found.similar}, {found.put(new) for new in found.different}


# What is replaced


def test_an_object_is_replaced_in_its_number() -> None:
    assert texts("Two men by a gate .", "men") == (
        {"Two guys by a gate ."},
        {"Two women by a gate .", "Two ladies by a gate ."},
    )
    assert texts("The man runs .", "man") == ({"The guy runs ."}, {"The woman runs .", "The lady runs ."})


def test_nouns_take_their_plural() -> None:
    similar, different = texts("Three puppies with a bone .", "puppies")
    assert similar == {"Three pups with a bone ."}
    assert different == {"Three kittens with a bone .", "Three calves with a bone ."}


def test_articles_follow_and_capitals_stay() -> None:
    similar, different = texts("A car and a fence", "car")
    assert similar == {"An automobile and a fence"}
    assert different == {"A bus and a fence", "A boat and a fence", "A tractor and a fence"}
    similar, _ = texts("Dogs with a bone", "Dogs")
    assert "Canines with a bone" in similar
    _, different = texts("An elderly man with a cane", "elderly")
    assert different == {"A young man with a cane", "A youthful man with a cane"}


def test_articles_before_a_vowel_that_is_no_vowel_sound() -> None:
    found = swap("a car and a fence", "car")
    assert found is not None
    assert found.put("unicycle") == "a unicycle and a fence"
    assert found.put("hourglass") == "an hourglass and a fence"


@pytest.mark.parametrize(
    ("caption", "word", "similar", "different"),
    [
        ("A girl is walking through the hall", "walking", "strolling", "crawling"),
        ("A girl walks through the hall", "walks", "strolls", "crawls"),
        ("Two girls walk through the hall", "walk", "stroll", "crawl"),
        ("A girl sitting on a stool", "sitting", "seated", "sleeping"),
        ("A girl sits on a stool", "sits", "is seated", "sleeps"),
        ("Girls sit on a stool", "sit", "are seated", "sleep"),
        ("A child is lying on a rug", "lying", "sprawling", "dancing"),
        ("The dog carries a bone", "carries", "totes", "chases"),
        ("A surfer rides a wave", "rides", "surfs", "watches"),
        ("A man looks at a map", "looks", "gazes", "shouts"),
        ("A man smiles .", "smiles", "grins", "cries"),
    ],
)
def test_actions_take_the_verbs_form(caption: str, word: str, similar: str, different: str) -> None:
    found = swap(caption, word)
    assert found is not None
    assert (found.component, found.category) == ("action", "")
    assert similar in found.similar
    assert different in found.different


@pytest.mark.parametrize(
    ("caption", "word", "category", "similar", "different"),
    [
        ("A dog with a red ball", "red", "colour", "scarlet", "blue"),
        ("Two dogs in a yard", "Two", "count", "a pair of", "four"),
        ("A group of people in a hall", "A group of", "count", "a bunch of", "two"),
        ("a small wet dog", "small", "size", "little", "huge"),
        ("a small wet dog", "wet", "state", "drenched", "dry"),
        ("a happy girl in a yard", "happy", "state", "joyful", "sad"),
    ],
)
def test_properties_have_a_category(caption: str, word: str, category: str, similar: str, different: str) -> None:
    found = swap(caption, word)
    assert found is not None
    assert (found.component, found.category) == ("property", category)
    assert similar in found.similar
    assert different in found.different


# What is left alone


@pytest.mark.parametrize(
    ("caption", "word"),
    [
        ("A bike rack in a yard", "bike"),  # part of a compound
        ("A stuffed dog on a bed", "dog"),  # an adjective that the lexicon does not know
        ("A man's hat", "man"),
        ("A man 's hat", "man"),
        ("A man looks at his boots", "man"),  # the pronoun would give a woman away
        ("A dog and a dog on a rug", "dog"),  # which of the two?
        ("A man at the beach house", "beach"),
        ("A walking stick on a rug", "walking"),
        ("A swimming pool in a yard", "swimming"),
        ("A girl holding on to a bar", "holding"),
        ("Boys play guitar on a stage", "play"),
        ("A race through the town", "race"),
        ("A black and white dog", "white"),
        ("A dark blue car in a yard", "blue"),
        ("A black man on a bench", "black"),  # not a colour of a thing
        ("The two dogs in a yard", "two"),
        ("A red haired girl", "red"),
        ("A young boy in a yard", "young"),  # "elderly boy" is not English
        ("A pair of pants on a bed with a red tennis court", "red"),
    ],
)
def test_words_in_another_role_stay(caption: str, word: str) -> None:
    assert swap(caption, word) is None


def test_a_wrong_word_that_a_reference_uses_might_be_right() -> None:
    assert "A cat on a rug" in texts("A dog on a rug", "dog")[1]
    said = swap("A dog on a rug", "dog", "a cat and a dog", "A horse !")
    assert said is not None
    assert set(said.different) == {"cow", "goat"}


def test_so_might_a_synonym_of_it_in_any_form() -> None:
    said = swap("A girl is walking through the hall", "walking", "two girls sprint off")
    assert said is not None
    assert "running" not in said.different  # sprinting is running
    assert swap("A man with a cane", "man", "the women talk", "ladies") is None


def test_a_similar_word_that_stands_there_already_is_not_used() -> None:
    assert swap("A jacket and a coat", "jacket") is None


def test_different_is_left_out_where_the_caption_itself_says_it() -> None:
    found = swap("A red car and a blue barn", "red")
    assert found is not None
    assert "blue" not in found.different


def test_every_swap_changes_one_place_and_says_where() -> None:
    caption = "Two small dogs are running through a wet field ."
    found = find_swaps(caption, [caption])
    assert {s.component for s in found} == set(COMPONENTS)
    for s in found:
        assert caption[s.start : s.end] == s.word
        for new in (*s.similar, *s.different):
            assert s.put(new).endswith(caption[s.end :])
            assert s.put(new) != caption


def test_captions_of_nothing_give_nothing() -> None:
    for caption in ("", " . ", "!?", "日本語", "'"):
        assert find_swaps(caption, [caption]) == []


def test_pick_depends_on_the_key_alone() -> None:
    assert [pick(range(1000), "a", str(n)) for n in range(3)] == [pick(range(1000), "a", str(n)) for n in range(3)]
    assert len({pick(range(1000), "a", str(n)) for n in range(50)}) > 40


# The lexicon


def rules() -> set[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """(word, similar words, different words) of every rule."""
    words = lexicon()
    found = {(rule.noun, rule.similar, rule.different) for entries in words.objects.values() for rule, _ in entries}
    found |= {(rule.verb, rule.similar, rule.different) for entries in words.verbs.values() for rule, _ in entries}
    return found | {
        (" ".join(rule.word), rule.similar, rule.different) for some in words.properties.values() for rule in some
    }


def test_no_different_word_is_a_synonym_of_the_word_or_of_a_similar_one() -> None:
    related = lexicon().related
    wrong = [(word, other) for word, _, different in rules() for other in different if other in related[word]]
    assert wrong == []


def test_nor_does_wordnet_say_so() -> None:
    # METEOR and SPICE match WordNet's synonyms: such a pair would be wrong for them whatever they do.
    from capbench.text.spice.matching import wordnet

    synsets = wordnet().synsets
    wrong = [
        (right, other)
        for word, similar, different in rules()
        for right in (word, *similar)
        for other in different
        if synsets(right) & synsets(other)
    ]
    assert wrong == []


def test_some_similar_words_are_wordnets_synonyms_and_some_are_not() -> None:
    # Pairs of WordNet's synonyms alone would be made for METEOR and SPICE.
    from capbench.text.spice.matching import wordnet

    synsets = wordnet().synsets
    pairs = {(word, other) for word, similar, _ in rules() for other in similar}
    share = sum(bool(synsets(word) & synsets(other)) for word, other in pairs) / len(pairs)
    assert 0.25 < share < 0.75


@pytest.mark.parametrize(
    ("old", "new", "code", "row", "value"),
    [
        ("schema: 1 ", "schema: 2 ", "wrong-version", None, None),
        ("\nobjects:", "\nobject:", "unknown-key", None, None),
        ("{noun: dog, is: animal,", "{noun: dog, is: beast,", "wrong-value", "object", "beast"),
        ("{noun: dog, is: animal,", "{noun: dog, kind: animal,", "unknown-key", "object", None),
        (
            "{noun: cat, is: animal, similar: [feline]",
            "{noun: cat, is: animal, similar: [dog]",
            "invalid",
            "object",
            None,
        ),
        (
            "{noun: cat, is: animal, similar: [feline]",
            "{noun: cat, is: animal, similar: feline",
            "wrong-type",
            "object",
            "similar",
        ),
        ("{verb: jump, before: [over, across]", "{verb: jump, before: []", "missing-value", "action", None),
        ("{word: red, people: no,", "{word: red, people: never,", "wrong-value", "colour", "never"),
        ("version: 1", "version: [", "wrong-format", None, None),
    ],
)
def test_mistakes_in_the_lexicon_are_named(old: str, new: str, code: str, row: str | None, value: str | None) -> None:
    import importlib.resources

    text = importlib.resources.files("capbench.text").joinpath("swaps_lexicon.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    with raises(DataError, code, path="swaps_lexicon.yaml", value=value) as caught:
        parse_lexicon(text.replace(old, new))
    assert (str(caught.value.row).partition(" ")[0] if caught.value.row else None) == row
