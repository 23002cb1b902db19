"""Writing a feature store so that nothing is lost or read half: a journal first, the HDF5 file at the end.

Images go one by one to ``NAME.partial``, a journal that only grows. Each record carries its length and a CRC-32, so
that a run which was killed, or met a full disk, leaves whole records and at most one torn one, which the next run cuts
off before it goes on. ``finish`` builds the HDF5 file from the journal (and from the file that was there) under a
temporary name and renames it; the journal is removed after that. Readers only ever see the finished file.

The journal begins with a line that names the format. Records follow: length and CRC-32 of the payload (two
little-endian uint32), payload. The first payload is the header as JSON; each other is an image: length of a JSON
description (uint32), the description, and the bytes of boxes, one-a-region fields, features and probabilities of
classes.
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
from types import TracebackType
from typing import IO, Any

import numpy as np

from capbench.core import files
from capbench.core.errors import CapbenchError, FeatureError, UsageError
from capbench.features.layout import COMPRESSIONS, DTYPES, Entry, Header, build
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import FeatureStore, open_store

__all__ = ["Journal", "StoreWriter", "partial_path"]


_MAGIC = b"capbench feature journal 1\n"
_RECORD = struct.Struct("<II")
_SYNC_S = 5.0
_MAX_RECORD = 1 << 30


class Journal:
    """Opens or begins a journal; a torn end is cut off.

    Args:
        path: the file.
        header: for a new one.
        restart: begin anew, and note that the finished file is to be replaced and not added to.

    Attributes:
        header: of the images in it.
        index: position of each image's record, and the number of its regions.
        replaces: whether the finished file is to be replaced.

    Raises:
        FeatureError: the file is something else.
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
        """Read what is there and cut a torn end off; False if not even the beginning is whole."""
        stream = self._stream
        magic = stream.read(len(_MAGIC))
        if not _MAGIC.startswith(magic):
            raise FeatureError("is no journal of capbench", path=self.path, hint="Move it away")
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
        """The record at ``_end``, None if it is torn; moves on behind it."""
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
        """Append an image; ``header`` is what all images share from now on. Raises UsageError on a full disk."""
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
        """An image that was added. Raises FeatureError if its record is damaged."""
        keep, self._end = self._end, self.index[image][0]
        try:
            payload = self._next()
        finally:
            self._end = keep
        if payload is None:
            raise FeatureError(
                f"the record of image '{image}' is damaged", path=self.path, hint="Run the same command again"
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
        # Journals of earlier versions do not speak of them.
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
        """Wait until all is on the disk."""
        try:
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise _cannot(self.path, error) from error
        self._synced = time.monotonic()

    def remove(self) -> None:
        """Close and delete it."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Close it; one without images is deleted."""
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
        path=path,
        hint="Check the folder's permissions and the free space, then run the same command again: what is done is kept",
    )


_LOCK_S = 5.0


def partial_path(path: str | os.PathLike[str]) -> Path:
    """Where the journal of an unfinished store lies."""
    return Path(f"{os.fspath(path)}.partial")


class StoreWriter:
    """Adds images to a store, new or not; what an interrupted run left is taken up.

    Args:
        path: the HDF5 file.
        fingerprint: of the detector.
        dtype: in which features are stored; float16 halves the file and rounds to 11 bits.
        compression: ``none``, ``gzip`` or ``lzf``; None keeps what the file has (``none`` for a new one).
        class_names: what class ids stand for.
        attribute_names: what attribute ids stand for.
        restart: forget what is there, finished or not, once the new file is complete.

    Raises:
        FeatureError: the file or its journal holds another detector's features or another type, or is damaged.
        UsageError: another run is writing it, or it cannot be written.

    Use as a context manager: leaving without :meth:`finish` keeps the journal.
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
            raise UsageError("is a folder", path=path, hint="Name the file of the store")
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
                f"the new features do not go with it: they are {conflict}",
                path=path,
                hint="Write to another file, or start anew with --restart",
            )
        if self._header.feature_size == 0:
            compression_kept = existing.compression if compression is None else compression
            self._header = dataclasses.replace(existing, compression=compression_kept)

    @property
    def done(self) -> frozenset[str]:
        """Ids of the images that need not be added again."""
        return frozenset(self._known | self._journal.index.keys())

    def __contains__(self, image: object) -> bool:
        return image in self._known or image in self._journal.index

    def add(self, regions: RegionFeatures) -> None:
        """Check an image's regions and append them to the journal.

        Raises:
            FeatureError: they are not valid, do not go with the others, or the image is there already.
            UsageError: the disk is full; what was added before is kept.
        """
        if regions.image in self:
            raise FeatureError(f"the image '{regions.image}' stands twice", path=self.path, hint="Keep one of the two")
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
            raise FeatureError(f"image '{regions.image}' does not go with the others: it has {conflict}")
        self._check_ids(regions)
        stored = _as_stored(regions, header.dtype)
        self._journal.add(stored, with_image)
        self._header = with_image

    def _check_ids(self, regions: RegionFeatures) -> None:
        header = self._header
        for ids, names in ((regions.class_ids, header.class_names), (regions.attribute_ids, header.attribute_names)):
            if ids is not None and names is not None and int(ids.max()) >= len(names):
                raise FeatureError(
                    f"image '{regions.image}' has the class or attribute {int(ids.max())} of {len(names)} names"
                )

    def finish(self, progress: Callable[[int], None] | None = None) -> FeatureStore:
        """Build the file from what was there and what was added, and open it.

        Raises:
            FeatureError: there are no images at all, or what was there is damaged.
            UsageError: it cannot be written; the journal and the old file are kept.
        """
        journal, old = self._journal, self._old
        # An earlier run may have been killed after it renamed the file and before it removed the journal.
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
        """Leave, and forget what was added."""
        self._journal.remove()
        self._stack.close()

    def close(self) -> None:
        """Leave; what was added stays in the journal."""
        self._stack.close()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        lock = files.lock(path, _LOCK_S)
        lock.__enter__()
    except UsageError as error:
        if "another run has held" not in error.message:
            raise
        raise UsageError(
            "another run is writing this store", path=path, hint="Wait for it, or write another file (--shard i/n)"
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _reader(read: Callable[[str], RegionFeatures], image: str) -> Callable[[], RegionFeatures]:
    return lambda: read(image)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"unknown {name} '{value}'", hint=f"Choices: {', '.join(choices)}")


def _as_stored(regions: RegionFeatures, dtype: str) -> RegionFeatures:
    """The regions with numbers of the stored type. Raises FeatureError if float16 cannot hold the features."""
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
            hint="Store them as float32",
        )
    return dataclasses.replace(regions, features=features)
