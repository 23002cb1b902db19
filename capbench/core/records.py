"""The vocabulary that every room shares: items, human judgements, scores.

Everything here is immutable and does no input or output. Indices are positions in
:attr:`Judgements.items`; arrays are one-dimensional unless a shape is given.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Coefficient",
    "CompactItem",
    "FloatArray",
    "IntArray",
    "Item",
    "Judgements",
    "Preferences",
    "Ratings",
    "ScoreColumn",
    "ScoreTable",
    "SystemCoefficient",
    "TieRule",
    "WithinCoefficient",
    "caption_key",
    "cut_references",
    "image_id",
    "joined_references",
    "photograph",
    "references_hash",
    "signature_lines",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Coefficient = Literal["tau-b", "tau-c", "spearman", "pearson", "acc-eq"]
"""What relates scores to ratings: four correlations, and pairwise accuracy with tie calibration."""
WithinCoefficient = Literal["tau-b", "tau-c", "spearman", "pearson", "acc-eq", "difference-pearson"]
"""What relates scores to ratings within images."""
SystemCoefficient = Literal["pearson", "tau-b", "accuracy", "soft-accuracy"]
"""What relates systems' mean scores to their mean ratings."""
TieRule = Literal["strict", "ties-right", "ties-half"]

_UNIT = "\x1f"  # ASCII unit separator: cannot occur inside a caption that passed validation


_FLICKR8K = re.compile(r"(\d+)_[0-9a-f]{10}")
_NOT_IN_ASCII_KEYS = re.compile("[^a-z0-9]+")


def image_id(file_name: str) -> str:
    """The id of an image: its file name without folders and without the ending.

    >>> image_id("VOC2012/JPEGImages/2008_003849.jpg")
    '2008_003849'
    """
    if "." not in file_name and "/" not in file_name and "\\" not in file_name:
        return file_name
    name = file_name.replace("\\", "/").rsplit("/", 1)[-1]
    stem, dot, ending = name.rpartition(".")
    return stem if dot and ending.lower() in {"jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff"} else name


def photograph(image: str) -> str:
    """The picture behind an image id: Flickr8k and Flickr30k name one photograph differently.

    >>> photograph("1007129816_e794419615"), photograph("1007129816"), photograph("COCO_val2014_000000000974")
    ('1007129816', '1007129816', 'COCO_val2014_000000000974')
    """
    match = _FLICKR8K.fullmatch(image)
    return match[1] if match else image


def caption_key(text: str) -> str:
    """The key under which two captions count as the same text: the letters, marks and digits of every script.

    Unicode's NFKC and case folding come first. A mark that belongs to no letter or digit is left out: the variation
    selector of an emoji, an accent in place of an apostrophe. A text without letters and digits is its own key.

    Texts that differ only in spaces and punctuation have the same key, ``1.5`` and ``15`` among them. Before a key
    decides which score a caption gets, check that no other text of the image has it.

    >>> caption_key("A dog's ball . ") == caption_key("a dogs ball")
    True
    >>> caption_key("Ｄｏｇ 狗"), caption_key("Résumé."), caption_key("???")
    ('dog狗', 'résumé', '???')
    """
    if text.isascii():
        return _NOT_IN_ASCII_KEYS.sub("", text.lower()) or text
    kept: list[str] = []
    takes_marks = False
    for character in unicodedata.normalize("NFKC", text).casefold():
        category = unicodedata.category(character)
        if category[0] in "LN":
            takes_marks = True
        elif category == "Cf":  # a joiner stands between letter and mark (Bengali)
            continue
        elif category[0] != "M":
            takes_marks = False
        if takes_marks:
            kept.append(character)
    return "".join(kept) or text


def signature_lines(signatures: Mapping[str, str]) -> list[str]:
    """Signatures by label as lines to print; a label that is not the metric's name stands before its line.

    >>> signature_lines({"cider": "cider|capbench:1", "cider-coco": "cider|capbench:1"})
    ['cider|capbench:1', 'cider-coco = cider|capbench:1']
    """
    return [line if line.partition("|")[0] == label else f"{label} = {line}" for label, line in signatures.items()]


def references_hash(references: Sequence[str]) -> str:
    """Sixteen hex digits that name a list of references (order matters)."""
    return hashlib.blake2b(_UNIT.join(references).encode(), digest_size=8).hexdigest()


def joined_references(references: Iterable[str]) -> str:
    """References as one text, which :func:`cut_references` cuts."""
    return _UNIT.join(references)


def cut_references(joined: str) -> list[str]:
    """The references in a text that :func:`joined_references` gave of one and more."""
    return joined.split(_UNIT)


class _Keyed:
    """Room for a key that is computed once. It is no field: it follows from the fields."""

    __slots__ = ("_key",)
    _key: bytes


