"""A cache on disk that several runs share: bytes by space and key, in one SQLite file.

It may be lost at any time without harm, so nothing that happens to it stops a run: a damaged file is set
aside and begun anew, an unwritable place or a full disk means working without, each with a warning.
Writing is atomic by batch, so an interrupted run leaves whole batches, and two runs may write at once.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from capbench import files
from capbench.errors import CapbenchError, CapbenchWarning

__all__ = ["Cache"]

_VERSION = 1
_BUSY_TIMEOUT_S = 60.0
_KEYS_A_QUERY = 900  # SQLite before 3.32 takes at most 999 parameters
_T = TypeVar("_T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS entries (
    space INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key)
) WITHOUT ROWID;
"""


class Cache:
    """One cache file.

    Args:
        name: its name below the cache folder, without ending (``scores``).
        enabled: False makes a cache that holds nothing, so that callers need not ask.

    Spaces keep apart what must not be mixed; a space's name says everything that decides its values.
    """

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._name = name
        self._connection: sqlite3.Connection | None = None
        if enabled:
            self._open()

    @property
    def path(self) -> Path | None:
        """The file, None if the cache is not used or cannot be."""
        if self._connection is None:
            return None
        return files.cache_dir() / f"{self._name}.sqlite"

    def get(self, space: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """What is there of ``keys`` in ``space``."""

        def read(connection: sqlite3.Connection) -> dict[bytes, bytes]:
            row = connection.execute("SELECT id FROM spaces WHERE name = ?", (space,)).fetchone()
            found: dict[bytes, bytes] = {}
            if row is None:
                return found
            for start in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[start : start + _KEYS_A_QUERY]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, value FROM entries WHERE space = ? AND key IN ({marks})"
                found.update(connection.execute(query, (row[0], *part)))
            return found

        return self._run(read) or {}

    def put(self, space: str, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Write entries, all or none; those that are there are replaced."""
        rows = list(entries)
        if rows:
            self._run(lambda connection: _write(connection, space, rows))

    def close(self) -> None:
        """Close the file; the cache then holds nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Do something with the file; None if there is none, or no longer any."""
        if self._connection is None:
            return None
        try:
            return work(self._connection)
        except sqlite3.OperationalError as error:  # full disk, read-only, locked for too long
            self._give_up(str(error))
        except sqlite3.DatabaseError as error:  # damaged
            path = self.path
            self.close()
            if path is not None and self._set_aside(path, str(error)):
                self._open()
        return None

    def _open(self) -> None:
        try:
            path = files.cache_dir() / f"{self._name}.sqlite"
        except CapbenchError as error:
            self._give_up(error.message)
            return
        for attempt in (1, 2):
            try:
                self._connection = _connect(path)
                return
            except sqlite3.OperationalError as error:
                self._give_up(str(error))
                return
            except sqlite3.DatabaseError as error:
                if attempt == 2 or not self._set_aside(path, str(error)):
                    self._give_up(str(error))
                    return

    def _set_aside(self, path: Path, reason: str) -> bool:
        """Move a damaged file out of the way; False if that cannot be done."""
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        try:
            with files.lock(path, _BUSY_TIMEOUT_S):
                # Another run may have mended it while this one waited for the lock.
                if _is_sound(path):
                    return True
                os.replace(path, aside)
                for ending in ("-wal", "-shm"):
                    path.with_name(path.name + ending).unlink(missing_ok=True)
        except (OSError, CapbenchError):
            return False
        warnings.warn(
            f"the cache {path} was damaged ({reason}); it is set aside as {aside.name} and begun anew",
            CapbenchWarning,
            stacklevel=4,
        )
        return True

    def _give_up(self, reason: str) -> None:
        self.close()
        warnings.warn(
            f"the cache '{self._name}' cannot be used ({reason}): working without. Set CAPBENCH_CACHE to a folder "
            "that you may write to",
            CapbenchWarning,
            stacklevel=4,
        )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        # With a write-ahead log readers do not wait for a writer. Network folders may refuse it, which is no harm.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"it is of format {version}, this capbench writes {_VERSION}")
        with _transaction(connection):
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(entries)")]
        if columns != ["space", "key", "value"]:
            raise sqlite3.DatabaseError("its tables are not a cache's")
    except BaseException:
        connection.close()
        raise
    return connection


def _write(connection: sqlite3.Connection, space: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
    with _transaction(connection):
        connection.execute("INSERT OR IGNORE INTO spaces (name) VALUES (?)", (space,))
        (number,) = connection.execute("SELECT id FROM spaces WHERE name = ?", (space,)).fetchone()
        connection.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", ((number, key, value) for key, value in rows)
        )


def _is_sound(path: Path) -> bool:
    try:
        connection = _connect(path)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
