"""From captions, their images and the settings to FAIEr's batches of tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.models.faier.graphs import NO_REFERENCE, CaptionBatch, CaptionCode, caption_code, collate
from capbench.models.faier.options import FaierOptions
from capbench.text.vocabulary import UNKNOWN, Vocabulary
from capbench.training.captions import Pairs
from capbench.training.faier.config import ReferenceOptions
from capbench.training.regions import Regions

__all__ = ["Batch", "ReferenceDraw", "References", "batches", "collate_references", "no_reference"]

_REFERENCE_STREAM = 4  # of random numbers: tasks draw from (seed, 1, ...), (seed, 2, ...), the loop from (seed, 3, ...)


@dataclass(frozen=True)
class References:
    """References of B images.

    Attributes:
        captions: the distinct ones.
        places: (B, J) int64 places of each image's references among them; any where it has no more.
        counts: (B,) int64, on the CPU, each 1 or more.
    """

    captions: CaptionBatch
    places: torch.Tensor
    counts: torch.Tensor


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        images: (b, n, d) float32 region features.
        boxes: (b, n, 4) float32, or None.
        candidates: one caption of each image.
        references: other captions of each image, or None where the network reads none.
    """

    images: torch.Tensor
    boxes: torch.Tensor | None
    candidates: CaptionBatch
    references: References | None


def no_reference(vocabulary: Vocabulary, options: FaierOptions) -> CaptionCode:
    """The reference of an image that has none."""
    return caption_code(NO_REFERENCE, (), vocabulary, options)


def collate_references(references: Sequence[Sequence[CaptionCode]], empty: CaptionCode) -> References:
    """References of images as tensors; an image without any gets ``empty``."""
    rows = [list(codes) or [empty] for codes in references]
    distinct = {code: None for codes in rows for code in codes}
    place = {code: number for number, code in enumerate(distinct)}
    counts = [len(codes) for codes in rows]
    places = np.zeros((len(rows), max(counts)), dtype=np.int64)
    for row, codes in enumerate(rows):
        places[row, : len(codes)] = [place[code] for code in codes]
    return References(collate(list(distinct)), torch.from_numpy(places), torch.tensor(counts))


class ReferenceDraw:
    """Draws the references of training samples.

    Args:
        pairs: what is trained on.
        captions: as the network reads them.
        options: how many.
    """

    def __init__(self, pairs: Pairs, captions: Sequence[CaptionCode], options: ReferenceOptions) -> None:
        self._image_of, self._captions, self._options = pairs.image_of, captions, options
        order = np.argsort(pairs.image_of, kind="stable")
        ends = np.searchsorted(pairs.image_of[order], np.arange(len(pairs.images)), side="right")
        self._of_image = np.split(order, ends[:-1])

    def of(self, caption: int, rng: np.random.Generator) -> list[int]:
        """References of a candidate: captions of its image in random order, none of which reads like the candidate."""
        most = self._options.most
        wanted = int(rng.integers(0, most + 1)) if self._options.draw == "random" else most
        words = self._captions[caption].words
        others = [
            other
            for other in self._of_image[int(self._image_of[caption])].tolist()
            if other != caption and self._captions[other].words != words
        ]
        return [others[place] for place in rng.permutation(len(others))[:wanted].tolist()]


def batches(
    orders: Iterable[NDArray[np.int64]],
    pairs: Pairs,
    captions: Sequence[CaptionCode],
    regions: Regions,
    draw: ReferenceDraw | None,
    empty: CaptionCode,
    *,
    word_dropout: float,
    seed: int,
    first_step: int,
) -> Iterator[Batch]:
    """Batches in order. What is drawn follows from seed and step, so that nothing hangs on what came before.

    Args:
        orders: candidates of each batch.
        pairs: what they are captions of.
        captions: all captions, as the network reads them.
        regions: features and boxes of the images.
        draw: draws references; None: there are none.
        empty: the reference of an image without one.
        word_dropout: probability that a word of candidates or references becomes ``<unk>``; not ``<start>`` and
            ``<end>``, nor words of triplets.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
    """
    for step, chosen in enumerate(orders, first_step):
        candidates = collate([captions[i] for i in chosen.tolist()])
        references = None
        if draw is not None:
            rng = np.random.default_rng((seed, _REFERENCE_STREAM, step))
            drawn = [[captions[j] for j in draw.of(i, rng)] for i in chosen.tolist()]
            references = collate_references(drawn, empty)
        if word_dropout:
            rng = np.random.default_rng((seed, 2, step))
            candidates = _drop(candidates, word_dropout, rng)
            if references is not None:
                references = dataclasses.replace(references, captions=_drop(references.captions, word_dropout, rng))
        images, boxes = regions.take_placed(pairs.image_of[chosen])
        yield Batch(images, boxes, candidates, references)


def _drop(captions: CaptionBatch, rate: float, rng: np.random.Generator) -> CaptionBatch:
    """Words, whose numbers lie above those of the special ones, become ``<unk>``."""
    drop = torch.from_numpy(rng.random(tuple(captions.ids.shape)) < rate)
    ids = torch.where(drop & (captions.ids > UNKNOWN), UNKNOWN, captions.ids)
    return dataclasses.replace(captions, ids=ids)
