"""Files of parses: what SPICE's parser gave, to be handed to another machine, so that a group parses captions once.

A file is gzip. Its first line is JSON: format, version of the format, the parser's version, the number of parses, and
the SHA-256 of all that follows. Then comes one line for each parse: the key of the tokenised caption in hexadecimal, a
tab, and the caption's tuples as JSON. The captions themselves are not in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from capbench.cache import Cache
from capbench.errors import DataError, UsageError
from capbench.files import atomic_write, unpack_gzip

__all__ = ["export_parses", "import_parses"]

_FORMAT: Final = "capbench-parses"
_SCHEMA: Final = 1
_LINE: Final = re.compile(rb"([0-9a-f]{32})\t(\[.*\])")
_CACHE: Final = "scene-graphs"
_AGAIN: Final = "Get the file again, or export it again; nothing was imported"


def export_parses(path: str | os.PathLike[str], *, replace: bool = False) -> int:
    """Write all parses of this version's parser that the cache holds; gives their number.

    Equal caches give equal files.

    Args:
        path: the file.
        replace: whether a file that is there is replaced.

    Raises:
        UsageError: nothing was parsed yet, the file is there, or it cannot be written.
    """
    from capbench.java.spice.parser import SPICE_PARSER_VERSION

    if Path(path).exists() and not replace:
        raise UsageError("is there already", path=path, hint="Choose another name, or add --replace")
    with Cache(_CACHE) as store:
        lines = [key.hex().encode() + b"\t" + value for key, value in store.entries(SPICE_PARSER_VERSION)]
    if not lines:
        raise UsageError(
            f"there is nothing to export: no caption was parsed yet by {SPICE_PARSER_VERSION}",
            hint="Parses come from 'capbench score -m spice' or 'capbench correlate -m spice'",
        )
    body = b"".join(line + b"\n" for line in lines)
    head = {
        "format": _FORMAT,
        "schema": _SCHEMA,
        "parser": SPICE_PARSER_VERSION,
        "parses": len(lines),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    with atomic_write(path, "wb") as stream:
        stream.write(gzip.compress(json.dumps(head).encode() + b"\n" + body, mtime=0))
    return len(lines)


def import_parses(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Take the parses of a file into the cache, all or none; those that are there stay.

    Returns:
        The number of parses in the file, and of those that were new.

    Raises:
        DataError: the file is not there, damaged, no such file, or of another parser.
        UsageError: the cache cannot be written.
    """
    from capbench.java.spice.parser import SPICE_PARSER_VERSION

    head_line, _, body = _unpacked(path).partition(b"\n")
    _check_head(path, head_line, body, SPICE_PARSER_VERSION)
    parses: dict[bytes, bytes] = {}
    for row, line in enumerate(body.splitlines(), 2):
        match = _LINE.fullmatch(line)
        if match is None or not _is_tuples(match[2]):
            raise DataError("is no key with tuples", path=path, row=row, hint=_AGAIN)
        parses[bytes.fromhex(match[1].decode())] = match[2]
    with Cache(_CACHE) as store:
        before = store.get(SPICE_PARSER_VERSION, list(parses))
        new = [(key, value) for key, value in parses.items() if key not in before]
        store.put(SPICE_PARSER_VERSION, new)
        if store.path is None:
            raise UsageError("the cache cannot be written, so nothing was imported", hint="Set CAPBENCH_CACHE")
    return len(parses), len(new)


def _unpacked(path: str | os.PathLike[str]) -> bytes:
    try:
        return unpack_gzip(path)
    except DataError as error:
        if not error.message.startswith("is no whole gzip"):
            raise
        reason = error.message.partition("(")[2].removesuffix(")")
        raise DataError(f"is damaged or no file of parses ({reason})", path=path, hint=_AGAIN) from error


def _check_head(path: str | os.PathLike[str], head_line: bytes, body: bytes, parser: str) -> None:
    try:
        head: Any = json.loads(head_line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        raise DataError(
            "is no file of parses", path=path, hint="'capbench data parses export' writes one; nothing was imported"
        )
    if head.get("schema") != _SCHEMA:
        raise DataError(
            f"has schema {head.get('schema')} of such files; this version reads {_SCHEMA}",
            path=path,
            hint="Update capbench",
        )
    if head.get("parser") != parser:
        raise DataError(
            f"holds parses of {head.get('parser')}; this version of capbench parses with {parser}",
            path=path,
            hint="Export them with this version; nothing was imported",
        )
    if head.get("sha256") != hashlib.sha256(body).hexdigest() or head.get("parses") != body.count(b"\n"):
        raise DataError("is damaged: its parses do not fit their SHA-256", path=path, hint=_AGAIN)


def _is_tuples(text: bytes) -> bool:
    """Whether a text is a JSON list of lists of one to three strings."""
    try:
        tuples = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return all(
        isinstance(parts, list) and 1 <= len(parts) <= 3 and all(isinstance(word, str) for word in parts)
        for parts in tuples
    )
