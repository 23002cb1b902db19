"""Crisscrossed Captions (CxC): ratings from 0 to 5 of captions with images and with other captions of COCO.

Files (Parekh and others 2021), in ``cxc/`` of the data folder, tables separated by commas with a header:

- ``sits_val.csv``, ``sits_test.csv`` (semantic image-text similarity): ``caption``, ``image``, ``agg_score``,
  ``sampling_method``;
- ``sts_val.csv``, ``sts_test.csv`` (semantic textual similarity): ``caption1``, ``caption2``, ``agg_score``,
  ``sampling_method``.

``agg_score`` is the mean of several raters. The images are those of COCO's Karpathy validation and test splits.
Captions are given by their numbers in COCO only (``COCO_val2014:sentid:648388``). The rows of a SITS file with the
sampling method ``c2i_original`` name the five captions of every image. In ascending order of their numbers, these are
the first five captions of the image in the files of the Karpathy splits (:data:`capbench.datasets.captions.CORPORA`),
which list an image's captions in that order; ten images of each split have a sixth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from capbench.core.errors import DataError, count
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.protocol import ItemSelection, StatisticSpec, correlations, within_image_statistics
from capbench.datasets.user.caption_readers import Captions

_CITATION = (
    "Z. Parekh, J. Baldridge, D. Cer, A. Waters, Y. Yang: Crisscrossed Captions: Extended Intramodal and Intermodal "
    "Semantic Similarity Judgments for MS-COCO. EACL 2021"
)
_CAPTION = re.compile(r"COCO_val2014:sentid:(\d{1,9})")
_ORIGINAL = "c2i_original"
_SCALE = (0.0, 5.0)
_CAPTIONS_PER_IMAGE = 5
OWN, CROSSED = "own", "crossed"
"""Groups of items: captions of the rated image, and captions of other images."""
CO_CAPTIONS = "co-captions"
"""Group of pairs of captions of one image; the other pairs are :data:`CROSSED`."""


@dataclass(frozen=True)
class _Row:
    """One rating: a caption's number, and the image or the number of the second caption."""

    row: int
    caption: int
    other: str
    score: float
    method: str


@dataclass(frozen=True)
class _Caption:
    """A caption of CxC: its image, its place among the image's captions (from 0), and its text."""

    image: str
    place: int
    text: str


class _Cxc(Dataset):
    citation: ClassVar[str] = _CITATION
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    image_folders: ClassVar[Sequence[str]] = ("coco/images",)
    split: ClassVar[str] = "val"
    """Split of COCO: ``val`` or ``test``."""

    def _file(self, kind: str, what: str) -> Path:
        return self.root.file(f"cxc/{kind}_{self.split}.csv", what=what)

    def _sits(self) -> tuple[Path, list[_Row], Captions, dict[int, _Caption]]:
        """The image-text ratings, the captions of the split's images, and all captions by their numbers."""
        path = self._file("sits", "CxC's ratings of captions with images, which also name the images' captions")
        rows = _read(path, ("caption", "image"))
        captions = load_captions(f"coco-{self.split}", self.root)
        return path, rows, captions, _texts(path, rows, captions)


