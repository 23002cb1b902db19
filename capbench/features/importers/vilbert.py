"""ViLBERT's pickled dictionaries, one per image, in ``.npy`` files or in an LMDB database.

The database holds a dictionary under each image id, and the list of ids under ``keys``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, require
from capbench.core.pickles import load_npy, load_pickle
from capbench.core.records import image_id
from capbench.features.importers.arrays import (
    FieldError,
    ImportedImage,
    base64_array,
    demand,
    flat_field,
    float_matrix,
    invalid_field,
    single_number,
    too_large,
    unreadable,
    whole_number,
)
from capbench.features.records import PROBABILITY_SLACK, RegionFeatures

__all__ = ["parse_vilbert", "read_lmdb", "read_vilbert"]


_VILBERT_NAMES = {"bbox": "boxes", "image_h": "image_height", "image_w": "image_width", "img_id": "image_id"}


def read_vilbert(path: Path, *, probabilities: bool = False) -> Iterator[ImportedImage]:
    """One image in the format of ViLBERT's extraction script: a pickled dictionary, read by a restricted unpickler.

    Args:
        path: the file.
        probabilities: import ``cls_prob`` in addition to the class and the confidence that follow from it.

    Raises:
        DataError: the content is something else, a class is unknown, arrays do not fit each other, or requested
            probabilities are missing.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error
    too_large(size, path)
    name = path.name.removesuffix(".npy")
    regions = parse_vilbert(load_npy(path), path, None, default_id=name, probabilities=probabilities)
    yield ImportedImage(regions, path)


def parse_vilbert(
    record: Any, path: Path, row: str | None, *, default_id: str, probabilities: bool = False
) -> RegionFeatures:
    """Regions from ViLBERT's dictionary; arrays may be base64, as in LMDB files.

    All rows of ``features`` are imported, as in ViLBERT's own reader: its extraction script puts regions that were
    suppressed in every class at the end and does not count them in ``num_boxes``. :func:`_vilbert_classes` describes
    the classes; with ``probabilities`` all of ``cls_prob`` is imported, too.

    Raises:
        DataError: the record is not a dictionary of such arrays, they do not fit each other, or requested
            probabilities are missing.
    """
    if not isinstance(record, Mapping):
        raise DataError(
            f"contains a {type(record).__name__}, not a dictionary of arrays",
            code="wrong-type",
            value=type(record).__name__,
            path=path,
            row=row,
        )
    renamed = {_VILBERT_NAMES.get(str(key), str(key)): value for key, value in record.items()}
    demand(renamed, ("features", "boxes", "image_width", "image_height"), path)
    try:
        features, boxes = (_decoded(renamed[name], name) for name in ("features", "boxes"))
        n = whole_number(single_number(renamed.get("num_boxes", len(boxes))), "num_boxes")
        if features.ndim == boxes.ndim == 2 and 0 < n < len(features) == len(boxes):
            n = len(features)
        width, height = (whole_number(single_number(renamed[name]), name) for name in ("image_width", "image_height"))
        name = renamed.get("image_id", default_id)
        text = name.decode() if isinstance(name, bytes) else str(name)
        return RegionFeatures(
            image_id(text),
            width,
            height,
            float_matrix(boxes, n, 4, "boxes"),
            float_matrix(features, n, None, "features"),
            **_vilbert_classes(renamed, n, probabilities),
        )
    except (ValueError, TypeError) as error:
        raise invalid_field(error, path, row, "Get the file again") from None


