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
from dataclasses import dataclass
from typing import Final

from capbench.core.cache import Cache
from capbench.core.errors import UnfinishedError, UsageError
from capbench.core.workers import PartFailure, Spread
from capbench.text import ptb
from capbench.text.spice.parse_file import CaptionSet, ParseFile, parse_files, write_parses

Tuples = tuple[tuple[str, ...], ...]
"""A caption's tuples in the parser's order: ``(object,)``, ``(object, attribute)``, ``(subject, object,
relation)``."""

Triplet = tuple[str, str, str]
"""Subject, relation, object."""

PathGiven = str | os.PathLike[str]

_CACHE: Final = "scene-graphs"
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


@dataclass(frozen=True)
class CaptionsOf:
    """Captions of one data set, corpus or file, to be exported.

    Attributes:
        tokens: captions from :func:`capbench.text.ptb.tokenize`.
        licence: licence of the captions, in a few words.
        redistributable: True if the licence permits publishing derived data such as parses.
    """

    tokens: Sequence[str]
    licence: str
    redistributable: bool


def parse(
    captions: Sequence[str], *, data: PathGiven | None = None, progress: Callable[[int], None] | None = None
) -> list[SceneGraph]:
    """Scene graphs of captions as published; tokenises them first.

    Args:
        captions: (n) texts.
        data: the data folder, whose parse files are read; None for no parse files.
        progress: called with the number of captions parsed since its last call.

    Raises:
        ToolError: a caption has no parse, and SPICE's parser is not installed or failed.
        DataError: a caption is not valid Unicode, or a parse file in the data folder cannot be used.
    """
    tokens = ptb.tokenize(captions)
    return [SceneGraph.from_tuples(of_caption) for of_caption in tuples(tokens, data=data, progress=progress)]


def tuples(
    tokens: Sequence[str], *, data: PathGiven | None = None, progress: Callable[[int], None] | None = None
) -> Iterator[Tuples]:
    """Tuples of tokenised captions as an iterator, so that not all are in memory at once.

    Arguments and errors are those of :func:`ensure`, which is called first.
    """
    ensure(tokens, data=data, progress=progress)
    for caption in tokens:
        yield tuple(tuple(parts) for parts in json.loads(_known[caption]))


def ensure(
    tokens: Sequence[str],
    *,
    data: PathGiven | None = None,
    progress: Callable[[int], None] | None = None,
    spread: Spread | None = None,
) -> None:
    """Parse the tokenised captions that have no parse, and store the parses in the cache.

    Several processes can do this at the same time: each skips what another one has stored meanwhile.

    Args:
        tokens: (n) captions from :func:`capbench.text.ptb.tokenize`.
        data: the data folder, whose parse files are read; None for no parse files.
        progress: called with the number of captions parsed since its last call.
        spread: runs the parser in other processes; this process stores the results.

    Raises:
        ToolError: SPICE's parser is not installed, its program failed, or a caption is too long for its memory.
        DataError: a parse file in the data folder cannot be used.
        UnfinishedError: the parses of other processes failed in part; the rest is stored.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    to_parse = missing(tokens, data=data)
    if not to_parse:
        return
    batches = [to_parse[start : start + _BATCH] for start in range(0, len(to_parse), _BATCH)]
    with Cache(_CACHE) as store:
        for batch, answers in _spread(batches, spread) if spread else _parsed(batches, store):
            store.put(
                SPICE_PARSER_VERSION,
                ((key(caption), answer.encode()) for caption, answer in zip(batch, answers, strict=True)),
            )
            _known.update(zip(batch, answers, strict=True))
            if progress is not None:
                progress(len(batch))


def _parsed(batches: Sequence[list[str]], store: Cache) -> Iterator[tuple[list[str], list[str]]]:
    """Batches with their parses; those that another process has stored meanwhile are not parsed again."""
    from capbench.text.spice.parser import SPICE_PARSER_VERSION, parse_tuples

    for batch in batches:
        stored = store.get(SPICE_PARSER_VERSION, list(map(key, batch)))
        parses = {caption: stored[key(caption)].decode() for caption in batch if key(caption) in stored}
        rest = [caption for caption in batch if caption not in parses]
        parses |= zip(rest, parse_tuples(rest) if rest else [], strict=True)
        yield batch, [parses[caption] for caption in batch]


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


def missing(tokens: Sequence[str], *, data: PathGiven | None = None) -> list[str]:
    """The distinct tokenised captions without a parse in the cache or in a parse file, in their order.

    Args:
        tokens: (n) captions from :func:`capbench.text.ptb.tokenize`.
        data: the data folder, whose parse files are read; None for no parse files.

    Raises:
        DataError: a parse file in the data folder cannot be used.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    # An empty caption has no tuples and requires no Java.
    _known.setdefault("", "[]")
    unknown = {key(caption): caption for caption in dict.fromkeys(tokens) if caption not in _known}
    if unknown:
        with Cache(_CACHE) as store:
            _learn(unknown, store.get(SPICE_PARSER_VERSION, list(unknown)))
    if unknown and data is not None:
        for file in parse_files(data, SPICE_PARSER_VERSION):
            _learn(unknown, file.get(unknown))
    return list(unknown.values())


