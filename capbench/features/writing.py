"""Writing a feature store without losing finished images: first a journal, at the end the HDF5 file.

Images are appended one by one to ``NAME.partial``, a journal. Each record has a length and a CRC-32, so that a run
that is killed or meets a full disk leaves complete records and at most one incomplete one, which the next run removes
before it resumes. ``finish`` writes the HDF5 file from the journal (and from an existing file) under a temporary name,
renames it and removes the journal. Readers only ever see the finished file.

The journal begins with a line that names the format. Records follow: length and CRC-32 of the payload (two
little-endian uint32), payload. The first payload is the header as JSON; each other is an image: the pickled fields of
its regions, which are numbers, texts and arrays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import struct
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path

import numpy as np

from capbench.core import files
from capbench.core.errors import FeatureError, UsageError, check_choice
from capbench.core.pickles import load_pickle
from capbench.features.layout import COMPRESSIONS, DTYPES, Entry, Header, build, duplicate_image, writes
from capbench.features.records import Fingerprint, RegionFeatures, check_names
from capbench.features.store import FeatureStore, open_store

_MAGIC = b"capbench feature journal 2\n"
_RECORD = struct.Struct("<II")
_SYNC_S = 5.0
_LOCK_S = 5.0


class Journal:
    """Opens or creates a journal; an incomplete record at the end is removed.

    ``restart``: start a new journal, which replaces the finished file instead of extending it.
    """

    def __init__(self, path: Path, header: Header, *, restart: bool = False) -> None:
        self.path, self.header, self.replaces = path, header, restart
        self.index: dict[str, tuple[int, int]] = {}  # position of each image's record, and the number of its regions
        self._end = 0
        self._synced = time.monotonic()
        with writes(path):
            if restart:
                path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115  closed by close()
            try:
                self._recover()
            except BaseException:
                self._file.close()
                raise

    def _recover(self) -> None:
        """Read an existing journal and remove an incomplete end; begin one if not even its header is complete."""
        magic = self._file.read(len(_MAGIC))
        if not _MAGIC.startswith(magic):
            raise FeatureError("is not a journal of capbench", code="wrong-format", path=self.path, hint="Move it away")
        self._end = len(magic)
        first = self._record(self._end)
        if first is None:
            self._end = 0
            self._file.truncate(0)
            beginning = json.dumps({"header": self.header.to_dict(), "replaces": self.replaces}).encode()
            self._append(_MAGIC + _framed(beginning))
            return
        beginning = json.loads(first)
        self.header, self.replaces = Header.from_dict(beginning["header"]), beginning["replaces"]
        self._end += _RECORD.size + len(first)
        while (payload := self._record(self._end)) is not None:
            regions = RegionFeatures(**load_pickle(payload, name=str(self.path)))
            self.index[regions.image] = (self._end, len(regions))
            self._end += _RECORD.size + len(payload)
            self.header = self.header.with_image(regions)
        self._file.truncate(self._end)

    def _record(self, begin: int) -> bytes | None:
        """The payload of the record that begins there; None if it is incomplete."""
        self._file.seek(begin)
        frame = self._file.read(_RECORD.size)
        if len(frame) < _RECORD.size:
            return None
        length, crc = _RECORD.unpack(frame)
        payload = self._file.read(length)
        return payload if payload and len(payload) == length and zlib.crc32(payload) == crc else None

    def add(self, regions: RegionFeatures, header: Header) -> None:
        """Append an image; ``header`` is the common header including this image. Raises UsageError on a full disk."""
        begin = self._end
        self._append(_framed(pickle.dumps({field.name: getattr(regions, field.name) for field in fields(regions)})))
        self.index[regions.image] = (begin, len(regions))
        self.header = header
        if time.monotonic() - self._synced > _SYNC_S:
            self.sync()

    def read(self, image: str) -> RegionFeatures:
        """An image of the journal. Raises FeatureError if its record is damaged."""
        payload = self._record(self.index[image][0])
        if payload is None:
            message = f"the record of image '{image}' is damaged"
            raise FeatureError(message, code="damaged", value=image, path=self.path, hint="Run the same command again")
        return RegionFeatures(**load_pickle(payload, name=str(self.path)))

    def _append(self, data: bytes) -> None:
        """Write at the end; a full disk leaves nothing of it."""
        with writes(self.path):
            self._file.seek(self._end)
            view = memoryview(data)
            try:
                while view:
                    view = view[self._file.write(view) :]
            except OSError:
                self._file.truncate(self._end)
                raise
            self._end += len(data)

    def sync(self) -> None:
        """Flush all data to the disk."""
        with writes(self.path):
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def remove(self) -> None:
        """Close and delete the journal."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the journal; an empty one is deleted."""
        self._file.close()
        if not self.index:
            self.path.unlink(missing_ok=True)


def _framed(payload: bytes) -> bytes:
    return _RECORD.pack(len(payload), zlib.crc32(payload)) + payload


