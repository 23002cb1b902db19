"""Reading region features from disk: one HDF5 file, or several files as one store.

Opening reads only the header. Ids and offsets are read on first use, features image by image, each verified against
its checksum. A store works after a fork and can be pickled: each process opens the files itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capbench.core.coco_names import CocoNames, coco_number
from capbench.core.errors import FeatureError, MissingFeaturesError, suggest
from capbench.features.layout import DTYPES, FORMAT, VERSIONS, Header, blocks, checksum
from capbench.features.records import FLAT_FIELDS, Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import h5py

_INDEX = ("image_ids", "offsets", "image_sizes", "checksums")
_PROBABILITIES = "class_probabilities"
_REMAKE = "Extract or import the features again"


def _damaged(path: Path, reason: str, image: str | None = None) -> FeatureError:
    return FeatureError(f"is damaged ({reason})", code="damaged", value=image, path=path, hint=_REMAKE)


def read_header(file: h5py.File, path: Path) -> Header:
    """Read and check the header of a file: attributes, and names, shapes and types of its data sets."""

    def bad(problem: str, code: str, value: str | None = None, hint: str = _REMAKE) -> FeatureError:
        return FeatureError(problem, code=code, value=value, path=path, hint=hint)

    if file.attrs.get("format") != FORMAT:
        hint = "docs/features.md describes the layout"
        raise bad("is an HDF5 file, but not a feature store of capbench", "wrong-format", hint=hint)
    version = file.attrs.get("version")
    if version not in VERSIONS:
        supported = " and ".join(map(str, VERSIONS))
        message = f"has layout version {version}; this capbench reads {supported}"
        raise bad(message, "wrong-version", str(version), "Update capbench")
    missing = next((name for name in ("features", *_INDEX) if name not in file), None)
    if missing is not None:
        raise bad(f"has no data set '{missing}'", "missing-key", missing)
    try:
        fingerprint = Fingerprint.from_dict(json.loads(file.attrs["fingerprint"]))
    except (ValueError, LookupError, TypeError, FeatureError) as error:
        raise bad("has no readable fingerprint of its detector", "wrong-format") from error
    if file.attrs.get("fingerprint_id") != fingerprint.digest:
        raise bad("has a fingerprint that was edited", "changed")
    features, n = file["features"], len(file["image_ids"])
    regions, size = features.shape
    header = Header(
        fingerprint,
        dtype=features.dtype.name if features.dtype.name in DTYPES else DTYPES[0],
        compression=features.compression or "none",
        class_names=_names(file.get("class_names")),
        attribute_names=_names(file.get("attribute_names")),
        feature_size=size,
        boxes="boxes" in file,
        fields=tuple(name for name in FLAT_FIELDS if name in file),
        probabilities=file[_PROBABILITIES].shape[1] if _PROBABILITIES in file else 0,
    )
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "image_sizes": ((n, 2), "int32"),
        "offsets": ((n + 1,), "int64"),
        "checksums": ((n,), "uint32"),
        **{name: ((regions, *shape), dtype.name) for name, (shape, dtype) in header.arrays.items()},
    }
    for name, (shape, dtype) in expected.items():
        if (file[name].shape, file[name].dtype.name) != (shape, dtype):
            actual = f"{file[name].shape} of {file[name].dtype}"
            raise bad(f"'{name}' is {actual}, not {shape} of {dtype}", "wrong-shape", name)
    return header


def _names(dataset: h5py.Dataset | None) -> tuple[str, ...] | None:
    return None if dataset is None else tuple(raw.decode() for raw in dataset[()].tolist())


class _Index(NamedTuple):
    """The images of a file, sorted by id; image ``i`` has the regions from ``offsets[i]`` to ``offsets[i + 1]``."""

    ids: NDArray[np.bytes_]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int32]
    checksums: NDArray[np.uint32]


class _StoreFile:
    """One file of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = -1
        self._file: h5py.File | None = None
        self._datasets: dict[str, h5py.Dataset] = {}
        self._index: _Index | None = None
        self.header: Header = self._guarded(lambda file: read_header(file, path))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None, "_datasets": {}, "_pid": -1}

    def close(self) -> None:
        if self._file is not None and self._pid == os.getpid():
            self._file.close()
        self._file, self._datasets = None, {}

    def file(self) -> h5py.File:
        # A forked child must not use the parent's HDF5 handles: it opens the file again.
        if self._file is None or self._pid != os.getpid():
            import h5py

            if not os.path.isfile(self.path):  # noqa: PTH113  Path.is_file raises in a folder without permission
                hint = "Create one with 'capbench extract-features'"
                raise FeatureError("there is no such feature store", code="missing-file", path=self.path, hint=hint)
            # A finished file never changes, so it needs no lock (which network disks may not support).
            self._file = h5py.File(self.path, "r", locking=False)
            self._pid, self._datasets = os.getpid(), {}
        return self._file

    def _dataset(self, file: h5py.File, name: str) -> h5py.Dataset:
        # Looking up a name takes as long as reading an image.
        if name not in self._datasets:
            self._datasets[name] = file[name]
        return self._datasets[name]

    def _guarded(self, read: Callable[[h5py.File], Any]) -> Any:
        """Turn the errors of HDF5 into one FeatureError."""
        try:
            return read(self.file())
        except _DAMAGE as error:
            text = " ".join(str(error).split())
            if "file signature not found" in text:
                reason = "is not an HDF5 file"
                raise FeatureError(reason, code="wrong-format", path=self.path, hint=_REMAKE) from error
            if isinstance(error, OSError) and error.strerror:
                message = f"cannot be read ({error.strerror})"
                raise FeatureError(message, code="unreadable", path=self.path, hint="Check its permissions") from error
            raise _damaged(self.path, "truncated" if "truncated file" in text else text[:200]) from error

    def index(self) -> _Index:
        if self._index is None:
            index = _Index(*self._guarded(lambda file: [file[name][()] for name in _INDEX]))
            offsets, regions = index.offsets, self._guarded(lambda file: len(file["features"]))
            if offsets[0] != 0 or offsets[-1] != regions or (offsets[1:] <= offsets[:-1]).any():
                raise _damaged(self.path, "its offsets do not match its features")
            if not (index.ids[:-1] < index.ids[1:]).all():
                raise _damaged(self.path, "its ids are not sorted or not unique")
            self._index = index
        return self._index

    def find(self, image: str) -> int:
        """Position of an image, -1 if it is not in this file."""
        ids, encoded = self.index().ids, np.bytes_(image.encode("utf-8", "surrogatepass"))  # names need not be UTF-8
        position = int(np.searchsorted(ids, encoded))
        return position if position < len(ids) and ids[position] == encoded else -1

    def count(self, position: int) -> int:
        offsets = self.index().offsets
        return int(offsets[position + 1] - offsets[position])

    def read(self, first: int, last: int) -> list[RegionFeatures]:
        """The images at positions ``first`` to ``last - 1``; one read from each data set."""
        ids, offsets, sizes, checksums = self.index()
        begin, end = int(offsets[first]), int(offsets[last])
        arrays = self._guarded(lambda file: {name: self._dataset(file, name)[begin:end] for name in self.header.arrays})
        images = []
        for i in range(first, last):
            rows = slice(int(offsets[i]) - begin, int(offsets[i + 1]) - begin)
            width, height = sizes[i].tolist()
            fields = {name: array[rows] for name, array in arrays.items()}
            regions = RegionFeatures(ids[i].decode(), width, height, **{"boxes": None, **fields})
            if checksum(regions) != checksums[i]:
                raise _damaged(self.path, f"the checksum of image '{regions.image}' does not match", regions.image)
            images.append(regions)
        return images


