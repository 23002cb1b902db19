"""The PTB tokeniser compared with its jar and with tokens written by hand."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from capbench.core.errors import DataError
from capbench.text import ptb
from capbench.text.java import run_lines, tokenizer_jar
from capbench.text.ptb import LINE_ENDS, PUNCTUATION
from tests.errors import raises
from tests.text.ptb_reference_table import TABLE

_FOLLOWER = "x"  # between captions, so that the jar does not look ahead into the next one


def _jar(captions: Sequence[str]) -> list[str]:
    """The jar's tokens of captions, each by itself."""
    jar, main = tokenizer_jar(), "edu.stanford.nlp.process.PTBTokenizer"
    lines = [line for text in captions for line in (text.translate(LINE_ENDS), _FOLLOWER)]
    options = ["-cp", jar.name, main, "-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    found = list(run_lines(options, lines, name="the PTB tokeniser", folder=jar.parent))
    assert len(found) == len(lines)
    assert set(found[1::2]) <= {_FOLLOWER}
    return [" ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION) for line in found[::2]]


@pytest.mark.parametrize(("caption", "tokens"), TABLE)
def test_tokens_of_invented_captions(caption: str, tokens: str) -> None:
    assert ptb.tokenize([caption]) == [tokens]


def test_odd_captions_shift_nothing() -> None:
    assert ptb.tokenize([]) == []
    assert ptb.tokenize(["", "a dog", "   ", ". . !", "a cat", ""]) == ["", "a dog", "", "", "a cat", ""]
    broken = [f"left{end}right" for end in ("\n", "\r", "\r\n", "\x0b", "\x0c", "\u2028", "\u2029", "\n\n")]
    assert ptb.tokenize([*broken, "after"]) == ["left right"] * len(broken) + ["after"]
    odd = ["zero\0zero", "file\x1cseparator", "next\x85line", "emoji 😀 end", "hard\u00a0space", "*NL*", "a ||| b", "x"]
    assert ptb.tokenize(odd)[4:] == ["hard space", "* nl *", "a | | | b", "x"]
    for caption in ("broken \ud83d", "\udc00"):
        with raises(DataError, "unreadable", value=caption):
            ptb.tokenize(["a dog", caption])


_SIGMAS = ["ΤΟΣ ΣΟΦΟΣ", "ΟΔΟΣ", "Ο ΑΝΔΡΑΣ ΤΗΣ ΠΟΛΗΣ, ΜΕ ΣΚΥΛΟ.", "ΑΣ...", "letter Σ.", "'ΣΑΣ'", "ΑΣ.ΑΣ", "ΑΣ\u0301Α"]


@pytest.mark.java
def test_the_jar_gives_the_tokens_of_the_table_and_of_final_sigmas() -> None:
    assert _jar([caption for caption, _ in TABLE]) == [tokens for _, tokens in TABLE]
    assert ptb.tokenize(_SIGMAS) == _jar(_SIGMAS)
    assert ptb.tokenize(_SIGMAS[:1]) == ["τος σοφος"]


# Pieces that rules of the tokeniser are about, to be put together at random.
_PIECES = r"""
    can't cannot gonna 'tis 's S' n't d'ye o'clock rock'n'roll 'em '90s I'm Mr. U.S. St. Inc. a.m. e.g. etc. No.
    Jan. D.C. Ph.D. art. S. T.V. J. 1,000 3.5 1/2 10:30 12/25/2010 -5 555-1234 5% well-known and/or T-shirt ..
    ... .... - -- --- ---- ----- ` `` ' '' " ( ) [ ] { } < > $ % & &amp; &lt; &quot; &apos; <b>
    http://www.example.com/a?b=c www.example.org a@example.com :) :-( ;) :D #tag @user ~ * / \ | _ ^ = + ?! a A
    b I cat dog The the 2 10 C++ AT&T 3D -LRB- *NL* \/ .a a,b
""".split()  # noqa: SIM905
_PIECES += [
    *("(555) 123-4567", "1 1/2", ". . .", "<a href='x y'>", "<!-- x -->"),
    *"½ 5°C … – — “ ” ‘ ’ « » ‹ › £ € ¢ \xad so\xadft \xa0".split(" "),  # noqa: SIM905
    *"\u2009 \u3000 \u200b \ufeff ＦＵＬＬ é ß İ 日本 😀 👍🏽 𝒜 \x07 \x80 \x85 \x91 \x94 \r \x0b \u2028".split(" "),  # noqa: SIM905
]
_TEXTS = st.one_of(
    st.lists(
        st.tuples(st.sampled_from(_PIECES), st.sampled_from([" ", " ", "", ".", ",", "  ", "\n"])), max_size=8
    ).map(lambda parts: "".join(piece + gap for piece, gap in parts)),
    st.text(st.characters(codec="utf-8"), max_size=15),
    st.text("aAbsS.,'\"-– 12/:$()\n\r\u2028\u00a0", max_size=15),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_TEXTS, min_size=1, max_size=6))
@example(["a dog.", "", " ", "Σ", "the letter S.", "a\nb", "5\u00a01/2 x", "St. Louis", "St."])
def test_captions_together_have_the_tokens_of_each_read_from_end_to_end(captions: list[str]) -> None:
    tokenizer = ptb.native_tokenizer()
    assert tokenizer.tokenize_all(captions) == [tokenizer._whole(caption) for caption in captions]


def _assert_equals_jar(captions: Sequence[str]) -> None:
    distinct = list(dict.fromkeys(captions))
    triples = zip(distinct, ptb.tokenize(distinct), _jar(distinct), strict=True)
    assert [triple for triple in triples if triple[1] != triple[2]] == []


@pytest.mark.java
def test_generated_captions_equal_the_jar() -> None:
    captions: list[str] = []

    @given(_TEXTS)
    @settings(max_examples=1_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def collect(caption: str) -> None:  # all go through the jar in one run
        captions.append(caption)

    collect()
    rng = random.Random(3)
    for _ in range(10_000):
        parts = [rng.choice(_PIECES) + rng.choice([" ", " ", "", "."]) for _ in range(rng.randint(1, 6))]
        captions.append("".join(parts))
    _assert_equals_jar([caption for caption in captions if "Σ" not in caption])


@pytest.mark.java
def test_every_character_of_the_basic_plane_equals_the_jar() -> None:
    codes = [code for code in range(0x10000) if not 0xD800 <= code < 0xE000 and chr(code) != "Σ"]
    _assert_equals_jar([f"a{chr(code)}b {chr(code)} 5{chr(code)}{chr(code)}." for code in codes])


def _real_texts(folder: Path) -> list[str]:
    """Every text of more than one word in the data: human and machine captions, and some titles."""
    texts: set[str] = set()
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            texts.update(map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', path.read_text("utf-8-sig"))))
        elif path.suffix == ".gz":
            texts.update(gzip.decompress(path.read_bytes()).decode("utf-8").split("\n"))
        elif path.suffix in (".txt", ".tsv", ".csv"):
            texts.update(re.split(r"[\t\n]", path.read_text("utf-8-sig")))
    return sorted(each for each in texts if " " in each.strip())


@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.slow
def test_all_real_captions_equal_the_jar(real_data: Path) -> None:
    texts = _real_texts(real_data)
    assert len(texts) > 400_000
    _assert_equals_jar(texts)
