"""Scene graphs of captions: objects, their attributes, and relations between them.

The parser is SPICE's (rules over Stanford CoreNLP 3.6.0's dependencies, after Schuster et al. 2015). It is Java and
slow, so a distinct caption is parsed once in its life: its tuples go to a cache that every study shares, and
captions found there need no Java. What was parsed before an interruption is kept.

Files of parses take them to another machine, so that a group parses captions once. A file is gzip. Its first line is
JSON: format, version of the format, the parser's version, the number of parses, and the SHA-256 of all that follows.
Then comes one line for each parse: the key of the tokenised caption in hexadecimal, a tab, and the caption's tuples as
JSON. The captions themselves are not in it.
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

_BATCH = 128  # what an interruption may lose
_WORKER_MB = 2600  # the parser's heap, and what Java needs beside it
_PER_SECOND_AND_CORE = 19.0  # captions of some 10 words; 24 to 47 a second were measured on two cores
_known: dict[str, str] = {}  # tokens → tuples as JSON, which takes a fifth of the memory of the tuples themselves


@dataclass(frozen=True)
class SceneGraph:
    """The scene graph of one caption; everything in lower case and in base form, without repeats.

    Attributes:
        objects: in the order of their first mention by the parser.
        attributes: attributes of every object that has any.
        triplets: ⟨subject, relation, object⟩.
    """

    objects: tuple[str, ...]
    attributes: Mapping[str, tuple[str, ...]]
    triplets: tuple[Triplet, ...]

    @classmethod
    def from_tuples(cls, tuples: Sequence[Sequence[str]]) -> SceneGraph:
        """Sort a parser's tuples into objects, attributes and triplets.

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
    """Scene graphs of captions as published; they are tokenised as for SPICE first.

    Args:
        captions: (n) texts.
        cache: whether to use the cache on disk.
        progress: called with the number of captions parsed since its last call.

    Raises:
        ToolError: a caption is not in the cache and SPICE's parser is not set up, or failed.
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
    """Tuples of tokenised captions, one after the other in their order, so that not all are in memory at once.

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
    """Parse the tokenised captions that never were parsed.

    Args:
        tokens: (n) captions as :func:`capbench.text.ptb.tokenize` gives them.
        cache: whether to use the cache on disk; without it tuples are kept for this process only.
        progress: called with the number of captions parsed since its last call.
        spread: lets other processes parse; this one keeps what they give.

    Raises:
        ToolError: SPICE's parser is not set up, its program failed, or a caption is too long for its memory.
        UnfinishedError: parts that other processes were given failed; the rest is kept.
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
    """Batches with their answers, in the order in which other processes have them."""
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
            hint="The others' parses are kept; mend what is wrong and run the same command again",
        )


def _parser() -> Callable[[list[str]], list[str]]:
    """In a worker: the function that parses."""
    from capbench.text.spice.parser import parse_tuples

    return parse_tuples


def missing(tokens: Sequence[str], *, cache: bool = True) -> list[str]:
    """The tokenised captions that never were parsed, each once, in their order.

    Args:
        tokens: (n) captions as :func:`capbench.text.ptb.tokenize` gives them.
        cache: whether to look into the cache on disk.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    # Nothing can be parsed from nothing, and that needs no Java.
    _known.setdefault("", "[]")
    unknown = {key(caption): caption for caption in dict.fromkeys(tokens) if caption not in _known}
    if unknown:
        with Cache("scene-graphs", enabled=cache) as store:
            for name, value in store.get(SPICE_PARSER_VERSION, list(unknown)).items():
                _known[unknown[name]] = value.decode()
    return [caption for caption in unknown.values() if caption not in _known]


def per_second() -> float:
    """Expected speed of the parser on this machine, in captions a second."""
    from capbench.text.spice.parser import n_threads

    return _PER_SECOND_AND_CORE * n_threads()


def forget() -> None:
    """Drop what this process remembers; the cache on disk stays."""
    _known.clear()


def key(caption: str) -> bytes:
    """The key of a tokenised caption in the cache: 16 bytes, its BLAKE2b hash."""
    return hashlib.blake2b(caption.encode(), digest_size=16).digest()


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
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

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
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

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
        if error.code != "damaged":
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
