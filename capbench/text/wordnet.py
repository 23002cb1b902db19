"""WordNet's synonym sets (version 3.0) from METEOR 1.5's jar, for METEOR and SPICE.

Both files consist of pairs of lines: a word and the numbers of its synonym sets; a base form and its irregular forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from capbench.text.java import meteor_jar, read_from_jar

# Inflectional endings and their replacements in the base form, in the order of trial (WordNet's morphological rules for
# nouns, verbs and adjectives; Miller et al., WordNet's "morphy").
_ENDINGS: Final = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    *(("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)
_JAVA_SPACE: Final = "".join(map(chr, range(33)))  # characters that Java's String.trim() removes


class WordNet:
    """Synonym sets by word.

    ``synsets``: words (spaces as ``_``) and the numbers of their synonym sets, separated by white space;
    ``exceptions``: base forms and their irregular forms, separated by white space.
    """

    def __init__(self, synsets: Iterable[tuple[str, str]], exceptions: Iterable[tuple[str, str]] = ()) -> None:
        self._synsets = dict(synsets)
        self._bases: dict[str, list[str]] = {}
        for base, forms in exceptions:
            for form in forms.split():
                self._bases.setdefault(form, []).append(base)
        self._known: dict[str, frozenset[int]] = {}

    def synsets(self, word: str) -> frozenset[int]:
        """Numbers of the synonym sets of a word and of its base form; empty if WordNet does not contain it.

        The base form of an irregular form is looked up; that of any other word is found by removing an ending. A phrase
        is one word (``hot dog``).
        """
        synsets = self._known.get(word)
        if synsets is None:
            key = word.strip(_JAVA_SPACE).lower().replace(" ", "_")
            forms = (key, *(self._bases.get(key) or [self._base(key)]))
            synsets = frozenset(int(n) for form in forms for n in self._synsets.get(form, "").split())
            self._known[word] = synsets
        return synsets

    def _base(self, word: str) -> str:
        if word.endswith("ss") or len(word) <= 2:
            return word
        for ending, replacement in _ENDINGS:
            if word.endswith(ending):
                base = word.removesuffix(ending) + replacement
                if base in self._synsets:
                    return base
        return ""


@cache
def wordnet() -> WordNet:
    """METEOR 1.5's copy of WordNet. Raises ToolError if METEOR's jar is missing or damaged."""
    synsets, exceptions = meteor_lines("synonym/english.synsets"), meteor_lines("synonym/english.exceptions")
    return WordNet(zip(synsets[::2], synsets[1::2], strict=True), zip(exceptions[::2], exceptions[1::2], strict=True))


def meteor_lines(name: str) -> list[str]:
    """Lines of a file in METEOR's jar. Raises ToolError if the jar or the file is missing or damaged."""
    return read_from_jar(meteor_jar(), name).decode().removesuffix("\n").split("\n")
