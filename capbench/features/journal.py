"""The growing file behind :class:`capbench.features.writing.StoreWriter`: whole records, or none.

A line that names the format, then records: length and CRC-32 of the payload (two little-endian uint32), payload. The
first payload is the header as JSON; each other is an image: length of a JSON description (uint32), the description,
and the bytes of boxes, one-a-region fields, features and probabilities of classes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
import time
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from capbench.errors import CapbenchError, FeatureError, UsageError
from capbench.features.layout import Header
from capbench.features.records import RegionFeatures

__all__ = ["Journal"]

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
