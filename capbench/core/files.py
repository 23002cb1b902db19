"""Files: reading text, JSON and bytes, atomic writes, locks, checksums, CSV, and the cache folder.

A file is written under a temporary name in the same folder, flushed to disk and renamed, so that
a reader sees either the old file or the new one, never a partial one.
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

from capbench.core.errors import DataError, MissingFileError, UsageError, unwritable

_BOM = "\ufeff"
_BLOCK = 1 << 20
_MAX_UNPACKED = 2_000_000_000  # bytes of a gzip file; the largest published one has about 40 MB
_DEVICE_FOLDERS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def _read_umask() -> int:
    """The process's umask; Linux reports it without changing it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)  # until it is reset, other threads' files are private, not public
    os.umask(mask)
    return mask


_UMASK = _read_umask()  # once, while capbench starts


def cache_dir(*parts: str) -> Path:
    """A folder for reproducible files below ``$CAPBENCH_CACHE`` or the user's cache folder.

    Creates the folder. Raises UsageError if that fails.
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
            f"the cache folder cannot be created ({error.strerror})",
            code="unwritable",
            path=folder,
            hint="Set CAPBENCH_CACHE to a writable folder",
        ) from error
    return folder


class _Output(io.FileIO):
    """An output file; ``has_failed`` distinguishes its errors from those of files read in the meantime."""

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
        path: the file; its folder is created.
        mode: ``"w"`` (UTF-8, ``\\n`` line ends) or ``"wb"``.

    Raises:
        UsageError: the file cannot be written (no permission, a full disk); the old file is unchanged.
        DataError: the block reads another file, which cannot be read.
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
        raise unwritable(
            error, target, "Check the folder's permissions and the free space; nothing was changed"
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_target(path: str | os.PathLike[str]) -> None:
    """Check that a path can become a file: it is not a folder, a device, a pipe or a socket.

    Atomic writes rename a file to the path, which would replace the device.

    Raises:
        UsageError: the path exists and is not a file, or its name is too long.
    """
    target = Path(path)
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise unwritable(error, target, "Choose a shorter name") from error
        return  # the path does not exist, or writing will raise the error
    if stat.S_ISDIR(mode):
        raise UsageError("is a folder, not a file", code="unwritable", path=target, hint="Choose another file")
    if not stat.S_ISREG(mode) or target.parent in _DEVICE_FOLDERS:
        message = "is a device, a pipe or a socket, not a file"
        raise UsageError(message, code="unwritable", path=target, hint="Choose another file")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check before a long computation that a file can be written at its end; creates its folder.

    Raises:
        UsageError: it is a folder, or its folder is not writable.
    """
    target = Path(path)
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=".capbench.", dir=target.parent):
            pass
    except OSError as error:
        raise unwritable(error, target, "Choose another file") from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole text file atomically (see :func:`atomic_write`)."""
    with atomic_write(path) as stream:
        stream.write(text)


def json_text(value: object, indent: str = "") -> str:
    """JSON in which a list or record of scalars stands on one line, and everything around it on lines of its own."""
    inner = indent + " "
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    if not any(isinstance(part, dict | list | tuple) and part for part in parts):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    lines = [inner + json_text(part, inner) for part in parts]
    if isinstance(value, dict):
        keys = [f"{inner}{json.dumps(key, ensure_ascii=False)}: " for key in value]
        lines = [key + line[len(inner) :] for key, line in zip(keys, lines, strict=True)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(lines) + f"\n{indent}{closing}"


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Write a JSON file atomically, in the layout of :func:`json_text`."""
    write_text(path, json_text(value) + "\n")


@contextlib.contextmanager
def lock(path: str | os.PathLike[str], timeout_s: float = 600.0) -> Iterator[None]:
    """Hold ``<path>.lock`` so that two runs do not change the same file at once.

    Raises:
        UsageError: another process has held it for longer than ``timeout_s``, or it cannot be created.
    """
    import filelock

    name = Path(f"{os.fspath(path)}.lock")
    lock_file = filelock.FileLock(name, timeout=timeout_s)
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        lock_file.acquire()
    except OSError as error:
        if not isinstance(error, filelock.Timeout):
            raise unwritable(error, name.parent, "Choose another folder") from error
        raise UsageError(
            f"another run has held this lock for {timeout_s:.0f} s",
            code="in-use",
            path=name,
            hint="Wait for the other run, or remove the lock file if none is running",
        ) from error
    try:
        yield
    finally:
        lock_file.release()


