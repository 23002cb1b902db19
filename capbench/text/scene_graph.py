"""Scene graphs of captions: objects, their attributes, and relations between them.

The parser is SPICE's (rules over Stanford CoreNLP 3.6.0's dependencies, after Schuster et al. 2015). It is Java and
slow, so a distinct caption is parsed once in its life: its tuples go to a cache that every study shares, and
captions found there need no Java. What was parsed before an interruption is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from capbench.cache import Cache
from capbench.errors import UnfinishedError
from capbench.spreading import PartFailure, Spread
from capbench.text import ptb

__all__ = ["SceneGraph", "Triplet", "Tuples", "ensure", "forget", "key", "missing", "parse", "per_second", "tuples"]

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
    from capbench.java.spice.parser import SPICE_PARSER_VERSION, parse_tuples

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
    from capbench.java.spice.parser import parse_tuples

    return parse_tuples


def missing(tokens: Sequence[str], *, cache: bool = True) -> list[str]:
    """The tokenised captions that never were parsed, each once, in their order.

    Args:
        tokens: (n) captions as :func:`capbench.text.ptb.tokenize` gives them.
        cache: whether to look into the cache on disk.
    """
    from capbench.java.spice.parser import SPICE_PARSER_VERSION

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
    from capbench.java.spice.parser import n_threads

    return _PER_SECOND_AND_CORE * n_threads()


def forget() -> None:
    """Drop what this process remembers; the cache on disk stays."""
    _known.clear()


def key(caption: str) -> bytes:
    """The key of a tokenised caption in the cache: 16 bytes, its BLAKE2b hash."""
    return hashlib.blake2b(caption.encode(), digest_size=16).digest()
