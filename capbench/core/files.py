"""Files: reading text, JSON and bytes, atomic writes, locks, checksums, CSV, and the cache folder.

A file is written under a temporary name in the same folder, flushed to disk and renamed, so that
a reader sees either the old file or the new one, never a partial one.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from capbench.core.errors import DataError, MissingFileError, UsageError, unwritable

_BOM = "\ufeff"


def cache_dir(*parts: str) -> Path:
    """A folder for reproducible files below ``$CAPBENCH_CACHE`` or the user's cache folder."""
    folder = _user_folder("CAPBENCH_CACHE", "user_cache_dir").joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, folder, "Set CAPBENCH_CACHE to a writable folder") from error
    return folder


def home_dir() -> Path:
    """The folder for data of the user: ``$CAPBENCH_HOME`` or the system's folder for user data."""
    return _user_folder("CAPBENCH_HOME", "user_data_dir")


def _user_folder(variable: str, kind: str) -> Path:
    if given := os.environ.get(variable):
        return Path(given).expanduser()
    import platformdirs

    return Path(getattr(platformdirs, kind)("capbench", appauthor=False))


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing that appears under ``path`` only when the block ends without an error.

    ``mode``: ``"w"`` (UTF-8, ``\\n`` line ends) or ``"wb"``.
    """
    target = Path(path)
    remedy = "Check the folder's permissions and the free space; nothing was changed"
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    try:
        _check_target(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        stream = open(temporary, mode.replace("w", "x"), encoding=encoding, newline=newline)  # noqa: SIM115
    except OSError as error:
        raise unwritable(error, target, remedy) from error
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.filename not in (None, os.fspath(temporary)):
            raise _unreadable(os.fsdecode(error.filename), error) from error
        raise unwritable(error, target, remedy) from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_target(target: Path) -> None:
    """Raise UsageError if the path exists and is not a file; an atomic write would replace a device."""
    if target.exists() and not target.is_file():
        raise UsageError("exists and is not a file", code="unwritable", path=target, hint="Choose another file")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check before a long computation that a file can be written at its end; creates its folder."""
    target = Path(path)
    try:
        _check_target(target)
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
    """Hold ``<path>.lock`` so that two runs do not change the same file at once."""
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
    """Raise MissingFileError if there is no such file, and DataError if it is a folder or not readable."""
    try:
        open(path, "rb").close()
    except OSError as error:
        raise _unreadable(path, error) from error


def check_folder(path: str | os.PathLike[str], flag: str) -> None:
    """Raise UsageError if the value of a flag is not a folder."""
    if not Path(path).is_dir():
        raise UsageError("there is no such folder", code="missing-file", path=path, hint=f"Correct {flag}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file, or of a pipe (``<(command)`` in a shell)."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def unpack_gzip(path: str | os.PathLike[str]) -> bytes:
    """The uncompressed content of a gzip file."""
    import gzip

    packed = read_bytes(path)
    try:
        return gzip.decompress(packed)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"is not a complete gzip file ({error})"
        raise DataError(message, code="damaged", path=path, hint="Download the file again") from error


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file as 64 hex digits, read in blocks. Raises the errors of :func:`read_bytes`."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a whole UTF-8 text file, also ``.gz``; a byte-order mark is dropped and ``\\r\\n`` becomes ``\\n``."""
    packed = os.fspath(path).lower().endswith(".gz")
    return decode_text(unpack_gzip(path) if packed else read_bytes(path), path)


_SPREADSHEETS = {  # first bytes → kind of file
    b"PK\x03\x04": "a spreadsheet (.xlsx) or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet (.xls) or another Office file",
}


def decode_text(data: bytes, path: str | os.PathLike[str]) -> str:
    """The text of a file's bytes, as :func:`read_text` returns it."""
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
    return text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text file without line ends; a final newline adds no empty line.

    Only ``\\n``, ``\\r\\n`` and ``\\r`` end a line: ``str.splitlines`` also breaks at form feeds and U+2028.
    """
    return split_lines(read_text(path), path)


def split_lines(text: str, path: str | os.PathLike[str]) -> list[str]:
    """The lines of a file's text, as :func:`read_lines` returns them."""
    if not text.strip():
        raise DataError("is empty", code="damaged", path=path, hint="Download the file again")
    return text.removesuffix("\n").split("\n")


def read_json(path: str | os.PathLike[str], *, unique_keys: bool = False, nan: bool = False) -> Any:
    """Parse a UTF-8 JSON file; see :func:`parse_json`."""
    return parse_json(read_text(path), path, unique_keys=unique_keys, nan=nan)


def parse_json(text: str, path: str | os.PathLike[str], *, unique_keys: bool = False, nan: bool = False) -> Any:
    """Parse the text of a JSON file; rejects NaN and infinities, which JSON does not have.

    ``unique_keys``: also reject objects in which a key occurs twice (JSON readers keep the last one); ``nan``: accept
    NaN, as Python writes it, as a float, for formats in which it marks missing values.
    """

    def constant(name: str) -> Any:
        if nan and name == "NaN":
            return math.nan
        message = f"contains {name}, which is not a JSON number"
        raise DataError(message, code="not-a-number", value=name, path=path, hint="Remove or correct that value")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
            message = f"the key '{twice}' occurs twice in one object"
            raise DataError(message, code="duplicate", value=twice, path=path, hint="Keep one of the two")
        return record

    decoder = json.JSONDecoder(parse_constant=constant, object_pairs_hook=unique if unique_keys else None)
    try:
        return decoder.decode(text)
    except ValueError as error:  # also an integer of 4,301 digits, not a JSONDecodeError
        if not text.strip():
            raise DataError("is empty", code="damaged", path=path, hint="Write or download the file again") from error
        hint, row = "Correct the file at that position, or write or download it again", getattr(error, "lineno", None)
        raise DataError(f"is not JSON: {error}", code="wrong-format", path=path, row=row, hint=hint) from error


def _unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path, hint="Correct the path")
    if isinstance(error, IsADirectoryError):
        return DataError("is a folder, not a file", code="unreadable", path=path, hint="Pass a file")
    message = f"cannot be read ({error.strerror or error})"
    return DataError(message, code="unreadable", path=path, hint="Check its permissions")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A table as CSV with a header; None and missing cells are empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
