"""Parse files: SPICE's parses of many captions in one SQLite file, which carries them to other machines.

Files named ``*.parses`` in the folder ``spice-parses`` of the data folder are read wherever captions are parsed, in
addition to the cache (:mod:`capbench.text.spice.scene_graph`). A file has the tuples of each caption as compressed
JSON, by the hash of the tokenised caption, the parser's version, and the sets of captions with their licences. The
captions are not in the file. The files of capbench 0.2 are read, too.
"""

from __future__ import annotations

import bz2
import dataclasses
import functools
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capbench.core.errors import DataError, UsageError
from capbench.core.files import atomic_write, read_bytes

FOLDER: Final = "spice-parses"  # Folder of parse files in the data folder
SUFFIX: Final = ".parses"  # Ending of the parse files that are read there

_TABLES: Final = """
    CREATE TABLE facts (parser TEXT, sets TEXT);
    CREATE TABLE parses (key BLOB PRIMARY KEY, tuples BLOB) WITHOUT ROWID;
"""
_FORMAT_OF_0_2: Final = b"capbench-parses 2 "


@dataclass(frozen=True)
class CaptionSet:
    """The captions of one data set, corpus or file."""

    name: str
    licence: str  # licence of the captions, in a few words
    redistributable: bool  # True if the licence permits publishing derived data such as parses
    captions: int  # number of distinct tokenised captions
    parses: int  # number of those with a parse in the file


def write_parses(
    path: str | os.PathLike[str],
    parses: Mapping[bytes, bytes],
    sets: Sequence[CaptionSet],
    parser: str,
    *,
    replace: bool = False,
) -> None:
    """Write tuples as JSON by the key of their caption. Equal parses yield equal files."""
    if Path(path).exists() and not replace:
        raise UsageError("already exists", code="exists", path=path, hint="Choose another name, or add --replace")
    facts = json.dumps([dataclasses.asdict(captions) for captions in sets])
    with closing(sqlite3.connect(":memory:")) as database, atomic_write(path, "wb") as stream:
        database.executescript(_TABLES)
        database.execute("INSERT INTO facts VALUES (?, ?)", (parser, facts))
        rows = ((key, zlib.compress(tuples)) for key, tuples in sorted(parses.items()))
        database.executemany("INSERT INTO parses VALUES (?, ?)", rows)
        database.commit()
        stream.write(database.serialize())


def _content(database: bytes) -> tuple[str, str, dict[bytes, bytes]]:
    """Parser and sets of a file, and compressed tuples by key."""
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.deserialize(database or b"no database")  # which takes no empty bytes
        ((parser, sets),) = opened.execute("SELECT parser, sets FROM facts")
        return parser, sets, dict(opened.execute("SELECT key, tuples FROM parses"))


def _content_of_0_2(content: bytes) -> tuple[str, str, dict[bytes, bytes]]:
    """The same of a file with a line with its SHA-256, a line of JSON, 16 bytes for each key, and bz2 blocks."""
    first, _, rest = content.partition(b"\n")
    if first != _FORMAT_OF_0_2 + hashlib.sha256(rest).hexdigest().encode():
        raise ValueError("its SHA-256 differs")
    head, _, body = rest.partition(b"\n")
    facts = json.loads(head)
    at = 16 * facts["parses"]
    keys = [body[start : start + 16] for start in range(0, at, 16)]
    parses: list[bytes] = []
    for size in facts["blocks"]:
        parses += map(zlib.compress, bz2.decompress(body[at : at + size]).split(b"\n"))
        at += size
    return facts["parser"], json.dumps(facts["captions"]), dict(zip(keys, parses, strict=True))


class ParseFile:
    """A parse file of this version of the parser; ``sets``: its captions' origins; ``parses``: compressed tuples."""

    def __init__(self, path: str | os.PathLike[str], parser: str) -> None:
        self.path = Path(path)
        content = read_bytes(path)
        read = _content_of_0_2 if content.startswith(_FORMAT_OF_0_2) else _content
        with self._readable():
            found, sets, self.parses = read(content)
            self.sets = tuple(CaptionSet(**captions) for captions in json.loads(sets))
        if found != parser:
            message = f"contains parses of {found}; this version of capbench uses {parser}"
            hint = "Remove it, or export the parses again with this version"
            raise DataError(message, code="wrong-version", value=found, path=self.path, hint=hint)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Tuples as JSON by key; keys that the file does not contain are omitted. Raises DataError: it is damaged."""
        with self._readable():
            return {key: zlib.decompress(self.parses[key]) for key in keys if key in self.parses}

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, zlib.error, ValueError, TypeError, KeyError, OSError, EOFError) as error:
            hint = "Get the file again, or remove it; 'capbench data parses export' writes such a file"
            message = f"is not a parse file, or is damaged ({error})"
            raise DataError(message, code="damaged", path=self.path, hint=hint) from error


def parse_files(data: str | os.PathLike[str], parser: str) -> list[ParseFile]:
    """The parse files in a data folder, by name; each is read once per process, unless it changes.

    Raises DataError: one of them cannot be used.
    """
    paths = sorted(Path(data, FOLDER).glob(f"*{SUFFIX}"))
    return [_opened(path, parser, path.stat().st_mtime_ns if path.exists() else 0) for path in paths]


@functools.lru_cache(maxsize=32)
def _opened(path: Path, parser: str, _changed: int) -> ParseFile:
    return ParseFile(path, parser)
