"""Records that all modules share: items, human judgements, scores.

All are immutable and do no input or output. Indices are positions in :attr:`Judgements.items`; arrays are
one-dimensional unless a shape is given.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Coefficient = Literal["tau-b", "tau-c", "spearman", "pearson", "acc-eq"]
"""Coefficients between scores and ratings: four correlations, and pairwise accuracy with tie calibration."""
WithinCoefficient = Literal["tau-b", "tau-c", "spearman", "pearson", "acc-eq", "acc-eq-held-out", "difference-pearson"]
"""Coefficients between scores and ratings within images."""
SourceCoefficient = Literal["tau-b", "tau-c", "pearson"]  # coefficients between scores and ratings within sources
GradedCoefficient = Literal["pearson", "tau-b"]  # coefficients between score differences and graded preferences
SystemCoefficient = Literal["pearson", "tau-b", "accuracy", "soft-accuracy"]
"""Coefficients between systems' mean scores and mean ratings."""
TieRule = Literal["strict", "ties-right", "ties-half"]

_UNIT = "\x1f"  # ASCII unit separator: cannot occur inside a caption that passed validation


_FLICKR8K = re.compile(r"(\d+)_[0-9a-f]{10}")
_NOT_IN_ASCII_KEYS = re.compile("[^a-z0-9]+")


def image_id(file_name: str) -> str:
    """The id of an image: its file name without folders and extension.

    >>> image_id("VOC2012/JPEGImages/2008_003849.jpg")
    '2008_003849'
    """
    if "." not in file_name and "/" not in file_name and "\\" not in file_name:
        return file_name
    name = file_name.replace("\\", "/").rsplit("/", 1)[-1]
    stem, dot, ending = name.rpartition(".")
    return stem if dot and ending.lower() in {"jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff"} else name


def photograph(image: str) -> str:
    """The photograph of an image id: Flickr8k's 1007129816_e794419615 is Flickr30k's 1007129816."""
    match = _FLICKR8K.fullmatch(image)
    return match[1] if match else image


def caption_key(text: str) -> str:
    """The key under which two captions count as the same text: its letters, marks and digits in any script.

    The text is normalised with Unicode's NFKC and case folding. Marks without a letter or digit are dropped: the
    variation selector of an emoji, an accent in place of an apostrophe. A text without letters and digits is its own
    key. Texts that differ only in spaces and punctuation have the same key, including ``1.5`` and ``15``.

    >>> caption_key("A dog's ball . ") == caption_key("a dogs ball")
    True
    >>> caption_key("Ｄｏｇ 狗"), caption_key("Résumé."), caption_key("???")
    ('dog狗', 'résumé', '???')
    """
    if text.isascii():
        return _NOT_IN_ASCII_KEYS.sub("", text.lower()) or text
    characters: list[str] = []
    takes_marks = False
    for character in unicodedata.normalize("NFKC", text).casefold():
        category = unicodedata.category(character)
        if category[0] in "LN":
            takes_marks = True
        elif category == "Cf":  # a joiner between letter and mark (Bengali)
            continue
        elif category[0] != "M":
            takes_marks = False
        if takes_marks:
            characters.append(character)
    return "".join(characters) or text


def signature_lines(signatures: Mapping[str, str]) -> list[str]:
    """Signatures as lines to print, preceded by the label if it is not the metric's name."""
    return [line if line.partition("|")[0] == label else f"{label} = {line}" for label, line in signatures.items()]


def references_hash(references: Sequence[str]) -> str:
    """Hash of a list of references, 16 hex digits (order matters)."""
    return hashlib.blake2b(_UNIT.join(references).encode(), digest_size=8).hexdigest()


def groups_of_images(items: Iterable[Item]) -> dict[str, list[str]]:
    """The images of items, each with the groups of its items."""
    groups: dict[str, dict[str, None]] = {}
    for item in items:
        groups.setdefault(item.image, {})[item.group] = None
    return {image: list(of_image) for image, of_image in groups.items()}


