"""Region features in NumPy files: MILVLG (a ``.npz`` per image), SCAN (one array, a list of ids), the plain ``.npz``.

``docs/features.md`` lists the arrays of the plain ``.npz`` of many images. Arrays are read in order, a few numbers at a
time, because a small ``.npz`` can decompress to any size. All sizes are known before anything is decompressed, from the
zip's directory and the array's header, which must agree. All importers use the checks of single values.
"""

from __future__ import annotations

import binascii
import contextlib
import io
import itertools
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import CapbenchError, DataError, MissingFileError
from capbench.core.pickles import load_npy
from capbench.core.records import image_id
from capbench.features.records import FLAT_FIELDS, RegionFeatures

_BUFFER_BYTES = 1 << 16
_MAX_HEADER = 100_000


class ArrayStream:
    """An array that is read in order, a few numbers at a time, in C order.

    Args:
        stream: the ``.npy`` file, at its beginning.
        size: size of the file in bytes.
        place: name of the array in error messages.

    Attributes:
        shape: of the array.
        dtype: of the array.

    Raises:
        DataError: the stream is not an ``.npy`` file, or its header does not match its size.
    """

    def __init__(self, stream: IO[bytes], size: int, place: str) -> None:
        self._stream = stream
        self._place = place
        with _damage(place, "is not an .npy file"):
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, self._fortran, self.dtype = read(stream, max_header_size=_MAX_HEADER)
            start = stream.tell()
            if any(length < 0 for length in self.shape):
                raise ValueError("a negative length")
        self.size = math.prod(self.shape)
        self._whole: NDArray[Any] | None = None
        self._taken = 0
        if not self.dtype.hasobject and self.size * self.dtype.itemsize != size - start:
            raise DataError(
                f"contains {size - start:,} bytes, but its header {self.shape} requires "
                f"{self.size * self.dtype.itemsize:,}",
                code="damaged",
                path=place,
                hint="The file is truncated or damaged: get it again",
            )

    def take(self, count: int) -> NDArray[Any]:
        """The next ``count`` numbers, flat.

        Raises:
            DataError: they cannot be read, or the array has ended.
        """
        if self._fortran and len(self.shape) > 1:
            return self._from_whole(count)
        with _damage(self._place, "cannot be decompressed"):
            data = self._stream.read(count * self.dtype.itemsize)
            array: NDArray[Any] = np.frombuffer(data, dtype=self.dtype, count=count)
        return array

    def _from_whole(self, count: int) -> NDArray[Any]:
        """The same for Fortran order, in which the numbers of one image are not contiguous."""
        if self._whole is None:
            with _damage(self._place, "cannot be decompressed"):
                flat = np.frombuffer(self._stream.read(self.size * self.dtype.itemsize), self.dtype, self.size)
            self._whole = flat.reshape(self.shape, order="F").reshape(-1)
        self._taken += count
        return self._whole[self._taken - count : self._taken]


@contextlib.contextmanager
def open_npy(path: Path) -> Iterator[ArrayStream]:
    """A ``.npy`` file as a stream. Raises DataError if it cannot be read or has another format."""
    files.check_readable(path)
    try:
        stream = open(path, "rb")  # noqa: SIM115  closed below
    except OSError as error:
        raise unreadable(path, error) from error
    with stream:
        yield ArrayStream(stream, os.fstat(stream.fileno()).st_size, str(path))


