"""METEOR 1.5's English data from the installed jar, with its paraphrase table as a trie in memory-mapped arrays.

The jar reads 5.3 million pairs of phrases at every start, into 1 GB. Here they are read once, into a table in the cache
folder; later starts check the table's bytes and map them, so that only the accessed parts are in memory.

A phrase is a path of words in a trie. A state of the trie (0 is the root) is the number of an edge plus one; edges are
sorted by ``state << 20 | word``, so a step is a binary search. States are numbered level by level.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import derived_table
from capbench.core.errors import ToolError
from capbench.text.java import meteor_jar
from capbench.text.wordnet import meteor_lines

_VERSION: Final = 2
_WORD_BITS: Final = 20
_BLOCK: Final = 1 << 23  # characters; words are numbered block by block, so another size is another version
_BETWEEN: Final = "\0"  # separator; not a word of the file


@dataclass(frozen=True, eq=False)
class ParaphraseTable:
    """Phrases and their paraphrases."""

    words: dict[str, int]  # word → its number
    edges: NDArray[np.int64]  # (s,) int64, sorted: ``state << 20 | word`` of every edge
    # (d + 1,) index of each level's first edge, and the end; d is the length of the longest phrase
    levels: NDArray[np.int64]
    offsets: NDArray[np.int32]  # (s + 2,) index in ``targets`` of each state's first paraphrase
    targets: NDArray[np.int32]  # states of paraphrases, for each phrase in the order of the table

    @property
    def longest(self) -> int:
        """Number of words of the longest phrase."""
        return len(self.levels) - 1

    def step(self, states: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
        """States after one more word each; 0 if there is none (word -1 is not in the table)."""
        keys = (states << _WORD_BITS) | words
        places = np.searchsorted(self.edges, keys)
        exists = (words >= 0) & (places < len(self.edges))
        exists[exists] = self.edges[places[exists]] == keys[exists]
        return np.where(exists, places + 1, 0)

    def paraphrases(self, states: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """All paraphrases of the states: index into ``states``, state of the paraphrase, its rank in the order."""
        starts = self.offsets[states].astype(np.int64)
        counts = self.offsets[states + 1].astype(np.int64) - starts
        index = np.repeat(np.arange(len(states)), counts)
        order = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        return index, self.targets[starts[index] + order], order


@cache
def paraphrase_table() -> ParaphraseTable:
    """METEOR's English paraphrase table; the first call takes some 20 s, in later processes a tenth of a second."""
    source = meteor_jar().parent / "data" / "paraphrase-en.gz"
    state = source.stat()
    name = f"paraphrase-{state.st_size}-{state.st_mtime_ns}"
    return _as_table(derived_table("meteor", name, _VERSION, lambda: _build(source)))


def _as_table(arrays: Mapping[str, NDArray[Any]]) -> ParaphraseTable:
    words = arrays["words"].tobytes().decode().split("\n")
    return ParaphraseTable(
        {word: number for number, word in enumerate(words)},
        *(arrays[name] for name in ("edges", "levels", "offsets", "targets")),
    )