class _CxcSits(_Cxc):
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
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
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {**correlations("rating"), **within_image_statistics("rating")}
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "spearman")
    groups: ClassVar[Sequence[str] | None] = (OWN, CROSSED)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; ``ratings["rating"]`` has one real-valued rating per item."""
        path, rows, captions, by_number = self._sits()
        items: list[Item] = []
        repeated = 0
        for row in rows:
            caption = _caption(by_number, row.caption, path, row.row)
            of_image = captions[row.other][:_CAPTIONS_PER_IMAGE]
            is_own = caption.image == row.other
            if is_own:
                references = of_image[: caption.place] + of_image[caption.place + 1 :]
            else:
                references = of_image[:4] if selection.name == "four-references" else of_image
            repeated += caption_key(caption.text) in set(map(caption_key, references))
            items.append(Item(row.other, caption.text, references, f"sentid:{row.caption}", OWN if is_own else CROSSED))
        ratings = {"rating": judgement_files.ratings(range(len(rows)), (row.score for row in rows), _SCALE)}
        own = sum(item.group == OWN for item in items)
        notes = [
            f"{own:,} captions are rated with their own image, {len(items) - own:,} with another; the pooled number "
            "mostly measures whether a metric distinguishes these two groups"
        ]
        if repeated:
            notes.append(f"{count(repeated, 'caption')} with the same text as another caption of the image, "
                         "which remains a reference")  # fmt: skip
        return (Judgements(self.name, selection.name, tuple(items), ratings, notes=tuple(notes)),)


class CxcSitsTest(_CxcSits):
    """CxC's ratings of captions with images of COCO's Karpathy test split."""

    name: ClassVar[str] = "cxc-sits@test"
    title: ClassVar[str] = "CxC image-text, test split"
    split: ClassVar[str] = "test"


class CxcSits(_CxcSits):
    """44,722 ratings of captions with images of COCO's Karpathy validation split."""

    name: ClassVar[str] = "cxc-sits"
    title: ClassVar[str] = "CxC image-text"
    beside: ClassVar[Mapping[str, type[Dataset]]] = {"test": CxcSitsTest}


class _CxcSts(_Cxc):
    """Captions rated against captions, without an image.

    The first caption of a pair is the candidate, the second its reference. An item's image is that of its candidate;
    it serves only as the unit of intervals and tests.

    Under ``both-directions`` there is a second item for each pair, with candidate and reference exchanged. The mean of
    a metric's two scores is the score of the pair, and is correlated with the ratings. This is not a mean of two
    coefficients, one for each direction, as draws of references would give it.
    """

    judges_images: ClassVar[bool] = False
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
            ItemSelection("first-to-second", "the first caption of a pair is the candidate, the second its reference"),
            ItemSelection(
                "both-directions",
                "a pair's score is the mean of two scores: of the first caption with the second as reference, and of "
                "the second with the first",
            ),
        )
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = correlations("rating")
    default: ClassVar[tuple[str, str]] = ("first-to-second", "spearman")
    groups: ClassVar[Sequence[str] | None] = (CO_CAPTIONS, CROSSED)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file, then those of the other direction; ratings belong to the first ones."""
        _, _, _, by_number = self._sits()
        path = self._file("sts", "CxC's ratings of pairs of captions")
        rows = _read(path, ("caption1", "caption2"))
        forward: list[Item] = []
        backward: list[Item] = []
        for row in rows:
            first = _caption(by_number, row.caption, path, row.row)
            other = _number(row.other, path, row.row)
            second = _caption(by_number, other, path, row.row)
            group = CO_CAPTIONS if first.image == second.image else CROSSED
            forward.append(Item(first.image, first.text, (second.text,), f"sentid:{row.caption}-{other}", group))
            backward.append(Item(second.image, second.text, (first.text,), f"sentid:{other}-{row.caption}", group))
        ratings = {"rating": judgement_files.ratings(range(len(rows)), (row.score for row in rows), _SCALE)}
        same = sum(item.group == CO_CAPTIONS for item in forward)
        notes = (f"{same:,} pairs of captions of one image, {len(rows) - same:,} of two images",)
        if selection.name == "first-to-second":
            return (Judgements(self.name, selection.name, tuple(forward), ratings, notes=notes),)
        places = np.arange(2 * len(rows))
        return (
            Judgements(
                self.name,
                selection.name,
                (*forward, *backward),
                ratings,
                notes=(*notes, "the scores of both directions are averaged"),
                reverse=np.roll(places, len(rows)),
            ),
        )


class CxcStsTest(_CxcSts):
    """CxC's ratings of pairs of captions of COCO's Karpathy test split."""

    name: ClassVar[str] = "cxc-sts@test"
    title: ClassVar[str] = "CxC text-text, test split"
    split: ClassVar[str] = "test"


class CxcSts(_CxcSts):
    """44,009 ratings of pairs of captions of COCO's Karpathy validation split."""

    name: ClassVar[str] = "cxc-sts"
    title: ClassVar[str] = "CxC text-text"
    beside: ClassVar[Mapping[str, type[Dataset]]] = {"test": CxcStsTest}


