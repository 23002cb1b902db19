"""Labels of the objects in images: of a feature store's regions, of a file of boxes, or of a plain file.

A plain file is one of these:

- JSON, labels by image: ``{"im1.jpg": ["dog", "ball"], "im2.jpg": [{"label": "cat", "score": 0.9}], "im3.jpg": []}``;
- JSON, a list with an object for each image, ``{"image": …, "labels": [...]}``, or for each label,
  ``{"image": …, "label": …, "score": …}``;
- CSV or TSV with the columns ``image``, ``label`` and, if there are any, ``score``: a label a line. An image without
  objects has one line with an empty label.

Scores are confidences from 0 to 1. A label may stand several times: there are so many such objects.
"""

from __future__ import annotations

import csv
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capbench import files
from capbench.errors import DataError, FeatureError
from capbench.features.box_pooling import read_boxes
from capbench.features.class_names import class_names
from capbench.features.store import FeatureStore
from capbench.records import image_id

__all__ = ["FileLabels", "ObjectLabel", "ObjectLabels", "StoreLabels", "read_labels"]

_FORM = 'Give JSON {"image": ["label", …]} or CSV with the columns image,label[,score]'
_TABLES = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class ObjectLabel:
    """One object.

    Attributes:
        name: of its class, such as ``traffic light``.
        score: confidence from 0 to 1; None if nothing says so.
    """

    name: str
    score: float | None = None


class ObjectLabels(ABC):
    """The objects of images."""

    @abstractmethod
    def require(self, images: Sequence[str]) -> None:
        """Raise DataError or FeatureError, which counts and names images of which nothing is known."""

    @abstractmethod
    def of(self, image: str) -> tuple[ObjectLabel, ...]:
        """An image's objects in the order of their source. Raises DataError or FeatureError if it is not there."""

    @abstractmethod
    def key(self, image: str) -> bytes:
        """A checksum that changes with what is known of an image."""


class StoreLabels(ObjectLabels):
    """Classes of a store's regions.

    Args:
        store: with ``class_ids``.
        names: what class numbers stand for, where the store does not say: see :func:`class_names`.

    Raises:
        FeatureError: the store holds no classes, or nothing says what they are called.
    """

    def __init__(self, store: FeatureStore, names: str | None = None) -> None:
        self._store = store
        if "class_ids" not in store.header.fields:
            raise FeatureError("holds no classes of its regions", path=store.paths[0])
        known = class_names(names) if names is not None else store.header.class_names
        if known is None:
            raise FeatureError("does not say what its classes are called", path=store.paths[0])
        self._names = known

    def require(self, images: Sequence[str]) -> None:
        """Raise MissingFeaturesError where the store lacks images."""
        self._store.require(images)

    def of(self, image: str) -> tuple[ObjectLabel, ...]:
        """An image's objects, region by region."""
        regions = self._store[image]
        assert regions.class_ids is not None
        return _named(image, regions.class_ids.tolist(), regions.class_scores, self._names, self._store.paths[0])

    def key(self, image: str) -> bytes:
        """The checksum of the image's regions."""
        return (self._store.checksum(image) or 0).to_bytes(4, "little")


class FileLabels(ObjectLabels):
    """Labels that a file holds; made by :func:`read_labels`.

    Attributes:
        path: the file.
        sha256: of it.
    """

    def __init__(self, path: Path, labels: Mapping[str, tuple[ObjectLabel, ...]]) -> None:
        self.path, self.sha256, self._labels = path, files.sha256_file(path), labels

    def require(self, images: Sequence[str]) -> None:
        """Raise DataError where the file lacks images."""
        missing = [image for image in dict.fromkeys(images) if image not in self._labels]
        if missing:
            named = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise DataError(
                f"lacks labels of {len(missing):,} of {len(set(images)):,} images: {named}",
                path=self.path,
                hint=f"Its images look like '{next(iter(self._labels))}'; an image without objects has an empty list",
            )

    def of(self, image: str) -> tuple[ObjectLabel, ...]:
        """An image's objects."""
        self.require([image])
        return self._labels[image]

    def key(self, image: str) -> bytes:
        """A CRC-32 of the image's labels and scores."""
        return zlib.crc32(repr(self.of(image)).encode()).to_bytes(4, "little")


