"""Caches on disk that several runs share: bytes by space and key in SQLite, and arrays parsed from other files.

Failures of a cache never stop a run, which goes on without it, with a warning. An entry with a wrong checksum counts as
missing. Batches are written atomically, and several runs may write at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import CapbenchError, CapbenchWarning, unwritable

_BUSY_TIMEOUT_S: Final = 60.0
_KEYS_A_QUERY: Final = 900  # SQLite before 3.32 takes at most 999 parameters
_ENTRIES: Final = (
    "CREATE TABLE IF NOT EXISTS entries (space BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, "
    "checksum INTEGER NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID"
)

reused: Final[Counter[str]] = Counter()  # cache name → number of results that this process has taken from it


class Cache:
    """One cache file."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._name = name
        self._connection: sqlite3.Connection | None = None
        if enabled:
            self._open()

    def get(self, space: str, keys: Sequence[bytes] | None = None) -> dict[bytes, bytes]:
        """Values of ``space`` by key, of all keys by default; keys that it does not contain are omitted."""
        digest, query = _digest(space), "SELECT key, value, checksum FROM entries WHERE space = ?"
        in_order = sorted(set(keys or ()))  # in the order of the file: every page is read once
        values: dict[bytes, bytes] = {}
        with self._guarded() as connection:
            if connection is None:
                return values
            if keys is None:
                return _sound(digest, connection.execute(f"{query} ORDER BY key", (digest,)))
            for start in range(0, len(in_order), _KEYS_A_QUERY):
                batch = in_order[start : start + _KEYS_A_QUERY]
                marks = ",".join("?" * len(batch))
                values |= _sound(digest, connection.execute(f"{query} AND key IN ({marks})", (digest, *batch)))
        return values

    def put(self, space: str, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Write all entries or none; existing ones are replaced."""
        digest = _digest(space)
        rows = [(digest, key, value, _checksum(digest, key, value)) for key, value in sorted(entries)]
        with self._guarded() as connection:
            if rows and connection:
                with transaction(connection):
                    connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file; the cache is empty from then on."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        with self._guarded():
            path = files.cache_dir() / f"{self._name}.sqlite"
            self._connection = connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            connection.text_factory = bytes  # damage can turn bytes into text that is not UTF-8
            with contextlib.suppress(sqlite3.OperationalError):  # network folders may reject it, which is harmless
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_ENTRIES)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, None without one; a failure inside the block ends the use of the file."""
        try:
            yield self._connection
        except (CapbenchError, sqlite3.Error, TypeError, UnicodeDecodeError) as error:  # damage gives columns any type
            self.close()
            message = f"the cache '{self._name}' cannot be used ({error}); the run continues without it"
            hint = f"Delete {self._name}.sqlite if it is damaged, or set CAPBENCH_CACHE to a writable folder"
            warnings.warn(f"{message}. {hint}", CapbenchWarning, stacklevel=4)


def _digest(space: str) -> bytes:
    return hashlib.blake2b(space.encode(), digest_size=8).digest()


def _checksum(space: bytes, key: bytes, value: bytes) -> int:
    # The length distinguishes entries that differ only in where the key ends.
    return crc32(value, crc32(key, crc32(space))) ^ len(key)


def _sound(space: bytes, rows: Iterable[tuple[bytes, bytes, int]]) -> dict[bytes, bytes]:
    """Values by key, of the entries of a space that are unchanged since they were written."""
    return {key: value for key, value, checksum in rows if _checksum(space, key, value) == checksum}


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing inside the block, one process at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


Arrays = Mapping[str, NDArray[Any]]


def derived_table(folder: str, name: str, version: int, build: Callable[[], Arrays]) -> dict[str, np.memmap[Any, Any]]:
    """Arrays parsed from other files, read-only and mapped into memory; built if absent.

    ``name`` contains everything that determines the content except ``version``, that of the code that builds the table.
    """
    path = files.cache_dir(folder) / f"{name}-{version}"
    if not path.is_dir():
        with files.lock(path):
            if not path.is_dir():  # another run may have built it while this one was waiting
                part = path.with_name(f".{path.name}.part")
                shutil.rmtree(part, ignore_errors=True)  # of an interrupted run
                arrays = build()
                try:
                    part.mkdir()
                    for key, array in arrays.items():
                        np.save(part / f"{key}.npy", array, allow_pickle=False)
                    os.replace(part, path)
                except OSError as error:
                    raise unwritable(error, path, "Set CAPBENCH_CACHE to a writable folder") from error
    try:
        return {file.stem: np.lib.format.open_memmap(file, mode="r") for file in sorted(path.glob("*.npy"))}
    except (ValueError, OSError) as error:
        warnings.warn(f"the table {path} is damaged ({error}); it is built again", CapbenchWarning, stacklevel=2)
        shutil.rmtree(path)
        return derived_table(folder, name, version, build)


def packed_texts(texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Texts as two arrays of a table: their concatenated UTF-8, and the end of each."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"texts": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}


def unpacked_texts(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The texts that :func:`packed_texts` packed."""
    joined, ends = arrays["texts"].tobytes(), arrays["ends"].tolist()
    return [joined[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip([0, *ends], ends, strict=False)]