def _vilbert_classes(record: Mapping[str, Any], n: int, keep_probabilities: bool) -> dict[str, NDArray[Any]]:
    """Classes and confidences of the ``n`` regions, those that the dictionary contains.

    ``cls_prob`` (n, 1 + classes) contains each region's probabilities, the background first. The class is the most
    probable one except the background, counted from 0 without it; the confidence is its probability. ``objects`` must
    then be these classes, or columns of ``cls_prob`` (the script's ``--background``). Without probabilities (none, or
    zero everywhere) ``objects`` are the classes and there are no confidences. ``objects`` with one value too few are
    ignored: by default the script drops the first region when it should drop the background.
    """
    objects = None
    if record.get("objects") is not None:
        objects = _decoded(record["objects"], "objects", "int64")
        if objects.size not in (n - 1, n):
            raise FieldError("objects", f"has {objects.size} values for {n} boxes", "wrong-shape")
        objects = None if objects.size < n else flat_field(objects, n, "class_ids")
    stated = None if record.get("cls_prob") is None else _decoded(record["cls_prob"], "cls_prob")
    if stated is None or not np.any(stated):
        if keep_probabilities:
            problem = "is missing" if stated is None else "contains only zeros"
            raise FieldError("cls_prob", problem, "missing-value", "Omit --class-probabilities")
        return {} if objects is None else {"class_ids": objects}
    probabilities = float_matrix(stated, n, None, "cls_prob")
    sums = probabilities.sum(axis=1, dtype=np.float64)
    wrong = ~((np.abs(sums - 1) <= PROBABILITY_SLACK) & (probabilities >= 0).all(axis=1))
    if probabilities.shape[1] < 2 or wrong.any():
        row = int(np.flatnonzero(wrong)[0]) if wrong.any() else 0
        problem = f"of region {row} is not a distribution over background and classes (sum {sums[row]:.3g})"
        raise FieldError("cls_prob", problem, "out-of-range")
    foreground = probabilities[:, 1:]
    ids, scores = foreground.argmax(axis=1).astype(np.int32), foreground.max(axis=1)
    if objects is not None:
        named_classes = _are_best(objects, foreground)
        if named_classes.all():
            ids = objects  # the file's choice among equally probable classes
        elif not _are_best(objects, probabilities).all():
            row = int(np.flatnonzero(~named_classes)[0])
            problem = f"of region {row} is {objects[row]}, but class {ids[row]} is the most probable in cls_prob"
            raise FieldError("objects", problem, "mismatch")
    stored = {"class_probabilities": probabilities} if keep_probabilities else {}
    return {"class_ids": ids, "class_scores": scores, **stored}


def _are_best(ids: NDArray[Any], probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """True for each row whose named column has the highest value."""
    last = probabilities.shape[1] - 1
    named = probabilities[np.arange(len(ids)), np.clip(ids, 0, last)]
    best: NDArray[np.bool_] = (ids >= 0) & (ids <= last) & (named >= probabilities.max(axis=1))
    return best


def _decoded(value: Any, field: str, dtype: str = "float32") -> NDArray[Any]:
    return base64_array(value, dtype, field) if isinstance(value, bytes | str) else np.asarray(value)


# A meta page: magic number, version, address and size of the map, two trees (the first contains the page size), last
# page, transaction. Two such pages begin a file; the one with the later transaction is valid.
_META = struct.Struct("<16xII16xI92xQQ")
_MAGIC = 0xBEEFC0DE


def read_lmdb(path: Path, *, probabilities: bool = False) -> Iterator[ImportedImage]:
    """All images of a database (a folder with ``data.mdb``, or one file), read by a restricted unpickler.

    Args:
        path: the folder or file.
        probabilities: import ``cls_prob``, too (:func:`parse_vilbert`).

    Raises:
        ToolError: the package ``lmdb`` is not installed.
        DataError: the file is not an LMDB database, is truncated, or a record cannot be read or has no requested
            probabilities; the error names its key.
    """
    require("lmdb", purpose=str(path))
    import lmdb

    _check_whole(path / "data.mdb" if path.is_dir() else path)
    try:
        base = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, create=False)
    except lmdb.Error as error:
        raise DataError(
            f"is not an LMDB database ({error})", code="wrong-format", path=path, hint="Get it again"
        ) from error
    try:
        with base, base.begin(buffers=False) as transaction:
            for key, value in transaction.cursor():
                if key == b"keys":
                    continue
                name = key.decode("utf-8", "replace")
                place = f"key {name[:60]!r}"  # escaped, since a key may contain line breaks
                too_large(len(value), path, place)
                record = load_pickle(bytes(value), name=f"{path}, {place}")
                regions = parse_vilbert(record, path, place, default_id=name, probabilities=probabilities)
                yield ImportedImage(regions, path, place)
    except lmdb.Error as error:
        raise DataError(f"cannot be read as LMDB ({error})", code="damaged", path=path, hint="Get it again") from error


def _check_whole(file: Path) -> None:
    """Raise DataError if the file ends before its last page: reading beyond the end of a mapped file is fatal."""
    files.check_readable(file)
    try:
        size = file.stat().st_size
        with open(file, "rb") as stream:
            magic, _, page_bytes, last_page, transaction = _META.unpack(stream.read(_META.size))
            if magic != _MAGIC:
                return  # another format, which LMDB rejects
            stream.seek(page_bytes)
            magic, _, _, second_last_page, second_transaction = _META.unpack(stream.read(_META.size))
    except OSError as error:
        raise unreadable(file, error) from error
    except struct.error:  # too short for both pages
        raise DataError(
            "is not an LMDB database (it is truncated)", code="damaged", path=file, hint="Get it again"
        ) from None
    pages = 1 + (second_last_page if magic == _MAGIC and second_transaction > transaction else last_page)
    if pages * page_bytes > size:
        raise DataError(
            f"is truncated: it has {size:,} of {pages * page_bytes:,} bytes",
            code="damaged",
            path=file,
            hint="Get it again",
        )
