"""Writing a feature store without losing finished images: first a journal, at the end the HDF5 file.

Images are appended one by one to ``NAME.partial``, a journal. Each record has a length and a CRC-32, so that a run
that is killed or meets a full disk leaves complete records and at most one incomplete one, which the next run removes
before it resumes. ``finish`` writes the HDF5 file from the journal (and from an existing file) under a temporary name,
renames it and removes the journal. Readers only ever see the finished file.

The journal begins with a line that names the format. Records follow: length and CRC-32 of the payload (two
little-endian uint32), payload. The first payload is the header as JSON; each other is an image: length of a JSON
description (uint32), the description, and the bytes of boxes, per-region fields, features and class probabilities.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from capbench.core import files
from capbench.core.errors import CapbenchError, FeatureError, UsageError, check_choice
from capbench.features.layout import COMPRESSIONS, DTYPES, Entry, Header, build, duplicate_image
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import FeatureStore, open_store

_MAGIC = b"capbench feature journal 1\n"
_RECORD = struct.Struct("<II")
_SYNC_S = 5.0
_MAX_RECORD = 1 << 30


class Journal:
    """Opens or creates a journal; an incomplete record at the end is removed.

    Args:
        path: the file.
        header: the header of a new journal.
        restart: start a new journal, which replaces the finished file instead of extending it.

    Attributes:
        header: of the images in it.
        index: position of each image's record, and the number of its regions.
        replaces: True if the finished file is to be replaced.

    Raises:
        FeatureError: the file is not a journal.
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path, header: Header, *, restart: bool = False) -> None:
        self.path = path
        self.header = header
        self.replaces = restart
        self.index: dict[str, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None
        self._end = 0
        self._synced = time.monotonic()
        try:
            if restart:
                path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115  closed by close()
            if not self._recover():
                self._begin()
        except OSError as error:
            self.close()
            raise _cannot(path, error) from error
        except BaseException:
            self.close()
            raise

    @property
    def _stream(self) -> IO[bytes]:
        assert self._file is not None
        return self._file

    def _begin(self) -> None:
        self._stream.truncate(0)
        self._stream.seek(0)
        self._write(_MAGIC)
        self._append(json.dumps({"header": self.header.to_dict(), "replaces": self.replaces}).encode())

    def _recover(self) -> bool:
        """Read an existing journal and remove an incomplete end; False if its first record is incomplete."""
        stream = self._stream
        magic = stream.read(len(_MAGIC))
        if not _MAGIC.startswith(magic):
            raise FeatureError("is not a journal of capbench", code="wrong-format", path=self.path, hint="Move it away")
        self._end = len(_MAGIC)
        first = self._next()
        if magic != _MAGIC or first is None:
            return False
        beginning = json.loads(first)
        self.header, self.replaces = Header.from_dict(beginning["header"]), beginning["replaces"]
        while True:
            begin = self._end
            payload = self._next()
            if payload is None:
                break
            meta, _ = _split(payload)
            self.index[meta["image"]] = (begin, meta["regions"])
            if self.header.feature_size == 0:
                self.header = dataclasses.replace(
                    self.header,
                    feature_size=meta["size"],
                    boxes=meta["boxes"],
                    fields=tuple(meta["fields"]),
                    probabilities=meta.get("probabilities", 0),
                )
        self._end = begin
        stream.truncate(begin)
        stream.seek(begin)
        return True

    def _next(self) -> bytes | None:
        """The record at ``_end``, after which ``_end`` points behind it; None if it is incomplete."""
        stream = self._stream
        stream.seek(self._end)
        frame = stream.read(_RECORD.size)
        if len(frame) < _RECORD.size:
            return None
        length, crc = _RECORD.unpack(frame)
        payload = stream.read(length) if length <= _MAX_RECORD else b""
        if len(payload) != length or zlib.crc32(payload) != crc or not payload:
            return None
        self._end += _RECORD.size + length
        return payload

    def add(self, regions: RegionFeatures, header: Header) -> None:
        """Append an image; ``header`` is the common header including this image. Raises UsageError on a full disk."""
        flat = regions.flat()
        meta = {
            "image": regions.image,
            "width": regions.width,
            "height": regions.height,
            "regions": len(regions),
            "size": regions.features.shape[1],
            "boxes": regions.boxes is not None,
            "fields": list(flat),
            "probabilities": regions.probability_columns,
        }
        arrays = [regions.boxes, *flat.values(), regions.features, regions.class_probabilities]
        head = json.dumps(meta).encode()
        begin = self._end
        raw = [_little(array).tobytes() for array in arrays if array is not None]
        self._append(b"".join([struct.pack("<I", len(head)), head, *raw]))
        self.index[regions.image] = (begin, len(regions))
        self.header = header
        if time.monotonic() - self._synced > _SYNC_S:
            self.sync()

    def read(self, image: str) -> RegionFeatures:
        """An image of the journal. Raises FeatureError if its record is damaged."""
        keep, self._end = self._end, self.index[image][0]
        try:
            payload = self._next()
        finally:
            self._end = keep
        if payload is None:
            raise FeatureError(
                f"the record of image '{image}' is damaged",
                code="damaged",
                value=image,
                path=self.path,
                hint="Run the same command again",
            )
        meta, body = _split(payload)
        n, size = meta["regions"], meta["size"]
        position = 0

        def take(dtype: str, *shape: int) -> Any:
            nonlocal position
            count = int(np.prod(shape))
            array = np.frombuffer(body, dtype=np.dtype(dtype).newbyteorder("<"), count=count, offset=position)
            position += array.nbytes
            return array.reshape(shape)

        boxes = take("float32", n, 4) if meta["boxes"] else None
        flat = {name: take("int32" if name.endswith("ids") else "float32", n) for name in meta["fields"]}
        features = take(self.header.dtype, n, size)
        # Journals of earlier versions have no such entry.
        columns = meta.get("probabilities", 0)
        probabilities = take(self.header.dtype, n, columns) if columns else None
        return RegionFeatures(
            image, meta["width"], meta["height"], boxes, features, **flat, class_probabilities=probabilities
        )

    def _append(self, payload: bytes) -> None:
        try:
            self._write(_RECORD.pack(len(payload), zlib.crc32(payload)) + payload)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._stream.truncate(self._end)
            raise _cannot(self.path, error) from error

    def _write(self, data: bytes) -> None:
        self._stream.seek(self._end if data is not _MAGIC else 0)
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) :]
        self._end = self._stream.tell()

    def sync(self) -> None:
        """Flush all data to the disk."""
        try:
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise _cannot(self.path, error) from error
        self._synced = time.monotonic()

    def remove(self) -> None:
        """Close and delete the journal."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Close the journal; an empty one is deleted."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self.index:
                self.remove()


def _split(payload: bytes) -> tuple[dict[str, Any], memoryview]:
    (length,) = struct.unpack_from("<I", payload)
    return json.loads(payload[4 : 4 + length]), memoryview(payload)[4 + length :]


def _little(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _cannot(path: Path, error: OSError) -> CapbenchError:
    return UsageError(
        f"cannot be written ({error.strerror or error})",
        code="unwritable",
        path=path,
        hint="Check the folder's permissions and free space, then run the same command again: finished images are kept",
    )


_LOCK_S = 5.0


def partial_path(path: str | os.PathLike[str]) -> Path:
    """Path of the journal of an unfinished store."""
    return Path(f"{os.fspath(path)}.partial")


class StoreWriter:
    """Adds images to a new or existing store; resumes an interrupted run.

    Use it as a context manager: leaving without :meth:`finish` keeps the journal.

    Args:
        path: the HDF5 file.
        fingerprint: of the detector.
        dtype: type of the stored features; float16 halves the file and rounds to 11 bits.
        compression: ``none``, ``gzip`` or ``lzf``; None for that of the existing file (``none`` for a new one).
        class_names: names by class id.
        attribute_names: names by attribute id.
        restart: discard existing features, finished or not, once the new file is complete.

    Attributes:
        path: the HDF5 file.
        resumed: number of images that an interrupted run left in the journal.

    Raises:
        FeatureError: the file or its journal has another detector's features or another type, or is damaged.
        UsageError: another run is writing the store, or it cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fingerprint: Fingerprint,
        *,
        dtype: str = "float32",
        compression: str | None = None,
        class_names: tuple[str, ...] | None = None,
        attribute_names: tuple[str, ...] | None = None,
        restart: bool = False,
    ) -> None:
        _check_choice("dtype", dtype, DTYPES)
        _check_choice("compression", compression or "none", COMPRESSIONS)
        self.path = Path(path)
        if self.path.is_dir():
            raise UsageError("is a folder", code="wrong-value", path=path, hint="Write the name of the store's file")
        self._header = Header(fingerprint, dtype, compression or "none", class_names, attribute_names)
        self._stack = contextlib.ExitStack()
        try:
            self._stack.enter_context(_lock(self.path))
            self._journal = Journal(partial_path(self.path), self._header, restart=restart)
            self._stack.callback(self._journal.close)
            self._adopt(self._journal.header, self._journal.path, compression)
            self._old: FeatureStore | None = None
            if self.path.exists() and not self._journal.replaces:
                self._old = self._stack.enter_context(open_store(self.path))
                self._adopt(self._old.header, self.path, compression)
            self._known = set(self._old.ids) if self._old is not None else set()
        except BaseException:
            self._stack.close()
            raise
        self.resumed = len(self._journal.index)

    def _adopt(self, existing: Header, path: Path, compression: str | None) -> None:
        conflict = existing.conflict(self._header)
        if conflict:
            raise FeatureError(
                f"the new features do not match those of the file: they are {conflict}",
                code="wrong-features",
                path=path,
                hint="Write to another file, or replace this one with --restart",
            )
        if self._header.feature_size == 0:
            compression = existing.compression if compression is None else compression
            self._header = dataclasses.replace(existing, compression=compression)

    @property
    def done(self) -> frozenset[str]:
        """Ids of the stored images."""
        return frozenset(self._known | self._journal.index.keys())

    def __contains__(self, image: object) -> bool:
        return image in self._known or image in self._journal.index

    def add(self, regions: RegionFeatures) -> None:
        """Check an image's regions and append them to the journal.

        Raises:
            FeatureError: they are not valid, do not match the other images, or the store already has the image.
            UsageError: the disk is full; images added before are kept.
        """
        if regions.image in self:
            raise duplicate_image(regions.image, self.path)
        regions.check()
        header = self._header
        with_image = dataclasses.replace(
            header,
            feature_size=regions.features.shape[1],
            boxes=regions.boxes is not None,
            fields=tuple(regions.flat()),
            probabilities=regions.probability_columns,
        )
        conflict = header.conflict(with_image)
        if conflict:
            raise FeatureError(
                f"image '{regions.image}' does not match the other images: it has {conflict}",
                code="mismatch",
                value=regions.image,
            )
        self._check_ids(regions)
        stored = _as_stored(regions, header.dtype)
        self._journal.add(stored, with_image)
        self._header = with_image

    def _check_ids(self, regions: RegionFeatures) -> None:
        header = self._header
        for ids, names in ((regions.class_ids, header.class_names), (regions.attribute_ids, header.attribute_names)):
            if ids is not None and names is not None and int(ids.max()) >= len(names):
                raise FeatureError(
                    f"image '{regions.image}' has the class or attribute {int(ids.max())}, but there are {len(names)} "
                    "names",
                    code="out-of-range",
                    value=regions.image,
                )

    def finish(self, progress: Callable[[int], None] | None = None) -> FeatureStore:
        """Write the file from the existing and the new images, and open it.

        Raises:
            FeatureError: there are no images, or an existing one is damaged.
            UsageError: the file cannot be written; the journal and the old file are kept.
        """
        journal, old = self._journal, self._old
        # A killed run may have renamed the file without removing the journal.
        fresh = [image for image in journal.index if image not in self._known]
        if fresh or old is None or old.header.compression != self._header.compression:
            entries = [Entry(image, journal.index[image][1], _reader(journal.read, image)) for image in fresh]
            if old is not None:
                entries += [Entry(image, old.regions(image), _reader(old.__getitem__, image)) for image in old.ids]
            journal.sync()
            build(self.path, self._header, entries, progress)
        journal.remove()
        self._stack.close()
        return open_store(self.path)

    def discard(self) -> None:
        """Close the store and discard the images that were added."""
        self._journal.remove()
        self._stack.close()

    def close(self) -> None:
        """Close the store; the images that were added stay in the journal."""
        self._stack.close()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        lock = files.lock(path, _LOCK_S)
        lock.__enter__()
    except UsageError as error:
        if not isinstance(error.__cause__, TimeoutError):
            raise
        raise UsageError(
            "another run is writing this store",
            code="in-use",
            path=path,
            hint="Wait until it has finished, or write another file (--shard i/n)",
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _reader(read: Callable[[str], RegionFeatures], image: str) -> Callable[[], RegionFeatures]:
    return lambda: read(image)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    check_choice(name, value, choices, code="wrong-value")


def _as_stored(regions: RegionFeatures, dtype: str) -> RegionFeatures:
    """The regions in the stored type. Raises FeatureError if float16 cannot hold the features."""
    if regions.class_probabilities is not None:
        regions = dataclasses.replace(regions, class_probabilities=regions.class_probabilities.astype(dtype))
    if regions.features.dtype.name == dtype:
        return regions
    with np.errstate(over="ignore"):
        features = regions.features.astype(dtype)
    if not np.isfinite(features).all():
        raise FeatureError(
            f"image '{regions.image}' has a feature of {float(np.abs(regions.features).max()):.0f}, too large for "
            f"{dtype}",
            code="out-of-range",
            value=regions.image,
            hint="Store the features as float32",
        )
    return dataclasses.replace(regions, features=features)
