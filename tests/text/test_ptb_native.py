from __future__ import annotations

import gzip
import json
import random
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capbench.core.errors import ToolError
from capbench.text import ptb as ptb_native
from capbench.text import ptb_tables
from capbench.text.java import Jar, run_batch, tokenizer_jar
from capbench.text.ptb import PUNCTUATION, NativeTokenizer, native_tokenizer, tokenize_jar
from tests.errors import raises
from tests.text.ptb_reference_table import TABLE


@pytest.mark.parametrize(("caption", "tokens"), TABLE)
def test_tokens_of_invented_captions(caption: str, tokens: str) -> None:
    assert native_tokenizer().tokenize(caption) == tokens


@pytest.mark.java
def test_the_reference_gives_the_tokens_of_the_table() -> None:
    assert tokenize_jar([caption for caption, _ in TABLE]) == [tokens for _, tokens in TABLE]


def test_what_is_remembered_of_pieces_changes_nothing() -> None:
    tokenizer = NativeTokenizer()
    for _ in range(2):
        for caption, tokens in random.Random(0).sample(TABLE, len(TABLE)):
            assert tokenizer.tokenize(caption) == tokens


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb_native, "_REMEMBERED", 10)
    tokenizer = NativeTokenizer()
    for caption, tokens in TABLE:
        assert tokenizer.tokenize(caption) == tokens
    assert len(tokenizer.pieces) <= 10


@pytest.mark.parametrize("caption", ["half a \ud83d pair", "\udc00", "ΟΔΟΣ", "the letter Σ."])
def test_what_cannot_be_matched_is_handed_back(caption: str) -> None:
    assert native_tokenizer().tokenize(caption) is None


def test_the_next_caption_counts_only_in_a_batch() -> None:
    first = "the letter S."
    assert native_tokenizer().tokenize(first) == "the letter s."
    assert native_tokenizer().tokenize_batch([first]) == ["the letter s."]
    assert native_tokenizer().tokenize_batch([first, "a dog"]) == ["the letter s.", "a dog"]
    assert native_tokenizer().tokenize_batch([first, "A dog"]) == ["the letter s", "a dog"]
    assert native_tokenizer().tokenize_batch(["a piece of art.", "2 dogs"]) == ["a piece of art.", "2 dogs"]
    assert native_tokenizer().tokenize_batch(["a piece of art.", "", "two dogs"]) == ["a piece of art", "", "two dogs"]


def test_punctuation_is_that_of_the_reference_engine() -> None:
    assert ptb_native.PUNCTUATION == PUNCTUATION


def test_a_jar_of_another_version_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: Path) -> None:
        monkeypatch.setattr(ptb_tables, "tokenizer_jar", lambda: Jar(path, "3.4.1"))
        ptb_tables.load_automaton.__wrapped__()

    other = tmp_path / "other.jar"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("edu/stanford/nlp/process/PTBLexer.class", b"\xca\xfe\xba\xbe of another version")
    with raises(ToolError, "wrong-version", path=other):
        load(other)
    empty = tmp_path / "empty.jar"
    with zipfile.ZipFile(empty, "w"):
        pass
    with raises(ToolError, "unreadable", path=empty):
        load(empty)
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"PK no archive")
    with raises(ToolError, "unreadable", path=broken):
        load(broken)
    with raises(ToolError, "unreadable", path=tmp_path / "missing.jar"):
        load(tmp_path / "missing.jar")


# Pieces that rules of the tokeniser are about, to be put together at random.
_PIECES = [
    *["can't", "cannot", "gonna", "'tis", "'s", "S'", "n't", "d'ye", "o'clock", "rock'n'roll", "'em", "'90s", "I'm"],
    *["Mr.", "U.S.", "St.", "Inc.", "a.m.", "e.g.", "etc.", "No.", "Jan.", "D.C.", "Ph.D.", "art.", "S.", "T.V.", "J."],
    *["1,000", "3.5", "1/2", "10:30", "12/25/2010", "-5", "555-1234", "(555) 123-4567", "1 1/2", "½", "5%", "5°C"],
    *[
        "well-known",
        "and/or",
        "T-shirt",
        "..",
        "...",
        "....",
        ". . .",
        "…",
        "-",
        "--",
        "---",
        "----",
        "-----",
        "–",
        "—",
    ],
    *["`", "``", "'", "''", '"', "“", "”", "‘", "’", "«", "»", "‹", "›", "(", ")", "[", "]", "{", "}", "<", ">"],
    *["$", "£", "€", "¢", "%", "&", "&amp;", "&lt;", "&quot;", "&apos;", "<b>", "<a href='x y'>", "<!-- x -->"],
    *["http://www.example.com/a?b=c", "www.example.org", "a@example.com", ":)", ":-(", ";)", ":D", "#tag", "@user"],
    *[
        "\xad",
        "so\xadft",
        "\xa0",
        "\u2009",
        "\u3000",
        "\u200b",
        "\ufeff",
        "ＦＵＬＬ",
        "é",
        "ß",
        "İ",
        "日本",
        "😀",
        "👍🏽",
        "𝒜",
    ],
    *[
        "\x07",
        "\x80",
        "\x85",
        "\x91",
        "\x94",
        "\r",
        "\x0b",
        "\u2028",
        "~",
        "*",
        "/",
        "\\",
        "|",
        "_",
        "^",
        "=",
        "+",
        "?!",
    ],
    *[
        "a",
        "A",
        "b",
        "I",
        "cat",
        "dog",
        "The",
        "the",
        "2",
        "10",
        "C++",
        "AT&T",
        "3D",
        "-LRB-",
        "*NL*",
        "\\/",
        ".a",
        "a,b",
    ],
]
_PUT_TOGETHER = st.lists(
    st.tuples(st.sampled_from(_PIECES), st.sampled_from([" ", " ", "", ".", ",", "  "])), max_size=8
)
_ANY_TEXT = st.one_of(
    _PUT_TOGETHER.map(lambda parts: "".join(piece + gap for piece, gap in parts)),
    st.text(st.characters(codec="utf-8"), max_size=15),
    st.text("aAbsS.,'\"-– 12/:$()", max_size=15),
)


