"""The rules that find a caption's person and scene and make distractors, on invented captions."""

from __future__ import annotations

import pytest

from capbench.core.errors import DataError
from capbench.text.distractions import (
    TASKS,
    Distraction,
    find_person,
    find_scene,
    make_distractions,
    make_wrong,
    parse_words,
    tokens,
    words,
)
from tests.errors import raises

# What is the person


@pytest.mark.parametrize(
    ("caption", "text", "kind", "plural"),
    [
        ("A young man sits by the door .", "A young man", "man", False),
        ("Two little girls with kites .", "Two little girls", "girl", True),
        ("Children run by a wall .", "Children", "child", True),
        ("A dog beside two women in hats", "two women", "woman", True),
        ("A brown dog runs to a boy and a man .", "a boy", "boy", False),
        ("A group of young people at a gate .", "A group of young people", "group", True),
        ("A soccer player kicks .", "A soccer player", "person", False),
        ("A small girl smiling at a cat .", "A small girl", "girl", False),
    ],
)
def test_the_first_person_is_cut_out_with_its_modifiers(caption: str, text: str, kind: str, plural: bool) -> None:
    phrase = find_person(caption)
    assert phrase is not None
    assert (phrase.text, phrase.kind, phrase.plural) == (text, kind, plural)
    assert caption[phrase.start : phrase.end] == text


@pytest.mark.parametrize(
    "caption",
    [
        "Two dogs in the snow .",
        "A baby pool by a wall .",  # the pool's
        "A person 's hat on a chair .",
        "A dog with the sleepless man .",  # "sleepless" is not known: where the phrase begins is not clear
        "Three unknown women look up .",
        "",
    ],
)
def test_a_caption_without_a_clear_person_gives_none(caption: str) -> None:
    assert find_person(caption) is None


# What is the scene


@pytest.mark.parametrize(
    ("caption", "preposition", "text", "kind"),
    [
        ("A dog digs in the deep snow .", "in", "the deep snow", "snow"),
        ("Two boys walk down a busy city street", "down", "a busy city street", "street"),
        ("A dog on the grass runs along the beach with a stick", "along", "the beach", "beach"),
        ("Women sit near mountains .", "near", "mountains", "mountain"),
    ],
)
def test_the_last_scene_is_cut_out_with_its_modifiers(caption: str, preposition: str, text: str, kind: str) -> None:
    phrase = find_scene(caption)
    assert phrase is not None
    assert (phrase.preposition, phrase.text, phrase.kind) == (preposition, text, kind)
    assert caption[phrase.start : phrase.end] == text


@pytest.mark.parametrize(
    "caption",
    [
        "A man with a beach towel .",
        "The edge of the beach .",
        "A dog in the grass and mud .",
        "The street is wet .",
        "A boy at a table .",
    ],
)
def test_a_caption_without_a_clear_scene_gives_none(caption: str) -> None:
    assert find_scene(caption) is None


def test_phrases_with_one_key_name_the_same_and_numbers_tell_persons_apart() -> None:
    def key(caption: str) -> str:
        phrase = find_person(caption)
        assert phrase is not None
        return phrase.key

    assert key("The young man sits .") == key("a young man runs") == "young man"
    assert key("Two men sit .") != key("Three men sit .")


# What makes a caption wrong


def wrong(caption: str, other: str, *captions: str, scene: bool = False) -> bool:
    find = find_scene if scene else find_person
    phrase, instead = find(caption), find(other)
    assert phrase is not None
    assert instead is not None
    return make_wrong(phrase, instead, {token for text in (caption, *captions) for token in tokens(text)})


def test_a_person_becomes_one_of_another_sex_in_the_same_number() -> None:
    assert wrong("A man sits .", "A woman runs .")
    assert wrong("Two boys sit .", "Three girls run .")
    assert not wrong("A man sits .", "Two women run .")
    assert not wrong("A man sits .", "A boy runs .")
    assert not wrong("A person sits .", "A woman runs .")
    assert not wrong("A group of men sit .", "Two women run .")


def test_a_person_of_whom_a_caption_of_the_image_speaks_is_not_put_in() -> None:
    assert not wrong("A man sits .", "A woman runs .", "A man beside his wife .")
    assert not wrong("A child sits .", "A man runs .", "A boy at the door .")
    assert wrong("A child sits .", "A woman runs .", "A boy at the door .")


