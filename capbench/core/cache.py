"""Caches on disk that several runs share: bytes by space and key, in one SQLite file.

Every entry carries a checksum over its space, key and value. SQLite notices damage to its own structure only, so what
the file gives is believed only if it fits. What does not fit is dropped, and said in one warning; the caller computes
it again. The checksum is a guard against accidents, not against a person who writes a false value and its checksum.

The cache may be lost at any time without harm, so nothing that happens to it stops a run: a damaged file is set
aside and begun anew, an unwritable place or a full disk means working without, each with a warning.
Writing is atomic by batch, so an interrupted run leaves whole batches, and two runs may write at once.

A bounded cache holds large values in a file that does not grow beyond a limit. It evicts the least recently used
entries, but none that this process has written or read: where a whole file is in use, new values are not stored. So a
repeated run over more than fits finds the same entries again. The time of the last use is in a table of its own, so
that a read writes a few bytes and not the value again.
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

__all__ = [
    "ENTRIES",
    "BoundedCache",
    "Cache",
    "Row",
    "derived_table",
    "kept_table",
    "packed_texts",
    "transaction",
    "unpacked_texts",
    "written",
]


_VERSION: Final = 2
_VERSION_WITHOUT_CHECKSUMS: Final = 1
_BUSY_TIMEOUT_S: Final = 60.0
_KEYS_A_QUERY: Final = 900  # SQLite before 3.32 takes at most 999 parameters
_LOOKED_AT: Final = 20_000  # entries of a space, some 20 ms
_LOOKED_AT_FOR_EACH_MISSING: Final = 4  # entries: little beside what computing one takes
_T = TypeVar("_T")
Row = tuple[bytes, bytes, bytes, int]
"""Digest of the space's name, key, value, checksum."""

# The names are quoted as SQLite quotes them when
# it renames a table, so that a file always shows this text as its schema.
_TABLE: Final = (
    'CREATE TABLE "{name}" (space BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, checksum INTEGER NOT NULL, '
    "PRIMARY KEY (space, key)) WITHOUT ROWID"
)
ENTRIES: Final = _TABLE.format(name="entries")
"""The table of a cache, as SQLite shows it."""
_ROWS: Final = "SELECT space, key, value, checksum FROM entries"