@dataclass(frozen=True, slots=True)
class Item(_Keyed):
    """One thing to score: a candidate caption of an image, against references.

    Two identities meet here. What is scored is the triple of ``image``, ``candidate`` and ``references``: a score is
    computed once for each distinct triple (:attr:`key`). What people judged is a candidate: its image, its ``system``
    or ``candidate_id``, and its text. Two systems that wrote one caption for an image are two candidates with one
    score.

    Attributes:
        image: image id (file name without its ending).
        candidate: the caption as published, not tokenised.
        references: the captions to compare with, in published order; may be empty only where a
            protocol says so.
        candidate_id: a name that is unique for (image, system, candidate text) within its data set. One caption
            that several rows of a data set judge keeps its name.
        group: the part of the data set that it is reported under (``8k``, ``in-domain``), or ``""``.
        system: who or what wrote the candidate (``Up-Down``, ``Human``), or ``""`` where that is not known.
    """

    image: str
    candidate: str
    references: tuple[str, ...]
    candidate_id: str = ""
    group: str = ""
    system: str = ""

    @property
    def key(self) -> bytes:
        """Sixteen bytes that name (image, candidate, references)."""
        try:
            return self._key
        except AttributeError:
            text = _UNIT.join((self.image, self.candidate, *self.references))
            key = hashlib.blake2b(text.encode(), digest_size=16).digest()
            object.__setattr__(self, "_key", key)
            return key

    @property
    def document(self) -> str:
        """The references as :func:`joined_references` gives them."""
        return joined_references(self.references)


class CompactItem(Item):
    """An item that stores its references, at least one, as a single text: a million items take half the memory.

    It equals the :class:`Item` with the same fields. Each access to ``references`` splits the text anew.
    """

    __slots__ = ("_document",)
    _document: str

    @classmethod
    def of_document(cls, image: str, candidate: str, document: str, candidate_id: str = "", system: str = "") -> Self:
        """An item whose references are joined already (:func:`joined_references`); items of an image share the text."""
        return cls(image, candidate, (document,), candidate_id, system=system)

    @property
    def references(self) -> tuple[str, ...]:
        """The captions to compare with, in published order."""
        return tuple(self._document.split(_UNIT))

    @references.setter
    def references(self, texts: tuple[str, ...]) -> None:
        object.__setattr__(self, "_document", joined_references(texts))

    @property
    def document(self) -> str:
        """The references as :func:`joined_references` gives them."""
        return self._document

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Item):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Item.__match_args__)

    __hash__ = Item.__hash__


@dataclass(frozen=True, eq=False)
class Ratings:
    """Human ratings of single items.

    Attributes:
        item: (n,) index of the rated item.
        value: (n,) the rating, float64.
        rater: (n,) which of the item's raters gave it, counted from 0; raters of two items with
            the same number need not be the same person.
        scale: lowest and highest possible rating.
    """

    item: IntArray
    value: FloatArray
    rater: IntArray
    scale: tuple[float, float]

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, eq=False)
class Preferences:
    """Human choices between two items of one image.

    Attributes:
        first: (n,) index of the pair's first item.
        second: (n,) index of its second item.
        preferred: (n,) +1 if people preferred the first, -1 the second, 0 if they were even.
        group: (n,) the category of each pair (``HC``, ``HI``, ``HM``, ``MM``), or ``""``.
        votes: (n, 2) votes for the first and the second item; (n, 0) where only a label is known.
    """

    first: IntArray
    second: IntArray
    preferred: IntArray
    group: tuple[str, ...]
    votes: IntArray

    def __len__(self) -> int:
        return len(self.preferred)


@dataclass(frozen=True, eq=False)
class Judgements:
    """What people said about the items of one data set under one choice of items.

    Attributes:
        dataset: name of the data set (``flickr8k-expert``).
        selection: name of the *items* part of the protocol (``no-own-captions``).
        items: the scored items, repeats included, in published order. Corpus statistics (CIDEr's
            document frequencies) count one document for each of them.
        ratings: ratings by aspect (``expert``, ``correctness``), empty if there are none.
        preferences: pairwise preferences by label (``direct``, ``consensus``), empty if there are none.
        draw: number of the draw, from 0, where references are drawn at random.
        notes: one line for everything that was left out or is worth knowing (``158 pairs whose
            caption belongs to the image are left out``).
    """

    dataset: str
    selection: str
    items: tuple[Item, ...]
    ratings: Mapping[str, Ratings] = field(default_factory=dict)
    preferences: Mapping[str, Preferences] = field(default_factory=dict)
    draw: int = 0
    notes: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Distinct non-empty groups of the items, in order of first appearance."""
        return tuple(dict.fromkeys(item.group for item in self.items if item.group))


@dataclass(frozen=True)
class ScoreColumn:
    """Names one column of one request: ``tiger`` has the columns ``tiger``, ``rrs``, ``wds``.

    Attributes:
        label: the request's label, by default the metric's name.
        column: the metric's column.
    """

    label: str
    column: str


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of items under one or more metric requests.

    Attributes:
        dataset: name of the data set, or of the user's file.
        items: (n) items, in the order of the arrays.
        values: (n,) float64 for every column.
        corpus: one corpus-level value for every column (corpus BLEU, mean CIDEr).
        signatures: by label, one line that names everything which can change the numbers.
        cached: by label, the number of items whose scores came from the cache.
        group_corpus: by group of the items, the corpus-level value of the group's items for every column;
            empty unless it was asked for.
        cautions: by label, what must be said beside the scores; labels without any are left out.
    """

    dataset: str
    items: tuple[Item, ...]
    values: Mapping[ScoreColumn, FloatArray]
    corpus: Mapping[ScoreColumn, float]
    signatures: Mapping[str, str]
    cached: Mapping[str, int] = field(default_factory=dict)
    group_corpus: Mapping[str, Mapping[ScoreColumn, float]] = field(default_factory=dict)
    cautions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
