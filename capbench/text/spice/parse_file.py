"""Parse files: SPICE's parses of many captions in one compact file, which carries them to other machines.

Files named ``*.parses`` in the folder ``spice-parses`` of the data folder are read wherever captions are parsed, in
addition to the cache (:mod:`capbench.text.spice.scene_graph`).

A file has two lines of text: ``capbench-parses 2`` with the SHA-256 of everything after this line, and JSON with the
parser's version, the number of parses, the sizes of the blocks, and the sets of captions with their licences. The keys
of the tokenised captions follow, 16 bytes each, then the blocks: bz2-compressed, one line of JSON per caption, in the
order of the keys. A lookup decompresses only the blocks that contain its captions. The captions are not in the file.
"""

from __future__ import annotations

import bz2
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, UsageError
from capbench.core.files import atomic_write, read_bytes

FOLDER: Final = "spice-parses"
"""Folder of parse files in the data folder."""
SUFFIX: Final = ".parses"
"""Ending of the parse files that are read there."""

_FORMAT: Final = b"capbench-parses"
_SCHEMA: Final = b"2"
_KEY_BYTES: Final = 16
_IN_BLOCK: Final = 1024  # captions; in smaller blocks they take more space, larger ones take longer to look up
_BLOCKS_KEPT: Final = 64  # some 10 MB
_LARGEST_BLOCK: Final = 64_000_000  # bytes; parses of 1,024 captions are a hundredth of it
_AGAIN: Final = "Get the file again, or remove it; 'capbench data parses export' writes such a file"


@dataclass(frozen=True)
class CaptionSet:
    """The captions of one data set, corpus or file.

    Attributes:
        name: its name.
        licence: licence of the captions, in a few words.
        redistributable: True if the licence permits publishing derived data such as parses.
        captions: number of distinct tokenised captions.
        parses: number of those with a parse in the file.
    """

    name: str
    licence: str
    redistributable: bool
    captions: int
    parses: int


def write_parses(
    path: str | os.PathLike[str],
    parses: Mapping[bytes, bytes],
    sets: Sequence[CaptionSet],
    parser: str,
    *,
    replace: bool = False,
) -> None:
    """Write a parse file. Equal parses in the same order yield equal files.

    Args:
        path: the file.
        parses: tuples as JSON by the key of their caption; captions of one image should be adjacent, which saves space
            and time.
        sets: origin of the captions.
        parser: the parser's version.
        replace: True to replace an existing file.

    Raises:
        UsageError: the file exists, or it cannot be written.
    """
    if Path(path).exists() and not replace:
        raise UsageError("already exists", code="exists", path=path, hint="Choose another name, or add --replace")
    values = list(parses.values())
    blocks = [bz2.compress(b"\n".join(values[start : start + _IN_BLOCK])) for start in range(0, len(values), _IN_BLOCK)]
    head = {
        "parser": parser,
        "parses": len(values),
        "blocks": list(map(len, blocks)),
        "captions": [dataclasses.asdict(captions) for captions in sets],
    }
    content = b"".join([json.dumps(head).encode(), b"\n", *parses, *blocks])
    first = b" ".join([_FORMAT, _SCHEMA, hashlib.sha256(content).hexdigest().encode()])
    with atomic_write(path, "wb") as stream:
        stream.write(first + b"\n" + content)


