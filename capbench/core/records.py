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
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from capbench.core.files import TextSpool

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Coefficient = Literal["tau-b", "tau-c", "spearman", "pearson", "acc-eq"]
"""Coefficients between scores and ratings: four correlations, and pairwise accuracy with tie calibration."""
WithinCoefficient = Literal["tau-b", "tau-c", "spearman", "pearson", "acc-eq", "acc-eq-held-out", "difference-pearson"]
"""Coefficients between scores and ratings within images."""
SourceCoefficient = Literal["tau-b", "tau-c", "pearson"]
"""Coefficients between scores and ratings within sources."""
GradedCoefficient = Literal["pearson", "tau-b"]
"""Coefficients between score differences and graded preferences."""
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
    """The photograph of an image id: Flickr8k and Flickr30k use different ids for the same photograph.

    >>> photograph("1007129816_e794419615"), photograph("1007129816"), photograph("COCO_val2014_000000000974")
    ('1007129816', '1007129816', 'COCO_val2014_000000000974')
    """
    match = _FLICKR8K.fullmatch(image)
    return match[1] if match else image


def caption_key(text: str) -> str:
    """The key under which two captions count as the same text: its letters, marks and digits in any script.

    The text is normalised with Unicode's NFKC and case folding. Marks without a letter or digit are dropped: the
    variation selector of an emoji, an accent in place of an apostrophe. A text without letters and digits is its own
    key.

    Texts that differ only in spaces and punctuation have the same key, including ``1.5`` and ``15``. Before using a key
    to look up a caption's score, check that no other text of the image has the same key.

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
    """Signatures as lines to print, preceded by the label if it is not the metric's name.

    >>> signature_lines({"cider": "cider|capbench:1", "cider-coco": "cider|capbench:1"})
    ['cider|capbench:1', 'cider-coco = cider|capbench:1']
    """
    return [line if line.partition("|")[0] == label else f"{label} = {line}" for label, line in signatures.items()]


def references_hash(references: Sequence[str]) -> str:
    """Hash of a list of references, 16 hex digits (order matters)."""
    return hashlib.blake2b(_UNIT.join(references).encode(), digest_size=8).hexdigest()


def joined_references(references: Iterable[str]) -> str:
    """References as one text, which :func:`cut_references` splits."""
    return _UNIT.join(references)


def cut_references(joined: str) -> list[str]:
    """The one or more references that :func:`joined_references` joined."""
    return joined.split(_UNIT)


def groups_of_images(items: Iterable[Item]) -> dict[str, list[str]]:
    """The images of items, each with the groups of its items."""
    groups: dict[str, dict[str, None]] = {}
    for item in items:
        groups.setdefault(item.image, {})[item.group] = None
    return {image: list(of_image) for image, of_image in groups.items()}


def first_places(hashes: Iterable[bytes]) -> tuple[IntArray, IntArray]:
    """First occurrences of distinct hashes of 16 bytes, in less memory than a dictionary of them.

    Returns:
        their indices, ascending, and the number of occurrences of each.
    """
    joined = bytearray()
    for each in hashes:
        joined += each
    of_each = np.array(memoryview(joined), dtype=np.uint8).view("S16") if joined else np.empty(0, "S16")
    _, first, counts = np.unique(of_each, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


class _Keyed:
    """Slot for a cached key, which is computed from the fields."""

    __slots__ = ("_key",)
    _key: bytes


@dataclass(frozen=True, slots=True)
class Item(_Keyed):
    """A candidate caption of an image with its references.

    An item has two identities. Metrics score the triple of ``image``, ``candidate`` and ``references``, once for each
    distinct triple (:attr:`key`). Human raters judge a candidate: its image, its ``system`` or ``candidate_id``, and
    its text. Two systems with the same caption for an image are two candidates with one score.

    Attributes:
        image: image id (file name without its extension).
        candidate: the caption as published, not tokenised.
        references: the captions to compare with, in published order; empty only if the protocol allows it.
        candidate_id: a name that is unique for (image, system, candidate text) within its data set. Several rows that
            judge the same caption share it.
        group: the part of the data set that it belongs to (``8k``, ``in-domain``), or ``""``.
        system: author of the candidate (``Up-Down``, ``Human``), or ``""`` if unknown.
    """

    image: str
    candidate: str
    references: tuple[str, ...]
    candidate_id: str = ""
    group: str = ""
    system: str = ""

    @property
    def key(self) -> bytes:
        """Hash of (image, candidate, references), 16 bytes."""
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
    """An item that stores its references (at least one) as a single text, in about half the memory.

    It equals the :class:`Item` with the same fields. Each access to ``references`` splits the text again.
    """

    __slots__ = ("_document",)
    _document: str

    @classmethod
    def of_document(cls, image: str, candidate: str, document: str, candidate_id: str = "", system: str = "") -> Self:
        """An item from joined references (:func:`joined_references`); items of an image share the text."""
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


class StoredItem(Item):
    """An item of an :class:`ItemStore`, which reads the fields on each access.

    It equals the :class:`Item` with the same fields; a copy with other fields, and its pickle, are plain items.
    """

    __slots__ = ("_place", "_store")
    _place: int
    _store: ItemStore

    def __new__(cls, *fields: Any, **named: Any) -> Any:
        """A plain item with these fields."""
        return Item(*fields, **named)

    @classmethod
    def at(cls, store: ItemStore, place: int) -> StoredItem:
        """The item at an index of a store."""
        item: StoredItem = object.__new__(cls)
        object.__setattr__(item, "_store", store)
        object.__setattr__(item, "_place", place)
        return item

    @property
    def image(self) -> str:
        """See :class:`Item`."""
        return self._store.fields(self._place)[0]

    @property
    def candidate(self) -> str:
        """See :class:`Item`."""
        return self._store.fields(self._place)[1]

    @property
    def references(self) -> tuple[str, ...]:
        """See :class:`Item`."""
        return tuple(self.document.split(_UNIT))

    @property
    def candidate_id(self) -> str:
        """See :class:`Item`."""
        return self._store.fields(self._place)[2]

    @property
    def group(self) -> str:
        """Empty."""
        return ""

    @property
    def system(self) -> str:
        """See :class:`Item`."""
        return self._store.fields(self._place)[3]

    @property
    def document(self) -> str:
        """The references as :func:`joined_references` gives them."""
        return self._store.document(self._place)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Item):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Item.__match_args__)

    __hash__ = Item.__hash__

    def __reduce__(self) -> tuple[type[Item], tuple[Any, ...]]:
        return Item, tuple(getattr(self, name) for name in Item.__match_args__)


class ItemStore:
    """Items on disk, with a fraction of the memory of items in memory.

    Args:
        records: an empty spool for the items' fields, and for no other text.
        documents: a spool of joined references (:func:`joined_references`).
    """

    def __init__(self, records: TextSpool, documents: TextSpool) -> None:
        self._records, self._documents = records, documents
        self._last: tuple[int, list[str]] = (-1, [])  # several fields of an item are mostly read one after the other

    def add(self, image: str, candidate: str, document: int, candidate_id: str = "", system: str = "") -> StoredItem:
        """Store an item; ``document`` is the number of its one or more references in the spool."""
        record = _UNIT.join((image, candidate, candidate_id, system, str(document)))
        return StoredItem.at(self, self._records.add(record).number)

    def items(self) -> tuple[StoredItem, ...]:
        """All items, as new objects.

        Those of :meth:`add` lie between other objects of that time, whose memory is free only after theirs is.
        """
        return tuple(StoredItem.at(self, place) for place in range(len(self._records)))

    def fields(self, place: int) -> list[str]:
        """Image, candidate, candidate id, system, and number of the references of the item at an index."""
        last, fields = self._last
        if last != place:
            fields = self._records.text(place).split(_UNIT)
            self._last = place, fields
        return fields

    def document(self, place: int) -> str:
        """The joined references of the item at an index."""
        return self._documents.text(int(self.fields(place)[-1]))


@dataclass(frozen=True, eq=False)
class Ratings:
    """Human ratings of single items.

    Attributes:
        item: (n,) index of the rated item.
        value: (n,) the rating, float64.
        rater: (n,) number of the rater within the item, counted from 0; the same number may be different persons for
            different items.
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
        preferred: (n,) +1 if raters preferred the first, -1 the second, 0 for a tie.
        group: (n,) the category of each pair (``HC``, ``HI``, ``HM``, ``MM``), or ``""``.
        votes: (n, 2) votes for the first and the second item; (n, 0) if only the label is known.
        grade: (n,) strength of the preference, with the sign of ``preferred`` (+2: the first is much better, +1:
            slightly better); None if only the direction is known.
    """

    first: IntArray
    second: IntArray
    preferred: IntArray
    group: tuple[str, ...]
    votes: IntArray
    grade: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.preferred)


@dataclass(frozen=True, eq=False)
class Judgements:
    """Human judgements of the items of one data set under one selection of items.

    Attributes:
        dataset: name of the data set (``flickr8k-expert``).
        selection: name of the *items* part of the protocol (``no-own-captions``).
        items: the scored items, including repeats, in published order.
        ratings: ratings by aspect (``expert``, ``correctness``), empty if there are none.
        preferences: pairwise preferences by label (``direct``, ``consensus``), empty if there are none.
        draw: number of the sample, from 0, if references are sampled at random.
        notes: one line for each exclusion or remark (``158 pairs whose caption belongs to the image are left out``).
        reverse: (items,) index of the item with candidate and reference exchanged, if captions are rated against each
            other in both directions: an item's score is then the mean of the scores of both. None otherwise.
        documents: the items of the whole data set if ``items`` are a part of them, else None. Corpus statistics
            (CIDEr's document frequencies) count each of them as one document, so that the score of an item does not
            depend on the part.
    """

    dataset: str
    selection: str
    items: tuple[Item, ...]
    ratings: Mapping[str, Ratings] = field(default_factory=dict)
    preferences: Mapping[str, Preferences] = field(default_factory=dict)
    draw: int = 0
    notes: tuple[str, ...] = ()
    reverse: IntArray | None = None
    documents: tuple[Item, ...] | None = None

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Distinct non-empty groups of the items, in order of first appearance."""
        return tuple(dict.fromkeys(item.group for item in self.items if item.group))


@dataclass(frozen=True)
class ScoreColumn:
    """One column of one request: ``tiger`` has the columns ``tiger``, ``rrs``, ``wds``.

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
        signatures: by label, one line with everything that can change the numbers.
        cached: by label, the number of items whose scores came from the cache.
        group_corpus: by group of the items, the corpus-level value of the group's items for every column;
            empty unless requested.
        cautions: by label, warnings to print with the scores; labels without warnings are omitted.
        trained_on: by label, the training records of the metric's files (:mod:`capbench.core.training_record`); labels
            of metrics without trained files are omitted.
    """

    dataset: str
    items: tuple[Item, ...]
    values: Mapping[ScoreColumn, FloatArray]
    corpus: Mapping[ScoreColumn, float]
    signatures: Mapping[str, str]
    cached: Mapping[str, int] = field(default_factory=dict)
    group_corpus: Mapping[str, Mapping[ScoreColumn, float]] = field(default_factory=dict)
    cautions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trained_on: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
