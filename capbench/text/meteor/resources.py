"""METEOR 1.5's own data for English, read from the jar that pycocoevalcap installs."""

from __future__ import annotations

import zipfile
from functools import cache
from typing import Final

from capbench.errors import ToolError
from capbench.java import meteor_jar

__all__ = ["ENDINGS", "Synonyms", "function_words", "nonbreaking_prefixes", "synonyms"]

# Inflectional endings and what may stand in their place in a base form, in the order in which they are tried
# (WordNet's morphological rules for nouns, verbs and adjectives; Miller et al., WordNet's "morphy"). SPICE uses
# them, too.
ENDINGS: Final = (
    *(
        ("s", ""),
        ("ses", "s"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    *(("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    *(("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)


def _lines(name: str) -> list[str]:
    path = meteor_jar().path
    try:
        with zipfile.ZipFile(path) as jar:
            text = jar.read(name).decode("utf-8")
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ToolError(
            f"'{name}' cannot be read from METEOR's jar ({error})",
            path=path,
            hint="Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'",
        ) from error
    return text.removesuffix("\n").split("\n")


@cache
def function_words() -> frozenset[str]:
    """Words that count as function words."""
    return frozenset(_lines("function/english.words"))


@cache
def nonbreaking_prefixes() -> dict[str, int]:
    """Abbreviation without its full stop → 1, or 2 if the full stop stays before numbers only."""
    prefixes = {}
    for line in _lines("nonbreaking/english.prefixes"):
        parts = line.split()
        if parts and not parts[0].startswith("#"):
            prefixes[parts[0]] = 2 if parts[1:2] == ["#NUMERIC_ONLY#"] else 1
    return prefixes


class Synonyms:
    """WordNet's synonym sets of words and of their base forms.

    Args:
        synsets: word → numbers of the sets that it is in.
        bases: irregular form → its base forms.
    """

    def __init__(self, synsets: dict[str, frozenset[int]], bases: dict[str, list[str]]) -> None:
        self._synsets = synsets
        self._bases = bases
        self._none: frozenset[int] = frozenset()

    def of(self, word: str) -> frozenset[int]:
        """The sets of a lower-case word and of its base form or forms; two words with one in common are synonyms."""
        synsets = self._synsets.get(word, self._none)
        bases = self._bases.get(word)
        if bases is None:
            bases = [self._base(word)]
        return synsets.union(*(self._synsets.get(base, self._none) for base in bases))

    def _base(self, word: str) -> str:
        if word.endswith("ss") or len(word.encode("utf-16-le")) <= 4:
            return word
        # The jar means to set "-ful" aside and to put it back, and puts it back only: "boxful" finds no other base.
        after = "ful" if word.endswith("ful") else ""
        for ending, new in ENDINGS:
            if word.endswith(ending):
                base = word[: -len(ending)] + new
                if base in self._synsets:
                    return base + after
        return ""


@cache
def synonyms() -> Synonyms:
    """METEOR's synonym dictionary (WordNet 3.0)."""
    lines = _lines("synonym/english.synsets")
    synsets = {
        word: frozenset(map(int, numbers.split())) for word, numbers in zip(lines[::2], lines[1::2], strict=True)
    }
    bases: dict[str, list[str]] = {}
    lines = _lines("synonym/english.exceptions")
    for base, forms in zip(lines[::2], lines[1::2], strict=True):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    return Synonyms(synsets, bases)