def any_known(data: PathGiven) -> bool:
    """True if any caption has a parse in the cache or in a parse file of the data folder."""
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    with Cache(_CACHE) as store:
        return bool(parse_files(data, SPICE_PARSER_VERSION)) or any(store.entries(SPICE_PARSER_VERSION))


def _learn(unknown: dict[bytes, str], parses: Mapping[bytes, bytes]) -> None:
    """Move captions with a parse from ``unknown`` to the known ones."""
    for name, value in parses.items():
        _known[unknown.pop(name)] = value.decode()


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


def export_parses(
    path: str | os.PathLike[str],
    sets: Mapping[str, CaptionsOf] | None = None,
    *,
    data: PathGiven | None = None,
    replace: bool = False,
) -> tuple[CaptionSet, ...]:
    """Write parses of the current parser version to a file; nothing is parsed.

    Args:
        path: the file.
        sets: captions by the name of their set; None for all parses in the cache, whose captions are unknown.
        data: the data folder, whose parse files are read, too.
        replace: True to replace an existing file.

    Returns:
        The sets of captions, as recorded in the file.

    Raises:
        UsageError: there are no parses of these captions, the file exists, or it cannot be written.
        DataError: a parse file in the data folder cannot be used.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    parses: dict[bytes, bytes] = {}
    recorded: list[CaptionSet] = []
    if sets is None:
        with Cache(_CACHE) as store:
            parses = dict(store.entries(SPICE_PARSER_VERSION))
        recorded = [CaptionSet("cache", "unknown", redistributable=False, captions=len(parses), parses=len(parses))]
    for name, captions in (sets or {}).items():
        distinct = list(dict.fromkeys(captions.tokens))
        unparsed = set(missing(distinct, data=data))
        new = {key(caption): _known[caption].encode() for caption in distinct if caption and caption not in unparsed}
        parses |= new
        n_distinct = len(distinct) - ("" in distinct)
        recorded.append(CaptionSet(name, captions.licence, captions.redistributable, n_distinct, len(new)))
    if not parses:
        raise UsageError(
            f"there is nothing to export: there are no parses of {SPICE_PARSER_VERSION}",
            code="missing-data",
            value=SPICE_PARSER_VERSION,
            hint="Parse captions first with 'capbench data parses make'",
        )
    write_parses(path, parses, recorded, SPICE_PARSER_VERSION, replace=replace)
    return tuple(recorded)


def import_parses(path: str | os.PathLike[str]) -> tuple[ParseFile, int]:
    """Add the parses of a file to the cache, all or none; existing parses remain.

    Returns:
        The file, and the number of new parses.

    Raises:
        DataError: the file does not exist, is damaged, is not a parse file, or has parses of another parser version.
        UsageError: the cache cannot be written.
    """
    from capbench.text.spice.parser import SPICE_PARSER_VERSION

    file = ParseFile(path, SPICE_PARSER_VERSION)
    parses = dict(file.entries())
    with Cache(_CACHE) as store:
        before = store.get(SPICE_PARSER_VERSION, list(parses))
        new = [(key, value) for key, value in parses.items() if key not in before]
        store.put(SPICE_PARSER_VERSION, new)
        if store.path is None:
            raise UsageError(
                "the cache cannot be written; nothing was imported", code="unwritable", hint="Set CAPBENCH_CACHE"
            )
    return file, len(new)
