"""From pairs and region features to SCAN's batches of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.training.captions import Pairs
from capbench.training.regions import Regions
from capbench.training.words import drop_words, pad

__all__ = ["Batch", "batches"]


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        images: (b, n, d) float32 region features.
        ids: (b, m) int64 word numbers.
        lengths: (b,) int64, on the CPU.
    """

    images: torch.Tensor
    ids: torch.Tensor
    lengths: torch.Tensor


def batches(
    orders: Iterable[NDArray[np.int64]],
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    regions: Regions,
    *,
    word_dropout: float,
    seed: int,
    first_step: int,
    pin: bool,
) -> Iterator[Batch]:
    """Batches in order. Words are dropped by a generator of seed and step, so that nothing hangs on what came before.

    Args:
        orders: captions of each batch.
        pairs: what they are captions of.
        captions: word numbers of all captions, with ``<start>`` and ``<end>``, which are never dropped.
        regions: features of the images.
        word_dropout: probability that a word becomes ``<unk>``.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
        pin: put features in page-locked memory, from which a GPU copies while it computes.
    """
    for step, chosen in enumerate(orders, first_step):
        ids, lengths = pad([captions[i] for i in chosen.tolist()])
        ids = drop_words(ids, lengths, word_dropout, np.random.default_rng((seed, 2, step)))
        images = regions.take(pairs.image_of[chosen])
        yield Batch(images.pin_memory(), ids.pin_memory(), lengths) if pin else Batch(images, ids, lengths)
