"""METEOR 1.5's stemmer and normaliser for English.

The stemmer is Snowball's English one ("Porter2"), as its Java version in METEOR 1.5 runs it: steps and exceptions are
those of M. F. Porter's published definition, before the changes of Snowball 2.1. The normaliser (``-norm``) applies the
jar's rules in its order, with Java's definitions of white space, digits and letters: ASCII in its regular expressions,
except for the letter ranges that it lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from capbench.text.meteor.paraphrases import nonbreaking_prefixes

_VOWELS: Final = frozenset("aeiouy")
_DOUBLES: Final = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_LI_BEFORE: Final = frozenset("cdeghkmnrt")

_WHOLE: Final = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
}
_UNCHANGED: Final = frozenset(["sky", "news", "howe", "atlas", "cosmos", "bias", "andes"])
_UNCHANGED_AFTER_1A: Final = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"]
)
_R1_AFTER: Final = ("gener", "commun", "arsen")

_STEP2: Final = (
    ("ization", "ize"),
    ("ational", "ate"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("entli", "ent"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ousli", "ous"),
    ("iviti", "ive"),
    ("fulli", "ful"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("abli", "able"),
    ("izer", "ize"),
    ("ator", "ate"),
    ("alli", "al"),
    ("bli", "ble"),
    ("ogi", "og"),
    ("li", ""),
)
_STEP3: Final = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ative", ""),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP4: Final = (
    *("ement", "ance", "ence", "able", "ible", "ment"),
    *("ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion", "al", "er", "ic"),
)


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """The stem of a lower-case word.

    Lengths count UTF-16 units, as in Java; characters beyond the basic plane remain unchanged.
    """
    if not word.isascii() and max(word) > "\uffff":
        units = word.encode("utf-16-le")
        split = "".join(units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2))
        return _stem(split).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _stem(word)


def _stem(word: str) -> str:
    if word in _WHOLE:
        return _WHOLE[word]
    if word in _UNCHANGED or len(word) < 3:
        return word
    word = _mark_consonant_y(word.removeprefix("'"))
    r1, r2 = _regions(word)
    word = _step_1a(word)
    if word not in _UNCHANGED_AFTER_1A:
        word = _step_1b(word, r1)
        word = _step_1c(word)
        word = _step_2(word, r1)
        word = _step_3(word, r1, r2)
        word = _step_4(word, r2)
        word = _step_5(word, r1, r2)
    return word.replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    """Write ``Y`` for a ``y`` at the beginning or after a vowel, where it is a consonant."""
    if "y" not in word:
        return word
    letters = list(word)
    for i, letter in enumerate(letters):
        if letter == "y" and (i == 0 or letters[i - 1] in _VOWELS):
            letters[i] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """Beginnings of R1 and R2: R1 follows the first non-vowel after a vowel, R2 likewise within R1."""
    r1 = next((len(start) for start in _R1_AFTER if word.startswith(start)), None)
    if r1 is None:
        r1 = _after_vowel_and_consonant(word, 0)
    return r1, _after_vowel_and_consonant(word, r1)


def _after_vowel_and_consonant(word: str, start: int) -> int:
    for i in range(start + 1, len(word)):
        if word[i] not in _VOWELS and word[i - 1] in _VOWELS:
            return i + 1
    return len(word)


def _has_vowel(text: str) -> bool:
    return not _VOWELS.isdisjoint(text)


def _ends_in_short_syllable(word: str) -> bool:
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return (
        len(word) > 2
        and word[-3] not in _VOWELS
        and word[-2] in _VOWELS
        and word[-1] not in _VOWELS
        and word[-1] not in "wxY"
    )


def _step_1a(word: str) -> str:
    for ending in ("'s'", "'s", "'"):
        if word.endswith(ending):
            word = word[: -len(ending)]
            break
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")):
        return word
    if word.endswith("s") and _has_vowel(word[:-2]):
        return word[:-1]
    return word


def _step_1b(word: str, r1: int) -> str:
    for ending in ("eedly", "ingly", "edly", "eed", "ing", "ed"):
        if word.endswith(ending):
            break
    else:
        return word
    start = len(word) - len(ending)
    if ending in ("eed", "eedly"):
        return word[:start] + "ee" if start >= r1 else word
    if not _has_vowel(word[:start]):
        return word
    word = word[:start]
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word.endswith(_DOUBLES):
        return word[:-1]
    if len(word) == r1 and _ends_in_short_syllable(word):
        return word + "e"
    return word


def _step_1c(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        return word[:-1] + "i"
    return word


def _step_2(word: str, r1: int) -> str:
    for ending, new in _STEP2:
        if word.endswith(ending):
            start = len(word) - len(ending)
            if start < r1:
                return word
            if ending == "ogi" and word[start - 1 : start] != "l":
                return word
            if ending == "li" and word[start - 1 : start] not in _LI_BEFORE:
                return word
            return word[:start] + new
    return word


def _step_3(word: str, r1: int, r2: int) -> str:
    for ending, new in _STEP3:
        if word.endswith(ending):
            start = len(word) - len(ending)
            if start < r1 or (ending == "ative" and start < r2):
                return word
            return word[:start] + new
    return word


def _step_4(word: str, r2: int) -> str:
    for ending in _STEP4:
        if word.endswith(ending):
            start = len(word) - len(ending)
            if start < r2 or (ending == "ion" and word[start - 1 : start] not in ("s", "t")):
                return word
            return word[:start]
    return word


def _step_5(word: str, r1: int, r2: int) -> str:
    start = len(word) - 1
    if word.endswith("e"):
        if start >= r2 or (start >= r1 and not _ends_in_short_syllable(word[:start])):
            return word[:start]
    elif word.endswith("ll") and start >= r2:
        return word[:start]
    return word


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
_ANYWHERE, _BEFORE_NUMBERS = 1, 2


@lru_cache(maxsize=200_000)
def words(text: str) -> tuple[str, ...]:
    """Words of a line after normalisation and lower-casing.

    Raises:
        UnicodeEncodeError: the text contains half of a surrogate pair.
    """
    text = text.strip(_CONTROL)
    if not _PLAIN.fullmatch(text):
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
    for i, token in enumerate(tokens):
        following = tokens[i + 1] if i + 1 < len(tokens) else ""
        if len(token.encode("utf-16-le")) > 2 and token.endswith("."):
            start = token[:-1]
            kind = prefixes.get(start)
            if "." in start and _LETTER.search(start):
                out.append(token.replace(".", ""))
            elif (
                kind == _ANYWHERE
                or "a" <= following[:1] <= "z"
                or (kind == _BEFORE_NUMBERS and "0" <= following[:1] <= "9")
            ):
                out.append(token)
            else:
                out.append(f"{start} .")
        else:
            out.append(token)
    return "".join(f"{token} " for token in out)