@dataclass(frozen=True, slots=True)
class Item:
    """A candidate caption of an image with its references.

    Metrics score the triple of ``image``, ``candidate`` and ``references`` (:attr:`key`). Human raters judge a
    candidate: two systems with the same caption for an image are two candidates with one score.
    """

    image: str  # image id (file name without its extension)
    candidate: str  # the caption as published, not tokenised
    # the captions to compare with, in published order; empty only if the protocol allows it
    references: tuple[str, ...]
    # a name that is unique for (image, system, candidate text) within its data set. Several rows that judge the
    # same caption share it
    candidate_id: str = ""
    group: str = ""  # the part of the data set that it belongs to (``8k``, ``in-domain``), or ``""``
    system: str = ""  # author of the candidate (``Up-Down``, ``Human``), or ``""`` if unknown
    _key: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def key(self) -> bytes:
        """Hash of (image, candidate, references), 16 bytes."""
        if not self._key:
            text = _UNIT.join((self.image, self.candidate, *self.references))
            object.__setattr__(self, "_key", hashlib.blake2b(text.encode(), digest_size=16).digest())
        return self._key


@dataclass(frozen=True, eq=False)
class Ratings:
    """Human ratings of single items."""

    item: IntArray  # (n,) index of the rated item
    value: FloatArray  # (n,) the rating, float64
    # (n,) number of the rater within the item, counted from 0; the same number may be different persons for
    # different items
    rater: IntArray
    scale: tuple[float, float]  # lowest and highest possible rating

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, eq=False)
class Preferences:
    """Human choices between two items of one image."""

    first: IntArray  # (n,) index of the pair's first item
    second: IntArray  # (n,) index of its second item
    preferred: IntArray  # (n,) +1 if raters preferred the first, -1 the second, 0 for a tie
    group: tuple[str, ...]  # (n,) the category of each pair (``HC``, ``HI``, ``HM``, ``MM``), or ``""``
    votes: IntArray  # (n, 2) votes for the first and the second item; (n, 0) if only the label is known
    # (n,) strength of the preference, with the sign of ``preferred`` (+2: the first is much better, +1: slightly
    # better); None if only the direction is known
    grade: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.preferred)


@dataclass(frozen=True, eq=False)
class Judgements:
    """Human judgements of the items of one data set under one selection of items."""

    dataset: str  # name of the data set (``flickr8k-expert``)
    selection: str  # name of the *items* part of the protocol (``no-own-captions``)
    items: tuple[Item, ...]  # the scored items, including repeats, in published order
    # ratings by aspect (``expert``, ``correctness``), empty if there are none
    ratings: Mapping[str, Ratings] = field(default_factory=dict)
    # pairwise preferences by label (``direct``, ``consensus``), empty if there are none
    preferences: Mapping[str, Preferences] = field(default_factory=dict)
    draw: int = 0  # number of the sample, from 0, if references are sampled at random
    # one line for each exclusion or remark (``158 pairs whose caption belongs to the image are left out``)
    notes: tuple[str, ...] = ()
    # (items,) index of the item with candidate and reference exchanged, if captions are rated against each other
    # in both directions: an item's score is then the mean of the scores of both. None otherwise
    reverse: IntArray | None = None
    # the items of the whole data set if ``items`` are a part of them, else None. Corpus statistics (CIDEr's
    # document frequencies) count each of them as one document, so that the score of an item does not depend on
    # the part
    documents: tuple[Item, ...] | None = None

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Distinct non-empty groups of the items, in order of first appearance."""
        return tuple(dict.fromkeys(item.group for item in self.items if item.group))


@dataclass(frozen=True)
class ScoreColumn:
    """One column of one request: ``tiger`` has the columns ``tiger``, ``rrs``, ``wds``."""

    label: str  # the request's label, by default the metric's name
    column: str  # the metric's column


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of items under one or more metric requests."""

    dataset: str  # name of the data set, or of the user's file
    items: tuple[Item, ...]  # (n) items, in the order of the arrays
    values: Mapping[ScoreColumn, FloatArray]  # (n,) float64 for every column
    corpus: Mapping[ScoreColumn, float]  # one corpus-level value for every column (corpus BLEU, mean CIDEr)
    signatures: Mapping[str, str]  # by label, one line with everything that can change the numbers
    # by label, the number of items whose scores came from the cache
    cached: Mapping[str, int] = field(default_factory=dict)
    # by group of the items, the corpus-level value of the group's items for every column; empty unless requested
    group_corpus: Mapping[str, Mapping[ScoreColumn, float]] = field(default_factory=dict)
    # by label, warnings to print with the scores; labels without warnings are omitted
    cautions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # by label, the training records of the metric's files (:mod:`capbench.core.training_record`); labels of
    # metrics without trained files are omitted
    trained_on: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
