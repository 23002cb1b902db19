"""Region features on disk: one HDF5 file, or several seen as one.

Opening reads the header only; ids and offsets are read at the first question, features image by image, each checked
against its checksum. A store may be used after a fork and sent to other processes: each opens the files for itself.

The header is checked before anything else is read. HDF5 can hold more than a store needs: links into other files,
values that are stored elsewhere, data sets of any size without a byte behind them. All of that is rejected.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import FeatureError, MissingFeaturesError, suggest
from capbench.features.layout import COMPRESSIONS, DTYPES, FORMAT, VERSIONS, Header, checksum
from capbench.features.records import FLAT_FIELDS, Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import h5py

__all__ = ["MAX_IMAGE_BYTES", "FeatureStore", "check_heaps", "open_store", "read_header"]


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


_BLOCK_BYTES = 16 << 20


class _StoreFile:
    """One file of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = -1
        self._file: h5py.File | None = None
        self._datasets: dict[str, h5py.Dataset] = {}
        self._ids: NDArray[np.bytes_] | None = None
        self._offsets: NDArray[np.int64] | None = None
        self._sizes: NDArray[np.int32] | None = None
        self._sums: NDArray[np.uint32] | None = None
        self.header = self._guarded(lambda file: read_header(file, path))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None, "_datasets": {}, "_pid": -1}

    def close(self) -> None:
        if self._file is not None and self._pid == os.getpid():
            self._file.close()
        self._file, self._datasets = None, {}

    def file(self) -> h5py.File:
        # HDF5 handles must not be shared with a forked child: it opens the file again.
        if self._file is None or self._pid != os.getpid():
            import h5py

            if not os.path.isfile(self.path):  # noqa: PTH113  Path.is_file raises in a folder that is closed
                raise FeatureError(
                    "there is no such feature store", path=self.path, hint="Make one with 'capbench extract-features'"
                )
            try:
                check_heaps(self.path)
                # A finished file never changes under its name, so that no lock is needed (and network disks lack them).
                self._file = h5py.File(self.path, "r", locking=False)
            except OSError as error:
                raise FeatureError(_why(error), path=self.path, hint=_ADVICE) from error
            self._pid, self._datasets = os.getpid(), {}
        return self._file

    def _dataset(self, file: h5py.File, name: str) -> h5py.Dataset:
        # Looking a name up takes as long as reading an image.
        if name not in self._datasets:
            self._datasets[name] = file[name]
        return self._datasets[name]

    def _guarded(self, read: Any) -> Any:
        """Whatever HDF5 finds wrong becomes one FeatureError."""
        try:
            return read(self.file())
        except _DAMAGE as error:
            raise FeatureError(f"is damaged ({_why(error)})", path=self.path, hint=_ADVICE) from error

    def ids(self) -> NDArray[np.bytes_]:
        if self._ids is None:
            ids = self._guarded(lambda file: np.asarray(file["image_ids"][()]))
            self._offsets = self._guarded(lambda file: file["offsets"][()])
            self._sizes = self._guarded(lambda file: file["image_sizes"][()])
            self._sums = self._guarded(lambda file: file["checksums"][()])
            offsets, regions = self._offsets, self._guarded(lambda file: file["features"].shape[0])
            assert offsets is not None
            # Compared and not subtracted, which could overflow.
            if offsets[0] != 0 or offsets[-1] != regions or (offsets[1:] <= offsets[:-1]).any():
                raise FeatureError("is damaged (its offsets do not fit its features)", path=self.path, hint=_ADVICE)
            columns = self.header.feature_size + self.header.probabilities
            largest = int(np.diff(offsets).max()) * columns * np.dtype(self.header.dtype).itemsize
            if largest > MAX_IMAGE_BYTES:
                raise FeatureError(
                    f"has an image of {largest / 1e9:,.1f} GB, more than {MAX_IMAGE_BYTES / 1e9:.1f} GB",
                    path=self.path,
                    hint=_ADVICE,
                )
            if not _are_texts(ids):
                raise FeatureError("is damaged (its ids are no texts)", path=self.path, hint=_ADVICE)
            if len(ids) > 1 and not (ids[:-1] < ids[1:]).all():
                raise FeatureError("is damaged (its ids are not sorted or not unique)", path=self.path, hint=_ADVICE)
            self._ids = ids
        return self._ids

    def find(self, image: str) -> int:
        """Position of an image, -1 if it is not here."""
        ids, encoded = self.ids(), np.bytes_(image.encode("utf-8", "surrogatepass"))  # file names need not be UTF-8
        position = int(np.searchsorted(ids, encoded))
        return position if position < len(ids) and ids[position] == encoded else -1

    def count(self, position: int) -> int:
        self.ids()
        assert self._offsets is not None
        return int(self._offsets[position + 1] - self._offsets[position])

    def checksum(self, position: int) -> int:
        self.ids()
        assert self._sums is not None
        return int(self._sums[position])

    def read(self, first: int, last: int) -> list[RegionFeatures]:
        """The images at positions ``first`` to ``last - 1``, with one read from each data set."""
        ids = self.ids()
        assert self._offsets is not None
        assert self._sizes is not None
        assert self._sums is not None
        offsets, header = self._offsets, self.header
        begin, end = int(offsets[first]), int(offsets[last])
        probabilities = ("class_probabilities",) if header.probabilities else ()
        names = ("features", *(("boxes",) if header.boxes else ()), *header.fields, *probabilities)
        arrays = self._guarded(lambda file: {name: self._dataset(file, name)[begin:end] for name in names})
        images = []
        for i in range(first, last):
            rows = slice(int(offsets[i]) - begin, int(offsets[i + 1]) - begin)
            width, height = self._sizes[i].tolist()
            fields = {name: array[rows] for name, array in arrays.items()}
            image = ids[i].decode()
            regions = RegionFeatures(image, width, height, **{"boxes": None, **fields})
            if checksum(regions) != self._sums[i]:
                raise FeatureError(
                    f"the image '{image}' does not have its checksum: the file is damaged", path=self.path, hint=_ADVICE
                )
            images.append(regions)
        return images


