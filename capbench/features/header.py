"""What a feature store says of itself, checked before anything of it is believed.

HDF5 can say more than a store needs: links into other files, values that are kept elsewhere, data sets of any size
without a byte behind them. All of that is refused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.errors import FeatureError
from capbench.features.layout import COMPRESSIONS, DTYPES, FORMAT, VERSIONS, Header
from capbench.features.records import FLAT_FIELDS, Fingerprint

if TYPE_CHECKING:
    import h5py

__all__ = ["MAX_IMAGE_BYTES", "check_heaps", "read_header"]

MAX_IMAGE_BYTES = 1_000_000_000
"""The most that one image's regions may take: what is read at once is bounded by it."""

_MAX_CHUNK_BYTES = 64_000_000  # capbench writes 64 kB
_MOST_COMPRESSION = 1100  # deflate cannot do more than 1,032 : 1

_INDEX = ("image_ids", "image_sizes", "offsets", "checksums")
_PROBABILITIES = "class_probabilities"
_NAMES = ("class_names", "attribute_names")
_REMAKE = "Extract or import the features again"
_LAYOUT = "docs/features.md has the layout"


_HEAP_SCAN_BYTES = 1 << 20  # capbench writes attributes first
_HEAP = struct.Struct("<4sB3xQ")  # signature, version, size
_HEAP_OBJECT = struct.Struct("<HH4xQ")  # number, references, size


