"""A cache on disk for large values: as :mod:`capbench.cache`, but its file does not grow beyond a limit.

What was not used for longest is thrown away first, and nothing that this process has put there or read: where all of a
file is in use, what is new is not kept. So a run over more than fits finds again what it kept, each time that it is
repeated, and does not throw away what it is about to ask for.

When an entry was used last stands in a table of its own, so that reading writes some bytes and not the value again.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from capbench.cache import ENTRIES, Cache, Row, transaction
from capbench.errors import CapbenchWarning

__all__ = ["BoundedCache"]

_USES: Final = (
    'CREATE TABLE "uses" (space BLOB NOT NULL, key BLOB NOT NULL, used INTEGER NOT NULL, bytes INTEGER NOT NULL, '
    "PRIMARY KEY (space, key)) WITHOUT ROWID"
)
_THIS_PROCESS: Final = time.time_ns()
_IN_PLACE: Final = 1000  # bytes of a value that lie beside its key; what is longer has pages of its own
_BESIDE: Final = (512, 5120)  # bytes that an entry takes beside its value at most, in place or on pages of its own
_FREED_AT_LEAST: Final = 20  # one part in so many of the limit is freed at once


class BoundedCache(Cache):
    """One cache file with a limit.

    A damaged file is thrown away and not set aside: it may be as large as the limit.

    Args:
        name: its name below the cache folder, without ending.
        limit_bytes: size of what the file holds; a file that is larger, of an earlier run, loses what was not used for
            longest when something new is put there. 0: nothing is kept or looked up, and no file is opened.
    """

    _tables: ClassVar[Mapping[str, str]] = {"entries": ENTRIES, "uses": _USES}
    _keeps_damaged: ClassVar[bool] = False

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._tidied = False
        super().__init__(name, enabled=limit_bytes > 0)

    def _read(self, connection: sqlite3.Connection, space: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        # Rows are not looked through for damaged keys: such an entry is unused, and goes with the others.
        values, unfit = self._look_up(connection, space, set(keys))
        if unfit:
            warnings.warn(
                f"{len(unfit):,} entries of the cache {self.path} do not fit their checksum; they are computed again",
                CapbenchWarning,
                stacklevel=5,
            )
            _delete(connection, [(space, key) for key in unfit])
        if values:
            with transaction(connection):
                connection.executemany(
                    "UPDATE uses SET used = ? WHERE space = ? AND key = ? AND used <> ?",
                    [(_THIS_PROCESS, space, key, _THIS_PROCESS) for key in sorted(values)],
                )
        return values

    def _write(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        with transaction(connection):
            room = self._make_room(connection, sum(map(_size, rows)))
            kept: list[Row] = []
            for row in rows:
                room -= _size(row)
                if room < 0:
                    break
                kept.append(row)
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", kept)
            connection.executemany(
                "INSERT OR REPLACE INTO uses VALUES (?, ?, ?, ?)",
                [(row[0], row[1], _THIS_PROCESS, _size(row)) for row in kept],
            )
        return len(kept)

    def _make_room(self, connection: sqlite3.Connection, wanted: int) -> int:
        """Bytes that are free, after what may go and must is deleted."""
        room = self._limit - _held(connection)
        if room >= wanted:
            return room
        if not self._tidied:
            self._tidied = True
            _delete_halves(connection)
        wanted = max(wanted, self._limit // _FREED_AT_LEAST)
        # Sizes are estimates, so that once may not be enough.
        while (room := self._limit - _held(connection)) < wanted:
            unused = list(_longest_unused(connection, wanted - room))
            if not unused:
                break
            _delete(connection, unused)
        return room


def _longest_unused(connection: sqlite3.Connection, too_much: int) -> Iterator[tuple[bytes, bytes]]:
    """Space and key of as many entries as take so many bytes, of those that this process does not use."""
    query = "SELECT space, key, bytes FROM uses WHERE used <> ? ORDER BY used"
    for space, key, size in connection.execute(query, (_THIS_PROCESS,)):
        if too_much <= 0:
            return
        too_much -= size
        yield space, key


def _delete_halves(connection: sqlite3.Connection) -> None:
    """Delete what stands in one of the two tables alone, since its key was damaged."""
    for table, other in (("entries", "uses"), ("uses", "entries")):
        connection.execute(
            f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM {other} WHERE {other}.space = {table}.space "
            f"AND {other}.key = {table}.key)"
        )


def _delete(connection: sqlite3.Connection, places: Sequence[tuple[bytes, bytes]]) -> None:
    for table in ("entries", "uses"):
        connection.executemany(f"DELETE FROM {table} WHERE space = ? AND key = ?", places)


def _held(connection: sqlite3.Connection) -> int:
    """Bytes of the file that hold something; what was deleted leaves room in it."""
    numbers = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    pages, free, page_bytes = numbers
    return int((pages - free) * page_bytes)


def _size(row: Row) -> int:
    return len(row[1]) + len(row[2]) + _BESIDE[len(row[2]) > _IN_PLACE]
