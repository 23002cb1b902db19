"""Tables that are derived from other files: arrays kept in the cache folder, and checked whenever they are opened.

A table is one file: a line with the length and the CRC-32 of all that follows, a line of JSON with the table's name,
its version and where each array lies, and the arrays. What is cut off, changed, or another table than its file name
says is made again, with a warning. The checksum is a guard against accidents, not against a person who writes a false
table.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import CapbenchWarning, UsageError

__all__ = ["derived_table", "kept_table", "packed_texts", "unpacked_texts"]

Arrays = Mapping[str, NDArray[Any]]

_MAGIC: Final = b"capbench table"
_FIRST_LINE: Final = _MAGIC + b" %020d %08x\n"
_LENGTH_OF_FIRST_LINE: Final = len(_FIRST_LINE % (0, 0))
_LONGEST_HEADER: Final = 1 << 20
_ALIGNMENT: Final = 64
_BLOCK: Final = 1 << 20
_KINDS: Final = frozenset("iufb")  # of numbers and truth values, which any bytes can be read as


class _UnfitError(Exception):
    """What a file is instead of the table that it should be."""


def derived_table(folder: str, name: str, version: int, build: Callable[[], Arrays]) -> dict[str, np.memmap[Any, Any]]:
    """A table's arrays, mapped into memory and read-only; the table is built if there is none that is right.

    The arrays of equal tables lie at equal places of the file.

    Args:
        folder: the folder below the cache folder.
        name: the table's file name without ending. It says everything that decides the content but ``version``.
        version: of the code that builds the table.
        build: gives the arrays; called at most once, and in one process at a time.

    Raises:
        UsageError: the cache folder cannot be written, or does not keep what is written to it.
    """
    path = files.cache_dir(folder) / f"{name}-{version}.table"
    # A file appears whole, so that one that is right takes no lock, nor a folder that can be written.
    with contextlib.suppress(FileNotFoundError, _UnfitError):
        return _open(path, name, version)
    with files.lock(path):
        try:
            return _open(path, name, version)  # another run built it while this one waited
        except FileNotFoundError:
            pass
        except _UnfitError as error:
            warnings.warn(f"the table {path} {error}; it is made again", CapbenchWarning, stacklevel=2)
        for leftover in path.parent.glob(f".{path.name}.*.part"):  # of an interrupted run
            leftover.unlink(missing_ok=True)
        _write(path, name, version, build())
        try:
            return _open(path, name, version)
        except (FileNotFoundError, _UnfitError) as error:
            raise UsageError(
                "does not keep what was just written to it",
                path=path,
                hint="Check the disk, or set CAPBENCH_CACHE to a folder on another one",
            ) from error


def kept_table(folder: str, name: str, version: int, build: Callable[[], Arrays]) -> Mapping[str, NDArray[Any]]:
    """:func:`derived_table`, or what ``build`` gives where the cache folder cannot be written.

    It is for tables that only save time, and that are small enough to stay in memory.

    Args:
        folder: as there.
        name: as there.
        version: as there.
        build: as there; called a second time if its outcome could not be kept. It raises no UsageError.
    """
    try:
        return derived_table(folder, name, version, build)
    except UsageError:
        return build()


def packed_texts(texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Texts as two arrays of a table: their UTF-8, one after another, and where each ends."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"texts": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}


def unpacked_texts(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The texts of :func:`packed_texts`."""
    whole, ends = arrays["texts"].tobytes(), arrays["ends"].tolist()
    return [whole[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _write(path: Path, name: str, version: int, arrays: Arrays) -> None:
    # Places count from the end of the header: it holds them, so its length cannot decide them.
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    end = 0
    for key, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"an array of type {array.dtype} cannot be part of a table")
        places[key] = (array.dtype.str, array.shape, end)
        end += array.nbytes + -array.nbytes % _ALIGNMENT
    header = json.dumps({"name": name, "version": version, "arrays": places}).encode()
    header += b" " * (-(_LENGTH_OF_FIRST_LINE + len(header) + 1) % _ALIGNMENT) + b"\n"
    pieces: list[Any] = [header]
    for array in arrays.values():
        pieces += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT)]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    with files.atomic_write(path, "wb") as stream:
        stream.write(_FIRST_LINE % (len(header) + end, checksum))
        for piece in pieces:
            stream.write(piece)


def _open(path: Path, name: str, version: int) -> dict[str, np.memmap[Any, Any]]:
    """Raises FileNotFoundError if there is no file, _UnfitError if there is another one than there should be."""
    try:
        with open(path, "rb") as stream:
            _check(stream)
            stream.seek(_LENGTH_OF_FIRST_LINE)
            header = json.loads(stream.readline(_LONGEST_HEADER))
            if header["name"] != name or header["version"] != version:
                raise _UnfitError(
                    f"holds version {header['version']} of '{header['name']}' and not version {version} of '{name}'"
                )
            start = stream.tell()
            return {
                key: _map(stream, kind, tuple(shape), start + place)
                for key, (kind, shape, place) in header["arrays"].items()
            }
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _UnfitError(f"cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _UnfitError("has a header that is none") from error


def _check(stream: IO[bytes]) -> None:
    """Check length and checksum of a file that was just opened."""
    first_line = stream.read(_LENGTH_OF_FIRST_LINE)
    try:
        length, checksum = int(first_line[len(_MAGIC) :].split()[0]), int(first_line.split()[-1], 16)
    except (ValueError, IndexError):
        length, checksum = -1, -1
    if length < 0 or first_line != _FIRST_LINE % (length, checksum):
        raise _UnfitError("is damaged: its first line is not a table's")
    n_bytes = actual = 0
    # In blocks and not through a map: what is only checked need not stay in memory.
    while block := stream.read(_BLOCK):
        n_bytes += len(block)
        actual = zlib.crc32(block, actual)
    if n_bytes != length:
        raise _UnfitError(f"is damaged: it holds {n_bytes:,} bytes and not {length:,}")
    if actual != checksum:
        raise _UnfitError("is damaged: it does not fit its checksum")


def _map(stream: IO[bytes], kind: str, shape: tuple[int, ...], place: int) -> np.memmap[Any, Any]:
    dtype = np.dtype(kind)
    end = place + math.prod(shape) * dtype.itemsize
    inside = _LENGTH_OF_FIRST_LINE <= place <= end <= os.fstat(stream.fileno()).st_size
    if dtype.kind not in _KINDS or not inside or not all(n >= 0 for n in shape):
        raise ValueError(f"an array of type {kind} and shape {shape} at {place}")
    if place == end:  # nothing cannot be mapped
        return np.empty(shape, dtype).view(np.memmap)
    return np.memmap(stream, dtype, "r", place, shape)
