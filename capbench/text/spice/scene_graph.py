"""Scene graphs of captions: objects, their attributes, and relations between them.

The parser is SPICE's (rules over Stanford CoreNLP 3.6.0's dependencies, after Schuster et al. 2015). It is a slow Java
program, so every distinct caption is parsed only once: its tuples are stored in a cache that all studies share. Parses
completed before an interruption are kept. Captions in the cache or in a parse file of the data folder
(:mod:`capbench.text.spice.parse_file`) require no Java. The option ``--no-cache`` concerns scores, not parses.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from capbench.core.cache import Cache
from capbench.core.errors import UnfinishedError, UsageError
from capbench.core.progress import Progress
from capbench.core.workers import Engine, PartFailure
from capbench.text import ptb
from capbench.text.spice import parser
from capbench.text.spice.parse_file import CaptionSet, parse_files, write_parses
from capbench.text.spice.parser import SPICE_PARSER_VERSION

Tuples = tuple[tuple[str, ...], ...]
"""A caption's tuples in the parser's order: ``(object,)``, ``(object, attribute)``, ``(subject, object,
relation)``."""

Triplet = tuple[str, str, str]  # Subject, relation, object

PathGiven = str | os.PathLike[str]

_CACHE: Final = "scene-graphs"
_BATCH: Final = 128  # maximum number of parses lost in an interruption
_RUN: Final = 2048  # captions for one run of the program, which takes some five seconds to start
_PART: Final = 512  # the same for a worker
_WORKER_MB = 2600  # the parser's heap and Java's other memory
_PER_SECOND_AND_CORE = 19.0  # captions of some 10 words; measured on two cores: 24 to 47 per second
_known: dict[str, str] = {}  # tokens → tuples as JSON, a fifth of the memory of Python tuples


def triplets(captions: Sequence[str], *, data: PathGiven | None = None) -> list[tuple[Triplet, ...]]:
    """Distinct ⟨subject, relation, object⟩ of captions as published, which are tokenised first."""
    parsed = tuples(ptb.tokenize(captions), data=data)
    return [tuple(dict.fromkeys((t[0], t[2], t[1]) for t in of_caption if len(t) == 3)) for of_caption in parsed]


def tuples(tokens: Sequence[str], *, data: PathGiven | None = None) -> Iterator[Tuples]:
    """Tuples of tokenised captions, after :func:`ensure`; an iterator, so that not all are in memory at once."""
    ensure(tokens, data=data)
    for caption in tokens:
        yield tuple(tuple(parts) for parts in json.loads(_known[caption]))


def ensure(
    tokens: Sequence[str],  # (n) captions from :func:`capbench.text.ptb.tokenize`
    *,
    data: PathGiven | None = None,  # the data folder, whose parse files are read; None for no parse files
    progress: Progress | None = None,  # called with the number of captions parsed since its last call
    spread: Engine | None = None,  # runs the parser in other processes; this process stores the results
) -> None:
    """Parse the tokenised captions that have no parse, and store the parses in the cache."""
    to_parse = missing(tokens, data=data)
    size = _PART if spread else _RUN
    parts = [to_parse[start : start + size] for start in range(0, len(to_parse), size)]
    if not parts:
        return
    with Cache(_CACHE) as store:
        here = (pair for part in parts for pair in zip(part, parser.parse_tuples(part), strict=True))
        parsed = _spread(parts, spread) if spread else here
        while batch := dict(islice(parsed, _BATCH)):
            store.put(SPICE_PARSER_VERSION, ((key(caption), answer.encode()) for caption, answer in batch.items()))
            _known.update(batch)
            if progress is not None:
                progress(len(batch))


def _spread(parts: Sequence[list[str]], spread: Engine) -> Iterator[tuple[str, str]]:
    """Captions with their parses, in the order of completion."""
    failed: dict[int, str] = {}
    for place, answers in spread.run(_parser, parts, memory_mb=_WORKER_MB):
        if isinstance(answers, PartFailure):
            failed[place] = answers.reason
        else:
            yield from zip(parts[place], answers, strict=True)
    if failed:
        captions = sum(len(parts[place]) for place in failed)
        raise UnfinishedError(
            f"{captions:,} captions could not be parsed, the first '{parts[next(iter(failed))][0][:60]}': "
            f"{next(iter(failed.values()))}",
            hint="The other parses are saved; correct the problem and run the same command again",
        )


def _parser() -> Callable[[list[str]], list[str]]:
    """The parse function of a worker."""
    return lambda captions: list(parser.parse_tuples(captions))


def missing(tokens: Sequence[str], *, data: PathGiven | None = None) -> list[str]:
    """The distinct tokenised captions without a parse in the cache or in a parse file, in their order.

    Arguments are those of :func:`ensure`. Raises DataError: a parse file in the data folder cannot be used.
    """
    # An empty caption has no tuples and requires no Java.
    _known.setdefault("", "[]")
    unknown = {key(caption): caption for caption in dict.fromkeys(tokens) if caption not in _known}
    if unknown:
        with Cache(_CACHE) as store:
            found = store.get(SPICE_PARSER_VERSION, list(unknown))
        _known.update((unknown.pop(name), value.decode()) for name, value in found.items())
    if unknown and data is not None:
        for file in parse_files(data, SPICE_PARSER_VERSION):
            _known.update((unknown.pop(name), value.decode()) for name, value in file.get(list(unknown)).items())
    return list(unknown.values())


def any_known(data: PathGiven) -> bool:
    """True if any caption has a parse in the cache or in a parse file of the data folder."""
    with Cache(_CACHE) as store:
        return bool(parse_files(data, SPICE_PARSER_VERSION)) or bool(store.get(SPICE_PARSER_VERSION))


def per_second() -> float:
    """Expected speed of the parser on this machine, in captions per second."""
    return _PER_SECOND_AND_CORE * parser.n_threads()


def forget() -> None:
    """Clear the cache of this process; the cache on disk remains."""
    _known.clear()


def key(caption: str) -> bytes:
    """Cache key of a tokenised caption: 16 bytes, its BLAKE2b hash."""
    return hashlib.blake2b(caption.encode(), digest_size=16).digest()


def export_parses(
    path: str | os.PathLike[str],  # the file
    # name of a set → its tokenised captions, their licence, and True if parses may be published; None for all parses in
    # the cache, whose captions are unknown
    sets: Mapping[str, tuple[Sequence[str], str, bool]] | None = None,
    *,
    data: PathGiven | None = None,  # the data folder, whose parse files are read, too
    replace: bool = False,  # True to replace an existing file
) -> tuple[CaptionSet, ...]:
    """Write stored parses of the current parser version to a file. Returns the sets of captions recorded."""
    parses: dict[bytes, bytes] = {}
    recorded: list[CaptionSet] = []
    if sets is None:
        with Cache(_CACHE) as store:
            parses = store.get(SPICE_PARSER_VERSION)
        recorded = [CaptionSet("cache", "unknown", redistributable=False, captions=len(parses), parses=len(parses))]
    for name, (tokens, licence, redistributable) in (sets or {}).items():
        distinct = list(dict.fromkeys(tokens))
        unparsed = set(missing(distinct, data=data))
        new = {key(caption): _known[caption].encode() for caption in distinct if caption and caption not in unparsed}
        parses |= new
        n_distinct = len(distinct) - ("" in distinct)
        recorded.append(CaptionSet(name, licence, redistributable, n_distinct, len(new)))
    if not parses:
        message = f"there is nothing to export: there are no parses of {SPICE_PARSER_VERSION}"
        hint = "Parse captions first with 'capbench data parses make'"
        raise UsageError(message, code="missing-data", value=SPICE_PARSER_VERSION, hint=hint)
    write_parses(path, parses, recorded, SPICE_PARSER_VERSION, replace=replace)
    return tuple(recorded)
