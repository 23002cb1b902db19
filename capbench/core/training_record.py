"""Records of the photographs and captions that a trained file was made from, and their overlap with scored items.

A record contains digests only, so that overlap is computed without the training data and no caption can be read from
it. A photograph is identified across data sets: Flickr8k and Flickr30k by Flickr's number, COCO by its own, whatever
the release. Captions are compared by :func:`capbench.core.records.caption_key`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import Item, caption_key, photograph

BY_CHANCE = 0.1
"""Captions of different photographs can be equal ("A dog runs through the grass ."): of the captions of an unrelated
data set, up to 3 % occur among Flickr8k's training captions. From this share on, captions count as read, whatever the
names of their photographs."""
DEV = "its dev split"  # the data that selected the weights of a network that is evaluated on captions during training

_SIZE = 8
_COCO = re.compile(r"(?:COCO_[a-z]+\d{4}_)?(\d{12})")


def _name(image: str) -> str:
    """The name of an image's photograph in all data sets: COCO's number is marked, since Flickr's are numbers, too."""
    coco = _COCO.fullmatch(image)
    return f"coco/{int(coco[1])}" if coco else photograph(image)


@dataclass(frozen=True, eq=False)
class Digests:
    """Digests of distinct names."""

    values: NDArray[np.uint64]  # (n,) uint64, ascending: the first bytes of each name's BLAKE2b
    size: int = _SIZE  # number of these bytes, 1 to 8

    @classmethod
    def of_hex(cls, texts: Iterable[str], size: int) -> Self:
        """Digests that are written as hex digits. Raises ValueError if one is not."""
        return cls(np.unique(np.array([int(text, 16) for text in texts], dtype=np.uint64)), size)

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The inverse of :meth:`text`. Raises ValueError for another text."""
        return cls(np.unique(np.frombuffer(base64.b64decode(text, validate=True), dtype=">u8").astype(np.uint64)))

    def text(self) -> str:
        """Base64 of the digests of eight bytes, in order."""
        return base64.b64encode(self.values.astype(">u8").tobytes()).decode()

    def __len__(self) -> int:
        return len(self.values)

    def has(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) True for the names whose digest is known."""
        return np.isin(_hashed(names, self.size), self.values)

    def has_photographs(self, images: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) True for the images whose photograph is known."""
        if self.size == _SIZE:
            return self.has([_name(image) for image in images])
        # Files of earlier versions: COCO's names are those of one release, the oldest are ids of images.
        return self.has([photograph(image) for image in images]) | self.has(images)


def _hashed(names: Iterable[str], size: int) -> NDArray[np.uint64]:
    digests = (hashlib.blake2b(name.encode(), digest_size=size).digest() for name in names)
    return np.fromiter((int.from_bytes(each) for each in digests), dtype=np.uint64)


def photographs_of(images: Iterable[str]) -> Digests:
    """The digests of the photographs of images."""
    return Digests(np.unique(_hashed(map(_name, images), _SIZE)))


def captions_of(texts: Iterable[str]) -> Digests:
    """The digests of captions."""
    return Digests(np.unique(_hashed(map(caption_key, texts), _SIZE)))


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """The photographs and captions that a trained file was made from."""

    name: str  # name of the file, for notes
    # photographs whose regions or captions were used for training; None if not recorded
    photographs: Digests | None = None
    captions: Digests | None = None  # captions that were used for training; None if not recorded
    # photographs of the captions or judgements that selected the weights; None if there are none
    selected: Digests | None = None
    selected_by: str = ""  # what they are, for notes
    # photographs with the human judgements that the file was fitted to; None if there are none
    fitted: Digests | None = None
    unrecorded: tuple[str, ...] = ()  # names of files that it was made from and that have no record
    # how captions of judged images were treated, JSON values; empty if the training did not decide it
    treatment: Mapping[str, Any] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of files whose training images are not recorded: this one, or files that it was made from."""
        unnamed = self.photographs is None and self.fitted is None
        return tuple(dict.fromkeys([*([self.name] if unnamed else []), *self.unrecorded]))

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without the name."""
        digests = {key: getattr(self, key) for key in ("photographs", "captions", "selected")}
        texts = {key: value.text() for key, value in digests.items() if value is not None and value.size == _SIZE}
        unrecorded = self.unrecorded if "photographs" in texts else self.missing
        more = {"selected_by": self.selected_by, "unrecorded": list(unrecorded), "judged": self.treatment}
        return {**texts, **{key: value for key, value in more.items() if value}}

    @classmethod
    def from_json(cls, name: str, raw: Any) -> Self:
        """The inverse of :meth:`to_json`. Raises AttributeError, TypeError or ValueError for other values."""
        digests = {key: Digests.of_text(raw[key]) for key in ("photographs", "captions", "selected") if key in raw}
        treatment = raw.get("judged")
        return cls(
            name,
            **digests,
            selected_by=str(raw.get("selected_by", "")),
            unrecorded=tuple(map(str, raw.get("unrecorded", ()))),
            treatment=treatment if isinstance(treatment, dict) else None,
        )


def shared_record(records: Sequence[TrainingRecord], name: str) -> TrainingRecord:
    """The photographs and captions that all of one or more files were made from; ``name`` is their ensemble's."""

    def shared(key: str) -> Digests | None:
        each: list[Digests] = [known for record in records if (known := getattr(record, key)) is not None]
        if len(each) < len(records):  # what is not recorded leaves nothing
            return None
        same = [known.values for known in each if known.size == each[0].size]  # others are of an earlier version
        return Digests(reduce(np.intersect1d, same), each[0].size)

    return TrainingRecord(
        name,
        **{key: shared(key) for key in ("photographs", "captions", "selected", "fitted")},
        selected_by=next((record.selected_by for record in records if record.selected_by), ""),
        unrecorded=tuple(dict.fromkeys(each for record in records for each in record.missing)),
        treatment=records[0].treatment,
    )