def check_readable(path: str | os.PathLike[str]) -> None:
    """Check that a path is a readable file, before code opens it that would block on a pipe.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is a folder, a device (which may be endless), a pipe or a socket, or is not readable.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a NUL byte in the name
        raise MissingFileError("there is no such file", path=path) from error
    if stat.S_ISDIR(mode):
        raise DataError("is a folder, not a file", code="unreadable", path=path)
    if not stat.S_ISREG(mode):
        raise _device(path)
    if not os.access(path, os.R_OK):
        raise DataError(
            "cannot be read (Permission denied)", code="unreadable", path=path, hint="Check its permissions"
        )


def check_folder(path: str | os.PathLike[str], flag: str) -> None:
    """Raise UsageError if the value of a flag is not a folder."""
    try:
        is_folder = Path(path).is_dir()
    except (OSError, ValueError):
        is_folder = False
    if not is_folder:
        raise UsageError("there is no such folder", code="missing-file", path=path, hint=f"Correct {flag}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file, or of a pipe with a writer (``<(command)`` in a shell).

    Raises the errors of :func:`check_readable`, except for such a pipe.
    """
    try:
        # Blocking mode would wait for ever on a pipe without a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as stream:
            mode = os.fstat(handle).st_mode
            if stat.S_ISDIR(mode):
                raise DataError("is a folder, not a file", code="unreadable", path=path)
            if stat.S_ISFIFO(mode):
                os.set_blocking(handle, True)
                data = stream.read()
                if not data:
                    message = "is a pipe that no program writes to"
                    raise DataError(message, code="unreadable", path=path, hint="Pass a file")
                return data
            if not stat.S_ISREG(mode):
                raise _device(path)
            return stream.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise MissingFileError("there is no such file", path=path) from error


