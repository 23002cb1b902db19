"""The plain ``.npz`` of many images (``docs/features.md`` lists its arrays), read image by image."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import DataError
from capbench.features.importers.npy import ArrayStream, Npz
from capbench.features.importers.values import ImportedImage, demand, flat_field, float_matrix, too_large
from capbench.features.records import FLAT_FIELDS, RegionFeatures
from capbench.records import image_id

__all__ = ["read_npz", "stored_bytes"]

_FEATURES = ("features", "features_int8")
_PROBABILITIES = "class_probabilities"
_BLOCK = 1024


def read_npz(path: Path) -> Iterator[ImportedImage]:
    """All images of a file, in the memory of one.

    ``image_names`` (N,), or ``image_ids`` that are taken as they are, and ``features`` (N, n, d), or (R, d) with
    ``offsets`` (N + 1,); float16, float32, or ``features_int8`` with ``scale`` (d,). Boxes: ``boxes`` in pixels with
    ``image_sizes`` (N, 2: width, height), or ``boxes_normalised_xyxy`` as fractions, one set for all images or one for
    each. ``class_probabilities`` (N, n, 1 + classes) or (R, 1 + classes) may be there.

    Raises:
        DataError: an array is missing, or of a shape or type that does not fit the others.
    """
    with Npz(path) as archive:
        quantised = "features_int8" in archive
        names_array = "image_ids" if "image_ids" in archive else "image_names"
        demand(archive.names, (names_array, *(("features_int8", "scale") if quantised else ("features",))), path)
        features = archive.stream("features_int8" if quantised else "features")
        if features.dtype.kind != ("i" if quantised else "f"):
            raise DataError(
                f"features are of {features.dtype}", path=path, hint="Give float16, float32, or int8 and scale"
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
            too_large(4 * count * (columns + classes), path, row)
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
                raise DataError(str(error), path=path, row=row) from None
            image = name if names_array == "image_ids" else image_id(name)
            yield ImportedImage(RegionFeatures(image, width, height, image_boxes, values, **flat), path, row)


def stored_bytes(path: Path) -> int:
    """How much a store of the file's features needs, as far as the zip's directory tells."""
    with Npz(path) as archive:
        return sum(archive.unpacked_bytes(name) for name in _FEATURES if name in archive)


def _texts(archive: Npz, array: str, names: ArrayStream) -> Iterator[str]:
    """The images' names, as they stand in the file."""
    if names.dtype.hasobject:
        yield from (_text(name) for name in np.asarray(archive.read(array)).reshape(-1))
        return
    if names.dtype.kind not in "USiu":
        raise DataError(f"is of {names.dtype}, not of texts", path=archive.place(array))
    for first in range(0, names.size, _BLOCK):
        block = names.take(min(_BLOCK, names.size - first))
        try:
            texts = [_text(name) for name in block.tolist()]
        except ValueError as error:  # no UTF-8, or numbers that are no characters
            raise DataError(f"holds what is no text ({error})", path=archive.place(array)) from None
        yield from texts


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _counts(archive: Npz, features: ArrayStream, images: int) -> Iterator[int]:
    """How many regions each image has."""
    path = archive.path
    if images == 0:
        raise DataError("has no image_names", path=path)
    if "offsets" not in archive:
        if len(features.shape) != 3 or features.shape[0] != images:
            raise DataError(
                f"features have shape {features.shape} for {images:,} image names",
                path=path,
                hint="Give (images, regions, columns), or (regions, columns) with offsets",
            )
        return itertools.repeat(features.shape[1], images)
    offsets = archive.stream("offsets")
    if offsets.dtype.kind not in "iu" or offsets.shape != (images + 1,) or len(features.shape) != 2:
        raise _misfit(path)
    return _differences(offsets, features.shape[0], path)


def _differences(offsets: ArrayStream, regions: int, path: Path) -> Iterator[int]:
    begin = int(offsets.take(1)[0])
    if begin != 0:
        raise _misfit(path)
    for first in range(1, offsets.size, _BLOCK):
        for end in offsets.take(min(_BLOCK, offsets.size - first)).tolist():
            if not begin < end <= regions:
                raise _misfit(path)
            yield end - begin
            begin = end
    if begin != regions:
        raise _misfit(path)


