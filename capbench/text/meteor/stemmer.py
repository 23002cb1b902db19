"""METEOR 1.5's stemmer and normaliser for English.

The stemmer is Snowball's English one ("Porter2") in release 2, whose stems equal those of METEOR 1.5's Java version;
release 3 changed some. The normaliser (``-norm``) applies the jar's rules in its order, with Java's definitions of
white space, digits and letters: ASCII in its regular expressions, except for the letter ranges that it lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from snowballstemmer.english_stemmer import EnglishStemmer

from capbench.text.meteor.paraphrases import nonbreaking_prefixes

_snowball: Final = EnglishStemmer()


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """The stem of a lower-case word of :func:`words`, which separate characters beyond U+FFFF (two letters in Java)."""
    return str(_snowball.stemWord(word))


_LETTERS: Final = (
    "A-Za-z\u0160\u017d\u0161\u017e\u0178\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u04ff\u0500-\u0527"
    "\ua640-\ua66e\ua67e-\ua697\u1d00-\u1d7f"
)
_CONTROL: Final = "".join(map(chr, range(33)))  # characters that Java's String.trim() removes

# A text of lower-case words with single spaces remains unchanged.
_PLAIN: Final = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")

_OTHER: Final = re.compile(rf"([^0-9{_LETTERS} \t\n\x0b\f\r.'`,\-\u2018\u2019])")
_DOTS: Final = re.compile(r"\.(\.+)")
_MARKED_DOT: Final = re.compile(r"DOTMULTI\.([^.])")
_COMMAS: Final = (
    re.compile(r"([^0-9]),([^0-9])"),
    re.compile(r"([0-9]),([^0-9])"),
    re.compile(r"([^0-9]),([0-9])"),
)
_SINGLE_QUOTES: Final = re.compile(r"[`\u2018\u2019]")
_DOUBLE_QUOTES: Final = re.compile(r"[\u201c\u201d]|''")
_HYPHEN: Final = re.compile(rf"([0-9{_LETTERS}.])-([0-9{_LETTERS}])")
_QUOTE_ALONE: Final = (
    re.compile(rf"([^{_LETTERS}])'([^{_LETTERS}])"),
    re.compile(rf"([^{_LETTERS}0-9])'([{_LETTERS}])"),
    re.compile(rf"([{_LETTERS}])'([^{_LETTERS}])"),
)
_QUOTE_BEFORE: Final = (re.compile(rf"([{_LETTERS}])'([{_LETTERS}])"), re.compile(r"([0-9])'(s)"))
_SPLIT: Final = re.compile(r"[ \t\n\r\f]+")
_SPACES: Final = re.compile(r"[ \u2000-\u200a\u202f\u205f\u3000\u00a0]+")
_LETTER: Final = re.compile(rf"[{_LETTERS}]")


@lru_cache(maxsize=200_000)
def words(text: str) -> tuple[str, ...]:
    """Words of a line after normalisation and lower-casing."""
    text = text.strip(_CONTROL)
    if not _PLAIN.fullmatch(text):
        text.encode()  # raises the error
        text = _normalize(text, nonbreaking_prefixes()).lower()
    return tuple(word for word in _SPLIT.split(text) if word)


def _normalize(text: str, prefixes: Mapping[str, int]) -> str:
    text = _OTHER.sub(r" \1 ", f" {text} ")
    text = _DOTS.sub(r" DOTMULTI\1", text)
    while "DOTMULTI." in text:
        text = _MARKED_DOT.sub(r"DOTDOTMULTI \1", text)
        text = text.replace("DOTMULTI.", "DOTDOTMULTI")
    for comma in _COMMAS:
        text = comma.sub(r"\1 , \2", text)
    text = _SINGLE_QUOTES.sub("'", text)
    text = _DOUBLE_QUOTES.sub(' " ', text)
    text = text.replace("\u2013", "-").replace("--", "-")
    text = _HYPHEN.sub(r"\1 \2", text)
    for quote in _QUOTE_ALONE:
        text = quote.sub(r"\1 ' \2", text)
    for quote in _QUOTE_BEFORE:
        text = quote.sub(r"\1 '\2", text)
    text = _full_stops([word for word in _SPLIT.split(text) if word], prefixes)
    while "DOTDOTMULTI" in text:
        text = text.replace("DOTDOTMULTI", "DOTMULTI.")
    text = text.replace("DOTMULTI", ".")
    return _SPACES.sub(" ", text).strip(_CONTROL)


def _full_stops(tokens: list[str], prefixes: Mapping[str, int]) -> str:
    """Separate full stops from words except abbreviations, and remove those of ``u.s.a.``."""
    out = []
    for token, following in zip(tokens, [*tokens[1:], ""], strict=False):
        start, kind = token[:-1], prefixes.get(token[:-1])
        if not start or token[-1] != ".":
            out.append(token)
        elif "." in start and _LETTER.search(start):
            out.append(token.replace(".", ""))
        elif kind == 1 or "a" <= following[:1] <= "z" or (kind == 2 and "0" <= following[:1] <= "9"):
            out.append(token)
        else:
            out.append(f"{start} .")
    return "".join(f"{token} " for token in out)
