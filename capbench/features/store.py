"""Reading region features from disk: one HDF5 file, or several files as one store.

Opening reads only the header. Ids and offsets are read on first use, features image by image, each verified against
its checksum. A store works after a fork and can be pickled: each process opens the files itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.coco_names import CocoNames, coco_number
from capbench.core.errors import FeatureError, MissingFeaturesError, suggest
from capbench.features.layout import DTYPES, FORMAT, VERSIONS, Header, checksum
from capbench.features.records import FLAT_FIELDS, Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import h5py

_INDEX = ("image_ids", "image_sizes", "offsets", "checksums")
_PROBABILITIES = "class_probabilities"
_NAMES = ("class_names", "attribute_names")
_REMAKE = "Extract or import the features again"
_LAYOUT = "docs/features.md describes the layout"


def _damaged(path: Path, reason: str) -> FeatureError:
    return FeatureError(f"is damaged ({reason})", code="damaged", path=path, hint=_REMAKE)


def read_header(file: h5py.File, path: Path) -> Header:
    """Read and check the header of a file: attributes, and names, shapes and types of its data sets.

    Raises:
        FeatureError: the file is not a feature store, has a later version, or its parts do not fit each other.
    """
    if _text(file, "format") != FORMAT:
        raise FeatureError(
            "is an HDF5 file, but not a feature store of capbench", code="wrong-format", path=path, hint=_LAYOUT
        )
    version = file.attrs.get("version")
    if not isinstance(version, int | np.integer) or version not in VERSIONS:
        shown = str(version)[:20]
        supported = " and ".join(map(str, VERSIONS))
        raise FeatureError(
            f"has layout version {shown}; this capbench reads {supported}",
            code="wrong-version",
            value=shown,
            path=path,
            hint="Update capbench",
        )
    for name in ("features", *_INDEX):
        if name not in file:
            raise FeatureError(f"has no data set '{name}'", code="missing-key", value=name, path=path, hint=_REMAKE)
    datasets = {
        name: _dataset(file, name, path)
        for name in ("features", *_INDEX, "boxes", *FLAT_FIELDS, _PROBABILITIES, *_NAMES)
        if name in file
    }
    features, ids = datasets["features"], datasets["image_ids"]
    n = len(ids) if ids.ndim == 1 else 0
    if features.ndim != 2 or features.dtype.name not in DTYPES or n == 0:
        raise FeatureError(
            f"contains features of shape {features.shape} and type {features.dtype} for {n} images",
            code="wrong-shape",
            value="features",
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
            raise FeatureError(
                f"'{name}' is {actual}, not {shape} of {dtype}",
                code="wrong-shape",
                value=name,
                path=path,
                hint=_REMAKE,
            )
    for name in ("image_ids", *_NAMES):
        if name in datasets and (datasets[name].dtype.kind != "S" or datasets[name].ndim != 1):
            raise FeatureError(
                f"'{name}' is not a list of fixed-length texts", code="wrong-type", value=name, path=path, hint=_LAYOUT
            )
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
    """Columns of the probabilities, 0 without them; 2, which then does not match, if there are fewer than two."""
    if dataset is None:
        return 0
    return int(dataset.shape[1]) if dataset.ndim == 2 and dataset.shape[1] >= 2 else 2


def _dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """A data set of numbers or texts, not a group."""
    import h5py

    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        message = f"'{name}' is not a data set of numbers or texts"
        raise FeatureError(message, code="wrong-type", value=name, path=path, hint=_LAYOUT)
    return dataset


def _text(file: h5py.File, name: str) -> str | None:
    """An attribute if it is a text, else None."""
    value = file.attrs.get(name)
    return value if isinstance(value, str) else None


def _fingerprint(file: h5py.File, path: Path) -> Fingerprint:
    try:
        facts: Any = json.loads(_text(file, "fingerprint") or "")
        if not isinstance(facts, Mapping):
            raise ValueError("not an object")
        fingerprint = Fingerprint.from_dict(facts)
    except (ValueError, FeatureError) as error:
        raise FeatureError(
            "has no readable fingerprint of its detector", code="wrong-format", path=path, hint=_REMAKE
        ) from error
    if _text(file, "fingerprint_id") != fingerprint.digest:
        raise FeatureError("has a fingerprint that was edited", code="changed", path=path, hint=_REMAKE)
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
        # A forked child must not use the parent's HDF5 handles: it opens the file again.
        if self._file is None or self._pid != os.getpid():
            import h5py

            if not os.path.isfile(self.path):  # noqa: PTH113  Path.is_file raises in a folder without permission
                raise FeatureError(
                    "there is no such feature store",
                    code="missing-file",
                    path=self.path,
                    hint="Create one with 'capbench extract-features'",
                )
            try:
                # A finished file never changes, so it needs no lock (which network disks may not support).
                self._file = h5py.File(self.path, "r", locking=False)
            except OSError as error:
                code, reason = _why(error)
                raise FeatureError(reason, code=code, path=self.path, hint=_REMAKE) from error
            self._pid, self._datasets = os.getpid(), {}
        return self._file

    def _dataset(self, file: h5py.File, name: str) -> h5py.Dataset:
        # Looking up a name takes as long as reading an image.
        if name not in self._datasets:
            self._datasets[name] = file[name]
        return self._datasets[name]

    def _guarded(self, read: Any) -> Any:
        """Turn any error of HDF5 into one FeatureError."""
        try:
            return read(self.file())
        except _DAMAGE as error:
            raise _damaged(self.path, _why(error)[1]) from error

    def ids(self) -> NDArray[np.bytes_]:
        if self._ids is None:
            ids = self._guarded(lambda file: np.asarray(file["image_ids"][()]))
            self._offsets = self._guarded(lambda file: file["offsets"][()])
            self._sizes = self._guarded(lambda file: file["image_sizes"][()])
            self._sums = self._guarded(lambda file: file["checksums"][()])
            offsets, regions = self._offsets, self._guarded(lambda file: file["features"].shape[0])
            assert offsets is not None
            # A subtraction could overflow.
            if offsets[0] != 0 or offsets[-1] != regions or (offsets[1:] <= offsets[:-1]).any():
                raise _damaged(self.path, "its offsets do not match its features")
            if not _are_texts(ids):
                raise _damaged(self.path, "its ids are not texts")
            if len(ids) > 1 and not (ids[:-1] < ids[1:]).all():
                raise _damaged(self.path, "its ids are not sorted or not unique")
            self._ids = ids
        return self._ids

    def find(self, image: str) -> int:
        """Position of an image, -1 if it is not in this file."""
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
        """The images at positions ``first`` to ``last - 1``; one read from each data set."""
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
                    f"the checksum of image '{image}' does not match: the file is damaged",
                    code="damaged",
                    value=image,
                    path=self.path,
                    hint=_REMAKE,
                )
            images.append(regions)
        return images


# Exceptions that h5py raises on a damaged file.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


def _are_texts(ids: NDArray[np.bytes_]) -> bool:
    """True if all ids are UTF-8, not empty, and of one line."""
    lines = ids.tolist()
    joined = b"\n".join(lines)
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return all(lines) and b"\r" not in joined and joined.count(b"\n") == len(lines) - 1


def _why(error: Exception) -> tuple[str, str]:
    """The code of an error and its reason."""
    text = " ".join(str(error).split())
    if "truncated file" in text:
        return "damaged", "is truncated"
    if "file signature not found" in text:
        return "wrong-format", "is not an HDF5 file"
    if isinstance(error, OSError) and error.strerror:
        return "unreadable", f"cannot be read ({error.strerror})"
    return "unreadable", text[:200] or type(error).__name__


class FeatureStore:
    """Reads region features by image id; made by :func:`open_store`.

    Attributes:
        paths: its files.
    """

    shown: str = ""
    """Kind of features that :class:`capbench.features.shown.ShownStore` shows instead; ``""`` for the stored ones."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._files = [_StoreFile(path) for path in self.paths]
        first = self._files[0]
        for file in self._files[1:]:
            conflict = first.header.conflict(file.header)
            if conflict:
                raise FeatureError(
                    f"cannot be read together with {first.path}: it contains {conflict}",
                    code="wrong-features",
                    path=file.path,
                    hint="Features with different fingerprints are never mixed",
                )

    @property
    def header(self) -> Header:
        """The properties that all images share: fingerprint, dtype, names, fields."""
        header: Header = self._files[0].header
        return header

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
        return [raw.decode() for file in self._files for raw in file.ids().tolist()]

    def __len__(self) -> int:
        return sum(len(file.ids()) for file in self._files)

    @cached_property
    def _coco(self) -> CocoNames:
        return CocoNames(self.ids)

    def _find(self, image: str) -> tuple[_StoreFile, int] | None:
        """The file and the position of an image, which may have another COCO name in the store; None without it.

        Raises:
            DataError: the name is a COCO number that several images have.
        """
        for file in self._files:
            position = file.find(image)
            if position >= 0:
                return file, position
        other = self._coco.find(image) if coco_number(image) is not None else None
        return None if other is None else self._find(other)

    def __contains__(self, image: object) -> bool:
        return isinstance(image, str) and self._find(image) is not None

    def __getitem__(self, image: str) -> RegionFeatures:
        """The regions of one image.

        Raises:
            FeatureError: the store has no features of the image, or they are damaged.
        """
        if (place := self._find(image)) is None:
            raise self._missing(image)
        file, position = place
        return file.read(position, position + 1)[0]

    def __iter__(self) -> Iterator[RegionFeatures]:
        """All images, file by file in the order of their ids, read in blocks. Raises FeatureError if one is damaged."""
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
        """Number of regions of an image, without reading them. Raises FeatureError if the store has no such image."""
        if (place := self._find(image)) is None:
            raise self._missing(image)
        file, position = place
        return file.count(position)

    def checksum(self, image: str) -> int | None:
        """The stored CRC-32 of an image's regions, without reading them; None if the store has no such image."""
        if (place := self._find(image)) is None:
            return None
        file, position = place
        return file.checksum(position)

    def require(self, images: Sequence[str]) -> None:
        """Raise one MissingFeaturesError that counts and names the images without features."""
        missing = [image for image in dict.fromkeys(images) if image not in self]
        if missing:
            first = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise MissingFeaturesError(
                f"has no features of {len(missing):,} of {len(set(images)):,} images: {first}",
                value=missing[0],
                path=self.paths[0],
                hint="Extract them into it with 'capbench extract-features', under the same ids",
            )

    def close(self) -> None:
        """Close the files; the next read opens them again."""
        for file in self._files:
            file.close()

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _missing(self, image: str) -> FeatureError:
        sample = [raw.decode() for raw in self._files[0].ids()[:1000].tolist()]
        near = suggest(image, sample).partition(" Choices")[0] if len(sample) < 1000 else ""
        # Stores are sorted: the first id alone represents only one of several data sets.
        examples = dict.fromkeys((sample[0], sample[len(sample) // 2], sample[-1]))
        like = "Its ids look like " + ", ".join(f"'{example}'" for example in examples)
        hint = near.removesuffix("?") + "?" if near.startswith("Did you mean") else like
        return FeatureError(
            f"has no features of the image '{image}'",
            code="missing-image",
            value=image,
            path=self.paths[0],
            hint=hint,
        )

    def _check_disjoint(self) -> None:
        if len(self._files) < 2:
            return
        ids = np.concatenate([file.ids() for file in self._files])
        distinct, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            repeated = distinct[counts > 1][0].decode()
            raise FeatureError(
                f"the image '{repeated}' is in more than one of {len(self._files)} files",
                code="duplicate",
                value=repeated,
                path=self.paths[0],
                hint="Omit one of the files",
            )


def open_store(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> FeatureStore:
    """Open a store: a file, a folder (all its ``.h5`` files as one), or a list of files as one.

    Raises:
        FeatureError: a file is missing, damaged or not a feature store, or the files have different fingerprints,
            types or names.
    """
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
