"""Warnings about user captions that are valid but would have misleading scores."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from capbench.core.records import Item

_SAME_SHARE = 0.5
_LONG = 3.0
_MOST_LISTED = 3
_MOST_LISTED_CHARACTERS = 40


def caption_warnings(items: Sequence[Item], metrics: Sequence[str] = ()) -> list[str]:
    """Warnings about captions that are valid but would have misleading scores.

    These are: references that are a list written as one text, identical candidates, candidates that are among their own
    references, candidates several times as long as the references, and a single image with CIDEr.

    Args:
        items: the captions.
        metrics: names of the metrics that score them, except those with document frequencies of another corpus.
    """
    lines = (_written_as_lists(items), _alike(items), _copied(items), _long(items), _one_document(items, metrics))
    return [line for line in lines if line]


def note_without_candidate(missing: Sequence[str], items: Sequence[Item], references: str) -> str:
    """One line on images with references but without a candidate; ``""`` if there are none.

    Args:
        missing: these images.
        items: the captions of the other images.
        references: name of the references.
    """
    if not missing:
        return ""
    images = len(missing) + len({item.image for item in items})
    listed = ", ".join(missing[:_MOST_LISTED]) + (", …" if len(missing) > _MOST_LISTED else "")
    verb = "has" if len(missing) == 1 else "have"
    return f"{len(missing):,} of {images:,} images of {references} {verb} no caption: {listed}"


def _written_as_lists(items: Sequence[Item]) -> str:
    listed = [item for item in items if len(item.references) == 1 and _is_list(item.references[0])]
    if not listed:
        return ""
    return (
        f"{_count(listed, items)} one reference that is a list written as a text (first: image '{listed[0].image}', "
        f"{listed[0].references[0][:_MOST_LISTED_CHARACTERS]}…): write a list of strings"
    )


def _is_list(text: str) -> bool:
    """True if a text is a list of strings in Python or JSON syntax."""
    text = text.strip()
    if not (text.startswith(("[", "(")) and text.endswith(("]", ")"))):
        return False
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(entry, str) for entry in value)


def _alike(items: Sequence[Item]) -> str:
    images = len({item.image for item in items})
    (text, count), *_ = Counter(item.candidate for item in items).most_common(1)
    if images < 2 or count < 2 or count < _SAME_SHARE * len(items):
        return ""
    return f"{count:,} of {len(items):,} candidates are the same text: '{text[:_MOST_LISTED_CHARACTERS]}'"


def _copied(items: Sequence[Item]) -> str:
    copied = [item for item in items if _bare(item.candidate) in map(_bare, item.references)]
    if not copied:
        return ""
    verb = "is one of its own references" if len(copied) == 1 else "are among their own references"
    return f"{len(copied):,} of {len(items):,} candidates {verb} (first: image '{copied[0].image}')"


def _bare(text: str) -> str:
    """A text in lower case without its final punctuation."""
    return text.lower().rstrip(" .!")


def _long(items: Sequence[Item]) -> str:
    references = Counter(text.count(" ") + 1 for item in items for text in item.references)
    if not references:
        return ""
    of_candidates = _median(Counter(item.candidate.count(" ") + 1 for item in items))
    of_references = _median(references)
    if of_candidates < _LONG * max(of_references, 1):
        return ""
    return (
        f"candidates have a median of {of_candidates:g} words, references of {of_references:g}: metrics that count "
        "n-grams penalise the additional words"
    )


def _median(counts: Counter[int]) -> float:
    """The median of numbers by their counts."""
    numbers = sorted(counts)
    ends = list(accumulate(counts[number] for number in numbers))
    middle = (ends[-1] - 1) // 2, ends[-1] // 2
    return sum(numbers[bisect_right(ends, place)] for place in middle) / 2


def _one_document(items: Sequence[Item], metrics: Sequence[str]) -> str:
    if not {"cider", "spider"} & set(metrics) or len({item.image for item in items}) > 1:
        return ""
    return (
        "CIDEr of a single image is 0, because n-grams that occur in all documents have no weight: use document "
        "frequencies of another corpus (--option cider.df=coco-val, or a file of captions)"
    )


def _count(chosen: Sequence[Item], items: Sequence[Item]) -> str:
    return f"{len(chosen):,} of {len(items):,} captions {'has' if len(chosen) == 1 else 'have'}"