def partial_path(path: str | os.PathLike[str]) -> Path:
    """Path of the journal of an unfinished store."""
    return Path(f"{os.fspath(path)}.partial")


def check_new(path: Path, replace: bool, sources: Iterable[Path] = ()) -> None:
    """Raise UsageError if a file to be written exists and is not to be replaced, or is one of those to be read."""
    hint = "Write to another file, or replace it with --replace"
    if path.exists() and not replace:
        raise UsageError("already exists", code="exists", path=path, hint=hint)
    if Path(path).resolve() in [Path(source).resolve() for source in sources]:
        raise UsageError("is a file to be read, too", code="conflict", path=path, hint="Write to another file")


class StoreWriter:
    """Adds images to a new or existing store; resumes an interrupted run."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        fingerprint: Fingerprint,
        *,
        dtype: str = "float32",  # type of the stored features; float16 halves the file and rounds to 11 bits
        # ``none``, ``gzip`` or ``lzf``; None for that of the existing file (``none`` for a new one)
        compression: str | None = None,
        class_names: tuple[str, ...] | None = None,
        attribute_names: tuple[str, ...] | None = None,
        restart: bool = False,  # discard existing features, finished or not, once the new file is complete
        keep: bool = True,  # False to delete the journal of a run that did not finish
    ) -> None:
        check_choice("dtype", dtype, DTYPES, code="wrong-value")
        check_choice("compression", compression or "none", COMPRESSIONS, code="wrong-value")
        self.path = Path(path)  # the HDF5 file
        if self.path.is_dir():
            raise UsageError("is a folder", code="wrong-value", path=path, hint="Write the name of the store's file")
        self._header = Header(fingerprint, dtype, compression or "none", class_names, attribute_names)
        with contextlib.ExitStack() as stack:
            stack.enter_context(files.lock(self.path, _LOCK_S))
            self._journal = Journal(partial_path(self.path), self._header, restart=restart)
            stack.callback(self._journal.close if keep else self._journal.remove)
            self._adopt(self._journal.header, self._journal.path, compression)
            self._old: FeatureStore | None = None
            if self.path.exists() and not self._journal.replaces:
                self._old = stack.enter_context(open_store(self.path))
                self._adopt(self._old.header, self.path, compression)
            self._known = set(self._old.ids) if self._old is not None else set()
            self._stack = stack.pop_all()
        self.resumed = len(self._journal.index)  # number of images that an interrupted run left in the journal

    def _adopt(self, existing: Header, path: Path, compression: str | None) -> None:
        conflict = existing.conflict(self._header)
        if conflict:
            message = f"the new features do not match those of the file: they are {conflict}"
            hint = "Write to another file, or replace this one with --restart"
            raise FeatureError(message, code="wrong-features", path=path, hint=hint)
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
        """Check an image's regions and append them to the journal."""
        if regions.image in self:
            raise duplicate_image(regions.image, self.path)
        regions.check()
        header = self._header
        with_image = header.with_image(regions)
        conflict = header.conflict(with_image)
        if conflict:
            message = f"image '{regions.image}' does not match the other images: it has {conflict}"
            raise FeatureError(message, code="mismatch", value=regions.image)
        check_names(regions, header.class_names, header.attribute_names)
        self._journal.add(_as_stored(regions, header.dtype), with_image)
        self._header = with_image

    def finish(self, progress: Callable[[int], None] | None = None) -> FeatureStore:
        """Write the file from the existing and the new images, and open it."""
        journal, old = self._journal, self._old
        # A killed run may have renamed the file without removing the journal.
        fresh = [image for image in journal.index if image not in self._known]
        if fresh or old is None or old.header.compression != self._header.compression:
            entries = [Entry(image, journal.index[image][1], journal.read) for image in fresh]
            if old is not None:
                entries += [Entry(image, old.regions(image), old.__getitem__) for image in old.ids]
            journal.sync()
            build(self.path, self._header, entries, progress)
        journal.remove()
        self._stack.close()
        return open_store(self.path)

    def close(self) -> None:
        """Close the store; the images that were added stay in the journal, unless ``keep`` is False."""
        self._stack.close()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_stored(regions: RegionFeatures, dtype: str) -> RegionFeatures:
    """The regions in the stored type. Raises FeatureError if float16 cannot hold the features."""
    shares = regions.class_probabilities
    with np.errstate(over="ignore"):
        features = regions.features.astype(dtype, copy=False)
    if not np.isfinite(features).all():
        largest = float(np.abs(regions.features).max())
        message = f"image '{regions.image}' has a feature of {largest:.0f}, too large for {dtype}"
        hint = "Store the features as float32"
        raise FeatureError(message, code="out-of-range", value=regions.image, hint=hint)
    shares = None if shares is None else shares.astype(dtype, copy=False)
    return dataclasses.replace(regions, features=features, class_probabilities=shares)