@dataclass(frozen=True)
class TrainingOverlap:
    """The overlap of scored items with the training of a metric: distinct photographs, candidates and references."""

    label: str  # the metric's label
    group: str  # the group of the items; ``""`` for all items
    files: tuple[str, ...]  # names of the trained files
    unrecorded: tuple[str, ...]  # names of those without a record of their training images
    photographs: int  # number of photographs in the items
    trained: int  # number of those whose regions or captions were used for training
    selected: int  # number of those whose captions or judgements selected the weights
    selected_by: str  # what selected them
    fitted: int  # number of those to whose human judgements the metric was fitted
    candidates: int  # number of candidates in the items
    read_candidates: int | None  # number of those among the training captions; None if these are not recorded
    references: int  # number of references in the items
    read_references: int | None  # number of those among the training captions; None if these are not recorded
    has_read: bool  # True if the metric has read the captions, photographs or judgements of the items

    def line(self) -> str:
        """The overlap in words; ``""`` if there is none and all training data is recorded."""
        total = self.photographs
        shares = (
            (self.trained, "trained on the images or captions of"),
            (self.selected, f"selected by {self.selected_by or 'captions or judgements'} of"),
            (self.fitted, "fitted to human judgements of"),
        )
        parts = [f"{what} {n:,} of {total:,} photographs ({n / total:.1%})" for n, what in shares if n]
        read = (
            (self.read_candidates, self.candidates, "captions"),
            (self.read_references, self.references, "references"),
        )
        texts = [f"{number:,} of {of:,} {noun}" for number, of, noun in read if number]
        if texts:
            if not parts and not self.unrecorded:
                parts.append(f"trained on none of {total:,} photographs")
            parts.append(f"its training captions include {' and '.join(texts)}")
        if self.unrecorded:
            parts.append(f"training images not recorded: {', '.join(self.unrecorded)}")
        return "; ".join(parts)


def training_overlap(
    label: str, records: Sequence[TrainingRecord], items: Iterable[Item], group: str = ""
) -> TrainingOverlap:
    """Compare the training data in a metric's records with items, repeats included, of one ``group``."""
    images: dict[str, str] = {}
    candidates, texts = set[str](), set[str]()
    for item in items:
        images.setdefault(_name(item.image), item.image)
        candidates.add(item.candidate)
        texts.update(item.references)

    def number(key: str, names: Sequence[str]) -> int | None:
        recorded: list[Digests] = [digests for record in records if (digests := getattr(record, key)) is not None]
        known = [each.has(names) if key == "captions" else each.has_photographs(names) for each in recorded]
        return int(np.logical_or.reduce(known).sum()) if known else None

    ids = list(images.values())
    scored, compared = (list(set(map(caption_key, of))) for of in (candidates, texts))
    trained, selected, fitted = (number(key, ids) or 0 for key in ("photographs", "selected", "fitted"))
    read_candidates, read_references = number("captions", scored), number("captions", compared)
    read = (read_candidates or 0) + (read_references or 0)
    return TrainingOverlap(
        label,
        group,
        tuple(dict.fromkeys(record.name for record in records)),
        tuple(dict.fromkeys(name for record in records for name in record.missing)),
        len(ids),
        trained,
        selected,
        next((record.selected_by for record in records if record.selected_by), ""),
        fitted,
        len(scored),
        read_candidates,
        len(compared),
        read_references,
        trained + selected + fitted > 0 or read >= max(1, BY_CHANCE * (len(scored) + len(compared))),
    )


def overlap_lines(overlaps: Iterable[TrainingOverlap]) -> list[str]:
    """One line for each metric whose training overlaps with all items, or is not recorded, after its label."""
    return [f"{overlap.label}: {line}" for overlap in overlaps if not overlap.group and (line := overlap.line())]