# Exceptions that h5py raises on a damaged file.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError)


class FeatureStore:
    """Reads region features by image id; made by :func:`open_store`."""

    shown: str = ""
    """Kind of features that :class:`capbench.features.shown.ShownStore` shows instead; ``""`` for the stored ones."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)  # its files
        self._files = [_StoreFile(path) for path in self.paths]
        first = self._files[0]
        for file in self._files[1:]:
            conflict = first.header.conflict(file.header)
            if conflict:
                message = f"cannot be read together with {first.path}: it contains {conflict}"
                hint = "Features with different fingerprints are never mixed"
                raise FeatureError(message, code="wrong-features", path=file.path, hint=hint)

    @property
    def header(self) -> Header:
        """The properties that all images share: fingerprint, dtype, names, fields."""
        return self._files[0].header

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the detector."""
        return self.header.fingerprint

    @property
    def feature_size(self) -> int:
        """Columns of the features."""
        return self.header.feature_size

    def signature(self) -> str:
        """One word for everything that determines a stored feature: the fingerprint, and the stored type."""
        return f"{self.fingerprint.line()}+stored:{self.header.dtype}"

    @property
    def ids(self) -> list[str]:
        """Ids of the images, in the order of iteration."""
        self._check_disjoint()
        return [raw.decode() for file in self._files for raw in file.index().ids.tolist()]

    def __len__(self) -> int:
        return sum(len(file.index().ids) for file in self._files)

    @cached_property
    def _coco(self) -> CocoNames:
        return CocoNames(self.ids)

    def _find(self, image: str) -> tuple[_StoreFile, int] | None:
        """The file and the position of an image, which may have another COCO name in the store; None without it."""
        for file in self._files:
            position = file.find(image)
            if position >= 0:
                return file, position
        other = self._coco.find(image) if coco_number(image) is not None else None
        return None if other is None else self._find(other)

    def _place(self, image: str) -> tuple[_StoreFile, int]:
        if (place := self._find(image)) is not None:
            return place
        sample = [raw.decode() for raw in self._files[0].index().ids[:1000].tolist()]
        near = suggest(image, sample).partition(" Choices")[0] if len(sample) < 1000 else ""
        # Stores are sorted: the first id alone represents only one of several data sets.
        examples = dict.fromkeys((sample[0], sample[len(sample) // 2], sample[-1]))
        like = "Its ids look like " + ", ".join(f"'{example}'" for example in examples)
        hint = near.removesuffix("?") + "?" if near.startswith("Did you mean") else like
        message = f"has no features of the image '{image}'"
        raise FeatureError(message, code="missing-image", value=image, path=self.paths[0], hint=hint)

    def __contains__(self, image: object) -> bool:
        return isinstance(image, str) and self._find(image) is not None

    def __getitem__(self, image: str) -> RegionFeatures:
        """The regions of one image."""
        file, position = self._place(image)
        return file.read(position, position + 1)[0]

    def __iter__(self) -> Iterator[RegionFeatures]:
        """All images, file by file in the order of their ids, read in blocks. Raises FeatureError if one is damaged."""
        self._check_disjoint()
        for file in self._files:
            for first, last in blocks(self.header, np.diff(file.index().offsets).tolist()):
                yield from file.read(first, last)

    def regions(self, image: str) -> int:
        """Number of regions of an image, without reading them. Raises FeatureError if the store has no such image."""
        file, position = self._place(image)
        return file.count(position)

    def checksum(self, image: str) -> int | None:
        """The stored CRC-32 of an image's regions, without reading them; None if the store has no such image."""
        place = self._find(image)
        return None if place is None else int(place[0].index().checksums[place[1]])

    def require(self, images: Sequence[str]) -> None:
        """Raise one MissingFeaturesError that counts and names the images without features."""
        missing = [image for image in dict.fromkeys(images) if image not in self]
        if missing:
            first = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
            message = f"has no features of {len(missing):,} of {len(set(images)):,} images: {first}"
            hint = "Extract them into it with 'capbench extract-features', under the same ids"
            raise MissingFeaturesError(message, value=missing[0], path=self.paths[0], hint=hint)

    def close(self) -> None:
        """Close the files; the next read opens them again."""
        for file in self._files:
            file.close()

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_disjoint(self) -> None:
        if len(self._files) < 2:
            return
        ids = np.concatenate([file.index().ids for file in self._files])
        distinct, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            repeated = distinct[counts > 1][0].decode()
            message = f"the image '{repeated}' is in more than one of {len(self._files)} files"
            hint = "Omit one of the files"
            raise FeatureError(message, code="duplicate", value=repeated, path=self.paths[0], hint=hint)


def open_store(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> FeatureStore:
    """Open a store: a file, a folder (all its ``.h5`` files as one), or a list of files as one."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not os.path.isdir(path):  # noqa: PTH112
            return FeatureStore([path])
        paths = sorted(path.glob("*.h5"))
        if not paths:
            raise FeatureError("there is no feature store (.h5) in this folder", code="missing-file", path=path)
    else:
        paths = [Path(file) for file in source]
    if not paths:
        raise FeatureError("no feature store was passed", code="missing-features")
    store = FeatureStore(paths)
    store._check_disjoint()
    return store
