"""Checks if captions are in a language that English tokenisation and resources cover.

Both checks are heuristics for warnings, not an identification of languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Han with its extensions, Hiragana, Katakana, Bopomofo; Thai, Lao, Myanmar, Khmer.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u312f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Words that most English captions contain, and that are not frequent in captions of other languages.
_COMMON = re.compile(r"\b(?:the|with|and|of|on|at|from|are|there|an|his|her|its|to)\b", re.IGNORECASE)
_FEWEST_WORDS = 3
_SMALLEST_SHARE = 0.2
_LOOKED_AT = 1000
_FEWEST_TEXTS = 5


def without_spaces(texts: Iterable[str]) -> int:
    """Number of texts most of whose letters belong to scripts that are written without spaces between words."""
    number = 0
    for text in texts:
        if not text.isascii():
            letters = sum(map(str.isalpha, text))
            number += 2 * len(_UNSPACED.findall(text)) > letters > 0
    return number


def is_english(texts: Sequence[str]) -> bool:
    """False if texts are hardly English.

    That is: most texts have no Latin letter, or fewer than one in five of those with three words or more contain a
    frequent English function word. About 1,000 texts, spread evenly, are tested. With fewer than five texts of three
    words, the result is True.
    """
    chosen = texts[:: max(1, len(texts) // _LOOKED_AT)]
    foreign = sum(not re.search("[A-Za-z]", text) and any(map(str.isalpha, text)) for text in chosen)
    if 2 * foreign > len(chosen):
        return False
    long = [text for text in chosen if len(text.split()) >= _FEWEST_WORDS]
    if len(long) < _FEWEST_TEXTS:
        return True
    return sum(_COMMON.search(text) is not None for text in long) >= _SMALLEST_SHARE * len(long)
