"""The HDF5 layout of region features, versions 1 and 2: names, types, writing a whole file.

The regions of image i are rows ``offsets[i]`` to ``offsets[i + 1] - 1`` of ``features`` (R, d), ``boxes`` (R, 4; x1,
y1, x2, y2 in pixels) and the other arrays; ``image_ids`` are sorted by their UTF-8 bytes. A file is complete as soon as
it has its name: it is written under a temporary name, with the images in the order of their ids, flushed and
renamed. The same images and header always give the same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.core.errors import FeatureError, UsageError
from capbench.features.records import FLAT_FIELDS, Fingerprint, RegionFeatures, flat_dtype

if TYPE_CHECKING:
    import h5py

FORMAT = "capbench-features"
VERSION = 1  # version of a file without class probabilities
VERSION_WITH_PROBABILITIES = 2
"""Version of a file with class probabilities: an older capbench then asks for an update and does not report damage."""
VERSIONS = (VERSION, VERSION_WITH_PROBABILITIES)
DTYPES = ("float32", "float16")
COMPRESSIONS = ("none", "gzip", "lzf")

# Chunks of 16 to 128 rows of 2,048 float16 values read 36 rows in .05 to .07 ms; large chunks write and scan faster.
# Reading one row of a compressed chunk decompresses the whole chunk, so small chunks waste less.
_CHUNK_BYTES = {"none": 256 * 1024, "gzip": 64 * 1024, "lzf": 64 * 1024}
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Header:
    """The properties that all images of a store share."""

    fingerprint: Fingerprint
    dtype: str = "float32"  # of the features as stored
    compression: str = "none"
    class_names: tuple[str, ...] | None = None  # names by class id, or None
    attribute_names: tuple[str, ...] | None = None
    feature_size: int = 0  # columns of the features; 0 until the first image is known
    boxes: bool = True
    fields: tuple[str, ...] = ()  # those of :data:`~capbench.features.records.FLAT_FIELDS` that every image has
    # columns of the probabilities of background and classes, stored in the features' type; 0 without them
    probabilities: int = 0

    def conflict(self, other: Header) -> str | None:
        """The reason why a store cannot hold images of the other header, or None; compression may differ."""
        if self.fingerprint != other.fingerprint:
            return f"another detector's features: {self.fingerprint.differences(other.fingerprint)}"
        if self.dtype != other.dtype:
            return f"features of {other.dtype}, not {self.dtype}"
        if (self.class_names, self.attribute_names) != (other.class_names, other.attribute_names):
            return "other class or attribute names"
        if 0 in (self.feature_size, other.feature_size):  # one of them has no image yet
            return None
        if self.feature_size != other.feature_size:
            return f"features of {other.feature_size} columns, not {self.feature_size}"
        if (self.boxes, self.fields) != (other.boxes, other.fields):
            return f"other fields ({_fields(other)}, not {_fields(self)})"
        if self.probabilities != other.probabilities:
            return f"probabilities of {other.probabilities} classes, not of {self.probabilities} (background included)"
        return None

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape of one region's values, and their type, of each array of regions, in the order of the file."""
        flat = {name: ((), flat_dtype(name)) for name in self.fields}
        boxes = {"boxes": ((4,), np.dtype("float32"))} if self.boxes else {}
        stored = np.dtype(self.dtype)
        shares = {"class_probabilities": ((self.probabilities,), stored)} if self.probabilities else {}
        return {"features": ((self.feature_size,), stored), **boxes, **flat, **shares}

    def with_image(self, regions: RegionFeatures) -> Header:
        """The header of an image that is stored under this one."""
        return replace(
            self,
            feature_size=regions.features.shape[1],
            boxes=regions.boxes is not None,
            fields=tuple(regions.flat()),
            probabilities=regions.probability_columns,
        )

    def to_dict(self) -> dict[str, Any]:
        """The header as JSON values."""
        return {**vars(self), "fingerprint": self.fingerprint.to_dict()}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Header:
        """Read the result of :meth:`to_dict` (from JSON, where tuples are lists)."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in facts.items()}
        return cls(**values | {"fingerprint": Fingerprint.from_dict(facts["fingerprint"])})


def _fields(header: Header) -> str:
    return ", ".join((*(("boxes",) if header.boxes else ()), *header.fields)) or "no boxes"


@dataclass(frozen=True)
class Entry:
    """One image to be written: its id, the number of its regions, and a function that returns them by id."""

    image: str
    regions: int
    read: Callable[[str], RegionFeatures]


def checksum(regions: RegionFeatures) -> int:
    """CRC-32 of everything that is stored for an image.

    The input is ``ID\\n{width}x{height}\\n`` in UTF-8, then the bytes (little-endian, C order) of boxes, features,
    class_ids, class_scores, attribute_ids, attribute_scores and class_probabilities, those that exist.
    """
    value = zlib.crc32(f"{regions.image}\n{regions.width}x{regions.height}\n".encode())
    flat = regions.flat()
    arrays = (regions.boxes, regions.features, *(flat.get(name) for name in FLAT_FIELDS), regions.class_probabilities)
    for array in arrays:
        if array is not None:
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            value = zlib.crc32(np.ascontiguousarray(little).view(np.uint8).data, value)
    return value


def build(path: Path, header: Header, entries: Sequence[Entry], progress: Callable[[int], None] | None = None) -> None:
    """Write a whole file, with images in any order, under a temporary name and rename it."""
    ordered = sorted(entries, key=lambda entry: entry.image.encode())
    if not ordered:
        raise FeatureError("there are no images to store", code="missing-image", path=path)
    for first, second in itertools.pairwise(ordered):
        if first.image == second.image:
            raise duplicate_image(first.image, path)
    temporary = path.with_name(f".{path.name}.finishing")
    with writes(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_space(path, header, ordered)
            _write(temporary, header, ordered, progress or (lambda _done: None))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writes(path: Path) -> Iterator[None]:
    """Turn the exceptions of a full disk or a folder without permission into a UsageError."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # HDF5 raises either
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(
            f"cannot be written ({reason or ' '.join(str(error).split())[:200]})",
            code="unwritable",
            path=path,
            hint="Check permissions and free space, then run the same command again: finished images are kept",
        ) from error


