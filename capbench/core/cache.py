"""Caches on disk that several runs share: key-value stores in SQLite, and tables of arrays parsed from other files.

:class:`Cache` stores bytes by space and key in one SQLite file. Every entry has a checksum over its space, key and
value, since SQLite detects damage to its own structure only. Entries with a wrong checksum are dropped with one
warning, and the caller computes them again.

A cache can be deleted at any time, and its failures never stop a run: a damaged file is set aside and replaced; without
write permission or free space the run continues without the cache. Each case gives a warning. Batches are written
atomically, so an interrupted run leaves whole batches, and several runs may write at the same time.

:class:`BoundedCache` keeps large values in a file of limited size. It evicts the least recently used entries, but none
that this process wrote or read: if all entries are in use, new values are not stored. A repeated run over more data
than the limit therefore finds the same entries again. The times of use have a separate table, so that a read does not
rewrite the value.

:func:`derived_table` stores arrays in one file: a line with the length and the CRC-32 of the rest, a line of JSON with
the table's name, version and array offsets, then the arrays. Files that are truncated, changed or of another table are
rebuilt with a warning.

All checksums protect against accidents, not against deliberate forgery.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import starmap
from pathlib import Path
from typing import IO, Any, ClassVar, Final, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import CapbenchError, CapbenchWarning, UsageError

_VERSION: Final = 2
_VERSION_WITHOUT_CHECKSUMS: Final = 1
_BUSY_TIMEOUT_S: Final = 60.0
_KEYS_A_QUERY: Final = 900  # SQLite before 3.32 takes at most 999 parameters
_EXAMINED: Final = 20_000  # entries of a space, about 20 ms
_EXAMINED_PER_MISSING: Final = 4  # entries: cheap compared with computing one
_T = TypeVar("_T")
Row = tuple[bytes, bytes, bytes, int]
"""Digest of the space's name, key, value, checksum."""

# Names are quoted as SQLite quotes them when it renames a table, so that a file's schema always equals this text.
_TABLE: Final = (
    'CREATE TABLE "{name}" (space BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, checksum INTEGER NOT NULL, '
    "PRIMARY KEY (space, key)) WITHOUT ROWID"
)
ENTRIES: Final = _TABLE.format(name="entries")
"""The table of a cache, as SQLite reports it."""
_ROWS: Final = "SELECT space, key, value, checksum FROM entries"

# Errors of the disk, the permissions or other processes. All other SQLite errors are damage to the file itself.
_OUTSIDE_ERRORS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


written: Final[Counter[str]] = Counter()
"""Cache name → number of entries that this process has written to it."""
reused: Final[Counter[str]] = Counter()
"""Cache name → number of results that this process has taken from it."""


_OTHER_TABLES: Final = "its tables are not those of a cache"


class _OtherFormatError(sqlite3.DatabaseError):
    """The file is intact but has another format."""