def unpack_gzip(path: str | os.PathLike[str]) -> bytes:
    """The uncompressed content of a gzip file.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is not a complete gzip file, cannot be read, or unpacks to more than 2 GB.
    """
    import gzip

    check_readable(path)
    blocks, size = [], 0
    try:
        with gzip.open(path) as stream:
            while block := stream.read(_BLOCK):
                size += len(block)
                if size > _MAX_UNPACKED:
                    message = f"unpacks to more than {_MAX_UNPACKED // 10**9} GB"
                    raise DataError(message, code="too-large", path=path, hint="Download the file again")
                blocks.append(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"is not a complete gzip file ({error})"
        raise DataError(message, code="damaged", path=path, hint="Download the file again") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return b"".join(blocks)


def real_path(path: str | os.PathLike[str]) -> Path:
    """A path with all links resolved, whether it exists or not.

    Unlike ``Path.resolve`` before Python 3.13, it does not raise on circular links.
    """
    return Path(os.path.realpath(path))


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file as 64 hex digits, read in blocks. Raises the errors of :func:`check_readable`."""
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
        DataError: it cannot be read, is a folder or a device, is not UTF-8 (the row is named), or contains NUL bytes.
    """
    return decode_text(read_bytes(path), path)


_SPREADSHEETS = {
    b"PK\x03\x04": "a spreadsheet (.xlsx) or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet (.xls) or another Office file",
}
"""First bytes of spreadsheets → kind of file."""


def decode_text(data: bytes, path: str | os.PathLike[str]) -> str:
    """The text of a file's bytes, as :func:`read_text` returns it.

    Raises:
        DataError: it is not UTF-8 (the row is named), contains NUL bytes, or is a spreadsheet or an archive.
    """
    if kind := _SPREADSHEETS.get(data[:4]):
        hint = "Export the table as CSV (UTF-8)"
        raise DataError(f"is {kind}, not text", code="unreadable", path=path, hint=hint)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint = "It seems to be UTF-16: save it as UTF-8"
        elif data[:2] == b"\x1f\x8b":
            hint = "It is compressed with gzip: unpack it first"
        else:
            hint = "Save it as UTF-8 (for Latin-1: iconv -f latin1 -t utf-8)"
        byte = f"0x{data[error.start]:02x}"
        message = f"byte {byte} is not UTF-8"
        raise DataError(message, code="unreadable", value=byte, path=path, row=row, hint=hint) from error
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        hint = "The file is damaged or not text: download it again"
        raise DataError("contains a NUL byte", code="damaged", path=path, row=row, hint=hint)
    return text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text file without line ends; a final newline adds no empty line.

    Only ``\\n``, ``\\r\\n`` and ``\\r`` end a line (``str.splitlines`` also breaks at form feeds and
    U+2028, which captions may contain). Raises the errors of :func:`read_text`, and DataError if the file is empty.
    """
    text = read_text(path)
    if not text.strip():
        raise DataError("is empty", code="damaged", path=path, hint="Download the file again")
    return text.removesuffix("\n").split("\n")


def json_decoder(path: str | os.PathLike[str], *, unique_keys: bool = False, nan: bool = False) -> json.JSONDecoder:
    """The decoder of :func:`read_json`, with the same DataErrors except for text that is not JSON."""

    def constant(name: str) -> Any:
        if nan and name == "NaN":
            return math.nan
        message = f"contains {name}, which is not a JSON number"
        raise DataError(message, code="not-a-number", value=name, path=path, hint="Remove or correct that value")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for i, key in enumerate(keys) if key in keys[:i])
            message = f"the key '{twice}' occurs twice in one object"
            raise DataError(message, code="duplicate", value=twice, path=path, hint="Keep one of the two")
        return record

    return json.JSONDecoder(parse_constant=constant, object_pairs_hook=unique if unique_keys else None)


def read_json(path: str | os.PathLike[str], *, unique_keys: bool = False, nan: bool = False) -> Any:
    """Parse a UTF-8 JSON file; rejects NaN and infinities, which JSON does not have.

    Args:
        path: the file.
        unique_keys: also reject objects in which a key occurs twice (JSON readers keep the last one).
        nan: accept NaN, as Python writes it, as a float, for formats in which it marks missing values.

    Raises the errors of :func:`read_text`, and DataError with row and column if it is not JSON.
    """
    text = read_text(path)
    try:
        return json_decoder(path, unique_keys=unique_keys, nan=nan).decode(text)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise DataError("is empty", code="damaged", path=path, hint="Write or download the file again") from error
        truncated = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        hint = (
            "The file seems truncated: write or download it again" if truncated else "Correct the file at that position"
        )
        message = f"is not JSON: {error.msg} (column {error.colno})"
        raise DataError(message, code="wrong-format", path=path, row=error.lineno, hint=hint) from error
    except ValueError as error:
        message, hint = "contains an integer with more than 4,300 digits", "Correct or remove that number"
        raise DataError(message, code="too-large", path=path, hint=hint) from error
    except RecursionError as error:
        raise DataError("is nested too deeply", code="too-large", path=path) from error


def _unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path, hint="Correct the path")
    if isinstance(error, IsADirectoryError):
        return DataError("is a folder, not a file", code="unreadable", path=path, hint="Pass a file")
    message = f"cannot be read ({error.strerror or error})"
    return DataError(message, code="unreadable", path=path, hint="Check its permissions")


def _device(path: str | os.PathLike[str]) -> DataError:
    return DataError("is a device, a pipe or a socket, not a file", code="unreadable", path=path, hint="Pass a file")


Cell = TypeVar("Cell")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def without_formula(cell: Cell) -> Cell | str:
    """The cell, with an apostrophe before text that a spreadsheet would evaluate as a formula.

    Such text begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return. Numbers are unchanged.

    >>> without_formula("=1+1"), without_formula(-0.5), without_formula("a dog")
    ("'=1+1", -0.5, 'a dog')
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, escape_formulas: bool = False) -> str:
    """A table as CSV with a header; None and missing cells are empty.

    Args:
        columns: the column names, in order.
        rows: cells by column name.
        escape_formulas: apply :func:`without_formula` to every cell.

    Raises:
        ValueError: a row has a cell of an unknown column.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: without_formula(cell) for name, cell in row.items()} if escape_formulas else row)
    return stream.getvalue()
