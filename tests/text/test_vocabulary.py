from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.text.vocabulary import (
    ENGLISH,
    SPECIAL,
    UNKNOWN,
    Vocabulary,
    read_vocabulary,
    tokenize_caption,
)
from tests.errors import raises
from tests.text.vocabulary_files import write_vocabulary


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A Dog runs .", "a dog runs ."),
        ("A dog runs.", "a dog runs ."),
        ("One runs. Two sit.", "one runs . two sit ."),
        ("Is it red? No! It is not.", "is it red ? no ! it is not ."),
        ("a man's hat (blue), don't look", "a man 's hat ( blue ) , do n't look"),
        ("Mr. Day at 5 p.m. near the U.S. flag", "mr. day at 5 p.m. near the u.s. flag"),
        ("a J.P. Morgan race on Bros. Road. It is wet.", "a j.p. morgan race on bros. road . it is wet ."),
        ("Mt. of Olives", "mt . of olives"),  # so it is in NLTK: no mountain is in its list
        ('He says "stop." She goes.', "he says `` stop . '' she goes ."),
        ("cannot wait...", "can not wait ..."),
        ("  ", ""),
        ("", ""),
    ],
)
def test_captions_are_split_by_the_treebank_rules_at_each_sentence(text: str, tokens: str) -> None:
    assert tokenize_caption(text) == tokens.split()


def test_the_short_cut_for_one_sentence_changes_nothing() -> None:
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    from capbench.text.vocabulary import ABBREVIATIONS

    parameters = PunktParameters()
    parameters.abbrev_types.update(ABBREVIATIONS)
    punkt, split = PunktSentenceTokenizer(parameters), NLTKWordTokenizer().tokenize
    pieces = ["a dog", *'runs. st. ... no?! "wait." (u.s.) e.g. end.) ! \t …'.split(" "), "3.5 m", "x .y"]  # noqa: SIM905
    texts = [f"{a} {b}{gap}{c}" for a in pieces for b in pieces for c in pieces for gap in ("", " ")]
    for text in texts[::5]:  # all pairs of pieces are among them
        lowered = text.lower()
        assert tokenize_caption(text) == [t for s in punkt.tokenize(lowered) for t in split(s)], text


def test_the_stop_words_are_nltks_of_179_words() -> None:
    assert len(ENGLISH) == 179
    # Digest of NLTK's list, sorted, one word a line: a word more, less or changed is another list.
    assert hashlib.sha256("\n".join(sorted(ENGLISH)).encode()).hexdigest()[:16] == "63c081f949766b37"


def test_frequent_words_are_kept_in_a_fixed_order() -> None:
    captions = ["a cat sat", "A cat ran", "a dog ran", "the dog"]
    assert Vocabulary.build(captions, min_count=2).words == (*SPECIAL, "a", "cat", "dog", "ran")
    assert Vocabulary.build(reversed(captions), min_count=2) == Vocabulary.build(captions, min_count=2)
    assert Vocabulary.build(captions).words == SPECIAL


def test_a_caption_is_encoded_between_start_and_end() -> None:
    vocabulary = Vocabulary((*SPECIAL, "a", "cat", "."))
    assert vocabulary.encode("A cat sleeps.") == [1, 4, 5, 3, 6, 2]
    assert vocabulary.encode("") == [1, 2]
    assert (vocabulary.number("cat"), vocabulary.number("dog"), len(vocabulary)) == (5, UNKNOWN, 7)


def test_the_published_form_is_read(parity: Path, tmp_path: Path) -> None:
    vocabulary = read_vocabulary(parity / "scan" / "coco_precomp_vocab.json")
    assert len(vocabulary) == 50
    assert vocabulary.encode("w0 w45 elsewhere") == [1, 4, 49, 3, 2]
    vocabulary = Vocabulary((*SPECIAL, "café", "b"))
    write_vocabulary(tmp_path / "v.json", vocabulary)
    assert read_vocabulary(tmp_path / "v.json") == vocabulary
    assert Vocabulary((*SPECIAL, "b", "café")).sha256 != vocabulary.sha256


_WORDS = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3}


@pytest.mark.parametrize("words", [[], {}, {**_WORDS, "a": 5}, {**_WORDS, "a": 3}, _WORDS | {"<pad>": 1, "<start>": 0}])
def test_another_file_is_rejected(tmp_path: Path, words: Any) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps({"word2idx": words}))
    with raises(DataError, "wrong-format", path=path):
        read_vocabulary(path)