class Cache:
    """One cache file.

    Args:
        name: its name below the cache folder, without extension (``scores``).
        enabled: False gives an empty cache that ignores writes.

    A space separates values that must not be mixed; its name contains everything that determines its values.
    """

    _tables: ClassVar[Mapping[str, str]] = {"entries": ENTRIES}
    """Tables of the file, as SQLite reports them."""
    _keeps_damaged: ClassVar[bool] = True
    """True if an unusable file is set aside, False if it is deleted."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._name = name
        self._connection: sqlite3.Connection | None = None
        self._examined: set[bytes] = set()
        if enabled:
            self._open()

    @property
    def path(self) -> Path | None:
        """The file; None if the cache is disabled or unusable."""
        if self._connection is None:
            return None
        return files.cache_dir() / f"{self._name}.sqlite"

    def get(self, space: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Values of ``space`` by key; keys that it does not contain are omitted."""
        return self._run(lambda connection: self._read(connection, _digest(space), keys)) or {}

    def entries(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values of a space with a valid checksum, sorted by key."""
        query = f"{_ROWS} WHERE space = ? ORDER BY key"
        rows = self._run(lambda connection: connection.execute(query, (_digest(space),)).fetchall()) or []
        return (
            (key, value) for space_of_row, key, value, checksum in rows if _fits(space_of_row, key, value, checksum)
        )

    def put(self, space: str, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Write all entries or none; existing ones are replaced."""
        digest = _digest(space)
        seed = crc32(digest)
        # In the order of the file, so that neighbours are written together.
        rows = [(digest, key, value, _checksum(seed, key, value)) for key, value in sorted(entries)]
        if rows:
            written[self._name] += self._run(lambda connection: self._write(connection, rows)) or 0

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

    def _read(self, connection: sqlite3.Connection, space: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        requested = set(keys)
        values, unfit = self._look_up(connection, space, requested)
        sound = not unfit
        missing = len(requested) - len(values)
        if sound and missing and space not in self._examined:
            self._examined.add(space)
            n_rows = max(_EXAMINED, _EXAMINED_PER_MISSING * missing)
            sound = all(starmap(_fits, _examination(connection, space, n_rows)))
        if not sound:
            self._drop_unfit(connection)
        return values

    def _look_up(
        self, connection: sqlite3.Connection, space: bytes, requested: Set[bytes]
    ) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Values by key, and the keys of entries with a wrong checksum."""
        seed = crc32(space)
        values: dict[bytes, bytes] = {}
        unfit: list[bytes] = []
        in_order = sorted(requested)  # in the order of the file: every page is read once
        for start in range(0, len(in_order), _KEYS_A_QUERY):
            batch = in_order[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(batch))
            query = f"SELECT key, value, checksum FROM entries WHERE space = ? AND key IN ({marks})"
            for key, value, checksum in connection.execute(query, (space, *batch)):
                if key in requested and isinstance(value, bytes) and _checksum(seed, key, value) == checksum:
                    values[key] = value
                else:
                    unfit.append(key)
        return values, unfit

    def _write(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        """Write all rows or none, and return their number."""
        with transaction(connection):
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
        return len(rows)

    def _drop_unfit(self, connection: sqlite3.Connection) -> None:
        """Copy entries with a valid checksum to a new table: a search does not find rows whose key is damaged."""
        with transaction(connection):
            n_entries = n_unfit = 0
            for row in connection.execute(_ROWS):
                n_entries += 1
                n_unfit += not _fits(*row)
            if not n_unfit:  # another run has dropped them already
                return
            connection.execute(_TABLE.format(name="fitting"))
            fitting = (row for row in connection.execute(_ROWS) if _fits(*row))
            connection.executemany("INSERT OR REPLACE INTO fitting VALUES (?, ?, ?, ?)", fitting)
            connection.execute("DROP TABLE entries")
            connection.execute("ALTER TABLE fitting RENAME TO entries")
        warnings.warn(
            f"{n_unfit:,} of {n_entries:,} entries of the cache {self.path} have a wrong checksum; "
            "they are computed again",
            CapbenchWarning,
            stacklevel=6,
        )

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """The result of ``work`` on the file; None if the cache is disabled or becomes unusable."""
        if self._connection is None:
            return None
        try:
            return work(self._connection)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            path = self.path
            if path is None or not _is_damage(error, path):
                self._give_up(str(error))
                return None
            self.close()
            if not self._set_aside(path, error):
                self._give_up(str(error))
                return None
            self._open()
        try:
            return None if self._connection is None else work(self._connection)  # on the new file
        except sqlite3.DatabaseError as error:
            self._give_up(str(error))
        return None

    def _open(self) -> None:
        try:
            path = files.cache_dir() / f"{self._name}.sqlite"
        except CapbenchError as error:
            self._give_up(error.message)
            return
        for attempt in (1, 2):
            try:
                self._connection = _connect(path, self._tables)
                return
            except sqlite3.DatabaseError as error:
                if attempt == 2 or not _is_damage(error, path) or not self._set_aside(path, error):
                    self._give_up(str(error))
                    return

    def _set_aside(self, path: Path, error: sqlite3.DatabaseError | UnicodeDecodeError) -> bool:
        """Move or delete an unusable file; False if that fails."""
        other_format = isinstance(error, _OtherFormatError)
        aside = path.with_name(f"{path.name}.{'other-format' if other_format else 'damaged'}-{time.time_ns()}")
        try:
            with files.lock(path, _BUSY_TIMEOUT_S):
                # Another run may have replaced it while this one was waiting for the lock.
                if _is_sound(path, self._tables):
                    return True
                if self._keeps_damaged:
                    os.replace(path, aside)
                else:
                    path.unlink()
                for ending in ("-wal", "-shm"):
                    path.with_name(path.name + ending).unlink(missing_ok=True)
        except (OSError, CapbenchError):
            return False
        state = str(error) if other_format else f"was damaged ({error})"
        outcome = f"renamed to {aside.name}" if self._keeps_damaged else "deleted"
        warnings.warn(
            f"the cache {path} {state}; it is {outcome} and a new one is created", CapbenchWarning, stacklevel=4
        )
        return True

    def _give_up(self, reason: str) -> None:
        self.close()
        warnings.warn(
            f"the cache '{self._name}' cannot be used ({reason}); the run continues without it. Set CAPBENCH_CACHE to "
            "a writable folder",
            CapbenchWarning,
            stacklevel=4,
        )


def _digest(space: str) -> bytes:
    return hashlib.blake2b(space.encode(), digest_size=8).digest()


def _checksum(seed: int, key: bytes, value: bytes) -> int:
    """Checksum of an entry; the seed is the CRC-32 of its space's digest."""
    # The length distinguishes entries that differ only in where the key ends.
    return crc32(value, crc32(key, seed)) ^ len(key)


def _fits(space: object, key: object, value: object, checksum: object) -> bool:
    """True if a row is unchanged since it was written; damage can give its columns any type."""
    if not (isinstance(space, bytes) and isinstance(key, bytes) and isinstance(value, bytes)):
        return False
    return _checksum(crc32(space), key, value) == checksum


def _examination(connection: sqlite3.Connection, space: bytes, n_rows: int) -> Iterator[Sequence[Any]]:
    """Rows that reveal damaged keys and spaces, which a lookup by the right name only reports as missing.

    These are the first ``n_rows`` of a space, and the first row of every space: a row whose space was changed to an
    unused one is the first row there.
    """
    yield from connection.execute(f"{_ROWS} WHERE space = ? LIMIT ?", (space, n_rows))
    last: Any = b""
    while row := connection.execute(f"{_ROWS} WHERE space > ? ORDER BY space, key LIMIT 1", (last,)).fetchone():
        yield row
        last = row[0]


def _connect(path: Path, tables: Mapping[str, str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        # Damage can turn bytes into text that is not UTF-8.
        connection.text_factory = bytes
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        # With a write-ahead log, readers need not wait for a writer. Network folders may reject it, which is harmless.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if not _check_format(connection):
            # Checked again: another run may have created the tables meanwhile.
            with transaction(connection):
                if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for table in tables.values():
                        connection.execute(table)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
        schema = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        if schema != [(name.encode(), tables[name].encode()) for name in sorted(tables)]:
            raise sqlite3.DatabaseError(_OTHER_TABLES)
    except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its message
        connection.close()
        raise sqlite3.DatabaseError(_OTHER_TABLES) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_format(connection: sqlite3.Connection) -> bool:
    """True if the file has this format, False if it is new. Raises _OtherFormatError for other formats."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _VERSION_WITHOUT_CHECKSUMS:
        raise _OtherFormatError(f"has format {version}, whose entries have no checksums")
    if version not in (0, _VERSION):
        raise _OtherFormatError(f"has format {version}; this version of capbench writes format {_VERSION}")
    return bool(version == _VERSION)


def _is_damage(error: sqlite3.DatabaseError | UnicodeDecodeError, path: Path) -> bool:
    """True if the file is damaged; False if the disk, the permissions or another run caused the error."""
    # Errors raised in this module have no code; extended codes have the kind in their low byte.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_READONLY:
        # SQLite treats a file whose header names a future format as read-only, whatever the permissions.
        return path.is_file() and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code not in _OUTSIDE_ERRORS


def _is_sound(path: Path, tables: Mapping[str, str]) -> bool:
    try:
        connection = _connect(path, tables)
        try:
            with transaction(connection):
                connection.execute(f"PRAGMA user_version = {_VERSION}")  # fails if the header forbids writing
                return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == (b"ok",))
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False


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


_USES: Final = (
    'CREATE TABLE "uses" (space BLOB NOT NULL, key BLOB NOT NULL, used INTEGER NOT NULL, bytes INTEGER NOT NULL, '
    "PRIMARY KEY (space, key)) WITHOUT ROWID"
)
_THIS_PROCESS: Final = time.time_ns()
_IN_PLACE: Final = 1000  # bytes; longer values have separate pages
_OVERHEAD: Final = (512, 5120)  # maximum bytes of an entry besides its value, in place or on separate pages
_FREED_FRACTION: Final = 20  # at least 1/20 of the limit is freed at once


class BoundedCache(Cache):
    """One cache file of limited size.

    A damaged file is deleted and not set aside, since it may be as large as the limit.

    Args:
        name: its name below the cache folder, without extension.
        limit_bytes: maximum size of the content. A larger file of an earlier run loses its least recently used entries
            at the next write. 0 disables the cache and opens no file.
    """

    _tables: ClassVar[Mapping[str, str]] = {"entries": ENTRIES, "uses": _USES}
    _keeps_damaged: ClassVar[bool] = False

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._tidied = False
        super().__init__(name, enabled=limit_bytes > 0)

    def _read(self, connection: sqlite3.Connection, space: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        # Rows are not searched for damaged keys: such an entry is never used, and is evicted like others.
        values, unfit = self._look_up(connection, space, set(keys))
        if unfit:
            warnings.warn(
                f"{len(unfit):,} entries of the cache {self.path} have a wrong checksum; they are computed again",
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
            fitting: list[Row] = []
            for row in rows:
                room -= _size(row)
                if room < 0:
                    break
                fitting.append(row)
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", fitting)
            connection.executemany(
                "INSERT OR REPLACE INTO uses VALUES (?, ?, ?, ?)",
                [(row[0], row[1], _THIS_PROCESS, _size(row)) for row in fitting],
            )
        return len(fitting)

    def _make_room(self, connection: sqlite3.Connection, wanted: int) -> int:
        """Free bytes, after eviction of unused entries if necessary."""
        room = self._limit - _content_bytes(connection)
        if room >= wanted:
            return room
        if not self._tidied:
            self._tidied = True
            _delete_halves(connection)
        wanted = max(wanted, self._limit // _FREED_FRACTION)
        # Sizes are estimates, so that one round may not suffice.
        while (room := self._limit - _content_bytes(connection)) < wanted:
            unused = list(_least_recently_used(connection, wanted - room))
            if not unused:
                break
            _delete(connection, unused)
        return room


def _least_recently_used(connection: sqlite3.Connection, excess: int) -> Iterator[tuple[bytes, bytes]]:
    """Space and key of entries of ``excess`` bytes in all that this process does not use, oldest first."""
    query = "SELECT space, key, bytes FROM uses WHERE used <> ? ORDER BY used"
    for space, key, size in connection.execute(query, (_THIS_PROCESS,)):
        if excess <= 0:
            return
        excess -= size
        yield space, key


def _delete_halves(connection: sqlite3.Connection) -> None:
    """Delete rows that only one of the two tables contains, since their key was damaged."""
    for table, other in (("entries", "uses"), ("uses", "entries")):
        connection.execute(
            f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM {other} WHERE {other}.space = {table}.space "
            f"AND {other}.key = {table}.key)"
        )


def _delete(connection: sqlite3.Connection, places: Sequence[tuple[bytes, bytes]]) -> None:
    for table in ("entries", "uses"):
        connection.executemany(f"DELETE FROM {table} WHERE space = ? AND key = ?", places)


def _content_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the file in use; deleted entries leave free pages."""
    pages, free, page_bytes = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page_bytes)


def _size(row: Row) -> int:
    return len(row[1]) + len(row[2]) + _OVERHEAD[len(row[2]) > _IN_PLACE]


# Tables parsed from other files.

Arrays = Mapping[str, NDArray[Any]]

_MAGIC: Final = b"capbench table"
_FIRST_LINE: Final = _MAGIC + b" %020d %08x\n"
_LENGTH_OF_FIRST_LINE: Final = len(_FIRST_LINE % (0, 0))
_LONGEST_HEADER: Final = 1 << 20
_ALIGNMENT: Final = 64
_BLOCK: Final = 1 << 20
_KINDS: Final = frozenset("iufb")  # numbers and booleans: any bytes are valid values


class _UnfitError(Exception):
    """The file is damaged or another table; the message is the predicate."""


def derived_table(folder: str, name: str, version: int, build: Callable[[], Arrays]) -> dict[str, np.memmap[Any, Any]]:
    """A table's arrays, read-only and mapped into memory; the table is built if there is no valid file.

    Equal arrays give equal files.

    Args:
        folder: the folder below the cache folder.
        name: the table's file name without extension. It contains everything that determines the content except
            ``version``.
        version: version of the code that builds the table.
        build: returns the arrays; called at most once, and in one process at a time.

    Raises:
        UsageError: the cache folder cannot be written, or the disk loses the data.
    """
    path = files.cache_dir(folder) / f"{name}-{version}.table"
    # Files are written atomically, so that reading a valid one requires neither a lock nor write permission.
    with contextlib.suppress(FileNotFoundError, _UnfitError):
        return _open(path, name, version)
    with files.lock(path):
        try:
            return _open(path, name, version)  # another run built it while this one was waiting
        except FileNotFoundError:
            pass
        except _UnfitError as error:
            warnings.warn(f"the table {path} {error}; it is built again", CapbenchWarning, stacklevel=2)
        for leftover in path.parent.glob(f".{path.name}.*.part"):  # of an interrupted run
            leftover.unlink(missing_ok=True)
        _write(path, name, version, build())
        try:
            return _open(path, name, version)
        except (FileNotFoundError, _UnfitError) as error:
            raise UsageError(
                "the data just written to it cannot be read back",
                code="unwritable",
                path=path,
                hint="Check the disk, or set CAPBENCH_CACHE to a folder on another one",
            ) from error


def kept_table(folder: str, name: str, version: int, build: Callable[[], Arrays]) -> Mapping[str, NDArray[Any]]:
    """:func:`derived_table`, or the result of ``build`` if the cache folder cannot be written.

    For tables that only save time and are small enough to stay in memory.

    Args:
        folder: see :func:`derived_table`.
        name: see :func:`derived_table`.
        version: see :func:`derived_table`.
        build: returns the arrays; called at most once. It must not raise UsageError.
    """
    built: list[Arrays] = []

    def once() -> Arrays:
        built.append(build())
        return built[0]

    try:
        return derived_table(folder, name, version, once)
    except UsageError:
        return built[0] if built else build()


def packed_texts(texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Texts as two arrays of a table: their concatenated UTF-8, and the end of each."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"texts": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}


def unpacked_texts(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The texts that :func:`packed_texts` packed."""
    whole, begin = arrays["texts"].tobytes(), 0
    texts = []
    for end in np.ascontiguousarray(arrays["ends"]).data:  # a list of all numbers would be as large as the texts
        texts.append(whole[begin:end].decode("utf-8", "surrogatepass"))
        begin = end
    return texts


def _write(path: Path, name: str, version: int, arrays: Arrays) -> None:
    # Offsets are relative to the end of the header, since the header contains them.
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    end = 0
    for key, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"a table cannot contain an array of type {array.dtype}")
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
    """The arrays. Raises FileNotFoundError if there is no file, _UnfitError if it is damaged or another table."""
    try:
        with open(path, "rb") as stream:
            _check(stream)
            stream.seek(_LENGTH_OF_FIRST_LINE)
            header = json.loads(stream.readline(_LONGEST_HEADER))
            if header["name"] != name or header["version"] != version:
                raise _UnfitError(
                    f"contains version {header['version']} of '{header['name']}', not version {version} of '{name}'"
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
        raise _UnfitError("has an invalid header") from error


def _check(stream: IO[bytes]) -> None:
    """Check length and checksum of a file from its start."""
    first_line = stream.read(_LENGTH_OF_FIRST_LINE)
    try:
        length, checksum = int(first_line[len(_MAGIC) :].split()[0]), int(first_line.split()[-1], 16)
    except (ValueError, IndexError):
        length, checksum = -1, -1
    if length < 0 or first_line != _FIRST_LINE % (length, checksum):
        raise _UnfitError("is damaged: its first line is invalid")
    n_bytes = actual = 0
    # In blocks, not mapped, so that the checked data do not stay in memory.
    while block := stream.read(_BLOCK):
        n_bytes += len(block)
        actual = zlib.crc32(block, actual)
    if n_bytes != length:
        raise _UnfitError(f"is damaged: it has {n_bytes:,} bytes instead of {length:,}")
    if actual != checksum:
        raise _UnfitError("is damaged: it has a wrong checksum")


def _map(stream: IO[bytes], kind: str, shape: tuple[int, ...], place: int) -> np.memmap[Any, Any]:
    dtype = np.dtype(kind)
    end = place + math.prod(shape) * dtype.itemsize
    inside = _LENGTH_OF_FIRST_LINE <= place <= end <= os.fstat(stream.fileno()).st_size
    if dtype.kind not in _KINDS or not inside or not all(n >= 0 for n in shape):
        raise ValueError(f"an array of type {kind} and shape {shape} at {place}")
    if place == end:  # empty arrays cannot be mapped
        return np.empty(shape, dtype).view(np.memmap)
    return np.memmap(stream, dtype, "r", place, shape)