def check_heaps(path: Path) -> None:
    """Walk the heaps that hold the texts of attributes: over a damaged one HDF5 loops for ever.

    Raises:
        FeatureError: an entry of a heap is empty, or ends behind the heap.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as stream:
        data = stream.read(_HEAP_SCAN_BYTES)
    begin = data.find(b"GCOL")
    while begin >= 0:
        if len(data) - begin >= _HEAP.size:
            _, version, size = _HEAP.unpack_from(data, begin)
            if version == 1 and not _heap_is_whole(data[begin : begin + size], size):
                raise FeatureError("is damaged (a heap of texts)", path=path, hint=_REMAKE)
        begin = data.find(b"GCOL", begin + 1)


def _heap_is_whole(heap: bytes, size: int) -> bool:
    position = _HEAP.size
    while position + _HEAP_OBJECT.size <= len(heap):
        number, _, length = _HEAP_OBJECT.unpack_from(heap, position)
        # Number 0 is the free space; its length counts its own head. Others are filled up to eight bytes.
        step = length if number == 0 else _HEAP_OBJECT.size + -(-length // 8) * 8
        if step < _HEAP_OBJECT.size or position + step > size:
            return False
        position += step
    return True


def read_header(file: h5py.File, path: Path) -> Header:
    """Read and check what a file says of itself: attributes, and names, shapes and types of its data sets.

    Raises:
        FeatureError: it is no feature store, of a later version, or its parts do not fit each other.
    """
    if _text(file, "format") != FORMAT:
        raise FeatureError("is HDF5 but no feature store of capbench", path=path, hint=_LAYOUT)
    version = file.attrs.get("version")
    if not isinstance(version, int | np.integer) or version not in VERSIONS:
        shown = str(version)[:20]
        read = " and ".join(map(str, VERSIONS))
        raise FeatureError(
            f"is of layout version {shown}, this capbench reads {read}", path=path, hint="Update capbench"
        )
    for name in ("features", *_INDEX):
        if name not in file:
            raise FeatureError(f"lacks the data set '{name}'", path=path, hint=_REMAKE)
    datasets = {
        name: _dataset(file, name, path)
        for name in ("features", *_INDEX, "boxes", *FLAT_FIELDS, _PROBABILITIES, *_NAMES)
        if name in file
    }
    features, ids = datasets["features"], datasets["image_ids"]
    n = len(ids) if ids.ndim == 1 else 0
    if features.ndim != 2 or features.dtype.name not in DTYPES or n == 0:
        raise FeatureError(
            f"holds features of shape {features.shape} and type {features.dtype} for {n} images",
            path=path,
            hint="They must be (regions, columns) of float32 or float16",
        )
    regions, size = features.shape
    columns = _probability_columns(datasets.get(_PROBABILITIES))
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "image_sizes": ((n, 2), "int32"),
        "offsets": ((n + 1,), "int64"),
        "checksums": ((n,), "uint32"),
        "boxes": ((regions, 4), "float32"),
        **{name: ((regions,), "int32" if name.endswith("ids") else "float32") for name in FLAT_FIELDS},
        _PROBABILITIES: ((regions, columns), features.dtype.name),
    }
    for name, (shape, dtype) in expected.items():
        dataset = datasets.get(name)
        if dataset is not None and (dataset.shape, dataset.dtype.name) != (shape, dtype):
            actual = f"{dataset.shape} of {dataset.dtype}"
            raise FeatureError(f"'{name}' is {actual}, not {shape} of {dtype}", path=path, hint=_REMAKE)
    for name in ("image_ids", *_NAMES):
        if name in datasets and (datasets[name].dtype.kind != "S" or datasets[name].ndim != 1):
            raise FeatureError(f"'{name}' are no fixed-length texts", path=path, hint=_LAYOUT)
    return Header(
        _fingerprint(file, path),
        dtype=features.dtype.name,
        compression=features.compression or "none",
        class_names=_names(datasets.get("class_names")),
        attribute_names=_names(datasets.get("attribute_names")),
        feature_size=int(size),
        boxes="boxes" in datasets,
        fields=tuple(name for name in FLAT_FIELDS if name in datasets),
        probabilities=columns,
    )


def _probability_columns(dataset: h5py.Dataset | None) -> int:
    """Columns of the probabilities, 0 without them; 2 if they have no columns, which then do not fit."""
    if dataset is None:
        return 0
    return int(dataset.shape[1]) if dataset.ndim == 2 and dataset.shape[1] >= 2 else 2


def _dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """A data set that lies in this file, every byte of it."""
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise FeatureError(f"'{name}' is a link and no data set", path=path, hint=_LAYOUT)
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise FeatureError(f"'{name}' is no data set of numbers or texts", path=path, hint=_LAYOUT)
    if dataset.is_virtual or dataset.external:
        raise FeatureError(f"'{name}' is kept in other files", path=path, hint=_LAYOUT)
    filters = dataset.id.get_create_plist().get_nfilters()
    compressed = name in ("features", _PROBABILITIES) and filters > 0
    if filters and (not compressed or dataset.compression not in COMPRESSIONS or filters > 1):
        raise FeatureError(f"'{name}' is compressed in a way that stores are not", path=path, hint=_LAYOUT)
    nbytes, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if compressed:  # a chunk is unpacked as a whole, and again for every image in it
        chunk = int(np.prod(dataset.chunks, dtype=object)) * dataset.dtype.itemsize
        whole = chunk <= _MAX_CHUNK_BYTES and stored * _MOST_COMPRESSION >= nbytes
    else:
        whole = stored >= nbytes
    if not whole:
        raise FeatureError(
            f"'{name}' of shape {dataset.shape} is larger than what the file holds of it", path=path, hint=_REMAKE
        )
    return dataset


def _text(file: h5py.File, name: str) -> str | None:
    """An attribute that is one text, or None."""
    value = file.attrs.get(name)
    return value if isinstance(value, str) else None


def _fingerprint(file: h5py.File, path: Path) -> Fingerprint:
    try:
        facts: Any = json.loads(_text(file, "fingerprint") or "")
        if not isinstance(facts, Mapping):
            raise ValueError("no object")
        fingerprint = Fingerprint.from_dict(facts)
    except (ValueError, RecursionError, FeatureError) as error:
        raise FeatureError("has no readable fingerprint of its detector", path=path, hint=_REMAKE) from error
    if _text(file, "fingerprint_id") != fingerprint.digest:
        raise FeatureError("has a fingerprint that was changed by hand", path=path, hint=_REMAKE)
    return fingerprint


def _names(dataset: h5py.Dataset | None) -> tuple[str, ...] | None:
    return None if dataset is None else tuple(raw.decode("utf-8", "replace") for raw in dataset[()].tolist())
