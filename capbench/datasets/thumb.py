"""THumB 1.0: captions by four captioners and by humans for the same 500 COCO images, rated with a rubric.

Files, both JSON Lines (Kasai et al. 2022): ``thumb/mscoco_THumB-1.0.jsonl``, whose total is (precision + recall) / 2
plus penalties, and ``thumb/mscoco_references.json`` (four of COCO's five captions; the fifth is the system ``Human``).

A candidate is a system's caption of an image: identical captions of two systems are two candidates with separate
ratings.

The published file was corrected in January 2022: before, the captions of ``Human`` were those of other images. The
version is read off the file: it is ``1`` if it has the known SHA-256, or if each human caption is one of COCO's
captions of its image (:func:`capbench.core.records.caption_key`); ``misaligned`` if fewer than half of them are; and
``unknown`` otherwise, or without COCO's captions in the data folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from capbench.core.errors import CapbenchError, DataError, MissingFileError
from capbench.core.files import sha256_file
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.protocol import ItemSelection, StatisticSpec, all_statistics, by_name
from capbench.datasets.root import DataRoot
from capbench.datasets.row_models import Image, Row, Text, read_rows, wrong

_RATINGS = "thumb/mscoco_THumB-1.0.jsonl"
_REFERENCES = ("thumb/mscoco_references.json", "thumb/mscoco_references.jsonl")
_HUMAN = "Human"
_SCALES = {"total": (0.0, 5.0), "precision": (1.0, 5.0), "recall": (1.0, 5.0)}


class ThumbRow(Row):
    """One rated caption: its captioner (or ``Human``), the image's id in both files, the image, and its ratings."""

    system: Text = Field(validation_alias="SYS")
    segment: Text = Field(validation_alias="seg_id")
    image: Image
    caption: Text = Field(validation_alias="hyp")
    precision: float = Field(validation_alias="P", ge=1, le=5, strict=True)
    recall: float = Field(validation_alias="R", ge=1, le=5, strict=True)
    fluency: float = Field(validation_alias="Fl", ge=-5, le=0, strict=True)
    conciseness: float = Field(validation_alias="Con", ge=-5, le=0, strict=True)
    inclusion: float = Field(validation_alias="Inc", ge=-5, le=0, strict=True)
    total: float = Field(validation_alias="human_score", ge=-20, le=5, strict=True)

    @model_validator(mode="after")
    def _adds_up(self) -> ThumbRow:
        total = (self.precision + self.recall) / 2 + self.fluency + self.conciseness + self.inclusion
        if abs(total - self.total) > 1e-6:
            raise wrong("mismatch", f"the total {self.total:g} does not match P, R and the penalties ({total:g})")
        return self


class _References(Row):
    segment: Text = Field(validation_alias="seg_id")
    texts: tuple[Text, ...] = Field(validation_alias="refs", min_length=1)


class Thumb(Dataset):
    """2,500 captions by four captioners and by humans for the same 500 images, rated once per aspect."""

    name: ClassVar[str] = "thumb"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "THumB"
    image_folders: ClassVar[Sequence[str]] = ("thumb/images", "coco/images")
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {
        "unknown": "a file of neither version",
        "misaligned": "THumB 1.0 before January 2022, with human captions of other images",
        "1": "THumB 1.0 since January 2022",
    }
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "all-systems",
            "the captions of all systems and of humans; all four references",
            source="Kasai et al. 2022, with Human",
        ),
        ItemSelection(
            "no-human",
            "only the captions of captioners; all four references",
            source="Kasai et al. 2022, without Human",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        name: spec for aspect in _SCALES for name, spec in all_statistics(aspect, prefix=aspect).items()
    }
    default: ClassVar[tuple[str, str]] = ("all-systems", "total-pearson")
    groups: ClassVar[Sequence[str] | None] = ()

    @classmethod
    def newest_version(cls, root: DataRoot) -> str:
        """The version of the file in the data folder; ``1`` if there is none."""
        path = root.locate(_RATINGS)
        try:
            return _version(path, root) if path.is_file() else "1"
        except CapbenchError:  # loading the file raises it again
            return "1"

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file, with systems; ``ratings`` by aspect, one per item."""
        path = self.root.file(_RATINGS, what="the ratings")
        rows = read_thumb(path)
        version = _version(path, self.root, rows)
        if version != self.version:
            problem = f"is version {version} ({self.versions[version]}), not version {self.version}"
            hint = "Name the data set without a version, or get the file of that version"
            raise DataError(problem, code="wrong-version", value=version, path=path, hint=hint)
        references_path = self.root.file(*_REFERENCES, what="the references")
        listed = read_rows(references_path, _References, ["segment"], form=".jsonl")
        references = {row.segment: row.texts for row in listed}
        selected = [row for row in rows if selection.name == "all-systems" or row.system != _HUMAN]
        notes = []
        if version == "misaligned":
            notes.append("the human captions are those of other images: get the file of January 2022 or later")
        elif version == "unknown":
            notes.append(
                f"{path.name} is of no known version: neither its SHA-256 is known nor are its human captions those of "
                "their images, as far as COCO's captions are in the data folder"
            )
        if len(selected) < len(rows):
            notes.append(f"{len(rows) - len(selected):,} human captions are left out")
        repeated = len(selected) - len({(row.image, row.caption) for row in selected})
        if repeated:
            notes.append(
                f"{repeated:,} captions are identical to another system's caption of the same image: each is a "
                "separate candidate"
            )
        items = tuple(
            Item(row.image, row.caption, texts, f"{row.image}#{row.system}", system=row.system)
            for row in selected
            for texts in [row.references_in(references, row.segment, references_path.name)]
        )
        judgement_files.require_references(items, selection.name, path)
        ratings = {
            aspect: judgement_files.ratings(range(len(selected)), (getattr(row, aspect) for row in selected), scale)
            for aspect, scale in _SCALES.items()
        }
        return (Judgements(self.name, selection.name, items, ratings, notes=tuple(notes)),)


def _version(path: Path, root: DataRoot, rows: Sequence[ThumbRow] | None = None) -> str:
    """The version of a file: see the module. ``rows`` are its rows, if they were read."""
    from capbench.datasets.catalog import catalog

    known = catalog().files[_RATINGS].sha256
    if known is not None and sha256_file(path) == known.value:
        return "1"
    try:
        captions = load_captions("coco-test", root)
    except MissingFileError:
        return "unknown"
    humans = [row for row in (read_thumb(path) if rows is None else rows) if row.system == _HUMAN]
    if not humans or any(row.image not in captions for row in humans):
        return "unknown"
    right = sum(caption_key(row.caption) in set(map(caption_key, captions[row.image])) for row in humans)
    return "1" if right == len(humans) else "misaligned" if 2 * right < len(humans) else "unknown"


def read_thumb(path: Path) -> list[ThumbRow]:
    """Read the rated captions, in the order of the file."""
    rows = read_rows(path, ThumbRow, ["system", "segment"])
    images: dict[str, str] = {}
    for row in rows:
        if images.setdefault(row.segment, row.image) != row.image:
            problem = f"the seg_id {row.segment} belongs to the image {images[row.segment]} above"
            raise row.error("mismatch", problem, value=row.segment)
    return rows
