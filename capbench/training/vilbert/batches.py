"""From captions and regions to batches: what is masked, and which captions go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.text.word_pieces import MASK, PAD, WordPieces
from capbench.training.captions import Pairs
from capbench.training.vilbert.config import MaskingOptions
from capbench.training.vilbert.data import ImageData

__all__ = ["IGNORED", "Batch", "Specials", "batches", "mask_words", "padded"]

IGNORED = -100
"""In place of a word piece that is not masked, among those that are to be told."""
_MASKED, _REPLACED = 0.8, 0.1  # of the chosen word pieces; the rest stays (Devlin et al. 2019, section 3.1)
_ZEROED = 0.9  # of the chosen regions (Lu et al. 2019, section 2.3)


@dataclass(frozen=True)
class Specials:
    """Numbers of the tokens that are no words."""

    pad: int
    mask: int
    ordinary: NDArray[np.int64]

    @classmethod
    def of(cls, pieces: WordPieces) -> Specials:
        """Those of some word pieces; ``ordinary`` are all pieces but special tokens."""
        special = [piece.startswith("[") and piece.endswith("]") and len(piece) > 2 for piece in pieces.pieces]
        return cls(pieces.places[PAD], pieces.places[MASK], np.flatnonzero(~np.array(special)))


@dataclass(frozen=True)
class Batch:
    """What one step sees, of b images: two captions of each.

    Attributes:
        features: (b, n, d) float32, the mean of the regions first; zeros where a region is masked.
        places: (b, n, 5) float32.
        hidden: (b, n) bool, which regions are to be told.
        targets: (b, n, k) float32 what is to be told of a region.
        ids: (2b, m) int64 word pieces: the images' captions, masked, then another caption of each.
        present: (2b, m) bool, what of them is no padding.
        words: (b, m) int64 the pieces that are masked, elsewhere :data:`IGNORED`.
        image_of: (b,) int64 place of the images among those of the split.
    """

    features: torch.Tensor
    places: torch.Tensor
    hidden: torch.Tensor
    targets: torch.Tensor
    ids: torch.Tensor
    present: torch.Tensor
    words: torch.Tensor
    image_of: torch.Tensor


def batches(
    orders: Iterable[NDArray[np.int64]],
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    images: ImageData,
    specials: Specials,
    masking: MaskingOptions,
    *,
    seed: int,
    first_step: int,
) -> Iterator[Batch]:
    """Batches in order; what is drawn follows from the seed and the step, so that nothing hangs on what came before.

    Args:
        orders: captions of each batch.
        pairs: what they are captions of.
        captions: word pieces of all captions, ``[CLS]`` first.
        images: of the same split.
        specials: of the word pieces.
        masking: how much is masked.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
    """
    counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
    firsts = np.cumsum(counts) - counts
    for step, chosen in enumerate(orders, first_step):
        rng = np.random.default_rng((seed, 2, step))
        image_of = pairs.image_of[chosen]
        # Another caption of the image: one of the captions behind it, around the end of the image's own.
        others = np.maximum(counts[image_of] - 1, 1)
        ahead = (counts[image_of] > 1) * (1 + rng.integers(others))
        second = firsts[image_of] + (chosen - firsts[image_of] + ahead) % counts[image_of]
        ids, present = padded([captions[i] for i in [*chosen.tolist(), *second.tolist()]], specials.pad)
        first_ids, words = mask_words(ids[: len(chosen)], present[: len(chosen)], masking.words, specials, rng)
        ids[: len(chosen)] = first_ids
        features, places, targets = images.take(image_of)
        hidden = rng.random(features.shape[:2]) < masking.regions
        hidden[:, 0] = False  # the mean of all regions
        zeroed = torch.from_numpy(hidden & (rng.random(hidden.shape) < _ZEROED))
        yield Batch(
            features.masked_fill(zeroed[..., None], 0.0),
            places,
            torch.from_numpy(hidden),
            targets,
            torch.from_numpy(ids),
            torch.from_numpy(present),
            torch.from_numpy(words),
            torch.from_numpy(image_of),
        )


def padded(captions: Sequence[Sequence[int]], pad: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Captions as (b, longest) numbers, padded at the end, and which of them are no padding."""
    lengths = np.array([len(caption) for caption in captions])
    ids = np.full((len(captions), int(lengths.max())), pad, dtype=np.int64)
    for row, caption in enumerate(captions):
        ids[row, : len(caption)] = caption
    return ids, np.arange(ids.shape[1])[None, :] < lengths[:, None]


def mask_words(
    ids: NDArray[np.int64], present: NDArray[np.bool_], rate: float, specials: Specials, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mask word pieces as BERT does.

    Args:
        ids: (b, m).
        present: (b, m) what is no padding.
        rate: how many are chosen; of them 80 % become ``[MASK]`` and 10 % any other piece.
        specials: what is never chosen, and what pieces are drawn from.
        rng: draws.

    Returns:
        The masked ids, and what the chosen ones were, :data:`IGNORED` elsewhere.
    """
    chosen = present & np.isin(ids, specials.ordinary) & (rng.random(ids.shape) < rate)
    words = np.where(chosen, ids, IGNORED)
    way = rng.random(ids.shape)
    masked = np.where(chosen & (way < _MASKED), specials.mask, ids)
    replaced = chosen & (way >= _MASKED) & (way < _MASKED + _REPLACED)
    return np.where(replaced, rng.choice(specials.ordinary, ids.shape), masked), words