def test_a_scene_becomes_one_of_another_kind_behind_the_same_preposition() -> None:
    assert wrong("A dog in the snow .", "Two cats in a kitchen .", scene=True)
    assert not wrong("A dog in the snow .", "Two cats on the street .", scene=True)
    assert not wrong("A dog in the grass .", "Two cats in a park .", scene=True)


def test_a_scene_of_which_a_caption_of_the_image_speaks_is_not_put_in() -> None:
    assert not wrong("A dog in the grass .", "Two cats in the forest .", "A dog under trees .", scene=True)
    assert wrong("A dog in the grass .", "Two cats in the forest .", "A dog at noon .", scene=True)


# The six tasks

CAPTIONS = {
    "one": ["A man throws a ball in the snow .", "Somebody with a ball ."],
    "two": ["A woman reads a book on a bench .", "A lady reads ."],
    "three": ["A man holds a long rope .", "Climbing in a kitchen with shoes looks odd ."],
    "four": ["Several brown cats play in the snow .", "Cats ."],
}


def made(captions: dict[str, list[str]] = CAPTIONS) -> dict[tuple[str, str], Distraction]:
    return {(one.task, one.image): one for one in make_distractions(captions)}


def test_every_task_distracts_as_its_name_says() -> None:
    pairs = made()
    texts = {key: one.distractor for key, one in pairs.items() if key[1] == "one"}
    assert texts == {
        ("replace-person", "one"): "A woman throws a ball in the snow .",
        ("replace-scene", "one"): "A man throws a ball in a kitchen .",
        ("share-person", "one"): "A man holds a long rope .",
        ("share-scene", "one"): "Several brown cats play in the snow .",
        ("just-person", "one"): "A man",
        ("just-scene", "one"): "the snow",
    }
    assert all(one.caption == CAPTIONS[one.image][one.place] for one in pairs.values())


def test_pairs_stand_task_by_task_and_an_image_gives_one_a_task() -> None:
    pairs = make_distractions({**CAPTIONS, "one": [*CAPTIONS["one"], "A man stands in the snow by a car ."]})
    tasks = [one.task for one in pairs]
    assert tasks == sorted(tasks, key=TASKS.index)
    assert len({(one.task, one.image) for one in pairs}) == len(pairs)


def test_a_caption_that_shares_another_word_of_the_image_is_no_distractor() -> None:
    captions = {**CAPTIONS, "one": [*CAPTIONS["one"], "There is a rope , too ."]}
    assert ("share-person", "one") not in made(captions)


def test_a_pronoun_keeps_the_person() -> None:
    captions = {**CAPTIONS, "one": ["A man throws his ball in the snow ."]}
    pairs = made(captions)
    assert ("replace-person", "one") not in pairs
    assert ("replace-scene", "one") in pairs


def test_a_caption_that_is_hardly_more_than_its_phrase_is_not_cut_down() -> None:
    assert ("just-person", "one") not in made({**CAPTIONS, "one": ["A man sits", "A ball ."]})


def test_the_same_captions_give_the_same_pairs_in_any_order_of_other_runs() -> None:
    assert make_distractions(CAPTIONS) == make_distractions(dict(CAPTIONS))


# The lexicon


def test_the_lexicons_kinds_can_be_replaced_by_known_sexes_and_scenes_know_their_own_words() -> None:
    lexicon = words()
    assert lexicon.version == "1"
    for noun, kind in lexicon.scenes.items():
        assert noun in lexicon.may_be[kind]
    for kind, others in lexicon.replaced_by.items():
        assert kind not in others
        assert all(lexicon.sex_of[other] in lexicon.sexes for other in others)


@pytest.mark.parametrize(
    ("text", "code", "row", "value"),
    [
        ("schema: [", "wrong-format", None, None),
        ("schema: 2", "wrong-version", None, None),
        ("schema: 1", "missing-key", "sexes", "sexes"),
        ("schema: 1\nsexes: {male: [Man]}", "wrong-type", "male", None),
        (
            "schema: 1\nsexes: {male: [man]}\npeople: {man: {nouns: {man: men}, replaced_by: [cat]}}",
            "invalid",
            "people",
            "cat",
        ),
    ],
)
def test_invalid_lexicons_are_rejected(text: str, code: str, row: str | None, value: str | None) -> None:
    with raises(DataError, code, path="distractions_lexicon.yaml", row=row, value=value):
        parse_words(text)
