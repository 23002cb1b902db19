"""THumB 1.0: captions by four captioners and by humans for the same 500 COCO images, rated with a rubric.

Files, both JSON Lines (Kasai and others 2022): ``thumb/mscoco_THumB-1.0.jsonl`` (``SYS``, ``seg_id``, ``hyp``,
``image``, precision ``P`` and recall ``R`` from 1 to 5, the penalties ``Fl``, ``Con`` and ``Inc``, and ``human_score``,
which is (P + R) / 2 plus the penalties) and ``thumb/mscoco_references.json`` (``seg_id``, ``refs``: four of COCO's five
captions; the fifth is the system ``Human``).

A candidate is a system's caption of an image: identical captions of two systems are two candidates with separate
ratings.

The published file was corrected in January 2022: before, the captions of ``Human`` were those of other images. The
version is read off the file: it is ``1`` if it has the known SHA-256, or if each human caption is one of COCO's
captions of its image (:func:`capbench.core.records.caption_key`); ``misaligned`` if fewer than half of them are; and
``unknown`` otherwise, or without COCO's captions in the data folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from capbench.core.errors import CapbenchError, DataError, MissingFileError
from capbench.core.files import sha256_file
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.protocol import (
    ItemSelection,
    StatisticSpec,
    correlations,
    system_statistics,
    within_image_statistics,
    within_source_statistics,
)
from capbench.datasets.root import DataRoot

_RATINGS = "thumb/mscoco_THumB-1.0.jsonl"
_REFERENCES = ("thumb/mscoco_references.json", "thumb/mscoco_references.jsonl")
_HUMAN = "Human"
_ASPECTS = {"total": "human_score", "precision": "P", "recall": "R"}
_PENALTIES = ("Fl", "Con", "Inc")
_SCALES = {"total": (0.0, 5.0), "precision": (1.0, 5.0), "recall": (1.0, 5.0)}


@dataclass(frozen=True)
class ThumbRow:
    """One rated caption.

    Attributes:
        row: line in the file, from 1.
        system: the captioner, or ``Human``.
        segment: id of the image in both files.
        image: image id.
        caption: the caption.
        ratings: rating by aspect: ``total``, ``precision``, ``recall``.
    """

    row: int
    system: str
    segment: str
    image: str
    caption: str
    ratings: Mapping[str, float]


class Thumb(Dataset):
    """2,500 captions by four captioners and by humans for the same 500 images, rated once per aspect."""

    name: ClassVar[str] = "thumb"
    title: ClassVar[str] = "THumB"
    image_folders: ClassVar[Sequence[str]] = ("thumb/images", "coco/images")
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {
        "unknown": "a file of neither version",
        "misaligned": "THumB 1.0 before January 2022, with human captions of other images",
        "1": "THumB 1.0 since January 2022",
    }
    citation: ClassVar[str] = (
        "J. Kasai, K. Sakaguchi, L. Dunagan, J. Morrison, R. Le Bras, Y. Choi, N. A. Smith: Transparent Human "
        "Evaluation for Image Captioning. NAACL 2022"
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
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
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        name: spec
        for aspect in _ASPECTS
        for declare in (correlations, within_image_statistics, within_source_statistics, system_statistics)
        for name, spec in declare(aspect, prefix=aspect).items()
    }
    default: ClassVar[tuple[str, str]] = ("all-systems", "total-pearson")
    groups: ClassVar[Sequence[str] | None] = ()
    aliases: ClassVar[Mapping[str, str]] = {
        **{f"{items}/pearson": f"{items}/total-pearson" for items in ("all-systems", "no-human")},
        **{aspect: f"all-systems/{aspect}-pearson" for aspect in _ASPECTS},
    }

    @classmethod
    def newest_version(cls, root: DataRoot) -> str:
        """The version of the file in the data folder; ``1`` if there is none."""
        path = root.locate(_RATINGS)
        try:
            return _version(path, root) if path.is_file() else "1"
        except CapbenchError:  # loading the file raises it again
            return "1"

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file, with systems; ``ratings`` by aspect, one per item.

        Raises:
            DataError: the file is of another version, or has invalid content.
        """
        path = self.root.file(_RATINGS, what="the ratings")
        rows = read_thumb(path)
        version = _version(path, self.root, rows)
        if version != self.version:
            raise DataError(
                f"is version {version} ({self.versions[version]}), not version {self.version}",
                code="wrong-version",
                value=version,
                path=path,
                hint="Name the data set without a version, or get the file of that version",
            )
        references_path = self.root.file(*_REFERENCES, what="the references")
        references = _read_references(references_path)
        for row in rows:
            if row.segment not in references:
                raise DataError(
                    f"the image {row.segment} has no references in {references_path.name}",
                    code="missing-references",
                    value=row.segment,
                    path=path,
                    row=row.row,
                    hint="Both files should be of the same release",
                )
        selected = [row for row in rows if selection.name == "all-systems" or row.system != _HUMAN]
        if not selected:
            raise DataError(
                f"no caption is left under '{selection.name}'",
                code="too-few",
                value=selection.name,
                path=path,
                hint="Choose other items",
            )
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
            Item(row.image, row.caption, references[row.segment], f"{row.image}#{row.system}", system=row.system)
            for row in selected
        )
        ratings = {
            aspect: judgement_files.ratings(
                range(len(selected)), (row.ratings[aspect] for row in selected), _SCALES[aspect]
            )
            for aspect in _ASPECTS
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
    """Read the rated captions, in the order of the file.

    Raises:
        DataError: a line is not a JSON object, a field is missing or of another type, a rating is out of range, the
            total does not match its parts, a system has two captions of one image, or one ``seg_id`` names two images.
    """
    repeats = judgement_files.Repeats(path, "caption of that system and image")
    images: dict[str, str] = {}
    rows = []
    for row, record in judgement_files.json_lines(path):
        system, segment, caption = (
            judgement_files.parse_caption(record.get(key), what, path=path, row=row)
            for key, what in (
                ("SYS", "system (SYS)"),
                ("seg_id", "image's id (seg_id)"),
                ("hyp", "caption (hyp)"),
            )
        )
        image = judgement_files.parse_image(record.get("image"), "image's name (image)", path=path, row=row)
        if images.setdefault(segment, image) != image:
            problem = f"the seg_id {segment} belongs to the image {images[segment]} above"
            hint = "Keep the correct one of the two"
            raise DataError(problem, code="mismatch", value=segment, path=path, row=row, hint=hint)
        precision, recall = (_number(record, key, 1.0, 5.0, path, row) for key in ("P", "R"))
        penalties = sum(_number(record, key, -5.0, 0.0, path, row) for key in _PENALTIES)
        total = _number(record, "human_score", -20.0, 5.0, path, row)
        if abs((precision + recall) / 2 + penalties - total) > 1e-6:
            raise DataError(
                f"the total {total:g} does not match P, R and the penalties ({(precision + recall) / 2 + penalties:g})",
                code="mismatch",
                value=total,
                path=path,
                row=row,
                hint="Correct that row",
            )
        if repeats.check((system, segment), row, row):
            continue
        ratings = {"total": total, "precision": precision, "recall": recall}
        rows.append(ThumbRow(row, system, segment, image, caption, ratings))
    return rows


def _number(record: Mapping[str, Any], key: str, low: float, high: float, path: Path, row: int) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        problem = f"'{key}' is {value!r}, not a number from {low:g} to {high:g}"
        raise DataError(problem, code="out-of-range", value=value, path=path, row=row, hint="Correct that row")
    return float(value)


def _read_references(path: Path) -> dict[str, tuple[str, ...]]:
    references: dict[str, tuple[str, ...]] = {}
    for row, record in judgement_files.json_lines(path):
        segment = judgement_files.parse_caption(record.get("seg_id"), "image's id (seg_id)", path=path, row=row)
        texts = record.get("refs")
        if not isinstance(texts, list) or not texts:
            raise judgement_files.file_error(
                "'refs' is not a list of references", "missing-references", path, row, value=segment
            )
        if segment in references:
            problem = f"the references of {segment} already occur above"
            raise DataError(problem, code="duplicate", value=segment, path=path, row=row, hint="Keep one of the two")
        references[segment] = tuple(
            judgement_files.parse_caption(text, f"reference {n}", path=path, row=row) for n, text in enumerate(texts, 1)
        )
    return references
