"""Warnings about user captions that are valid but would have misleading scores."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from capbench.core.records import Item, image_id

_SAME_SHARE = 0.5
_LONG = 3.0
_MOST_LISTED = 3
_MOST_LISTED_CHARACTERS = 40


def caption_warnings(items: Sequence[Item], metrics: Sequence[str] = ()) -> list[str]:
    """Warnings about captions that are valid but would have misleading scores.

    ``metrics``: names of the metrics that score them, except those with document frequencies of another corpus.
    """
    lines = (
        _some(items, lambda item: not item.candidate, "empty: metrics score them 0"),
        *damaged_captions(items),
        _some(items, _is_number, "an image id or a number"),
        _alike(items),
        _some(items, _is_copied, "among their own references"),
        _long(items),
        _one_document(items, metrics),
    )
    return [line for line in lines if line]


def _some(items: Sequence[Item], fits: Callable[[Item], bool], words: str) -> str:
    """One line on the candidates that fit; ``""`` if none does."""
    fitting = [item for item in items if fits(item)]
    if not fitting:
        return ""
    first, verb = fitting[0], "is" if len(fitting) == 1 else "are"
    shown = f"first: image '{first.image}', '{first.candidate[:_MOST_LISTED_CHARACTERS]}'"
    return f"{len(fitting):,} of {len(items):,} candidates {verb} {words} ({shown})"


def _is_number(item: Item) -> bool:
    return item.candidate.isdigit() or image_id(item.candidate) == item.image


def _is_copied(item: Item) -> bool:
    return _bare(item.candidate) in map(_bare, item.references)


def note_without_candidate(missing: Sequence[str], items: Sequence[Item], references: str) -> str:
    """One line on images with references but without a candidate; ``""`` if there are none."""
    if not missing:
        return ""
    images = len(missing) + len({item.image for item in items})
    listed = ", ".join(missing[:_MOST_LISTED]) + (", …" if len(missing) > _MOST_LISTED else "")
    verb = "has" if len(missing) == 1 else "have"
    return f"{len(missing):,} of {images:,} images of {references} {verb} no caption: {listed}"


_SUSPECT = re.compile("[<\\[(ÃÂâ\ufffd]")  # fast: most captions have none of these
_TOKENS = re.compile(
    r"<\|[^|<>]*\|>|</?s>|<(?:unk|pad|eos|bos|sos|start|end|sep|cls|mask)>|"
    r"\[(?:pad|unk|sep|cls|mask|eos|bos|unused\d+)\]",
    re.IGNORECASE,
)
_MOJIBAKE = re.compile("[ÃÂ][\u0080-\u00bf]|â€|\ufffd")  # UTF-8 that was read as Latin-1 or Windows-1252


def damaged_captions(items: Iterable[Item]) -> Iterator[str]:
    """One line each for tokens of a model, broken encoding, and lists as text, in candidates or references."""
    kinds: dict[str, tuple[Callable[[str], object], str]] = {
        "contain a token of a model": (_TOKENS.search, "remove it, or metrics count it as a word"),
        "have a broken encoding": (_MOJIBAKE.search, "write the file as UTF-8 again"),
        "are a list written as a text": (_is_list, "write the strings, or a list of strings"),
    }
    found: dict[tuple[str, str], list[tuple[Item, str]]] = {}
    for item in items:
        for role, text in (("candidates", item.candidate), *(("references", text) for text in item.references)):
            if _SUSPECT.search(text):
                for kind, (is_so, _) in kinds.items():
                    if is_so(text):
                        found.setdefault((kind, role), []).append((item, text))
    for (kind, role), texts in found.items():
        item, text = texts[0]
        shown = text if len(text) <= _MOST_LISTED_CHARACTERS else f"{text[:_MOST_LISTED_CHARACTERS]}…"
        yield f"{len(texts):,} {role} {kind} (first: image '{item.image}', {shown}): {kinds[kind][1]}"


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


def _bare(text: str) -> str:
    """A text in lower case without its final punctuation."""
    return text.lower().rstrip(" .!")


def _long(items: Sequence[Item]) -> str:
    references = [text.count(" ") + 1 for item in items for text in item.references]
    if not references:
        return ""
    of_candidates = median(item.candidate.count(" ") + 1 for item in items)
    of_references = median(references)
    if of_candidates < _LONG * max(of_references, 1):
        return ""
    return (
        f"candidates have a median of {of_candidates:g} words, references of {of_references:g}: metrics that count "
        "n-grams penalise the additional words"
    )


def _one_document(items: Sequence[Item], metrics: Sequence[str]) -> str:
    if not {"cider", "spider"} & set(metrics) or len({item.image for item in items}) > 1:
        return ""
    return (
        "CIDEr of a single image is 0, because n-grams that occur in all documents have no weight: use document "
        "frequencies of another corpus (--option cider.df=coco-val, or a file of captions)"
    )
