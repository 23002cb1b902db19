"""Scene graphs of captions: objects, their attributes, and relations between them.

The parser is SPICE's (rules over Stanford CoreNLP 3.6.0's dependencies, after Schuster et al. 2015). It is a slow Java
program, so every distinct caption is parsed only once: its tuples are stored in a cache that all studies share, and
cached captions require no Java. Parses completed before an interruption are kept.

Parse files transfer the cache to another machine. A parse file is gzip-compressed. Its first line is JSON: format,
version of the format, the parser's version, the number of parses, and the SHA-256 of the remaining content. One line
follows for each parse: the key of the tokenised caption in hexadecimal, a tab, and the caption's tuples as JSON. The
file does not contain the captions.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from capbench.core.cache import Cache
from capbench.core.errors import DataError, UnfinishedError, UsageError
from capbench.core.files import atomic_write, unpack_gzip
from capbench.core.workers import PartFailure, Spread
from capbench.text import ptb

__all__ = [
    "SceneGraph",
    "Triplet",
    "Tuples",
    "ensure",
    "export_parses",
    "forget",
    "import_parses",
    "key",
    "missing",
    "parse",
    "per_second",
    "tuples",
]


Tuples = tuple[tuple[str, ...], ...]
"""A caption's tuples in the parser's order: ``(object,)``, ``(object, attribute)``, ``(subject, object,
relation)``."""

Triplet = tuple[str, str, str]
"""Subject, relation, object."""

_BATCH = 128  # maximum number of parses lost in an interruption
_WORKER_MB = 2600  # the parser's heap and Java's other memory
_PER_SECOND_AND_CORE = 19.0  # captions of some 10 words; measured on two cores: 24 to 47 per second
_known: dict[str, str] = {}  # tokens → tuples as JSON, a fifth of the memory of Python tuples


@dataclass(frozen=True)
class SceneGraph:
    """The scene graph of one caption; all words are in lower case and in base form, without repeats.

    Attributes:
        objects: objects in the order of the parser's first mention.
        attributes: object → its attributes, for objects with attributes.
        triplets: ⟨subject, relation, object⟩.
    """

    objects: tuple[str, ...]
    attributes: Mapping[str, tuple[str, ...]]
    triplets: tuple[Triplet, ...]

    @classmethod
    def from_tuples(cls, tuples: Sequence[Sequence[str]]) -> SceneGraph:
        """Group a parser's tuples into objects, attributes and triplets.

        Args:
            tuples: ``(object,)``, ``(object, attribute)`` or ``(subject, object, relation)``.
        """
        objects: dict[str, None] = {}
        attributes: dict[str, dict[str, None]] = {}
        triplets: dict[Triplet, None] = {}
        for parts in tuples:
            objects[parts[0]] = None
            if len(parts) == 2:
                attributes.setdefault(parts[0], {})[parts[1]] = None
            elif len(parts) == 3:
                objects[parts[1]] = None
                triplets[parts[0], parts[2], parts[1]] = None
        return cls(tuple(objects), {name: tuple(values) for name, values in attributes.items()}, tuple(triplets))


def parse(
    captions: Sequence[str], *, cache: bool = True, progress: Callable[[int], None] | None = None
) -> list[SceneGraph]:
    """Scene graphs of captions as published; tokenises them first.

    Args:
        captions: (n) texts.
        cache: True to use the cache on disk.
        progress: called with the number of captions parsed since its last call.

    Raises:
        ToolError: a caption is not in the cache, and SPICE's parser is not installed or failed.
        DataError: a caption is not valid Unicode.
    """
    tokens = ptb.tokenize(captions, cache=cache)
    return [
        SceneGraph.from_tuples(tuples_of_caption)
        for tuples_of_caption in tuples(tokens, cache=cache, progress=progress)
    ]


def tuples(
    tokens: Sequence[str], *, cache: bool = True, progress: Callable[[int], None] | None = None
) -> Iterator[Tuples]:
    """Tuples of tokenised captions as an iterator, so that not all are in memory at once.

    Arguments and errors are those of :func:`ensure`, which is called first.
    """
    ensure(tokens, cache=cache, progress=progress)
    for caption in tokens:
        yield tuple(tuple(parts) for parts in json.loads(_known[caption]))


def ensure(
    tokens: Sequence[str],
    *,
    cache: bool = True,
    progress: Callable[[int], None] | None = None,
    spread: Spread | None = None,
) -> None:
    """Parse the tokenised captions that are not in the cache.

    Args:
        tokens: (n) captions from :func:`capbench.text.ptb.tokenize`.
        cache: True to use the cache on disk; otherwise tuples are kept for this process only.
        progress: called with the number of captions parsed since its last call.
        spread: runs the parser in other processes; this process stores the results.

    Raises:
        ToolError: SPICE's parser is not installed, its program failed, or a caption is too long for its memory.
        UnfinishedError: the parses of other processes failed in part; the rest is stored.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION, parse_tuples

    to_parse = missing(tokens, cache=cache)
    if not to_parse:
        return
    batches = [to_parse[start : start + _BATCH] for start in range(0, len(to_parse), _BATCH)]
    answered = _spread(batches, spread) if spread else ((batch, parse_tuples(batch)) for batch in batches)
    with Cache("scene-graphs", enabled=cache) as store:
        for batch, answers in answered:
            store.put(
                SPICE_PARSER_VERSION,
                ((key(caption), answer.encode()) for caption, answer in zip(batch, answers, strict=True)),
            )
            _known.update(zip(batch, answers, strict=True))
            if progress is not None:
                progress(len(batch))


