"""NumPy files: MILVLG (one ``.npz`` an image), SCAN (one array and a list of ids), ViLBERT (one ``.npy`` an image), and
the plain ``.npz`` of many images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import DataError
from capbench.features.importers.values import (
    Found,
    base64_array,
    flat_field,
    float_matrix,
    unreadable,
    whole_number,
)
from capbench.features.records import FLAT_FIELDS, RegionFeatures
from capbench.records import image_id
from capbench.safe_pickle import load_npy, load_npz

__all__ = ["parse_vilbert", "read_milvlg", "read_npz", "read_scan", "read_vilbert"]

_SUM_SLACK = 0.01  # half precision rounds each of 1,601 probabilities
_INFO = {
    "class_ids": "objects_id",
    "class_scores": "objects_conf",
    "attribute_ids": "attrs_id",
    "attribute_scores": "attrs_conf",
}


def read_milvlg(path: Path) -> Iterator[Found]:
    """One image, named as its file: ``x``, ``bbox``, ``num_bbox``, ``image_h``, ``image_w`` and perhaps ``info``.

    Raises:
        DataError: an array is missing or does not fit the number of boxes.
    """
    arrays = load_npz(path)
    _demand(arrays, ("x", "bbox", "image_h", "image_w"), path)
    try:
        bbox = np.asarray(arrays["bbox"])
        n = whole_number(_number(arrays.get("num_bbox", len(bbox))), "num_bbox")
        x = np.asarray(arrays["x"])
        if x.ndim == 2 and x.shape[0] != n and x.shape[1] == n:  # older files have a column a box
            x = x.T
        width, height = (whole_number(_number(arrays[name]), name) for name in ("image_w", "image_h"))
        info = arrays.get("info")
        flat = {}
        if isinstance(info, Mapping):
            flat = {name: flat_field(info[key], n, name) for name, key in _INFO.items() if key in info}
        name = path.name.removesuffix(".npz")
        regions = RegionFeatures(
            image_id(name), width, height, float_matrix(bbox, n, 4, "bbox"), float_matrix(x, n, None, "x"), **flat
        )
    except (ValueError, TypeError) as error:
        raise DataError(str(error), path=path, hint="Get the file again") from None
    yield Found(regions, path)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value


def _demand(found: Mapping[str, Any], names: tuple[str, ...], path: Path) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        here = ", ".join(list(found)[:12]) or "nothing"
        raise DataError(
            f"lacks '{missing[0]}' (it has {here})", path=path, hint="Is it of another format? See --format"
        )


def read_scan(path: Path, ids: Path) -> Iterator[Found]:
    """SCAN's array (N, R, d) float32 with a file of N ids, one a line. There are neither boxes nor image sizes.

    Raises:
        DataError: the array is of another shape or type, or the number of ids differs.
    """
    names = [line.strip() for line in files.read_lines(ids)]
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise DataError(f"is no array of numbers ({error})", path=path, hint="Get the file again") from None
    if array.ndim != 3 or array.dtype.kind != "f":
        raise DataError(
            f"has shape {array.shape} of {array.dtype}, not (images, regions, columns) of float32", path=path
        )
    if len(names) != len(array):
        raise DataError(
            f"holds {len(names):,} ids for {len(array):,} images", path=ids, hint="Give one id for each image, in order"
        )
    for i, name in enumerate(names):
        if not name:
            raise DataError("is empty", path=ids, row=i + 1, hint="Give one id for each image, in order")
        features = np.array(array[i], dtype=np.float32)
        yield Found(RegionFeatures(image_id(name), 0, 0, None, features), path, f"image {i}")


def read_vilbert(path: Path) -> Iterator[Found]:
    """One image as ViLBERT's extraction script saves it: a pickled dictionary, read by a restricted unpickler.

    Raises:
        DataError: it holds something else, an unknown class, or arrays that do not fit each other.
    """
    yield Found(parse_vilbert(load_npy(path), path, None, default_id=path.name.removesuffix(".npy")), path)


def parse_vilbert(found: Any, path: Path, row: str | None, *, default_id: str) -> RegionFeatures:
    """Regions from ViLBERT's dictionary; arrays may be base64, as in LMDB files.

    All rows of ``features`` are taken, as ViLBERT's reader does: its extraction script puts regions that were
    suppressed in every class last and does not count them in ``num_boxes``. For classes see :func:`_vilbert_classes`.

    Raises:
        DataError: it is no dictionary of such arrays, or they do not fit each other.
    """
    if not isinstance(found, Mapping):
        raise DataError(f"holds a {type(found).__name__}, not a dictionary of arrays", path=path, row=row)
    renamed = {_VILBERT_NAMES.get(str(key), str(key)): value for key, value in found.items()}
    _demand(renamed, ("features", "boxes", "image_width", "image_height"), path)
    try:
        features, boxes = (_decoded(renamed[name], name) for name in ("features", "boxes"))
        n = whole_number(_number(renamed.get("num_boxes", len(boxes))), "num_boxes")
        if features.ndim == boxes.ndim == 2 and 0 < n < len(features) == len(boxes):
            n = len(features)
        width, height = (whole_number(_number(renamed[name]), name) for name in ("image_width", "image_height"))
        name = renamed.get("image_id", default_id)
        text = name.decode() if isinstance(name, bytes) else str(name)
        return RegionFeatures(
            image_id(text),
            width,
            height,
            float_matrix(boxes, n, 4, "boxes"),
            float_matrix(features, n, None, "features"),
            **_vilbert_classes(renamed, n),
        )
    except (ValueError, TypeError) as error:
        raise DataError(str(error), path=path, row=row, hint="Get the file again") from None


def _vilbert_classes(found: Mapping[str, Any], n: int) -> dict[str, NDArray[Any]]:
    """Classes and confidences of the ``n`` regions, as far as the dictionary has them.

    ``cls_prob`` (n, 1 + classes) holds each region's probabilities, the background first: the class is the most
    probable one but the background, counted from 0 without it, the confidence its probability. ``objects`` must then
    be these classes, or columns of ``cls_prob`` (the script's ``--background``). Without probabilities (none, or zero
    everywhere) ``objects`` are the classes and there are no confidences. Where there is one of ``objects`` too few
    they say nothing: by default the script drops the first region where it means to drop the background.
    """
    objects = None
    if found.get("objects") is not None:
        objects = _decoded(found["objects"], "objects", "int64")
        if objects.size not in (n - 1, n):
            raise ValueError(f"objects has {objects.size} values for {n} boxes")
        objects = None if objects.size < n else flat_field(objects, n, "class_ids")
    given = None if found.get("cls_prob") is None else _decoded(found["cls_prob"], "cls_prob")
    if given is None or not np.any(given):
        return {} if objects is None else {"class_ids": objects}
    probabilities = float_matrix(given, n, None, "cls_prob")
    sums = probabilities.sum(axis=1, dtype=np.float64)
    wrong = ~((np.abs(sums - 1) <= _SUM_SLACK) & (probabilities >= 0).all(axis=1))
    if probabilities.shape[1] < 2 or wrong.any():
        row = int(np.flatnonzero(wrong)[0]) if wrong.any() else 0
        raise ValueError(
            f"cls_prob of region {row} is no distribution over background and classes (sum {sums[row]:.3g})"
        )
    foreground = probabilities[:, 1:]
    ids, scores = foreground.argmax(axis=1).astype(np.int32), foreground.max(axis=1)
    if objects is not None:
        of_classes = _are_best(objects, foreground)
        if of_classes.all():
            ids = objects  # of equally probable ones the file's own choice
        elif not _are_best(objects, probabilities).all():
            row = int(np.flatnonzero(~of_classes)[0])
            told = f"objects of region {row} is {objects[row]}, and class {ids[row]} is the most probable in cls_prob"
            raise ValueError(told)
    return {"class_ids": ids, "class_scores": scores}


def _are_best(ids: NDArray[Any], probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """For each row, whether the column that is named has the highest value."""
    last = probabilities.shape[1] - 1
    named = probabilities[np.arange(len(ids)), np.clip(ids, 0, last)]
    best: NDArray[np.bool_] = (ids >= 0) & (ids <= last) & (named >= probabilities.max(axis=1))
    return best


_VILBERT_NAMES = {"bbox": "boxes", "image_h": "image_height", "image_w": "image_width", "img_id": "image_id"}


def _decoded(value: Any, what: str, dtype: str = "float32") -> NDArray[Any]:
    return base64_array(value, dtype, what) if isinstance(value, bytes | str) else np.asarray(value)


def read_npz(path: Path) -> Iterator[Found]:
    """Many images in one ``.npz`` (``docs/features.md`` lists the names).

    ``image_names`` (N,), or ``image_ids`` that are taken as they are, and ``features`` (N, n, d), or (R, d) with
    ``offsets`` (N + 1,); float16, float32, or ``features_int8`` with ``scale`` (d,). Boxes: ``boxes`` in pixels with
    ``image_sizes`` (N, 2: width, height), or ``boxes_normalised_xyxy`` as fractions, one set for all images or one for
    each.

    Raises:
        DataError: an array is missing, or of a shape or type that does not fit the others.
    """
    arrays = load_npz(path)
    quantised = "features_int8" in arrays
    exact = "image_ids" in arrays
    names_in = "image_ids" if exact else "image_names"
    _demand(arrays, (names_in, *(("features_int8", "scale") if quantised else ("features",))), path)
    features = np.asarray(arrays["features_int8" if quantised else "features"])
    names = [str(name) for name in np.asarray(arrays[names_in]).reshape(-1).tolist()]
    if features.dtype.kind != ("i" if quantised else "f"):
        raise DataError(f"features are of {features.dtype}", path=path, hint="Give float16, float32, or int8 and scale")
    offsets = _offsets(arrays.get("offsets"), features, len(names), path)
    rows = features.reshape(-1, features.shape[-1])
    scale = np.asarray(arrays["scale"], dtype=np.float32) if quantised else None
    if scale is not None and scale.shape not in ((), (1,), (rows.shape[1],)):
        raise DataError(f"scale has shape {scale.shape} for {rows.shape[1]} columns", path=path)
    boxes = _Boxes(arrays, len(names), offsets, path)
    flat = {name: np.asarray(arrays[name]) for name in FLAT_FIELDS if name in arrays}
    for i, name in enumerate(names):
        part = slice(int(offsets[i]), int(offsets[i + 1]))
        values = rows[part].astype(np.float32)
        if scale is not None:
            values *= scale
        try:
            fields = {key: flat_field(value.reshape(-1)[part], len(values), key) for key, value in flat.items()}
        except ValueError as error:
            raise DataError(str(error), path=path, row=f"image {i}") from None
        width, height, own = boxes.of(i, part)
        image = name if exact else image_id(name)
        yield Found(RegionFeatures(image, width, height, own, values, **fields), path, f"image {i}")


def _offsets(given: Any, features: NDArray[Any], n: int, path: Path) -> NDArray[np.int64]:
    if n == 0:
        raise DataError("has no image_names", path=path)
    if given is None:
        if features.ndim != 3 or len(features) != n:
            raise DataError(
                f"features have shape {features.shape} for {n:,} image names",
                path=path,
                hint="Give (images, regions, columns), or (regions, columns) with offsets",
            )
        each = int(features.shape[1])
        return np.arange(0, (n + 1) * each, each, dtype=np.int64) if each else np.zeros(n + 1, dtype=np.int64)
    offsets: NDArray[Any] = np.asarray(given)
    fits = offsets.dtype.kind in "iu" and offsets.shape == (n + 1,) and features.ndim == 2
    if not fits or offsets[0] != 0 or offsets[-1] != len(features) or (np.diff(offsets.astype(np.int64)) <= 0).any():
        raise DataError("offsets do not fit features and image_names", path=path, hint="See docs/features.md")
    whole: NDArray[np.int64] = offsets.astype(np.int64)
    return whole


class _Boxes:
    """Boxes of a plain ``.npz``, whichever way they are given."""

    def __init__(self, arrays: Mapping[str, Any], n: int, offsets: NDArray[np.int64], path: Path) -> None:
        self._sizes = None if "image_sizes" not in arrays else np.asarray(arrays["image_sizes"])
        if self._sizes is not None and (self._sizes.shape != (n, 2) or self._sizes.dtype.kind not in "iu"):
            raise DataError(f"image_sizes have shape {self._sizes.shape}, not ({n}, 2) of integers", path=path)
        self._relative = "boxes_normalised_xyxy" in arrays
        given = arrays.get("boxes_normalised_xyxy" if self._relative else "boxes")
        self._boxes = None if given is None else np.asarray(given)
        if self._boxes is None:
            return
        if self._boxes.dtype.kind not in "fiu" or self._boxes.shape[-1:] != (4,):
            raise DataError(f"boxes have shape {self._boxes.shape} of {self._boxes.dtype}, not (..., 4)", path=path)
        if not self._relative and self._sizes is None:
            raise DataError(
                "has boxes in pixels but no image_sizes",
                path=path,
                hint="Add image_sizes (width, height), or give boxes_normalised_xyxy",
            )
        self._shared = self._boxes.ndim == 2 and len(self._boxes) != offsets[-1]
        counts = np.diff(offsets)
        fits = (counts == len(self._boxes)).all() if self._shared else self._boxes.size == 4 * offsets[-1]
        if not fits:
            raise DataError(f"boxes have shape {self._boxes.shape} for {offsets[-1]:,} regions", path=path)

    def of(self, i: int, part: slice) -> tuple[int, int, NDArray[np.float32] | None]:
        """Width, height and boxes of an image."""
        width, height = (0, 0) if self._sizes is None else (int(x) for x in self._sizes[i])
        if self._boxes is None:
            return width, height, None
        own = (self._boxes if self._shared else self._boxes.reshape(-1, 4)[part]).astype(np.float32)
        if not self._relative:
            return width, height, own
        if self._sizes is None:  # fractions are pixels of an image of 1 x 1
            return 1, 1, own
        return width, height, own * np.array([width, height, width, height], dtype=np.float32)