@dataclass(frozen=True, eq=False)
class _Block:
    """One block of the file's pairs."""

    words: NDArray[np.int32]  # (w,) int32 word numbers of all m distinct phrases, in sequence
    lengths: NDArray[np.uint8]  # (m,) uint8 words in each phrase
    states: NDArray[np.int32]  # (m,) int32 the phrases' states
    pairs: NDArray[np.int32]  # (2, n) int32 indices of each pair's phrase and paraphrase among the distinct ones

    def edges_of(self, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Phrases that have a word at a level, and their edges at that level."""
        longer = np.flatnonzero(self.lengths > level)
        starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        states = self.states[longer].astype(np.int64)
        return longer, (states << _WORD_BITS) | self.words[starts[longer] + level]


def _build(source: Path) -> dict[str, NDArray[Any]]:
    logging.getLogger(__name__).info("preparing METEOR's paraphrase table (once, some 20 seconds)")
    # The separator has the number 0, so every word's number is one too high.
    numbers: defaultdict[str, int] = defaultdict(count(1).__next__, {_BETWEEN: 0})
    try:
        with gzip.open(source, "rt", encoding="utf-8", newline="\n") as stream:
            blocks = [_block(lines, numbers) for lines in _blocks(stream)]
        if not blocks or len(numbers) - 1 > 1 << _WORD_BITS:
            raise ValueError("no pairs, or more words than a number can have")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        message = "is damaged: its lines are not probability, phrase and paraphrase in turn"
        hint = "Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'"
        raise ToolError(message, code="damaged", path=source, hint=hint) from error
    edges, levels = _grow_trie(blocks)
    replaced, targets = (np.concatenate([block.states[block.pairs[i]] for block in blocks]) for i in (0, 1))
    del blocks
    offsets = np.zeros(len(edges) + 2, np.int32)
    np.cumsum(np.bincount(replaced, minlength=len(edges) + 1), out=offsets[1:])
    return {
        "words": np.frombuffer("\n".join(list(numbers)[1:]).encode(), np.uint8),
        "edges": edges,
        "levels": levels,
        "offsets": offsets,
        "targets": targets[np.argsort(replaced, kind="stable")],
    }


def _blocks(stream: IO[str]) -> Iterator[list[str]]:
    """Lines of a stream in groups of three, in blocks of some 8 MB."""
    rest = ""
    while block := stream.read(_BLOCK):
        lines = (rest + block).split("\n")
        end = (len(lines) - 1) // 3 * 3
        rest = "\n".join(lines[end:])
        if end:
            yield lines[:end]
    if rest:
        yield rest.split("\n")


def _block(lines: list[str], numbers: defaultdict[str, int]) -> _Block:
    """A block as word numbers; new words get the next numbers."""
    if len(lines) % 3:
        raise ValueError("the last pair is incomplete")
    rows: defaultdict[str, int] = defaultdict(count().__next__)
    pairs = np.array([np.fromiter(map(rows.__getitem__, lines[i::3]), np.int32) for i in (1, 2)])
    # Splitting one joined text takes a third of the time of splitting every phrase.
    words = f" {_BETWEEN} ".join([*rows, ""]).split()
    flat = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
    is_word = flat > 0
    lengths = np.diff(np.flatnonzero(~is_word), prepend=-1) - 1
    if len(lengths) != len(rows) or lengths.min() < 1 or lengths.max() > np.iinfo(np.uint8).max:
        raise ValueError("a phrase is empty, or too long")
    return _Block(flat[is_word] - 1, lengths.astype(np.uint8), np.zeros(len(rows), np.int32), pairs)


def _grow_trie(blocks: list[_Block]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges and the index of each level's first edge; sets the blocks' states to those of their complete phrases."""
    edges: list[NDArray[np.int64]] = []
    levels = [0]
    for level in range(max(int(block.lengths.max()) for block in blocks)):
        # Block by block, because all phrases at once would take four times the memory.
        distinct = np.unique(np.concatenate([np.unique(block.edges_of(level)[1]) for block in blocks]))
        for block in blocks:
            longer, keys = block.edges_of(level)
            block.states[longer] = levels[-1] + np.searchsorted(distinct, keys) + 1
        edges.append(distinct)
        levels.append(levels[-1] + len(distinct))
    return np.concatenate(edges), np.array(levels)


@cache
def function_words() -> frozenset[str]:
    """The function words."""
    return frozenset(meteor_lines("function/english.words"))


@cache
def nonbreaking_prefixes() -> dict[str, int]:
    """Abbreviation without its full stop → 1, or 2 if it is an abbreviation before numbers only."""
    prefixes = {}
    for line in meteor_lines("nonbreaking/english.prefixes"):
        parts = line.split()
        if parts and not parts[0].startswith("#"):
            prefixes[parts[0]] = 2 if parts[1:2] == ["#NUMERIC_ONLY#"] else 1
    return prefixes
