"""Captions as padded word numbers, with some words dropped at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from capbench.text.vocabulary import PAD, UNKNOWN

__all__ = ["drop_words", "pad"]


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
