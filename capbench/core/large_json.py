"""Streaming readers for large JSON and JSONL files, which are never in memory as a whole.

:mod:`capbench.core.files` reads small files, pipes and invalid files. A large invalid file is therefore read a second
time, and gives the same error as a small one.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from capbench.core import files
from capbench.core.errors import DataError

_LARGE: Final = 4 << 20  # bytes
_BLOCK: Final = 1 << 20
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DELIMITERS: Final = frozenset(" \t\n\r,:]}")  # characters that follow a value


class WholeFileError(Exception):
    """The file must be read as a whole."""


class _BrokenError(Exception):
    """The text is not JSON."""


def is_large(path: str | os.PathLike[str], n_bytes: int | None = None) -> bool:
    """True if it is a regular file of at least ``n_bytes``, by default large enough to be streamed."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # reading it raises the error
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size >= (_LARGE if n_bytes is None else n_bytes)


def lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a text file; results and errors as of :func:`capbench.core.files.read_lines`."""
    if not is_large(path):
        yield from files.read_lines(path)
        return
    is_blank = True
    try:
        with open(path, encoding="utf-8-sig") as stream:
            for line in stream:
                if "\0" in line:
                    raise _BrokenError
                is_blank = is_blank and not line.strip()
                yield line.removesuffix("\n")
        if is_blank:
            raise _BrokenError
    except (OSError, UnicodeDecodeError, _BrokenError) as error:
        files.read_lines(path)
        raise changed(path) from error


def list_entries(path: str | os.PathLike[str]) -> Iterator[Any] | None:
    """The entries of a large JSON list; None if the file is small or not a list.

    Raises:
        MissingFileError, DataError: as of :func:`capbench.core.files.read_json` with ``unique_keys``, when the
            iterator reaches the problem.
    """
    return _list_entries(path) if is_large(path) and _first(path) == "[" else None


def object_entries(path: str | os.PathLike[str], whole_with: str) -> Iterator[tuple[str, Any]] | None:
    """Keys and values of a large JSON object; None if the file is small or not an object.

    Args:
        path: the file.
        whole_with: a key of the outermost object whose value cannot be streamed.

    Raises:
        WholeFileError: the outermost object has the key ``whole_with``.
        MissingFileError, DataError: as of :func:`capbench.core.files.read_json` with ``unique_keys``, when the
            iterator reaches the problem; duplicate keys of the outermost object are not detected.
    """
    return _object_entries(path, whole_with) if is_large(path) and _first(path) == "{" else None


def _first(path: str | os.PathLike[str]) -> str:
    """The first character that is not whitespace; ``""`` if there is none, or the file cannot be read."""
    try:
        with open(path, "rb") as stream:
            return _Reader(stream, path).next()
    except (OSError, _BrokenError):
        return ""


def _list_entries(path: str | os.PathLike[str]) -> Iterator[Any]:
    try:
        with open(path, "rb") as stream:
            reader = _Reader(stream, path)
            reader.take("[")
            if reader.next() == "]":
                reader.take("]")
            else:
                while True:
                    yield reader.value()
                    if reader.take(",]") == "]":
                        break
            reader.end()
    except (OSError, _BrokenError) as error:
        files.read_json(path, unique_keys=True)
        raise changed(path) from error


def _object_entries(path: str | os.PathLike[str], whole_with: str) -> Iterator[tuple[str, Any]]:
    try:
        with open(path, "rb") as stream:
            reader = _Reader(stream, path)
            reader.take("{")
            if reader.next() == "}":
                reader.take("}")
            else:
                while True:
                    if reader.next() != '"':
                        raise _BrokenError
                    key = reader.value()
                    reader.take(":")
                    if key == whole_with:
                        raise WholeFileError
                    yield key, reader.value()
                    if reader.take(",}") == "}":
                        break
            reader.end()
    except (OSError, _BrokenError) as error:
        files.read_json(path, unique_keys=True)
        raise changed(path) from error


class _Reader:
    """Values and punctuation of a JSON text, read block by block."""

    def __init__(self, stream: BinaryIO, path: str | os.PathLike[str]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = files.json_decoder(path, unique_keys=True).raw_decode
        self._text, self._at, self._ended = "", 0, False

    def next(self) -> str:
        """The next character that is not whitespace, without consuming it; ``""`` at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read()

    def take(self, marks: str) -> str:
        """Consume the next character, which must be one of ``marks``."""
        mark = self.next()
        if not mark or mark not in marks:
            raise _BrokenError
        self._at += 1
        return mark

    def value(self) -> Any:
        """Consume the next value."""
        self.next()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise _BrokenError from error
            except (ValueError, RecursionError) as error:
                raise _BrokenError from error
            else:
                if self._text[end : end + 1] in _DELIMITERS or self._ended:  # else it may continue: the 1 of 1.5
                    self._at = end
                    return value
            self._read()

    def end(self) -> None:
        """Check that nothing follows."""
        if self.next():
            raise _BrokenError

    def _read(self) -> None:
        """Read the next block, at least as long as the incomplete value."""
        rest = self._text[self._at :]
        block = self._stream.read(max(_BLOCK, len(rest)))
        self._ended = not block
        try:
            self._text, self._at = rest + self._decode(block, final=self._ended), 0
        except UnicodeDecodeError as error:
            raise _BrokenError from error


def changed(path: str | os.PathLike[str]) -> DataError:
    """The error for a file that changed while it was read."""
    return DataError(
        "changed while it was read", code="changed", path=path, hint="Try again when no program writes to it"
    )
