"""METEOR 1.5's paraphrase table as a trie in arrays that are mapped into memory.

The jar reads 5.3 million pairs of phrases at every start, into 1 GB. Here they are read once, into arrays in the
cache folder; later starts map these, and only the parts that captions touch are loaded.

A phrase is a path of words in a trie. A state of the trie (0 is the root) is the number of an edge plus one; edges are
sorted by ``state << 20 | word``, so a step is a binary search. States are numbered level by level.
"""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import ToolError
from capbench.java import meteor_jar

__all__ = ["ParaphraseTable", "paraphrase_table"]

_VERSION: Final = 1
_WORD_BITS: Final = 20
_BLOCK: Final = 1 << 23
_ARRAYS: Final = ("edges", "levels", "offsets", "targets")


@dataclass(frozen=True, eq=False)
class ParaphraseTable:
    """Phrases and what they may be replaced with.

    Attributes:
        words: word → its number.
        edges: (s,) int64, sorted: ``state << 20 | word`` of every edge.
        levels: (d + 1,) where each level's edges begin, and their end; d is the length of the longest phrase.
        offsets: (s + 2,) where each state's paraphrases begin in ``targets``.
        targets: states of paraphrases, for each phrase in the order of the table.
    """

    words: dict[str, int]
    edges: NDArray[np.int64]
    levels: NDArray[np.int64]
    offsets: NDArray[np.int32]
    targets: NDArray[np.int32]

    @property
    def longest(self) -> int:
        """Words in the longest phrase."""
        return len(self.levels) - 1

    def step(self, states: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The states after one more word each; 0 where there is none (word -1 is no word of the table)."""
        keys = (states << _WORD_BITS) | words
        places = np.searchsorted(self.edges, keys)
        is_edge = (words >= 0) & (places < len(self.edges))
        is_edge[is_edge] = self.edges[places[is_edge]] == keys[is_edge]
        return np.where(is_edge, places + 1, 0)

    def paraphrases(self, states: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """All paraphrases of some states: index into ``states``, the paraphrase's state, its place in the order."""
        starts = self.offsets[states].astype(np.int64)
        counts = self.offsets[states + 1].astype(np.int64) - starts
        index = np.repeat(np.arange(len(states)), counts)
        order = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        return index, self.targets[starts[index] + order], order


@cache
def paraphrase_table() -> ParaphraseTable:
    """METEOR's English table; the first call ever takes some 20 s, later ones a few milliseconds.

    Raises:
        ToolError: pycocoevalcap's file is missing or damaged.
        UsageError: the cache folder cannot be written.
    """
    source = meteor_jar().path.parent / "data" / "paraphrase-en.gz"
    state = source.stat()
    folder = files.cache_dir("meteor") / f"paraphrase-{_VERSION}-{state.st_size}-{state.st_mtime_ns}"
    with files.lock(folder):
        if not (folder / "words.json").exists():
            logging.getLogger(__name__).info("preparing METEOR's paraphrase table: once, some 20 seconds")
            _write(_build(source), folder)
        return _load(folder)


def _load(folder: Path) -> ParaphraseTable:
    words = {word: i for i, word in enumerate(files.read_json(folder / "words.json"))}
    edges, levels, offsets, targets = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS)
    return ParaphraseTable(words, edges, levels, offsets, targets)


def _write(table: ParaphraseTable, folder: Path) -> None:
    for name in _ARRAYS:
        with files.atomic_write(folder / f"{name}.npy", "wb") as stream:
            np.save(stream, getattr(table, name), allow_pickle=False)
    # Written last: where it is, the arrays are.
    files.write_text(folder / "words.json", json.dumps(list(table.words), ensure_ascii=True))


def _build(source: Path) -> ParaphraseTable:
    phrases: defaultdict[str, int] = defaultdict()
    phrases.default_factory = phrases.__len__
    pairs: list[NDArray[np.int32]] = []
    damaged = ToolError(
        "is damaged: it does not hold probability, phrase and paraphrase in turn",
        path=source,
        hint="Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'",
    )
    try:
        with gzip.open(source, "rt", encoding="utf-8", newline="\n") as stream:
            for lines in _blocks(stream):
                if len(lines) % 3:
                    raise damaged
                both = (np.fromiter(map(phrases.__getitem__, lines[i::3]), np.int32) for i in (1, 2))
                pairs.append(np.stack(list(both)))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise damaged from error
    if not pairs:
        raise damaged
    phrase, paraphrase = np.concatenate(pairs, axis=1)
    words: defaultdict[str, int] = defaultdict()
    words.default_factory = words.__len__
    lengths = np.fromiter((len(phrase.split()) for phrase in phrases), np.int64, len(phrases))
    if lengths.min() == 0:
        raise damaged
    every_word = chain.from_iterable(map(str.split, phrases))
    flat = np.fromiter(map(words.__getitem__, every_word), np.int64, int(lengths.sum()))
    del phrases
    edges, levels, states = _trie(flat, lengths)
    first, second = states[phrase], states[paraphrase]
    order = np.argsort(first, kind="stable")
    counts = np.bincount(first, minlength=len(edges) + 1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    words.default_factory = None
    return ParaphraseTable(dict(words), edges, levels, offsets, second[order].astype(np.int32))


def _blocks(stream: IO[str]) -> Any:
    """The lines of a stream, three and three together, in blocks of some 8 MB."""
    rest = ""
    while block := stream.read(_BLOCK):
        lines = (rest + block).split("\n")
        whole = (len(lines) - 1) // 3 * 3
        rest = "\n".join(lines[whole:])
        yield lines[:whole]
    if rest:
        yield rest.split("\n")


def _trie(
    flat: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Edges, where each level's begin, and the state of every phrase."""
    starts = np.cumsum(lengths) - lengths
    states = np.zeros(len(lengths), dtype=np.int64)
    edges: list[NDArray[np.int64]] = []
    levels = [0]
    for level in range(int(lengths.max())):
        alive = np.flatnonzero(lengths > level)
        keys = (states[alive] << _WORD_BITS) | flat[starts[alive] + level]
        distinct, inverse = np.unique(keys, return_inverse=True)
        states[alive] = levels[-1] + inverse + 1
        edges.append(distinct)
        levels.append(levels[-1] + len(distinct))
    return np.concatenate(edges), np.array(levels), states
