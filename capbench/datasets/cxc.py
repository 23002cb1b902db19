"""Crisscrossed Captions (CxC): ratings from 0 to 5 of captions with images and with other captions of COCO.

Files (Parekh and others 2021) in ``cxc/``: ``sits_val.csv``, ``sits_test.csv`` (semantic image-text similarity) and
``sts_val.csv``, ``sts_test.csv`` (semantic textual similarity).

``agg_score`` is the mean of several raters. The images are those of COCO's Karpathy validation and test splits.
Captions are given by their numbers in COCO only (``COCO_val2014:sentid:648388``). The rows of a SITS file with the
sampling method ``c2i_original`` name the five captions of every image. In ascending order of their numbers, these are
the first five captions of the image in the files of the Karpathy splits (:data:`capbench.datasets.captions.CORPORA`),
which list an image's captions in that order; ten images of each split have a sixth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field

from capbench.core.errors import count
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets import judgement_files
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name, correlations, within_image_statistics
from capbench.datasets.row_models import Image, Row, read_rows, wrong
from capbench.datasets.user.caption_readers import Captions

_CAPTION = re.compile(r"COCO_val2014:sentid:(\d{1,9})")
_ORIGINAL = "c2i_original"
_SCALE = (0.0, 5.0)
_CAPTIONS_PER_IMAGE = 5
OWN, CROSSED = "own", "crossed"  # groups of items: captions of the rated image, and captions of other images
CO_CAPTIONS = "co-captions"  # group of pairs of captions of one image; the other pairs are :data:`CROSSED`


def _caption_number(text: object) -> int:
    if not (found := _CAPTION.fullmatch(str(text).strip())):
        raise wrong("wrong-value", f"'{text!s:.80}' is not COCO_val2014:sentid: and a caption's number")
    return int(found[1])


Caption = Annotated[int, BeforeValidator(_caption_number)]


class _Rated(Row):
    score: float = Field(validation_alias="agg_score", ge=0, le=5)


class _Sits(_Rated):
    """A rating of a caption with an image."""

    caption: Caption
    image: Image
    method: str = Field(validation_alias="sampling_method")


class _Sts(_Rated):
    """A rating of two captions."""

    caption: Caption = Field(validation_alias="caption1")
    other: Caption = Field(validation_alias="caption2")


@dataclass(frozen=True)
class _Caption:
    """A caption of CxC: its image, its place among the image's captions (from 0), and its text."""

    image: str
    place: int
    text: str


class _Cxc(Dataset):
    version, versions = AS_PUBLISHED
    image_folders: ClassVar[Sequence[str]] = ("coco/images",)
    split: ClassVar[str] = "val"  # split of COCO: ``val`` or ``test``

    def _sits(self) -> tuple[list[_Sits], Captions, dict[int, _Caption]]:
        """The image-text ratings, the captions of the split's images, and all captions by their numbers."""
        what = "CxC's ratings of captions with images, which also name the images' captions"
        path = self.root.file(f"cxc/sits_{self.split}.csv", what=what)
        rows = read_rows(path, _Sits, ["caption", "image"])
        captions = load_captions(f"coco-{self.split}", self.root)
        return rows, captions, _texts(rows, captions)