class ParseFile:
    """A parse file, checked when it is opened.

    Args:
        path: the file.
        parser: the required version of the parser.

    Attributes:
        path: the file.
        sets: origin of the captions.

    Raises:
        DataError: the file does not exist, is damaged, is not a parse file, or has parses of another parser version.
    """

    def __init__(self, path: str | os.PathLike[str], parser: str) -> None:
        self.path = Path(path)
        first, _, content = read_bytes(path).partition(b"\n")
        self._check_first_line(first, content)
        head_line, _, self._content = content.partition(b"\n")
        try:
            head = json.loads(head_line)
            self._check_parser(str(head["parser"]), parser)
            self.sets = tuple(CaptionSet(**captions) for captions in head["captions"])
            self._n, sizes = int(head["parses"]), [int(size) for size in head["blocks"]]
        except (ValueError, TypeError, KeyError) as error:
            raise self._damage() from error
        self._ends = (_KEY_BYTES * self._n + np.cumsum([0, *sizes])).tolist()
        if self._n < 1 or self._ends[-1] != len(self._content) or len(sizes) != -(-self._n // _IN_BLOCK):
            raise self._damage()
        self._keys = np.frombuffer(self._content, f"S{_KEY_BYTES}", self._n)
        self._block = functools.lru_cache(_BLOCKS_KEPT)(self._read_block)

    def __len__(self) -> int:
        """Number of parses."""
        return self._n

    @property
    def restricted(self) -> tuple[CaptionSet, ...]:
        """The sets of captions whose licence does not permit publishing their parses."""
        return tuple(captions for captions in self.sets if not captions.redistributable)

    def get(self, keys: Collection[bytes]) -> dict[bytes, bytes]:
        """Tuples as JSON by key; keys that the file does not contain are omitted.

        Raises:
            DataError: the tuples are not a JSON list of lists of one to three strings.
        """
        wanted = np.array(sorted(keys), f"S{_KEY_BYTES}")
        places = np.searchsorted(self._sorted, wanted).clip(max=self._n - 1)
        found = self._order[places[self._sorted[places] == wanted]]
        return {self._key(place): self._value(place) for place in np.sort(found).tolist()}

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys and tuples; errors are those of :meth:`get`."""
        return ((self._key(place), self._value(place)) for place in range(self._n))

    @functools.cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._keys, kind="stable")

    @functools.cached_property
    def _sorted(self) -> NDArray[np.bytes_]:
        return self._keys[self._order]

    def _key(self, place: int) -> bytes:
        return self._content[_KEY_BYTES * place : _KEY_BYTES * (place + 1)]

    def _value(self, place: int) -> bytes:
        value = self._block(place // _IN_BLOCK)[place % _IN_BLOCK]
        if not _is_tuples(value):
            raise DataError("is not a list of tuples", code="wrong-format", path=self.path, row=place + 1, hint=_AGAIN)
        return value

    def _read_block(self, number: int) -> list[bytes]:
        try:
            stream = bz2.BZ2Decompressor()
            text = stream.decompress(self._content[self._ends[number] : self._ends[number + 1]], _LARGEST_BLOCK)
        except (OSError, ValueError, EOFError) as error:
            raise self._damage() from error
        block = text.split(b"\n")
        if not stream.eof or len(block) != min(_IN_BLOCK, self._n - number * _IN_BLOCK):
            raise self._damage()
        return block

    def _check_first_line(self, line: bytes, content: bytes) -> None:
        name, schema, sha256, *rest = [*line.split(b" "), b"", b""]
        if name != _FORMAT or any(rest):
            raise DataError("is not a parse file, or is damaged", code="wrong-format", path=self.path, hint=_AGAIN)
        if sha256 != hashlib.sha256(content).hexdigest().encode():
            raise self._damage()
        if schema != _SCHEMA:
            version = schema.decode(errors="replace")
            raise DataError(
                f"is a parse file of schema {version}; this version of capbench reads schema {_SCHEMA.decode()}",
                code="wrong-version",
                value=version,
                path=self.path,
                hint="Update capbench",
            )

    def _check_parser(self, found: str, required: str) -> None:
        if found != required:
            raise DataError(
                f"contains parses of {found}; this version of capbench uses {required}",
                code="wrong-version",
                value=found,
                path=self.path,
                hint="Remove it, or export the parses again with this version",
            )

    def _damage(self) -> DataError:
        message = "is damaged: its content does not match its SHA-256"
        return DataError(message, code="damaged", path=self.path, hint=_AGAIN)


def parse_files(data: str | os.PathLike[str], parser: str) -> list[ParseFile]:
    """The parse files in a data folder, by name; each is read once per process, unless it changes.

    Args:
        data: the data folder.
        parser: the required version of the parser.

    Raises:
        DataError: one of them cannot be used.
    """
    paths = sorted(Path(data, FOLDER).glob(f"*{SUFFIX}"))
    return [_opened(path, parser, _state(path)) for path in paths]


def _state(path: Path) -> Any:
    try:
        state = path.stat()
    except OSError:
        return None  # a broken link; reading it raises the error
    return state.st_size, state.st_mtime_ns


@functools.lru_cache(maxsize=32)
def _opened(path: Path, parser: str, _state: Any) -> ParseFile:
    return ParseFile(path, parser)


def _is_tuples(text: bytes) -> bool:
    """True if a text is a JSON list of lists of one to three strings."""
    try:
        tuples = json.loads(text)
    except ValueError:
        return False
    return isinstance(tuples, list) and all(
        isinstance(parts, list) and 1 <= len(parts) <= 3 and all(isinstance(word, str) for word in parts)
        for parts in tuples
    )