def _spread(batches: Sequence[list[str]], spread: Spread) -> Iterator[tuple[list[str], list[str]]]:
    """Batches with their parses, in the order of completion."""
    failed: dict[int, str] = {}
    for place, answers in spread.run(_parser, batches, memory_mb=_WORKER_MB):
        if isinstance(answers, PartFailure):
            failed[place] = answers.reason
        else:
            yield batches[place], answers
    if failed:
        captions = sum(len(batches[place]) for place in failed)
        raise UnfinishedError(
            f"{captions:,} captions could not be parsed, the first '{batches[next(iter(failed))][0][:60]}': "
            f"{next(iter(failed.values()))}",
            hint="The other parses are saved; correct the problem and run the same command again",
        )


def _parser() -> Callable[[list[str]], list[str]]:
    """The parse function of a worker."""
    from capbench.text.spice.parser import parse_tuples

    return parse_tuples


def missing(tokens: Sequence[str], *, cache: bool = True) -> list[str]:
    """The distinct tokenised captions that are not in the cache, in their order.

    Args:
        tokens: (n) captions from :func:`capbench.text.ptb.tokenize`.
        cache: True to use the cache on disk.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    # An empty caption has no tuples and requires no Java.
    _known.setdefault("", "[]")
    unknown = {key(caption): caption for caption in dict.fromkeys(tokens) if caption not in _known}
    if unknown:
        with Cache("scene-graphs", enabled=cache) as store:
            for name, value in store.get(SPICE_PARSER_VERSION, list(unknown)).items():
                _known[unknown[name]] = value.decode()
    return [caption for caption in unknown.values() if caption not in _known]


def per_second() -> float:
    """Expected speed of the parser on this machine, in captions per second."""
    from capbench.text.spice.parser import n_threads

    return _PER_SECOND_AND_CORE * n_threads()


def forget() -> None:
    """Clear the cache of this process; the cache on disk remains."""
    _known.clear()


def key(caption: str) -> bytes:
    """Cache key of a tokenised caption: 16 bytes, its BLAKE2b hash."""
    return hashlib.blake2b(caption.encode(), digest_size=16).digest()


_FORMAT: Final = "capbench-parses"
_SCHEMA: Final = 1
_LINE: Final = re.compile(rb"([0-9a-f]{32})\t(\[.*\])")
_CACHE: Final = "scene-graphs"
_AGAIN: Final = "Get the file again, or export it again; nothing was imported"


def export_parses(path: str | os.PathLike[str], *, replace: bool = False) -> int:
    """Write all cached parses of the current parser version to a file; returns their number.

    Equal caches yield equal files.

    Args:
        path: the file.
        replace: True to replace an existing file.

    Raises:
        UsageError: the cache has no parses, the file exists, or it cannot be written.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    if Path(path).exists() and not replace:
        raise UsageError("already exists", code="exists", path=path, hint="Choose another name, or add --replace")
    with Cache(_CACHE) as store:
        lines = [key.hex().encode() + b"\t" + value for key, value in store.entries(SPICE_PARSER_VERSION)]
    if not lines:
        raise UsageError(
            f"there is nothing to export: the cache has no parses of {SPICE_PARSER_VERSION}",
            code="missing-data",
            value=SPICE_PARSER_VERSION,
            hint="Parse captions first with 'capbench score -m spice' or 'capbench correlate -m spice'",
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
    """Add the parses of a file to the cache, all or none; existing parses remain.

    Returns:
        The number of parses in the file, and the number of new ones.

    Raises:
        DataError: the file does not exist, is damaged, is not a parse file, or has parses of another parser version.
        UsageError: the cache cannot be written.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    head_line, _, body = _unpacked(path).partition(b"\n")
    _check_head(path, head_line, body, SPICE_PARSER_VERSION)
    parses: dict[bytes, bytes] = {}
    for row, line in enumerate(body.splitlines(), 2):
        match = _LINE.fullmatch(line)
        if match is None or not _is_tuples(match[2]):
            raise DataError("is not a key with tuples", code="wrong-format", path=path, row=row, hint=_AGAIN)
        parses[bytes.fromhex(match[1].decode())] = match[2]
    with Cache(_CACHE) as store:
        before = store.get(SPICE_PARSER_VERSION, list(parses))
        new = [(key, value) for key, value in parses.items() if key not in before]
        store.put(SPICE_PARSER_VERSION, new)
        if store.path is None:
            raise UsageError(
                "the cache cannot be written; nothing was imported", code="unwritable", hint="Set CAPBENCH_CACHE"
            )
    return len(parses), len(new)


def _unpacked(path: str | os.PathLike[str]) -> bytes:
    try:
        return unpack_gzip(path)
    except DataError as error:
        if error.code != "damaged":
            raise
        reason = f"is damaged or is not a parse file ({error.__cause__})"
        raise DataError(reason, code="damaged", path=path, hint=_AGAIN) from error


def _check_head(path: str | os.PathLike[str], head_line: bytes, body: bytes, parser: str) -> None:
    try:
        head: Any = json.loads(head_line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        raise DataError(
            "is not a parse file",
            code="wrong-format",
            path=path,
            hint="Write one with 'capbench data parses export'; nothing was imported",
        )
    if head.get("schema") != _SCHEMA:
        raise DataError(
            f"is a parse file of schema {head.get('schema')}; this version of capbench reads schema {_SCHEMA}",
            code="wrong-version",
            value=head.get("schema"),
            path=path,
            hint="Update capbench",
        )
    if head.get("parser") != parser:
        raise DataError(
            f"contains parses of {head.get('parser')}; this version of capbench uses {parser}",
            code="wrong-version",
            value=head.get("parser"),
            path=path,
            hint="Export them with this version; nothing was imported",
        )
    if head.get("sha256") != hashlib.sha256(body).hexdigest() or head.get("parses") != body.count(b"\n"):
        raise DataError("is damaged: its parses do not match their SHA-256", code="damaged", path=path, hint=_AGAIN)


def _is_tuples(text: bytes) -> bool:
    """True if a text is a JSON list of lists of one to three strings."""
    try:
        tuples = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return all(
        isinstance(parts, list) and 1 <= len(parts) <= 3 and all(isinstance(word, str) for word in parts)
        for parts in tuples
    )
