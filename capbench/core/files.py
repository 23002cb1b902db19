"""The one way in which capbench reads text, writes files, takes locks and finds its folders.

A file is written under a temporary name in the same folder, flushed to disk and renamed, so that
a reader sees the old file or the new one and never half of either.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import math
import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from capbench.core.errors import DataError, MissingFileError, UsageError

__all__ = [
    "atomic_write",
    "cache_dir",
    "check_folder",
    "check_readable",
    "check_target",
    "check_writable",
    "csv_text",
    "json_decoder",
    "lock",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_text",
    "real_path",
    "sha256_file",
    "unpack_gzip",
    "without_formula",
    "write_text",
]


_BOM = "\ufeff"
_BLOCK = 1 << 20
_MOST_UNPACKED = 2_000_000_000  # bytes of a gzip file; the largest published one has some 40 MB
_PLACES_OF_DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def _read_umask() -> int:
    """The permissions that new files of this process do not get; Linux reports them without a change."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)  # while it is set, other threads' files are private and not public
    os.umask(mask)
    return mask


_UMASK = _read_umask()  # once, while capbench starts


def cache_dir(*parts: str) -> Path:
    """A folder for what can be computed or fetched again: ``$CAPBENCH_CACHE`` or the user's cache folder.

    The folder is made. Raises UsageError if it cannot be.
    """
    base = os.environ.get("CAPBENCH_CACHE")
    if base:
        root = Path(base).expanduser()
    else:
        import platformdirs

        root = Path(platformdirs.user_cache_dir("capbench", appauthor=False))
    folder = root.joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the cache folder cannot be made ({error.strerror})",
            path=folder,
            hint="Set CAPBENCH_CACHE to a folder that you may write to",
        ) from error
    return folder


class _Output(io.FileIO):
    """A file that is written; ``has_failed`` tells its errors from those of files that are read meanwhile."""

    has_failed = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            self.has_failed = True
            raise


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing that appears under ``path`` only when the block ends without an error.

    Args:
        path: the file; its folder is made.
        mode: ``"w"`` (UTF-8, ``\\n`` line ends) or ``"wb"``.

    Raises:
        UsageError: the file cannot be written (no permission, a full disk); the old file is kept.
        DataError: the block reads another file, and that cannot be read.
    """
    target = Path(path)
    check_target(target)
    temporary: str | None = None
    raw: _Output | None = None
    inside = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        raw = _Output(handle, "w")
        binary = io.BufferedWriter(raw)
        with binary if "b" in mode else io.TextIOWrapper(binary, encoding="utf-8", newline="\n") as stream:
            inside = True
            yield stream
            inside = False
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files private; give the result the permissions that open() would have given it.
        os.chmod(temporary, 0o666 & ~_UMASK)
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        if inside and raw is not None and not raw.has_failed:
            if error.filename is None:
                raise
            raise _unreadable(os.fsdecode(error.filename), error) from error
        raise UsageError(
            f"cannot be written ({error.strerror or error})",
            path=target,
            hint="Check the folder's permissions and the free space; nothing was changed",
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_target(path: str | os.PathLike[str]) -> None:
    """See to it that a file may be put in a place: not where a folder, a device, a pipe or a socket is.

    A file is renamed into its place, which would put it where the device was.

    Raises:
        UsageError: something else than a file is there.
    """
    target = Path(path)
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise UsageError(
                f"cannot be written ({error.strerror})", path=target, hint="Choose a shorter name"
            ) from error
        return  # nothing is there, or writing will say why it cannot be
    if stat.S_ISDIR(mode):
        raise UsageError("is a folder, not a file", path=target, hint="Choose another file")
    if not stat.S_ISREG(mode) or target.parent in _PLACES_OF_DEVICES:
        raise UsageError("is a device, a pipe or a socket, not a file", path=target, hint="Choose another file")


def check_writable(path: str | os.PathLike[str]) -> None:
    """See to it, before hours of work, that a file can be written in the end; its folder is made.

    Raises:
        UsageError: it is a folder, or its folder cannot be written to.
    """
    target = Path(path)
    hint = "Choose another file"
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=".capbench.", dir=target.parent):
            pass
    except OSError as error:
        raise UsageError(f"cannot be written ({error.strerror or error})", path=target, hint=hint) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole text file atomically (see :func:`atomic_write`)."""
    with atomic_write(path) as stream:
        stream.write(text)