def duplicate_image(image: str, path: Path) -> FeatureError:
    """The error for an image that is to be stored twice."""
    message = f"the image '{image}' occurs twice"
    return FeatureError(message, code="duplicate", value=image, path=path, hint="Remove one of the two")


def _check_space(path: Path, header: Header, entries: Sequence[Entry]) -> None:
    if header.compression != "none":
        return  # the size is not known in advance
    regions = sum(entry.regions for entry in entries)
    columns = header.feature_size + header.probabilities
    needed = regions * (columns * np.dtype(header.dtype).itemsize + 32) + len(entries) * 64
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        message = f"requires {needed / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free"
        hint = "Free some space, then run the same command again: finished images are kept"
        raise UsageError(message, code="unwritable", path=path, hint=hint)


def _write(path: Path, header: Header, entries: Sequence[Entry], progress: Callable[[int], None]) -> None:
    import h5py

    counts = np.array([entry.regions for entry in entries], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype("<i8")
    total = int(offsets[-1])
    # The bytes must not depend on times and library defaults: no timestamps, one fixed version of the format.
    # Through a Python file, since HDF5's own driver arranges them in another way.
    with open(path, "w+b") as raw, h5py.File(raw, "w", libver=("v110", "v110")) as file:
        file.attrs["format"] = FORMAT
        file.attrs["version"] = VERSION_WITH_PROBABILITIES if header.probabilities else VERSION
        file.attrs["fingerprint"] = header.fingerprint.json()
        file.attrs["fingerprint_id"] = header.fingerprint.digest
        ids = [entry.image for entry in entries]
        _write_texts(file, "image_ids", ids)
        for name, names in (("class_names", header.class_names), ("attribute_names", header.attribute_names)):
            if names:
                _write_texts(file, name, names)
        file.create_dataset("offsets", data=offsets)
        arrays = {}
        for name, (shape, dtype) in header.arrays.items():
            options = _chunks(header, total, *shape) if name in ("features", "class_probabilities") else {}
            arrays[name] = file.create_dataset(name, (total, *shape), dtype.newbyteorder("<"), **options)
        sizes = np.zeros((len(entries), 2), dtype="<i4")
        sums = np.zeros(len(entries), dtype="<u4")
        for first, last in blocks(header, counts.tolist()):
            block = [entry.read(entry.image) for entry in entries[first:last]]
            for i, regions in enumerate(block, start=first):
                sizes[i], sums[i] = (regions.width, regions.height), checksum(regions)
            for name, dataset in arrays.items():
                dataset[offsets[first] : offsets[last]] = np.concatenate([getattr(regions, name) for regions in block])
            progress(len(block))
        file.create_dataset("image_sizes", data=sizes)
        file.create_dataset("checksums", data=sums)
        file.flush()
        os.fsync(raw.fileno())


def _write_texts(file: h5py.File, name: str, texts: Sequence[str]) -> None:
    import h5py

    encoded = [text.encode() for text in texts]
    dtype = h5py.string_dtype("utf-8", max(1, *(len(text) for text in encoded)))
    file.create_dataset(name, data=np.array(encoded, dtype=dtype), dtype=dtype)


def _chunks(header: Header, total: int, size: int) -> dict[str, Any]:
    """Arguments of h5py for a matrix of ``total`` rows and ``size`` columns."""
    rows = max(1, min(total, _CHUNK_BYTES[header.compression] // (size * np.dtype(header.dtype).itemsize)))
    compression = None if header.compression == "none" else header.compression
    level = 1 if compression == "gzip" else None
    return {"chunks": (rows, size), "compression": compression, "compression_opts": level}


def blocks(header: Header, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last + 1 of the images to read and write at once, some 8 MB, from the images' numbers of regions."""
    row_bytes = (header.feature_size + header.probabilities) * np.dtype(header.dtype).itemsize
    first, size = 0, 0
    for last, count in enumerate(counts, start=1):
        size += count * row_bytes
        if size >= _BLOCK_BYTES or last == len(counts):
            yield first, last
            first, size = last, 0