class CxcSits(_Cxc):
    """44,722 ratings of captions with images of COCO's Karpathy validation split."""

    name: ClassVar[str] = "cxc-sits"
    title: ClassVar[str] = "CxC image-text"
    variants: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "test": {"title": "CxC image-text, test split", "split": "test"}
    }
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "own-caption-out",
            "all captions; the references are the image's five captions without the rated one: four for the "
            "image's own captions, five for captions of other images",
        ),
        ItemSelection(
            "four-references",
            "as own-caption-out, with only the first four references of captions of other images",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {**correlations("rating"), **within_image_statistics("rating")}
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "spearman")
    groups: ClassVar[Sequence[str] | None] = (OWN, CROSSED)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; ``ratings["rating"]`` has one real-valued rating per item."""
        rows, captions, by_number = self._sits()
        items: list[Item] = []
        repeated = 0
        for row in rows:
            caption = _caption(by_number, row, row.caption)
            of_image = captions[row.image][:_CAPTIONS_PER_IMAGE]
            is_own = caption.image == row.image
            if is_own:
                references = of_image[: caption.place] + of_image[caption.place + 1 :]
            else:
                references = of_image[:4] if selection.name == "four-references" else of_image
            repeated += caption_key(caption.text) in set(map(caption_key, references))
            items.append(Item(row.image, caption.text, references, f"sentid:{row.caption}", OWN if is_own else CROSSED))
        ratings = {"rating": judgement_files.ratings(range(len(rows)), (row.score for row in rows), _SCALE)}
        same = sum(item.group == OWN for item in items)
        notes = [
            f"{same:,} captions are rated with their own image, {len(items) - same:,} with another; the pooled number "
            "mostly measures whether a metric distinguishes these two groups"
        ]
        if repeated:
            notes.append(f"{count(repeated, 'caption')} with the same text as another caption of the image, "
                         "which remains a reference")  # fmt: skip
        return (Judgements(self.name, selection.name, tuple(items), ratings, notes=tuple(notes)),)


class CxcSts(_Cxc):
    """44,009 ratings of pairs of captions of COCO's Karpathy validation split, without an image.

    The first caption of a pair is the candidate, the second its reference. An item's image is that of its candidate;
    it serves only as the unit of intervals and tests.

    Under ``both-directions`` there is a second item for each pair, with candidate and reference exchanged. The mean of
    a metric's two scores is the score of the pair, and is correlated with the ratings. This is not a mean of two
    coefficients, one for each direction, as draws of references would give it.
    """

    name: ClassVar[str] = "cxc-sts"
    title: ClassVar[str] = "CxC text-text"
    variants: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "test": {"title": "CxC text-text, test split", "split": "test"}
    }
    judges_images: ClassVar[bool] = False
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection("first-to-second", "the first caption of a pair is the candidate, the second its reference"),
        ItemSelection(
            "both-directions",
            "a pair's score is the mean of two scores: of the first caption with the second as reference, and of "
            "the second with the first",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = correlations("rating")
    default: ClassVar[tuple[str, str]] = ("first-to-second", "spearman")
    groups: ClassVar[Sequence[str] | None] = (CO_CAPTIONS, CROSSED)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file, then those of the other direction; ratings belong to the first ones."""
        _, _, by_number = self._sits()
        path = self.root.file(f"cxc/sts_{self.split}.csv", what="CxC's ratings of pairs of captions")
        rows = read_rows(path, _Sts, ["caption", "other"])
        forward: list[Item] = []
        backward: list[Item] = []
        for row in rows:
            first, second = (_caption(by_number, row, number) for number in (row.caption, row.other))
            group = CO_CAPTIONS if first.image == second.image else CROSSED
            forward.append(Item(first.image, first.text, (second.text,), f"sentid:{row.caption}-{row.other}", group))
            backward.append(Item(second.image, second.text, (first.text,), f"sentid:{row.other}-{row.caption}", group))
        ratings = {"rating": judgement_files.ratings(range(len(rows)), (row.score for row in rows), _SCALE)}
        same = sum(item.group == CO_CAPTIONS for item in forward)
        notes: tuple[str, ...] = (f"{same:,} pairs of captions of one image, {len(rows) - same:,} of two images",)
        judgements = Judgements(self.name, selection.name, tuple(forward), ratings, notes=notes)
        if selection.name == "both-directions":
            notes = (*notes, "the scores of both directions are averaged")
            reverse = np.roll(np.arange(2 * len(rows)), len(rows))
            judgements = replace(judgements, items=(*forward, *backward), notes=notes, reverse=reverse)
        return (judgements,)


def _texts(rows: Sequence[_Sits], captions: Captions) -> dict[int, _Caption]:
    """The captions by their numbers: those of an image in ascending order are its first captions in the corpus."""
    of_image: dict[str, list[_Sits]] = {}
    for row in rows:
        row.references_in(captions, row.image, captions.source.name, "Both files must be of the same split")
        if row.method == _ORIGINAL:
            of_image.setdefault(row.image, []).append(row)
    by_number = {}
    for image, originals in of_image.items():
        texts, numbers = captions[image], sorted({row.caption for row in originals})
        if len(numbers) != _CAPTIONS_PER_IMAGE or len(texts) < _CAPTIONS_PER_IMAGE:
            problem = (
                f"the image {image} has {count(len(numbers), 'caption')} of the method {_ORIGINAL} and {len(texts)} in "
                f"{captions.source.name}, expected {_CAPTIONS_PER_IMAGE}"
            )
            hint = "Get both files again: captions are matched by the order of their numbers"
            raise originals[0].error("mismatch", problem, hint, value=image)
        for place, number in enumerate(numbers):
            by_number[number] = _Caption(image, place, texts[place])
    return by_number


def _caption(by_number: Mapping[int, _Caption], row: _Rated, number: int) -> _Caption:
    if number not in by_number:
        hint = f"Every caption needs a row with its own image and the method {_ORIGINAL} in the file of SITS"
        raise row.error("unknown-item", f"no image has the caption {number}", hint, value=number)
    return by_number[number]