@contextlib.contextmanager
def lock(path: str | os.PathLike[str], timeout_s: float = 600.0) -> Iterator[None]:
    """Hold ``<path>.lock`` so that two runs do not change the same thing at once.

    Raises:
        UsageError: another process held it for longer than ``timeout_s``.
    """
    import filelock

    name = Path(f"{os.fspath(path)}.lock")
    lock_file = filelock.FileLock(name, timeout=timeout_s)
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        lock_file.acquire()
    except OSError as error:
        if not isinstance(error, filelock.Timeout):
            raise UsageError(
                f"cannot be written ({error.strerror or error})", path=name.parent, hint="Choose another folder"
            ) from error
        raise UsageError(
            f"another run has held this lock for {timeout_s:.0f} s",
            path=name,
            hint="Wait for the other run, or remove the lock file if none is running",
        ) from error
    try:
        yield
    finally:
        lock_file.release()


def check_readable(path: str | os.PathLike[str]) -> None:
    """See to it that a path is a file that can be read, before something opens it that would wait for a pipe.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is a folder, a device (which may never end), a pipe or a socket, or may not be read.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a NUL byte in the name
        raise MissingFileError("there is no such file", path=path) from error
    if stat.S_ISDIR(mode):
        raise DataError("is a folder, not a file", path=path)
    if not stat.S_ISREG(mode):
        raise _no_file(path)
    if not os.access(path, os.R_OK):
        raise DataError("cannot be read (Permission denied)", path=path, hint="Check its permissions")


def check_folder(path: str | os.PathLike[str], flag: str) -> None:
    """Raise UsageError if what a flag names is no folder."""
    try:
        is_folder = Path(path).is_dir()
    except (OSError, ValueError):
        is_folder = False
    if not is_folder:
        raise UsageError("there is no such folder", path=path, hint=f"Correct {flag}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file, or of a pipe that something writes to (``<(command)`` of a shell).

    Raises as :func:`check_readable` does, but for such a pipe.
    """
    try:
        # A pipe that nothing writes to would keep an ordinary opening waiting.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as stream:
            mode = os.fstat(handle).st_mode
            if stat.S_ISDIR(mode):
                raise DataError("is a folder, not a file", path=path)
            if stat.S_ISFIFO(mode):
                os.set_blocking(handle, True)
                data = stream.read()
                if not data:
                    raise DataError("is a pipe that nothing writes to", path=path, hint="Give a file")
                return data
            if not stat.S_ISREG(mode):
                raise _no_file(path)
            return stream.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise MissingFileError("there is no such file", path=path) from error


def unpack_gzip(path: str | os.PathLike[str]) -> bytes:
    """What a gzip file holds.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is no whole gzip file, cannot be read, or unpacks to more than 2 GB.
    """
    import gzip

    check_readable(path)
    blocks, size = [], 0
    try:
        with gzip.open(path) as stream:
            while block := stream.read(_BLOCK):
                size += len(block)
                if size > _MOST_UNPACKED:
                    limit = _MOST_UNPACKED // 10**9
                    raise DataError(f"unpacks to more than {limit} GB", path=path, hint="Get the file again")
                blocks.append(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"is no whole gzip file ({error})", path=path, hint="Get the file again") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return b"".join(blocks)