_ADVICE = "Extract or import the features again"
# What h5py raises on a damaged file.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


def _are_texts(ids: NDArray[np.bytes_]) -> bool:
    """Whether all ids are UTF-8, not empty, and of one line."""
    lines = ids.tolist()
    joined = b"\n".join(lines)
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return all(lines) and b"\r" not in joined and joined.count(b"\n") == len(lines) - 1


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "truncated file" in text:
        return "is cut off"
    if "file signature not found" in text:
        return "is no HDF5 file"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    return text[:200] or type(error).__name__


class FeatureStore:
    """Reads region features by image id; made by :func:`open_store`.

    Attributes:
        paths: its files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._files = [_StoreFile(path) for path in self.paths]
        first = self._files[0]
        for file in self._files[1:]:
            conflict = first.header.conflict(file.header)
            if conflict:
                raise FeatureError(
                    f"does not go with {first.path}: it holds {conflict}",
                    path=file.path,
                    hint="Features of different fingerprints are never mixed",
                )

    @property
    def header(self) -> Header:
        """What all images share: fingerprint, dtype, names, fields."""
        header: Header = self._files[0].header
        return header

    @property
    def fingerprint(self) -> Fingerprint:
        """What computed the features."""
        return self.header.fingerprint

    @property
    def feature_size(self) -> int:
        """Columns of the features."""
        return self.header.feature_size

    def signature(self) -> str:
        """One word that names everything which decides a stored feature: the fingerprint, and how it is stored."""
        return f"{self.fingerprint.line()}+stored:{self.header.dtype}"

    @property
    def ids(self) -> list[str]:
        """The images' ids, in the order of iteration."""
        self._check_disjoint()
        return [raw.decode() for file in self._files for raw in file.ids().tolist()]

    def __len__(self) -> int:
        return sum(len(file.ids()) for file in self._files)

    def __contains__(self, image: object) -> bool:
        return isinstance(image, str) and any(file.find(image) >= 0 for file in self._files)

    def __getitem__(self, image: str) -> RegionFeatures:
        """The regions of one image.

        Raises:
            FeatureError: it has none here, or they are damaged.
        """
        for file in self._files:
            position = file.find(image)
            if position >= 0:
                return file.read(position, position + 1)[0]
        raise self._lacking(image)

    def __iter__(self) -> Iterator[RegionFeatures]:
        """All images, file by file in the order of their ids, read in blocks. Raises FeatureError at a damaged one."""
        self._check_disjoint()
        row_bytes = (self.feature_size + self.header.probabilities) * np.dtype(self.header.dtype).itemsize
        for file in self._files:
            first, block_bytes = 0, 0
            for i in range(len(file.ids())):
                block_bytes += file.count(i) * row_bytes
                if block_bytes >= _BLOCK_BYTES:
                    yield from file.read(first, i + 1)
                    first, block_bytes = i + 1, 0
            if first < len(file.ids()):
                yield from file.read(first, len(file.ids()))

    def regions(self, image: str) -> int:
        """Number of regions of an image, without reading them. Raises FeatureError if it is not here."""
        for file in self._files:
            position = file.find(image)
            if position >= 0:
                return file.count(position)
        raise self._lacking(image)

    def checksum(self, image: str) -> int | None:
        """The CRC-32 that was stored of an image's regions, without reading them; None if it is not here."""
        for file in self._files:
            position = file.find(image)
            if position >= 0:
                return file.checksum(position)
        return None

    def require(self, images: Sequence[str]) -> None:
        """Raise one MissingFeaturesError that counts and names images which are not here."""
        missing = [image for image in dict.fromkeys(images) if image not in self]
        if missing:
            first = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise MissingFeaturesError(
                f"lacks {len(missing):,} of {len(set(images)):,} images: {first}",
                path=self.paths[0],
                hint="Extract them into it with 'capbench extract-features', under the same ids",
            )

    def close(self) -> None:
        """Close the files; they are opened again when asked."""
        for file in self._files:
            file.close()

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lacking(self, image: str) -> FeatureError:
        sample = [raw.decode() for raw in self._files[0].ids()[:1000].tolist()]
        near = suggest(image, sample).partition(" Choices")[0] if len(sample) < 1000 else ""
        # Stores are sorted: of images from several data sets the first one alone tells little.
        examples = dict.fromkeys((sample[0], sample[len(sample) // 2], sample[-1]))
        like = "Its ids look like " + ", ".join(f"'{example}'" for example in examples)
        hint = near.removesuffix("?") + "?" if near.startswith("Did you mean") else like
        return FeatureError(f"has no features of the image '{image}'", path=self.paths[0], hint=hint)

    def _check_disjoint(self) -> None:
        if len(self._files) < 2:
            return
        ids = np.concatenate([file.ids() for file in self._files])
        distinct, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            twice = distinct[counts > 1][0].decode()
            raise FeatureError(
                f"the image '{twice}' stands in more than one of {len(self._files)} files",
                path=self.paths[0],
                hint="Leave one of the files out",
            )


def open_store(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> FeatureStore:
    """Open a store: a file, a folder (all its ``.h5`` files as one), or a list of files as one.

    Raises:
        FeatureError: a file is missing, damaged or no feature store, or files of different fingerprints, types or
            names are given as one.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not os.path.isdir(path):  # noqa: PTH112
            return FeatureStore([path])
        paths = sorted(path.glob("*.h5"))
        if not paths:
            raise FeatureError("there is no feature store (.h5) in this folder", path=path)
    else:
        paths = [Path(file) for file in source]
    if not paths:
        raise FeatureError("no feature store is given")
    store = FeatureStore(paths)
    store._check_disjoint()
    return store
