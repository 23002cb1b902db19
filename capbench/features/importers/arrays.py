"""Region features in NumPy files: MILVLG (a ``.npz`` per image), SCAN (one array, a list of ids), the plain ``.npz``.

``docs/features.md`` lists the arrays of the plain ``.npz`` of many images. All importers use the checks of single
values.
"""

from __future__ import annotations

import binascii
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError
from capbench.core.pickles import load_npy
from capbench.core.records import image_id
from capbench.features.records import FLAT_FIELDS, RegionFeatures, flat_dtype

_AGAIN = "Get the file again"


def array_names(path: Path) -> list[str]:
    """Names of the arrays of an ``.npz`` file. Raises DataError if it has another format."""
    files.check_readable(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except zipfile.BadZipFile as error:
        raise DataError(f"is not an .npz file ({error})", code="damaged", path=path, hint=_AGAIN) from error


def load_arrays(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Arrays of an ``.npz`` file by name; those with objects are read by the restricted unpickler."""
    present = array_names(path)
    demand(present, needed, path)
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in [*needed, *(name for name in optional if name in present)]:
            place = f"{path}[{name}]"
            try:
                data = archive.read(f"{name}.npy")
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise DataError(f"cannot be decompressed ({error})", code="damaged", path=place, hint=_AGAIN) from error
            arrays[name] = load_npy(data, name=place)
    return arrays


FIELDS = {
    "class_ids": "objects_id",
    "class_scores": "objects_conf",
    "attribute_ids": "attrs_id",
    "attribute_scores": "attrs_conf",
}
"""Fields of regions, and their names in MILVLG's and LXMERT's files."""


def read_milvlg(path: Path) -> Iterator[ImportedImage]:
    """One image, named by its file: ``x``, ``bbox``, ``num_bbox``, ``image_h``, ``image_w`` and optionally ``info``."""
    arrays = load_arrays(path, ("x", "bbox", "image_h", "image_w"), ("num_bbox", "info"))
    try:
        bbox = np.asarray(arrays["bbox"])
        stated = arrays.get("num_bbox", len(bbox) if bbox.ndim else None)
        n = whole_number(single_number(stated), "num_bbox")
        x: NDArray[Any] = np.asarray(arrays["x"])
        if x.ndim == 2 and x.shape[0] != n and x.shape[1] == n:  # older files have one column per box
            x = x.T
        width, height = (whole_number(single_number(arrays[name]), name) for name in ("image_w", "image_h"))
        info = arrays.get("info")
        flat = {}
        if isinstance(info, Mapping):
            flat = {name: flat_field(info[key], n, name) for name, key in FIELDS.items() if key in info}
        boxes, features = float_matrix(bbox, n, 4, "bbox"), float_matrix(x, n, None, "x")
    except (ValueError, TypeError) as error:
        raise invalid_field(error, path) from None
    image = image_id(path.name.removesuffix(".npz"))
    yield ImportedImage(RegionFeatures(image, width, height, boxes, features, **flat), path)


_CAPTIONS = 5  # captions of an image in SCAN's lists of captions


def read_scan(path: Path, ids: Path) -> Iterator[ImportedImage]:
    """SCAN's array (N, R, d) float32 with a file of N ids, one per line; without boxes and image sizes.

    As in SCAN's released code, the ids may also be those of 5 N captions, five consecutive ones for each image.
    """
    names = [line.strip() for line in files.read_lines(ids)]
    files.check_readable(path)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # damage can make any part of the header fail
        raise DataError(f"is not an .npy file of numbers ({error})", code="damaged", path=path, hint=_AGAIN) from error
    if array.ndim != 3 or array.dtype.kind != "f":
        message = f"has shape {array.shape} of {array.dtype}, not (images, regions, columns) of float32"
        raise DataError(message, code="wrong-shape", path=path)
    firsts = names[::_CAPTIONS]
    if len(names) == _CAPTIONS * len(array) and names == [name for name in firsts for _ in range(_CAPTIONS)]:
        names = firsts
    hint = "Write one id for each image, in order"
    if len(names) != len(array):
        message = f"contains {len(names):,} ids for {len(array):,} images"
        raise DataError(message, code="mismatch", value=len(names), path=ids, hint=hint)
    for i, name in enumerate(names):
        if not name:
            raise DataError("is empty", code="missing-value", path=ids, row=i + 1, hint=hint)
        features = np.array(array[i], dtype=np.float32, order="C")
        yield ImportedImage(RegionFeatures(image_id(name), 0, 0, None, features), path, f"image {i}")


_OPTIONAL = ("offsets", "image_sizes", "boxes", "boxes_normalised_xyxy", "class_probabilities", *FLAT_FIELDS)


def read_npz(path: Path) -> Iterator[ImportedImage]:
    """All images of a file, whose arrays are in memory meanwhile.

    ``image_names`` (N,), or ``image_ids`` that are used unchanged, and ``features`` (N, n, d), or (R, d) with
    ``offsets`` (N + 1,); float16, float32, or ``features_int8`` with ``scale`` (d,). Boxes: ``boxes`` in pixels with
    ``image_sizes`` (N, 2: width, height), or ``boxes_normalised_xyxy`` as fractions, one set for all images or one for
    each. Optional: ``class_probabilities`` (N, n, 1 + classes) or (R, 1 + classes).
    """
    present = array_names(path)
    names_array = "image_ids" if "image_ids" in present else "image_names"
    stored = ("features_int8", "scale") if "features_int8" in present else ("features",)
    arrays = {name: np.asarray(array) for name, array in load_arrays(path, (names_array, *stored), _OPTIONAL).items()}

    def wrong(name: str, expected: str, code: str = "wrong-shape", value: str | None = None) -> DataError:
        message = f"{name} has shape {arrays[name].shape} of {arrays[name].dtype}, not {expected}"
        return DataError(message, code=code, value=value or name, path=path, hint="See docs/features.md")

    names = _texts(arrays[names_array], f"{path}[{names_array}]")
    features, images = arrays[stored[0]], len(names)
    leading, columns = features.shape[:-1], features.shape[-1]
    if features.dtype.kind != ("i" if len(stored) == 2 else "f"):
        raise wrong(stored[0], "of float16, float32, or int8 with scale", "wrong-type", "features")
    if len(leading) != (1 if "offsets" in arrays else 2) or images == 0:
        raise wrong(stored[0], "(images, regions, columns), or (regions, columns) with offsets", value="features")
    features = features.reshape(-1, columns)
    regions = len(features)
    offsets = arrays.get("offsets")
    if offsets is None:
        if leading[0] != images:
            raise wrong(stored[0], f"({images:,}, regions, columns)", value="features")
        offsets = np.arange(images + 1) * leading[1]
    elif offsets.dtype.kind not in "iu" or offsets.shape != (images + 1,):
        raise wrong("offsets", f"({images + 1},) of integers", "mismatch")
    elif offsets[0] != 0 or offsets[-1] != regions or (offsets[1:] <= offsets[:-1]).any():
        raise wrong("offsets", f"ascending from 0 to {regions:,}", "mismatch")
    for name in FLAT_FIELDS:
        if name in arrays and arrays[name].size != regions:
            raise wrong(name, f"one value for each of {regions:,} regions")
    shares = arrays.get("class_probabilities")
    if shares is not None and (shares.shape[:-1] != leading or shares.dtype.kind != "f"):
        raise wrong("class_probabilities", f"{(*leading, '1 + classes')} of floating-point numbers")
    scale = arrays.get("scale")
    if scale is not None and (scale.dtype.kind not in "fiu" or scale.shape not in ((), (1,), (columns,))):
        raise wrong("scale", f"({columns},) numbers")
    sizes = arrays.get("image_sizes")
    if sizes is not None and (sizes.shape != (images, 2) or sizes.dtype.kind not in "iu"):
        raise wrong("image_sizes", f"({images}, 2) of integers")
    relative = "boxes_normalised_xyxy" in arrays
    boxes = _boxes(arrays, "boxes_normalised_xyxy" if relative else "boxes", offsets, wrong)
    for i, name in enumerate(names):
        row, rows = f"image {i}", slice(int(offsets[i]), int(offsets[i + 1]))
        values = features[rows].astype(np.float32)
        if scale is not None:
            values *= scale.astype(np.float32)
        width, height = (0, 0) if sizes is None else sizes[i].tolist()
        image_boxes = None if boxes is None else boxes[rows].astype(np.float32)
        if image_boxes is not None and relative:
            if sizes is None:  # fractions are pixels of an image of 1 x 1
                width = height = 1
            image_boxes *= np.array([width, height, width, height], dtype=np.float32)
        try:
            flat = {
                field: flat_field(arrays[field].reshape(-1)[rows], len(values), field)
                for field in FLAT_FIELDS
                if field in arrays
            }
        except FieldError as error:
            raise invalid_field(error, path, row) from None
        if shares is not None:
            flat["class_probabilities"] = shares.reshape(regions, -1)[rows].astype(np.float32)
        image = name if names_array == "image_ids" else image_id(name)
        yield ImportedImage(RegionFeatures(image, width, height, image_boxes, values, **flat), path, row)


def _boxes(
    arrays: Mapping[str, NDArray[Any]], name: str, offsets: NDArray[Any], wrong: Callable[..., DataError]
) -> NDArray[Any] | None:
    """(R, 4) boxes of all regions; None without any."""
    if name not in arrays:
        return None
    boxes, regions = arrays[name], int(offsets[-1])
    if name == "boxes" and "image_sizes" not in arrays:
        raise wrong(name, "fractions: boxes in pixels require image_sizes", "missing-key", "image_sizes")
    if boxes.ndim == 2 and len(boxes) != regions and (np.diff(offsets) == len(boxes)).all():
        boxes = np.tile(boxes, (len(offsets) - 1, 1))  # one set for all images
    if boxes.dtype.kind not in "fiu" or boxes.shape[-1:] != (4,) or boxes.size != 4 * regions:
        raise wrong(name, f"(..., 4) of {regions:,} regions", value="boxes")
    return boxes.reshape(-1, 4)


def _texts(array: NDArray[Any], place: str) -> list[str]:
    if array.dtype.kind not in "USiuO":
        raise DataError(f"is of {array.dtype}, not of texts", code="wrong-type", path=place)
    try:
        return [name.decode() if isinstance(name, bytes) else str(name) for name in array.reshape(-1).tolist()]
    except ValueError as error:  # not UTF-8, or numbers that are not characters
        raise DataError(f"contains a value that is not a text ({error})", code="wrong-type", path=place) from None


@dataclass(frozen=True, eq=False)
class ImportedImage:
    """One image of an imported file: its regions, not checked yet, and its place for error messages."""

    regions: RegionFeatures
    path: Path
    row: int | str | None = None


class FieldError(ValueError):
    """A field of an image with an invalid value; :func:`invalid_field` adds the place in the file."""

    def __init__(self, field: str, problem: str, code: str, hint: str | None = None) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.code, self.hint = field, code, hint


def invalid_field(
    error: ValueError | TypeError, path: Path, row: int | str | None = None, hint: str = _AGAIN
) -> DataError:
    """The error for an invalid field, with its place in a file."""
    if isinstance(error, FieldError):
        return DataError(str(error), code=error.code, value=error.field, path=path, row=row, hint=error.hint or hint)
    return DataError(str(error), code="wrong-value", path=path, row=row, hint=hint)


def base64_array(text: bytes | str, dtype: str, field: str) -> NDArray[Any]:
    """Decode base64 of little-endian numbers. Raises FieldError."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise FieldError(field, f"is not base64 ({str(error).lower()})", "wrong-format") from None
    kind = np.dtype(dtype).newbyteorder("<")
    if len(raw) % kind.itemsize:
        raise FieldError(field, f"has {len(raw)} bytes, not a multiple of {kind.itemsize} ({dtype})", "wrong-shape")
    return np.frombuffer(raw, dtype=kind)


def float_matrix(array: Any, rows: int, columns: int | None, field: str) -> NDArray[np.float32]:
    """``(rows, columns)`` float32 of an array of any shape with the same number of values. Raises FieldError."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        raise FieldError(field, f"is of {array.dtype}, not of floating-point numbers", "wrong-type")
    if rows < 1:
        raise FieldError("num_boxes", f"is {rows}, but an image requires at least one box", "out-of-range")
    width, rest = divmod(array.size, rows)
    if rest or width == 0 or (columns is not None and width != columns):
        expected = f"{rows} x {columns}" if columns else f"a multiple of {rows}"
        raise FieldError(field, f"has {array.size} numbers for {rows} boxes, not {expected}", "wrong-shape")
    if array.ndim > 1 and array.shape != (rows, width):
        raise FieldError(field, f"has shape {array.shape}, not ({rows}, {width})", "wrong-shape")
    return np.asarray(array.reshape(rows, width), dtype=np.float32)


def flat_field(array: Any, rows: int, name: str) -> NDArray[Any]:
    """``(rows,)`` int32 for ids, float32 for scores. Raises FieldError."""
    array, dtype = np.asarray(array), flat_dtype(name)
    if array.dtype.kind not in ("iu" if dtype.kind == "i" else "f"):
        raise FieldError(name, f"is of {array.dtype}, but requires {dtype}", "wrong-type")
    if array.size != rows:
        raise FieldError(name, f"has {array.size} values for {rows} boxes", "wrong-shape")
    return np.asarray(array.reshape(rows), dtype=dtype)


def single_number(value: Any) -> Any:
    """The number in an array of one element; any other value unchanged."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value


def whole_number(value: Any, field: str) -> int:
    """A non-negative integer in any usual notation. Raises FieldError."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    if not text.strip().isdecimal():
        raise FieldError(field, f"is '{text[:40]}', not a whole number", "wrong-value")
    return int(text)


def demand(names: Collection[str], needed: Sequence[str], path: Path) -> None:
    """Raise DataError, with the present names, if a required array is missing."""
    missing = next((name for name in needed if name not in names), None)
    if missing:
        message = f"has no '{missing}' (it has {', '.join(list(names)[:12]) or 'nothing'})"
        hint = "If it has another format, select that with --format"
        raise DataError(message, code="missing-key", value=missing, path=path, hint=hint)
