"""What FAIEr reads: captions as numbers of words and triplets, boxes, and the nodes that become of them.

A caption has two levels. Its *objects* are all its words, its *relations* the triplets of its scene graph: ⟨subject,
relation, object⟩ as SPICE's parser gives them, in base forms, each read as its words in this order ("kid stand in
grass"). An object that stands alone and an object with an attribute are no triplets: they are in the words already.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.errors import FeatureError
from capbench.models.faier.options import FaierOptions
from capbench.text.scene_graph import Triplet
from capbench.text.vocabulary import PAD, UNKNOWN, Vocabulary, tokenize_caption

__all__ = [
    "NO_REFERENCE",
    "CaptionBatch",
    "CaptionCode",
    "Graph",
    "Nodes",
    "caption_code",
    "collate",
    "region_boxes",
    "triplet_text",
]

NO_REFERENCE = "."
"""The reference of an image that has none (section 3.1). It has no triplets."""


@dataclass(frozen=True)
class CaptionCode:
    """A caption as the network reads it.

    Attributes:
        words: numbers of its words; ``<start>`` and ``<end>`` among them unless ``ends`` is ``none``.
        triplets: numbers of the words of each triplet, none of them empty.
    """

    words: tuple[int, ...]
    triplets: tuple[tuple[int, ...], ...] = ()


def triplet_text(triplet: Triplet) -> str:
    """⟨subject, relation, object⟩ as one text, which is tokenised like a caption."""
    return " ".join(triplet)


def caption_code(text: str, triplets: Sequence[Triplet], vocabulary: Vocabulary, options: FaierOptions) -> CaptionCode:
    """Numbers of a caption's words and triplets; triplets are left out where there is no relation level."""
    words = tuple(vocabulary.encode(text))
    if options.ends == "none":
        words = words[1:-1]
    if not options.relations:
        return CaptionCode(words)
    coded = (tuple(map(vocabulary.number, _words(triplet))) for triplet in triplets)
    return CaptionCode(words, tuple(numbers or (UNKNOWN,) for numbers in coded))


@functools.lru_cache(1 << 16)  # captions share triplets
def _words(triplet: Triplet) -> tuple[str, ...]:
    return tuple(tokenize_caption(triplet_text(triplet)))


@dataclass(frozen=True)
class CaptionBatch:
    """Captions as tensors.

    Attributes:
        ids: (C, m) int64 word numbers, padded.
        lengths: (C,) int64, on the CPU; 0 for a caption without words.
        triplet_ids: (T, w) int64 word numbers of the distinct triplets, padded.
        triplet_lengths: (T,) int64, on the CPU, each 1 or more.
        triplets_of: (C, K) int64 places of each caption's triplets among these, -1 where it has no more.
    """

    ids: Tensor
    lengths: Tensor
    triplet_ids: Tensor
    triplet_lengths: Tensor
    triplets_of: Tensor

    def to(self, device: str | torch.device, non_blocking: bool = False) -> CaptionBatch:
        """With what is looked up on a device; lengths stay."""
        ids, triplet_ids, triplets_of = (
            tensor.to(device, non_blocking=non_blocking) for tensor in (self.ids, self.triplet_ids, self.triplets_of)
        )
        return CaptionBatch(ids, self.lengths, triplet_ids, self.triplet_lengths, triplets_of)


def collate(captions: Sequence[CaptionCode]) -> CaptionBatch:
    """Captions as tensors; each distinct triplet of the batch stands there once."""
    distinct = {triplet: None for caption in captions for triplet in caption.triplets}
    place = {triplet: number for number, triplet in enumerate(distinct)}
    of_captions = [[place[triplet] for triplet in caption.triplets] for caption in captions]
    ids, lengths = _pad([caption.words for caption in captions], PAD)
    triplet_ids, triplet_lengths = _pad(list(distinct), PAD)
    return CaptionBatch(ids, lengths, triplet_ids, triplet_lengths, _pad(of_captions, -1)[0])


def _pad(rows: Sequence[Sequence[int]], filling: int) -> tuple[Tensor, Tensor]:
    lengths = [len(row) for row in rows]
    padded = np.full((len(rows), max([1, *lengths])), filling, dtype=np.int64)
    for out, row in zip(padded, rows, strict=True):
        out[: len(row)] = row
    return torch.from_numpy(padded), torch.tensor(lengths, dtype=torch.int64)


def region_boxes(
    boxes: NDArray[np.float32] | None, width: int, height: int, options: FaierOptions
) -> NDArray[np.float32]:
    """Boxes of an image's regions in the unit that the network reads.

    Args:
        boxes: (R, 4) x1, y1, x2, y2 in pixels.
        width: of the image, in pixels.
        height: likewise.
        options: which unit it is.

    Raises:
        FeatureError: there are no boxes, which the relation level is made of.
    """
    if boxes is None:
        raise FeatureError(
            "there are no boxes, and FAIEr's relation level is made of them",
            hint="Give a store with boxes, or a model of the object level alone (variant faier-object)",
        )
    if options.boxes == "pixels":
        return np.asarray(boxes, dtype=np.float32)
    sides = np.array([width, height, width, height], dtype=np.float32)
    return np.asarray(boxes / sides, dtype=np.float32)


@dataclass(frozen=True)
class Nodes:
    """Nodes of one level.

    Attributes:
        vectors: (..., K, d).
        mask: (..., K) bool: which of them are there.
    """

    vectors: Tensor
    mask: Tensor

    def __getitem__(self, index: Any) -> Nodes:
        """Chosen along the first axes."""
        return Nodes(self.vectors[index], self.mask[index])


@dataclass(frozen=True)
class Graph:
    """Both levels of images or captions.

    Attributes:
        objects: regions of images, words of captions.
        relations: the same regions after the graph convolution, triplets of captions; None without a relation level.
    """

    objects: Nodes
    relations: Nodes | None

    def __getitem__(self, index: Any) -> Graph:
        """Chosen along the first axes: (B, J) places among C captions give references (B, J, K, d)."""
        return Graph(self.objects[index], None if self.relations is None else self.relations[index])

    @property
    def levels(self) -> tuple[Nodes, ...]:
        """Objects, and relations if there are any."""
        return (self.objects,) if self.relations is None else (self.objects, self.relations)
