"""Captions that English tokenisation and resources do not cover."""

from __future__ import annotations

import pytest

from capbench.text.language import is_english, without_spaces

ENGLISH = ["A dog on a hill.", "the red kite", "two boats near the shore", "men playing football", "a cat with a ball"]
GERMAN = [
    "Ein Hund auf einem Hügel.",
    "der rote Drachen",
    "zwei Boote am Ufer",
    "Männer spielen Fußball",
    "eine Katze schläft",
]
SPANISH = [
    "un perro en la colina",
    "la cometa roja vuela",
    "dos barcos a la orilla",
    "unos hombres juegan",
    "un gato y un",
]
CHINESE = ["一只狗在山上", "红色的风筝", "岸边的两条船", "男人们在踢足球", "一只猫和球"]
RUSSIAN = ["собака на холме", "красный воздушный змей", "две лодки у берега", "мужчины играют в футбол", "кошка и мяч"]


@pytest.mark.parametrize(
    ("texts", "english", "unspaced"),
    [(ENGLISH, True, 0), (GERMAN, False, 0), (SPANISH, False, 0), (RUSSIAN, False, 0), (CHINESE, False, 5)],
)
def test_languages(texts: list[str], english: bool, unspaced: int) -> None:
    assert is_english(texts) is english
    assert without_spaces(texts) == unspaced


def test_few_foreign_captions_are_counted_but_do_not_change_the_language() -> None:
    texts = [*ENGLISH * 4, *CHINESE[:2], "a sign with 狗", "🐕 !!"]
    assert is_english(texts)
    assert without_spaces(texts) == 2


@pytest.mark.parametrize("texts", [[], ["rot"], GERMAN[:4], ["1 2 3", "?"]])
def test_too_few_words_are_no_evidence(texts: list[str]) -> None:
    assert is_english(texts)