# What goes wrong around a file. All else that SQLite complains of is damage to the file itself.
_SURROUNDINGS: Final = frozenset(
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
"""Entries that this process has put into each cache, by the cache's name."""


class _OtherFormatError(sqlite3.DatabaseError):
    """The file is whole, and of another format."""


class Cache:
    """One cache file.

    Args:
        name: its name below the cache folder, without ending (``scores``).
        enabled: False makes a cache that holds nothing, so that callers need not ask.

    Spaces keep apart what must not be mixed; a space's name says everything that decides its values.
    """

    _tables: ClassVar[Mapping[str, str]] = {"entries": ENTRIES}
    """What the file holds, as SQLite shows it."""
    _keeps_damaged: ClassVar[bool] = True
    """Whether a file that is of no use is set aside or thrown away."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._name = name
        self._connection: sqlite3.Connection | None = None
        self._examined: set[bytes] = set()
        if enabled:
            self._open()

    @property
    def path(self) -> Path | None:
        """The file, None if the cache is not used or cannot be."""
        if self._connection is None:
            return None
        return files.cache_dir() / f"{self._name}.sqlite"

    def get(self, space: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those of ``keys`` that ``space`` holds, each of them as it was put there."""
        return self._run(lambda connection: self._read(connection, _digest(space), keys)) or {}

    def entries(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values of a space that fit their checksum, by key."""
        query = f"{_ROWS} WHERE space = ? ORDER BY key"
        rows = self._run(lambda connection: connection.execute(query, (_digest(space),)).fetchall()) or []
        return (
            (key, value) for space_of_row, key, value, checksum in rows if _fits(space_of_row, key, value, checksum)
        )

    def put(self, space: str, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Write entries, all or none; those that are there are replaced."""
        digest = _digest(space)
        seed = crc32(digest)
        # In the order in which they lie in the file: neighbours are written together.
        rows = [(digest, key, value, _checksum(seed, key, value)) for key, value in sorted(entries)]
        if rows:
            written[self._name] += self._run(lambda connection: self._write(connection, rows)) or 0

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

    def _read(self, connection: sqlite3.Connection, space: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        asked = set(keys)
        values, unfit = self._look_up(connection, space, asked)
        sound = not unfit
        missing = len(asked) - len(values)
        if sound and missing and space not in self._examined:
            self._examined.add(space)
            n_rows = max(_LOOKED_AT, _LOOKED_AT_FOR_EACH_MISSING * missing)
            sound = all(starmap(_fits, _examination(connection, space, n_rows)))
        if not sound:
            self._drop_unfit(connection)
        return values

    def _look_up(
        self, connection: sqlite3.Connection, space: bytes, asked: Set[bytes]
    ) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Values by key, and the keys whose entries do not fit their checksum."""
        seed = crc32(space)
        values: dict[bytes, bytes] = {}
        unfit: list[bytes] = []
        in_order = sorted(asked)  # as they lie in the file: every page is read once
        for start in range(0, len(in_order), _KEYS_A_QUERY):
            batch = in_order[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(batch))
            query = f"SELECT key, value, checksum FROM entries WHERE space = ? AND key IN ({marks})"
            for key, value, checksum in connection.execute(query, (space, *batch)):
                if key in asked and isinstance(value, bytes) and _checksum(seed, key, value) == checksum:
                    values[key] = value
                else:
                    unfit.append(key)
        return values, unfit

    def _write(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        """Write rows, all or none; gives their number."""
        with transaction(connection):
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
        return len(rows)

    def _drop_unfit(self, connection: sqlite3.Connection) -> None:
        """Keep what fits its checksum, in a table built anew: damaged keys lie where no search finds them."""
        with transaction(connection):
            n_entries = n_unfit = 0
            for row in connection.execute(_ROWS):
                n_entries += 1
                n_unfit += not _fits(*row)
            if not n_unfit:  # another run was quicker
                return
            connection.execute(_TABLE.format(name="fitting"))
            fitting = (row for row in connection.execute(_ROWS) if _fits(*row))
            connection.executemany("INSERT OR REPLACE INTO fitting VALUES (?, ?, ?, ?)", fitting)
            connection.execute("DROP TABLE entries")
            connection.execute("ALTER TABLE fitting RENAME TO entries")
        warnings.warn(
            f"{n_unfit:,} of {n_entries:,} entries of the cache {self.path} do not fit their checksum; "
            "they are computed again",
            CapbenchWarning,
            stacklevel=6,
        )

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Do something with the file; None if there is none, or no longer any."""
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
            return None if self._connection is None else work(self._connection)  # on the file begun anew
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
        """Move a file that is of no use out of the way; False if that cannot be done."""
        other_format = isinstance(error, _OtherFormatError)
        aside = path.with_name(f"{path.name}.{'other-format' if other_format else 'damaged'}-{time.time_ns()}")
        try:
            with files.lock(path, _BUSY_TIMEOUT_S):
                # Another run may have mended it while this one waited for the lock.
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
        fate = f"set aside as {aside.name}" if self._keeps_damaged else "thrown away"
        warnings.warn(f"the cache {path} {state}; it is {fate} and begun anew", CapbenchWarning, stacklevel=4)
        return True

    def _give_up(self, reason: str) -> None:
        self.close()
        warnings.warn(
            f"the cache '{self._name}' cannot be used ({reason}): working without. Set CAPBENCH_CACHE to a folder "
            "that you may write to",
            CapbenchWarning,
            stacklevel=4,
        )


def _digest(space: str) -> bytes:
    return hashlib.blake2b(space.encode(), digest_size=8).digest()


def _checksum(seed: int, key: bytes, value: bytes) -> int:
    """Of an entry; the seed is the CRC-32 of its space's digest."""
    # The length keeps apart what differs only in where the key ends.
    return crc32(value, crc32(key, seed)) ^ len(key)


def _fits(space: object, key: object, value: object, checksum: object) -> bool:
    """Whether a row of a file is as it was written; damage can give its columns any type."""
    if not (isinstance(space, bytes) and isinstance(key, bytes) and isinstance(value, bytes)):
        return False
    return _checksum(crc32(space), key, value) == checksum


def _examination(connection: sqlite3.Connection, space: bytes, n_rows: int) -> Iterator[Sequence[Any]]:
    """Rows in which a damaged key or space shows: asked for by their right names, such rows are only missing.

    They are the first ``n_rows`` of a space, and the first of every space: where a row's space was changed into
    one that nothing else is in, the row is the first there.
    """
    yield from connection.execute(f"{_ROWS} WHERE space = ? LIMIT ?", (space, n_rows))
    last: Any = b""
    while row := connection.execute(f"{_ROWS} WHERE space > ? ORDER BY space, key LIMIT 1", (last,)).fetchone():
        yield row
        last = row[0]


def _connect(path: Path, tables: Mapping[str, str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        # Damage can make text of bytes, and such text is no UTF-8.
        connection.text_factory = bytes
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        # With a write-ahead log readers do not wait for a writer. Network folders may refuse it, which is no harm.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if not _check_format(connection):
            # Looked at again: another run may have been quicker.
            with transaction(connection):
                if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for table in tables.values():
                        connection.execute(table)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
        schema = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        if schema != [(name.encode(), tables[name].encode()) for name in sorted(tables)]:
            raise sqlite3.DatabaseError("its tables are not a cache's")
    except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its message, which is then no text
        connection.close()
        raise sqlite3.DatabaseError("its tables are not a cache's") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_format(connection: sqlite3.Connection) -> bool:
    """Whether the file is of this format; False if it is yet to be begun. A file of another format is refused."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _VERSION_WITHOUT_CHECKSUMS:
        raise _OtherFormatError(f"is of format {version}, whose entries have no checksums")
    if version not in (0, _VERSION):
        raise _OtherFormatError(f"is of format {version}, this capbench writes {_VERSION}")
    return bool(version == _VERSION)


def _is_damage(error: sqlite3.DatabaseError | UnicodeDecodeError, path: Path) -> bool:
    """Whether an error is the file's; if not, it is the disk's, the permissions' or another run's."""
    # An error that is raised here and not by SQLite has no code; extended codes have the kind in their low byte.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_READONLY:
        # A file whose header tells of a format to come is read-only to SQLite, whatever the permissions.
        return path.is_file() and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code not in _SURROUNDINGS


def _is_sound(path: Path, tables: Mapping[str, str]) -> bool:
    try:
        connection = _connect(path, tables)
        try:
            with transaction(connection):
                connection.execute(f"PRAGMA user_version = {_VERSION}")  # a header can forbid all writing
                return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == (b"ok",))
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """What is written within is written wholly or not at all, and by one run at a time."""
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


# Tables that are derived from other files: arrays kept in the cache folder, and checked whenever they are opened.
#
# A table is one file: a line with the length and the CRC-32 of all that follows, a line of JSON with the table's name,
# its version and where each array lies, and the arrays. What is cut off, changed, or another table than its file name
# says is made again, with a warning. The checksum is a guard against accidents, not against a person who writes a false
# table.

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