def read_labels(file: str, names: str | None = None) -> FileLabels:
    """Read a file of labels: JSON, CSV or TSV, or ``.npz`` as :func:`capbench.features.box_pooling.read_boxes` has it.

    Args:
        file: its path.
        names: what class numbers of an ``.npz`` stand for, where it does not say: see :func:`class_names`.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is in no such form, an image stands twice, or a label or score is none; the row is named.
    """
    path = Path(file).expanduser()
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return FileLabels(path, _of_boxes(path, names))
    if suffix == ".json":
        entries = _json_entries(files.read_json(path, unique_keys=True), path)
    elif suffix in _TABLES:
        entries = _table_entries(files.read_text(path), _TABLES[suffix], path)
    else:
        raise DataError(
            f"has the ending '{path.suffix}'", path=path, hint="Labels are read from .json, .csv, .tsv, .npz"
        )
    labels: dict[str, list[ObjectLabel]] = {}
    whole: set[str] = set()  # images that one entry tells all of
    for row, name, objects, tells_all in entries:
        if not isinstance(name, str) or not name.strip():
            raise DataError("names no image", path=path, row=row, hint=_FORM)
        image = image_id(name.strip())
        if image in whole or (tells_all and image in labels):
            raise DataError(f"the image '{image}' stands there already", path=path, row=row, hint="Keep one of the two")
        if tells_all:
            whole.add(image)
        labels.setdefault(image, []).extend(_label(entry, path, row) for entry in objects)
    if not labels:
        raise DataError("holds no labels", path=path, hint=_FORM)
    return FileLabels(path, {image: tuple(of_image) for image, of_image in labels.items()})


_Entry = tuple[int | str, object, Sequence[object], bool]
"""Row, image, labels, and whether these are all of the image's."""


def _json_entries(data: object, path: Path) -> Iterator[_Entry]:
    if isinstance(data, dict):
        for image, objects in data.items():
            if not isinstance(objects, list):
                raise DataError("the image's labels are no list", path=path, row=f"image '{image}'", hint=_FORM)
            yield f"image '{image}'", image, objects, True
        return
    if not isinstance(data, list):
        raise DataError("is neither labels by image nor a list", path=path, hint=_FORM)
    for number, record in enumerate(data, 1):
        row = f"entry {number}"
        if not isinstance(record, dict) or ("label" in record) == ("labels" in record):
            raise DataError("is no object with 'image' and one of 'labels', 'label'", path=path, row=row, hint=_FORM)
        if "label" in record:
            yield row, record.get("image"), [record], False
        elif isinstance(record["labels"], list):
            yield row, record.get("image"), record["labels"], True
        else:
            raise DataError("'labels' is no list", path=path, row=row, hint=_FORM)


def _table_entries(text: str, delimiter: str, path: Path) -> Iterator[_Entry]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        head = [name.strip() for name in next(reader, [])]
        if sorted(head) not in (["image", "label"], ["image", "label", "score"]):
            shown = ", ".join(head)[:60] or "nothing"
            raise DataError(f"the first line names the columns {shown}", path=path, row=1, hint=_FORM)
        last = reader.line_num
        for cells in reader:
            row, last = last + 1, reader.line_num
            if not cells:
                continue
            if len(cells) != len(head):
                raise DataError(f"has {len(cells)} cells, the first line has {len(head)}", path=path, row=row)
            record: dict[str, object] = dict(zip(head, (cell.strip() for cell in cells), strict=True))
            if "score" in record:
                record["score"] = _number(str(record["score"]))
            yield row, record["image"], [record] if record["label"] else [], False
    except csv.Error as error:
        raise DataError(
            f"is no well-formed table ({error})", path=path, row=reader.line_num, hint="Check its quotes"
        ) from error


def _number(cell: str) -> object:
    if not cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def _label(entry: object, path: Path, row: int | str) -> ObjectLabel:
    name, score = (entry.get("label"), entry.get("score")) if isinstance(entry, dict) else (entry, None)
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{str(name)[:40]!r} is no label", path=path, row=row, hint=_FORM)
    if score is None:
        return ObjectLabel(name.strip())
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise DataError(
            f"the score of '{name.strip()}' is {str(score)[:40]}, not a number from 0 to 1", path=path, row=row
        )
    return ObjectLabel(name.strip(), float(score))


def _of_boxes(path: Path, names: str | None) -> dict[str, tuple[ObjectLabel, ...]]:
    boxes = read_boxes(path)
    known = class_names(names) if names is not None else boxes.class_names
    if known is None:
        raise DataError(
            "does not say what its classes are called",
            path=path,
            hint="Say it with the option 'classes': coco-80, or a file with a name a line",
        )
    labels = {}
    for image, of_image in boxes.images.items():
        if of_image.class_ids is None:
            raise DataError("holds no 'class_ids'", path=path, hint="Labels are names of classes")
        labels[image] = _named(image, of_image.class_ids.tolist(), of_image.class_scores, known, path)
    return labels


def _named(image: str, ids: Sequence[int], scores: Any, names: Sequence[str], path: Path) -> tuple[ObjectLabel, ...]:
    """Objects of class numbers. Raises DataError if a number has no name."""
    if max(ids, default=0) >= len(names):
        raise DataError(
            f"the image '{image}' has an object of class {max(ids)}, and there are {len(names)} names",
            path=path,
            hint="Name the list of the detector that found them with the option 'classes'",
        )
    confidences = [None] * len(ids) if scores is None else [min(float(score), 1.0) for score in scores.tolist()]
    return tuple(ObjectLabel(names[number], score) for number, score in zip(ids, confidences, strict=True))