def real_path(path: str | os.PathLike[str]) -> Path:
    """A path without links, whether there is anything or not.

    ``Path.resolve`` does so, too, but raises an error of its own where links lead in a circle (before Python 3.13).
    """
    return Path(os.path.realpath(path))


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file as 64 hex digits, read in blocks. Raises as :func:`check_readable` does."""
    check_readable(path)
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a whole UTF-8 text file; a byte-order mark is dropped and ``\\r\\n`` becomes ``\\n``.

    Raises:
        MissingFileError: there is no such file.
        DataError: it cannot be read, is a folder or a device, is not UTF-8 (the row is named), or holds NUL bytes.
    """
    data = read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint = "It looks like UTF-16: save it as UTF-8"
        elif data[:2] == b"\x1f\x8b":
            hint = "It is compressed with gzip: unpack it first"
        else:
            hint = "Save it as UTF-8 (for Latin-1: iconv -f latin1 -t utf-8)"
        raise DataError(f"byte 0x{data[error.start]:02x} is not UTF-8", path=path, row=row, hint=hint) from error
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise DataError("holds a NUL byte", path=path, row=row, hint="The file is damaged or not text: get it again")
    return text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text file without line ends; a final newline adds no empty line.

    Only ``\\n``, ``\\r\\n`` and ``\\r`` end a line (``str.splitlines`` also breaks at form feeds and
    U+2028, which captions may hold). Raises as :func:`read_text` does, and DataError if the file is empty.
    """
    text = read_text(path)
    if not text.strip():
        raise DataError("is empty", path=path, hint="Get the file again")
    return text.removesuffix("\n").split("\n")


def json_decoder(path: str | os.PathLike[str], *, unique_keys: bool = False, nan: bool = False) -> json.JSONDecoder:
    """What :func:`read_json` parses with, which raises the same DataErrors but for what is not JSON."""

    def refuse(constant: str) -> Any:
        if nan and constant == "NaN":
            return math.nan
        raise DataError(f"holds {constant}, which is no JSON number", path=path, hint="Remove or mend that value")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise DataError(f"the key '{twice}' stands twice in one object", path=path, hint="Keep one of the two")
        return record

    return json.JSONDecoder(parse_constant=refuse, object_pairs_hook=unique if unique_keys else None)


def read_json(path: str | os.PathLike[str], *, unique_keys: bool = False, nan: bool = False) -> Any:
    """Parse a UTF-8 JSON file; NaN and infinities, which JSON does not have, are refused.

    With ``unique_keys`` an object in which a key stands twice is refused too (JSON readers keep the last one). With
    ``nan`` the word NaN, as Python writes it, is a float: for formats in which it stands for what is missing.

    Raises as :func:`read_text` does, and DataError with row and column if it is not JSON.
    """
    text = read_text(path)
    try:
        return json_decoder(path, unique_keys=unique_keys, nan=nan).decode(text)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise DataError("is empty", path=path, hint="Get the file again") from error
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        hint = "The file seems cut off: get it again" if cut else "Mend the file at that place"
        raise DataError(
            f"is not JSON: {error.msg} (column {error.colno})", path=path, row=error.lineno, hint=hint
        ) from error
    except ValueError as error:
        hint = "Mend or remove that number"
        raise DataError("holds a whole number of more than 4,300 digits", path=path, hint=hint) from error
    except RecursionError as error:
        raise DataError("is nested too deeply to be read", path=path) from error


def _unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path, hint="Correct the path")
    if isinstance(error, IsADirectoryError):
        return DataError("is a folder, not a file", path=path, hint="Give a file")
    return DataError(f"cannot be read ({error.strerror or error})", path=path, hint="Check its permissions")


def _no_file(path: str | os.PathLike[str]) -> DataError:
    return DataError("is a device, a pipe or a socket, not a file", path=path, hint="Give a file")


Cell = TypeVar("Cell")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def without_formula(cell: Cell) -> Cell | str:
    """A text that a spreadsheet would compute gets an apostrophe in front; all else stays as it is.

    Such texts begin with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return. Numbers are no texts.

    >>> without_formula("=1+1"), without_formula(-0.5), without_formula("a dog")
    ("'=1+1", -0.5, 'a dog')
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, escape_formulas: bool = False) -> str:
    """A table as CSV, with a line of heads; None and what a row lacks are empty.

    Args:
        columns: the heads, in order.
        rows: cells by head.
        escape_formulas: whether texts pass through :func:`without_formula`.

    Raises:
        ValueError: a row has a cell that no column takes.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({head: without_formula(cell) for head, cell in row.items()} if escape_formulas else row)
    return stream.getvalue()