def _misfit(path: Path) -> DataError:
    return DataError("offsets do not fit features and image_names", path=path, hint="See docs/features.md")


def _scale(archive: Npz, columns: int) -> NDArray[np.float32]:
    scale = np.asarray(archive.read("scale"))
    if scale.dtype.kind not in "fiu" or scale.shape not in ((), (1,), (columns,)):
        raise DataError(f"scale has shape {scale.shape} of {scale.dtype} for {columns} columns", path=archive.path)
    return scale.astype(np.float32)


def _probabilities(archive: Npz, regions: tuple[int, ...]) -> ArrayStream | None:
    """The probabilities of classes, if there are any."""
    if _PROBABILITIES not in archive:
        return None
    stream = archive.stream(_PROBABILITIES)
    if stream.shape[:-1] != regions or stream.dtype.kind != "f":
        raise DataError(
            f"{_PROBABILITIES} have shape {stream.shape} of {stream.dtype}, where features have {regions} regions",
            path=archive.path,
            hint="Give the background's and each class's probability of each region, as floating-point numbers",
        )
    return stream


def _field(archive: Npz, name: str, regions: int) -> ArrayStream:
    stream = archive.stream(name)
    if stream.size != regions or stream.dtype.hasobject:
        raise DataError(
            f"{name} has {stream.size:,} values of {stream.dtype} for {regions:,} regions", path=archive.path
        )
    return stream


class _Boxes:
    """Sizes and boxes of the images, one after the other, whichever way they are given."""

    def __init__(self, archive: Npz, images: int, regions: int) -> None:
        path = archive.path
        self._sizes = archive.stream("image_sizes") if "image_sizes" in archive else None
        if self._sizes is not None and (self._sizes.shape != (images, 2) or self._sizes.dtype.kind not in "iu"):
            raise DataError(f"image_sizes have shape {self._sizes.shape}, not ({images}, 2) of integers", path=path)
        self._relative = "boxes_normalised_xyxy" in archive
        array = "boxes_normalised_xyxy" if self._relative else "boxes"
        self._stream = archive.stream(array) if array in archive else None
        self._shared: NDArray[Any] | None = None
        if self._stream is None:
            return
        shape, dtype = self._stream.shape, self._stream.dtype
        if dtype.kind not in "fiu" or shape[-1:] != (4,):
            raise DataError(f"boxes have shape {shape} of {dtype}, not (..., 4)", path=path)
        if not self._relative and self._sizes is None:
            raise DataError(
                "has boxes in pixels but no image_sizes",
                path=path,
                hint="Add image_sizes (width, height), or give boxes_normalised_xyxy",
            )
        if len(shape) == 2 and shape[0] != regions:  # one set for all images
            if shape[0] * images != regions:
                raise DataError(f"boxes have shape {shape} for {regions:,} regions", path=path)
            self._shared = self._stream.take(self._stream.size).reshape(-1, 4)
        elif self._stream.size != 4 * regions:
            raise DataError(f"boxes have shape {shape} for {regions:,} regions", path=path)

    def next(self, count: int) -> tuple[int, int, NDArray[np.float32] | None]:
        """Width, height and boxes of the next image, which has ``count`` regions. Raises ValueError."""
        width, height = (0, 0) if self._sizes is None else (int(side) for side in self._sizes.take(2))
        if self._stream is None:
            return width, height, None
        if self._shared is not None and len(self._shared) != count:
            raise ValueError(f"there are {len(self._shared)} boxes for {count} regions")
        boxes = self._stream.take(4 * count).reshape(count, 4) if self._shared is None else self._shared
        image_boxes = boxes.astype(np.float32)
        if not self._relative:
            return width, height, image_boxes
        if self._sizes is None:  # fractions are pixels of an image of 1 x 1
            return 1, 1, image_boxes
        return width, height, image_boxes * np.array([width, height, width, height], dtype=np.float32)