def _read(path: Path, names: tuple[str, str]) -> list[_Row]:
    """The ratings of a file, in its order.

    Args:
        path: the file.
        names: its first two columns.

    Raises:
        DataError: the header or the number of cells differs, a caption has no number, a score is not a number from 0
            to 5, or a pair is rated twice.
    """
    columns = (*names, "agg_score", "sampling_method")
    repeats = judgement_files.Repeats(path, "rating of that pair")
    rows = []
    for number, cells in judgement_files.table_rows(path, columns, ","):
        if number == 1:
            if tuple(cell.strip() for cell in cells) != columns:
                hint = f"The first line must be {','.join(columns)}"
                raise DataError("has another header", code="missing-column", path=path, row=1, hint=hint)
            continue
        first, second, text, method = (cell.strip() for cell in cells)
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not _SCALE[0] <= score <= _SCALE[1]:  # NaN too
            problem, hint = f"the score '{text}' is not a number from 0 to 5", "Correct that row"
            raise DataError(problem, code="out-of-range", value=text, path=path, row=number, hint=hint)
        if names[1] == "image":
            second = judgement_files.parse_image(second, "image", path=path, row=number)
        if not repeats.check((first, second), score, number):
            rows.append(_Row(number, _number(first, path, number), second, score, method))
    if not rows:
        raise judgement_files.file_error("contains no rating", "missing-value", path)
    return rows


def _number(text: str, path: Path, row: int) -> int:
    found = _CAPTION.fullmatch(text)
    if found is None:
        hint = "Write COCO_val2014:sentid: and the caption's number"
        problem = f"'{text[:80]}' is not the id of a caption"
        raise DataError(problem, code="wrong-value", value=text[:80], path=path, row=row, hint=hint)
    return int(found[1])


def _texts(path: Path, rows: Sequence[_Row], captions: Captions) -> dict[int, _Caption]:
    """The captions by their numbers: those of an image in ascending order are its first captions in the corpus.

    Raises:
        DataError: an image is not in the corpus, or does not have five captions in both files.
    """
    of_image: dict[str, set[int]] = {}
    for row in rows:
        if row.other not in captions:
            raise DataError(
                f"the image {row.other} has no captions in {captions.source.name}",
                code="missing-references",
                value=row.other,
                path=path,
                row=row.row,
                hint="Both files must be of the same split",
            )
        if row.method == _ORIGINAL:
            of_image.setdefault(row.other, set()).add(row.caption)
    by_number = {}
    for image, numbers in of_image.items():
        texts = captions[image]
        if len(numbers) != _CAPTIONS_PER_IMAGE or len(texts) < _CAPTIONS_PER_IMAGE:
            raise DataError(
                f"the image {image} has {count(len(numbers), 'caption')} of the method {_ORIGINAL} and {len(texts)} in "
                f"{captions.source.name}, expected {_CAPTIONS_PER_IMAGE}",
                code="mismatch",
                value=image,
                path=path,
                hint="Get both files again: captions are matched by the order of their numbers",
            )
        for place, number in enumerate(sorted(numbers)):
            by_number[number] = _Caption(image, place, texts[place])
    return by_number


def _caption(by_number: Mapping[int, _Caption], number: int, path: Path, row: int) -> _Caption:
    try:
        return by_number[number]
    except KeyError:
        raise DataError(
            f"no image has the caption {number}",
            code="unknown-item",
            value=number,
            path=path,
            row=row,
            hint=f"Every caption needs a row with its own image and the method {_ORIGINAL} in the file of SITS",
        ) from None
