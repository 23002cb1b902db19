from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.text.word_pieces import WordPieces, learn_word_pieces, read_word_pieces
from tests.errors import raises

PIECES = WordPieces(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "##s", "cafe", "a", "[", "]", "sep", ",", "犬")
)


def _names(text: str) -> list[str]:
    return [PIECES.pieces[number] for number in PIECES.encode(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Playing", ["play", "##ing"]),
        ("PLAYS, a\tplay\n", ["play", "##s", ",", "a", "play"]),
        ("Café cafés", ["cafe", "cafe", "##s"]),
        ("plaything", ["[UNK]"]),  # the longest pieces first, and no going back
        ("a犬a", ["a", "犬", "a"]),  # each of these characters is a word
        ("a\u0000a\ufffd", ["[UNK]"]),
        ("", []),
        ("  \n", []),
        ("a" * 101, ["[UNK]"]),
        ("[SEP]", ["[", "sep", "]"]),  # a caption cannot end itself
    ],
)
def test_words_are_cut_into_the_longest_known_pieces(text: str, expected: list[str]) -> None:
    assert _names(text) == expected


def test_a_sequence_begins_and_ends_with_its_tokens_unless_it_is_cut_off() -> None:
    begin, end, a = (PIECES.places[piece] for piece in ("[CLS]", "[SEP]", "a"))
    assert PIECES.sequence("a a", 37) == [begin, a, a, end]
    assert PIECES.sequence("a " * 35, 37) == [begin, *[a] * 35, end]
    assert PIECES.sequence("a " * 36, 37) == PIECES.sequence("a " * 90, 37) == [begin, *[a] * 36]
    assert PIECES.sequence("", 37) == [begin, end]


@pytest.mark.parametrize(
    ("content", "code", "value"),
    [
        ("[PAD]\n[UNK]\n[CLS]\n", "missing-value", "[SEP]"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\na\n", "duplicate", "a"),
    ],
)
def test_a_vocabulary_is_read_line_by_line_or_rejected(tmp_path: Path, content: str, code: str, value: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\r\n".join(PIECES.pieces), encoding="utf-8", newline="")
    assert read_word_pieces(path) == PIECES
    path.write_text(content)
    with raises(DataError, code, path=path, value=value):
        read_word_pieces(path)


def test_pieces_are_learned_from_texts_and_the_same_texts_give_the_same_pieces() -> None:
    texts = ["a dog plays in the park", "two dogs played", "the dogs are playing"] * 4
    learned = learn_word_pieces(texts, 60)
    assert learned == learn_word_pieces(texts, 60)
    assert learned.pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert len(learned) <= 60
    unknown = learned.places["[UNK]"]
    assert unknown not in learned.encode("a dog plays")
    assert learned.encode("zebra!") == [unknown, unknown]


def test_the_pair_that_stands_together_most_often_is_joined_first() -> None:
    pieces = learn_word_pieces(["ab ab ab abc abc cd cd"], 12).pieces
    assert pieces[5:] == ("##b", "a", "##c", "##d", "c", "ab", "abc")
