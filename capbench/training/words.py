"""Captions as padded word numbers, with some words dropped at random, and vectors that words begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from capbench.errors import DataError, UsageError
from capbench.text.embeddings.word_vectors import WordVectors
from capbench.text.vocabulary import PAD, SPECIAL, UNKNOWN, Vocabulary

__all__ = ["WordStart", "drop_words", "pad", "read_word_start"]


def pad(captions: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Word numbers of captions as (b, longest) int64, padded at the end, with their (b,) lengths."""
    lengths = [len(one) for one in captions]
    ids = np.full((len(captions), max(lengths)), PAD, dtype=np.int64)
    for row, one in enumerate(captions):
        ids[row, : len(one)] = one
    return torch.from_numpy(ids), torch.tensor(lengths)


def drop_words(ids: torch.Tensor, lengths: torch.Tensor, rate: float, rng: np.random.Generator) -> torch.Tensor:
    """Each word becomes ``<unk>`` with a probability; not ``<start>``, ``<end>`` and padding.

    Args:
        ids: (b, m) word numbers, padded at the end.
        lengths: (b,) with ``<start>`` and ``<end>``.
        rate: the probability; with 0 nothing is drawn.
        rng: draws (b, m) uniform numbers.
    """
    if not rate:
        return ids
    place = torch.arange(ids.shape[1])[None, :]
    inner = (place > 0) & (place < lengths[:, None] - 1)
    drop = torch.from_numpy(rng.random(tuple(ids.shape)) < rate)
    return torch.where(inner & drop, UNKNOWN, ids)


@dataclass(frozen=True, eq=False)
class WordStart:
    """Word vectors that a network begins with, for the words that have one.

    Attributes:
        path: the file.
        sha256: of it.
        numbers: (k,) int64 numbers of these words.
        vectors: (k, d) float32, as in the file.
    """

    path: Path
    sha256: str
    numbers: NDArray[np.int64] = field(repr=False)
    vectors: NDArray[np.float32] = field(repr=False)

    @torch.no_grad()
    def begin(self, embedding: nn.Embedding) -> None:
        """Put them in the place of first weights: centred, and as long on average as those were.

        So the layers behind see numbers of the size that they were initialised for, whatever the file's.

        Raises:
            UsageError: the network's word vectors are of another size.
        """
        if self.vectors.shape[1] != embedding.embedding_dim:
            raise UsageError(
                f"its vectors have {self.vectors.shape[1]} components, the network's {embedding.embedding_dim}",
                path=self.path,
                hint=f"Set 'network.word_dim: {self.vectors.shape[1]}'",
            )
        rows = torch.from_numpy(self.numbers).to(embedding.weight.device)
        drawn = embedding.weight[rows]
        centred = self.vectors - self.vectors.mean(axis=0)
        size = float(np.sqrt(np.square(centred).mean()))
        length = float(drawn.square().mean().sqrt())
        given = torch.from_numpy(centred * np.float32(length / max(size, 1e-12)))
        embedding.weight[rows] = given.to(embedding.weight)


def read_word_start(path: Path, vocabulary: Vocabulary) -> WordStart:
    """The vectors of a file for the words of a vocabulary; ``<start>`` and the like have none.

    Args:
        path: as :class:`capbench.text.embeddings.word_vectors.WordVectors` reads it.
        vocabulary: the network's words.

    Raises:
        MissingFileError, DataError: there is no such file, it is damaged, or it has none of the words.
    """
    opened = WordVectors(path)
    numbers = {word: number for number, word in enumerate(vocabulary.words) if number >= len(SPECIAL)}
    vectors = opened.vectors(numbers)
    if not vectors:
        raise DataError("has no word of the captions", path=path, hint="Give vectors of the captions' language")
    places = np.array([numbers[word] for word in vectors], dtype=np.int64)
    return WordStart(path, opened.sha256, places, np.stack(list(vectors.values())).astype(np.float32))