def _answers(captions: Sequence[str]) -> list[str]:
    """Distinct captions for which the native tokeniser has a result."""
    return [caption for caption in dict.fromkeys(captions) if native_tokenizer().tokenize(caption) is not None]


@pytest.mark.java
def test_generated_captions_equal_the_reference() -> None:
    captions: list[str] = []

    @given(_ANY_TEXT)
    @settings(max_examples=3_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def collect(caption: str) -> None:  # all go through the reference in one run
        captions.append(caption)

    collect()
    rng = random.Random(3)
    for _ in range(20_000):
        parts = [rng.choice(_PIECES) + rng.choice([" ", " ", "", "."]) for _ in range(rng.randint(1, 6))]
        captions.append("".join(parts))
    _assert_equal_alone(captions)


def _assert_equal_alone(captions: Sequence[str], may_be_handed_back: float = 0.02) -> None:
    distinct = list(dict.fromkeys(captions))
    answered = _answers(distinct)
    assert len(answered) >= (1 - may_be_handed_back) * len(distinct)
    wrong = [
        (caption, native_tokenizer().tokenize(caption), tokens)
        for caption, tokens in zip(answered, tokenize_jar(answered), strict=True)
        if native_tokenizer().tokenize(caption) != tokens
    ]
    assert wrong == []


@pytest.mark.java
def test_every_character_of_the_basic_plane_equals_the_reference() -> None:
    codes = [code for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    _assert_equal_alone([f"a{chr(code)}b {chr(code)} 5{chr(code)}{chr(code)}." for code in codes], 0.001)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, (list, tuple)) or (hasattr(value, "dtype") and value.dtype.kind in "OU"):
        for part in value.ravel().tolist() if hasattr(value, "dtype") else value:
            yield from _strings(part)


def _real_texts(folder: Path) -> list[str]:
    """Every text of more than one word in the data: human and machine captions, and some titles."""
    from scipy.io import loadmat

    texts: set[str] = set()
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            text = path.read_text("utf-8-sig")
            try:
                texts.update(_strings(json.loads(text)))
            except json.JSONDecodeError:  # an object a line
                texts.update(_strings([json.loads(line) for line in text.splitlines() if line.strip()]))
        elif path.suffix == ".mat":
            texts.update(_strings(loadmat(path, simplify_cells=True)))
        elif path.suffix == ".gz":
            texts.update(gzip.decompress(path.read_bytes()).decode("utf-8").split("\n"))
        elif path.suffix in (".txt", ".tsv", ".csv"):
            texts.update(re.split(r"[\t\n]", path.read_text("utf-8-sig")))
    return sorted(each for each in texts if " " in each.strip())


@pytest.mark.java
@pytest.mark.real_data
def test_a_sample_of_real_captions_equals_the_reference(real_data: Path) -> None:
    lines = (real_data / "flickr8k" / "Flickr8k.token.txt").read_text("utf-8").splitlines()
    captions = random.Random(1).sample([line.split("\t")[1] for line in lines], 4_000)
    _assert_equal_alone(captions, 0)


@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.slow
def test_all_real_captions_equal_the_reference(real_data: Path) -> None:
    texts = _real_texts(real_data)
    assert len(texts) > 400_000
    _assert_equal_alone(texts, 0)


@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.slow
def test_all_real_captions_in_one_run_equal_the_reference(real_data: Path) -> None:
    texts = _real_texts(real_data)
    # As pycocoevalcap does: one caption a line, nothing between them.
    jar = tokenizer_jar()
    lines = run_batch(
        ["-cp", jar.path.name, "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"],
        "\n".join(text.replace("\n", " ") for text in texts),
        name="the PTB tokeniser",
        folder=jar.path.parent,
        timeout_s=600,
    ).split("\n")
    expected = [" ".join(word for word in line.rstrip().split(" ") if word not in PUNCTUATION) for line in lines]
    found = native_tokenizer().tokenize_batch(texts)
    assert len(expected) == len(texts)
    # The last caption ends with the text and not with its line, which a smiley would notice.
    assert [pair for pair in zip(texts[:-1], found, expected, strict=False) if pair[1] != pair[2]] == []