class Npz:
    """The arrays of an ``.npz`` file, each decompressed on access; a context manager.

    Raises:
        DataError: the file is not an ``.npz`` file.
        MissingFileError: there is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        files.check_readable(path)
        with _damage(str(path), "is not an .npz file"):
            self._archive = zipfile.ZipFile(path)
        self._members = {member.filename.removesuffix(".npy"): member for member in self._archive.infolist()}

    @property
    def names(self) -> list[str]:
        """The arrays' names."""
        return list(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def stream(self, name: str) -> ArrayStream:
        """An array to be read in order. Raises DataError if it is not an ``.npy`` file."""
        return ArrayStream(self._open(name), self._members[name].file_size, self.place(name))

    def read(self, name: str) -> Any:
        """A whole array; object arrays are read by the restricted unpickler.

        Raises:
            DataError: it cannot be decompressed, or is not an array.
        """
        with self._open(name) as stream, _damage(self.place(name), "cannot be decompressed"):
            data = stream.read()
        return load_npy(data, name=self.place(name))

    def place(self, name: str) -> str:
        """Name of an array in error messages."""
        return f"{self.path}[{name}]"

    def _open(self, name: str) -> IO[bytes]:
        with _damage(self.place(name), "cannot be decompressed"):
            # Small reads from zip's own stream are slow.
            return io.BufferedReader(self._archive.open(self._members[name]), _BUFFER_BYTES)  # type: ignore[type-var]


@contextlib.contextmanager
def _damage(place: str, problem: str) -> Iterator[None]:
    """Turn the many kinds of errors that zip, zlib, lzma and NumPy raise on a damaged file into one DataError."""
    try:
        yield
    except CapbenchError:
        raise
    except FileNotFoundError as error:
        raise unreadable(place, error) from error
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise DataError(f"{problem} ({line})", code="damaged", path=place, hint="Get the file again") from error


_INFO = {
    "class_ids": "objects_id",
    "class_scores": "objects_conf",
    "attribute_ids": "attrs_id",
    "attribute_scores": "attrs_conf",
}
_MILVLG = ("x", "bbox", "image_h", "image_w", "num_bbox", "info")


def read_milvlg(path: Path) -> Iterator[ImportedImage]:
    """One image, named by its file: ``x``, ``bbox``, ``num_bbox``, ``image_h``, ``image_w`` and optionally ``info``.

    Raises:
        DataError: an array is missing or does not fit the number of boxes.
    """
    with Npz(path) as archive:
        demand(archive.names, _MILVLG[:4], path)
        arrays = {name: archive.read(name) for name in _MILVLG if name in archive}
    try:
        regions = _milvlg_regions(arrays, path)
    except (ValueError, TypeError) as error:
        raise invalid_field(error, path, None, "Get the file again") from None
    yield ImportedImage(regions, path)


def _milvlg_regions(arrays: Mapping[str, Any], path: Path) -> RegionFeatures:
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
        flat = {name: flat_field(info[key], n, name) for name, key in _INFO.items() if key in info}
    boxes, features = float_matrix(bbox, n, 4, "bbox"), float_matrix(x, n, None, "x")
    return RegionFeatures(image_id(path.name.removesuffix(".npz")), width, height, boxes, features, **flat)


_CAPTIONS = 5
"""Captions of an image in SCAN's lists of captions."""


def read_scan(path: Path, ids: Path) -> Iterator[ImportedImage]:
    """SCAN's array (N, R, d) float32 with a file of N ids, one per line; without boxes and image sizes.

    As in SCAN's released code, the ids may also be those of 5 N captions, five consecutive ones for each image.

    Raises:
        DataError: the array is of another shape or type, or the number of ids differs.
    """
    names = [line.strip() for line in files.read_lines(ids)]
    with open_npy(path) as array:
        if len(array.shape) != 3 or array.dtype.kind != "f":
            raise DataError(
                f"has shape {array.shape} of {array.dtype}, not (images, regions, columns) of float32",
                code="wrong-shape",
                path=path,
            )
        images, regions, columns = array.shape
        firsts = names[::_CAPTIONS]
        if len(names) == _CAPTIONS * images and names == [name for name in firsts for _ in range(_CAPTIONS)]:
            names = firsts
        if len(names) != images:
            raise DataError(
                f"contains {len(names):,} ids for {images:,} images",
                code="mismatch",
                value=len(names),
                path=ids,
                hint="Write one id for each image, in order",
            )
        for i, name in enumerate(names):
            if not name:
                raise DataError(
                    "is empty", code="missing-value", path=ids, row=i + 1, hint="Write one id for each image, in order"
                )
            features = array.take(regions * columns).reshape(regions, columns).astype(np.float32)
            yield ImportedImage(RegionFeatures(image_id(name), 0, 0, None, features), path, f"image {i}")


_FEATURES = ("features", "features_int8")
_PROBABILITIES = "class_probabilities"
_BLOCK = 1024


def read_npz(path: Path) -> Iterator[ImportedImage]:
    """All images of a file, with one image in memory at a time.

    ``image_names`` (N,), or ``image_ids`` that are used unchanged, and ``features`` (N, n, d), or (R, d) with
    ``offsets`` (N + 1,); float16, float32, or ``features_int8`` with ``scale`` (d,). Boxes: ``boxes`` in pixels with
    ``image_sizes`` (N, 2: width, height), or ``boxes_normalised_xyxy`` as fractions, one set for all images or one for
    each. Optional: ``class_probabilities`` (N, n, 1 + classes) or (R, 1 + classes).

    Raises:
        DataError: an array is missing, or has a shape or type that does not match the others.
    """
    with Npz(path) as archive:
        quantised = "features_int8" in archive
        names_array = "image_ids" if "image_ids" in archive else "image_names"
        demand(archive.names, (names_array, *(("features_int8", "scale") if quantised else ("features",))), path)
        features = archive.stream("features_int8" if quantised else "features")
        if features.dtype.kind != ("i" if quantised else "f"):
            raise DataError(
                f"features are of {features.dtype}",
                code="wrong-type",
                value="features",
                path=path,
                hint="Store float16, float32, or int8 and scale",
            )
        names = archive.stream(names_array)
        counts = _counts(archive, features, names.size)
        columns = features.shape[-1]
        total = features.size // columns if columns else 0
        scale = _scale(archive, columns) if quantised else None
        boxes = _Boxes(archive, names.size, total)
        fields = {name: _field(archive, name, total) for name in FLAT_FIELDS if name in archive}
        probabilities = _probabilities(archive, features.shape[:-1])
        classes = probabilities.shape[-1] if probabilities is not None else 0
        for i, (name, count) in enumerate(zip(_texts(archive, names_array, names), counts, strict=True)):
            row = f"image {i}"
            try:
                values = features.take(count * columns).reshape(count, columns).astype(np.float32)
                if scale is not None:
                    values *= scale
                width, height, image_boxes = boxes.next(count)
                flat = {field: flat_field(stream.take(count), count, field) for field, stream in fields.items()}
                if probabilities is not None:
                    shares = probabilities.take(count * classes)
                    flat[_PROBABILITIES] = float_matrix(shares, count, classes, _PROBABILITIES)
            except ValueError as error:
                raise invalid_field(error, path, row) from None
            image = name if names_array == "image_ids" else image_id(name)
            yield ImportedImage(RegionFeatures(image, width, height, image_boxes, values, **flat), path, row)


def _texts(archive: Npz, array: str, names: ArrayStream) -> Iterator[str]:
    """The images' names, unchanged."""
    if names.dtype.hasobject:
        yield from (_text(name) for name in np.asarray(archive.read(array)).reshape(-1))
        return
    if names.dtype.kind not in "USiu":
        raise DataError(f"is of {names.dtype}, not of texts", code="wrong-type", path=archive.place(array))
    for first in range(0, names.size, _BLOCK):
        block = names.take(min(_BLOCK, names.size - first))
        try:
            texts = [_text(name) for name in block.tolist()]
        except ValueError as error:  # not UTF-8, or numbers that are not characters
            raise DataError(
                f"contains a value that is not a text ({error})", code="wrong-type", path=archive.place(array)
            ) from None
        yield from texts


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _counts(archive: Npz, features: ArrayStream, images: int) -> Iterator[int]:
    """Number of regions of each image."""
    path = archive.path
    if images == 0:
        raise DataError("has no image_names", code="missing-value", value="image_names", path=path)
    if "offsets" not in archive:
        if len(features.shape) != 3 or features.shape[0] != images:
            raise DataError(
                f"features have shape {features.shape} for {images:,} image names",
                code="wrong-shape",
                value="features",
                path=path,
                hint="Store (images, regions, columns), or (regions, columns) with offsets",
            )
        return itertools.repeat(features.shape[1], images)
    offsets = archive.stream("offsets")
    if offsets.dtype.kind not in "iu" or offsets.shape != (images + 1,) or len(features.shape) != 2:
        raise _offset_mismatch(path)
    return _differences(offsets, features.shape[0], path)


def _differences(offsets: ArrayStream, regions: int, path: Path) -> Iterator[int]:
    begin = int(offsets.take(1)[0])
    if begin != 0:
        raise _offset_mismatch(path)
    for first in range(1, offsets.size, _BLOCK):
        for end in offsets.take(min(_BLOCK, offsets.size - first)).tolist():
            if not begin < end <= regions:
                raise _offset_mismatch(path)
            yield end - begin
            begin = end
    if begin != regions:
        raise _offset_mismatch(path)


def _offset_mismatch(path: Path) -> DataError:
    return DataError(
        "offsets do not match features and image_names",
        code="mismatch",
        value="offsets",
        path=path,
        hint="See docs/features.md",
    )


def _scale(archive: Npz, columns: int) -> NDArray[np.float32]:
    scale = np.asarray(archive.read("scale"))
    if scale.dtype.kind not in "fiu" or scale.shape not in ((), (1,), (columns,)):
        raise DataError(
            f"scale has shape {scale.shape} of {scale.dtype} for {columns} columns",
            code="wrong-shape",
            value="scale",
            path=archive.path,
        )
    return scale.astype(np.float32)


def _probabilities(archive: Npz, regions: tuple[int, ...]) -> ArrayStream | None:
    """The class probabilities, or None without them."""
    if _PROBABILITIES not in archive:
        return None
    stream = archive.stream(_PROBABILITIES)
    if stream.shape[:-1] != regions or stream.dtype.kind != "f":
        raise DataError(
            f"{_PROBABILITIES} have shape {stream.shape} of {stream.dtype}, but features have {regions} regions",
            code="wrong-shape",
            value=_PROBABILITIES,
            path=archive.path,
            hint="Store the probabilities of the background and each class for each region, as floating-point numbers",
        )
    return stream


def _field(archive: Npz, name: str, regions: int) -> ArrayStream:
    stream = archive.stream(name)
    if stream.size != regions or stream.dtype.hasobject:
        raise DataError(
            f"{name} has {stream.size:,} values of {stream.dtype} for {regions:,} regions",
            code="wrong-shape",
            value=name,
            path=archive.path,
        )
    return stream


class _Boxes:
    """Sizes and boxes of the images, in order, in either form."""

    def __init__(self, archive: Npz, images: int, regions: int) -> None:
        path = archive.path
        self._sizes = archive.stream("image_sizes") if "image_sizes" in archive else None

        def mismatch(name: str, problem: str) -> DataError:
            return DataError(f"{name} have shape {problem}", code="wrong-shape", value=name, path=path)

        if self._sizes is not None and (self._sizes.shape != (images, 2) or self._sizes.dtype.kind not in "iu"):
            raise mismatch("image_sizes", f"{self._sizes.shape}, not ({images}, 2) of integers")
        self._relative = "boxes_normalised_xyxy" in archive
        array = "boxes_normalised_xyxy" if self._relative else "boxes"
        self._stream = archive.stream(array) if array in archive else None
        self._shared: NDArray[Any] | None = None
        if self._stream is None:
            return
        shape, dtype = self._stream.shape, self._stream.dtype
        if dtype.kind not in "fiu" or shape[-1:] != (4,):
            raise mismatch("boxes", f"{shape} of {dtype}, not (..., 4)")
        if not self._relative and self._sizes is None:
            raise DataError(
                "has boxes in pixels but no image_sizes",
                code="missing-key",
                value="image_sizes",
                path=path,
                hint="Add image_sizes (width, height), or store boxes_normalised_xyxy",
            )
        if len(shape) == 2 and shape[0] != regions:  # one set for all images
            if shape[0] * images != regions:
                raise mismatch("boxes", f"{shape} for {regions:,} regions")
            self._shared = self._stream.take(self._stream.size).reshape(-1, 4)
        elif self._stream.size != 4 * regions:
            raise mismatch("boxes", f"{shape} for {regions:,} regions")

    def next(self, count: int) -> tuple[int, int, NDArray[np.float32] | None]:
        """Width, height and boxes of the next image, which has ``count`` regions. Raises FieldError."""
        width, height = (0, 0) if self._sizes is None else (int(side) for side in self._sizes.take(2))
        if self._stream is None:
            return width, height, None
        if self._shared is not None and len(self._shared) != count:
            raise FieldError("boxes", f"has {len(self._shared)} rows for {count} regions", "mismatch")
        boxes = self._stream.take(4 * count).reshape(count, 4) if self._shared is None else self._shared
        image_boxes = boxes.astype(np.float32)
        if not self._relative:
            return width, height, image_boxes
        if self._sizes is None:  # fractions are pixels of an image of 1 x 1
            return 1, 1, image_boxes
        return width, height, image_boxes * np.array([width, height, width, height], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class ImportedImage:
    """One image of an imported file.

    Attributes:
        regions: its regions, not checked yet.
        path: the file.
        row: its place in the file, for error messages.
    """

    regions: RegionFeatures
    path: Path
    row: int | str | None = None


class FieldError(ValueError):
    """A field of an image with an invalid value; :func:`invalid_field` adds the place in the file.

    Args:
        field: name of the array or number.
        problem: the problem, a predicate of the field.
        code: one of :data:`capbench.core.errors.ERROR_CODES`.
        hint: the remedy; None for the importer's.
    """

    def __init__(self, field: str, problem: str, code: str, hint: str | None = None) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.code = code
        self.hint = hint


def invalid_field(
    error: ValueError | TypeError, path: Path, row: int | str | None = None, hint: str | None = None
) -> DataError:
    """The error for an invalid field, with its place in a file."""
    if isinstance(error, FieldError):
        return DataError(str(error), code=error.code, value=error.field, path=path, row=row, hint=error.hint or hint)
    return DataError(str(error), code="wrong-value", path=path, row=row, hint=hint)


def base64_array(text: bytes | str, dtype: str, field: str) -> NDArray[Any]:
    """Decode base64 of little-endian numbers. Raises FieldError."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
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
    array = np.asarray(array)
    ids = name.endswith("ids")
    if array.dtype.kind not in ("iu" if ids else "f"):
        raise FieldError(name, f"is of {array.dtype}, not of {'integers' if ids else 'floats'}", "wrong-type")
    if array.size != rows:
        raise FieldError(name, f"has {array.size} values for {rows} boxes", "wrong-shape")
    if ids and array.size and int(array.max()) > np.iinfo(np.int32).max:
        raise FieldError(name, "contains an index above 32 bits", "out-of-range")
    return np.asarray(array.reshape(rows), dtype=np.int32 if ids else np.float32)


def single_number(value: Any) -> Any:
    """The number in an array of one element; any other value unchanged."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value


def whole_number(value: Any, field: str) -> int:
    """A non-negative integer in any usual notation. Raises FieldError."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    if not text.strip().isdecimal() or len(text) > 12:
        raise FieldError(field, f"is '{text[:40]}', not a whole number", "wrong-value")
    return int(text)


def demand(names: Collection[str], needed: tuple[str, ...], path: Path) -> None:
    """Raise DataError, with the present names, if a required array is missing."""
    missing = [name for name in needed if name not in names]
    if missing:
        listed = ", ".join(list(names)[:12]) or "nothing"
        raise DataError(
            f"has no '{missing[0]}' (it has {listed})",
            code="missing-key",
            value=missing[0],
            path=path,
            hint="If it has another format, select that with --format",
        )


def unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    """The error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path)
    return DataError(
        f"cannot be read ({error.strerror or error})", code="unreadable", path=path, hint="Check its permissions"
    )
