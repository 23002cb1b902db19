"""What FAIEr reads: captions as numbers of words and triplets, boxes, and the nodes that become of them.

A caption has two levels. Its *objects* are all its words, its *relations* the triplets of its scene graph: ⟨subject,
relation, object⟩ as SPICE's parser gives them, in base forms, each read as its words in this order ("kid stand in
grass"). An object that stands alone and an object with an attribute are no triplets: they are in the words already.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core.errors import FeatureError, UsageError
from capbench.core.options import Choice, Count, Flag, Options, Positive, option
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import PAD, UNKNOWN, Vocabulary, tokenize_caption

__all__ = [
    "NO_REFERENCE",
    "VARIANTS",
    "CaptionBatch",
    "CaptionCode",
    "FaierOptions",
    "Graph",
    "Nodes",
    "caption_code",
    "collate",
    "region_boxes",
    "triplet_text",
]


# What a FAIEr network is: its shape, its variant, and everything that the paper leaves open.

VARIANTS = (
    "faier",
    "faier-object",
    "fier",
    "fier-object",
    "aier",
    "aier-object",
    "fier+aier",
    "fier+aier-object",
)
"""The paper's FAIEr and FAIEr\\rel, FIEr, AIEr and FIEr+AIEr; ``-object`` leaves the relation level out."""


_SIZE = Count(1, 1 << 20)


@dataclass(frozen=True)
class FaierOptions(Options):
    """The shape of the network, and how open points of the paper are read. Sizes are the published ones by default.

    What the paper prints has no option: the two layers of the image, the graph convolution over the complete graph,
    the attention to references, the GRU over them, the mean over a candidate's nodes of the best region.
    """

    vocabulary_size: int = option(MISSING, Count(1), "words, the four special ones included")
    word_dim: int = option(300, _SIZE, "components of a word")
    embed_dim: int = option(512, _SIZE, "components of a node, d")
    image_dim: int = option(2048, _SIZE, "components of a region feature")
    variant: str = option(
        "faier",
        Choice(*VARIANTS),
        "what the union nodes are made of: image and references (faier), the image alone (fier), references alone"
        " (aier), or both side by side (fier+aier); -object: without the relation level",
    )
    similarity: Literal["dot", "cosine"] = option(
        "dot", Choice("dot", "cosine"), "of a union node and a node of the candidate; dot as printed"
    )
    z: Literal["linear", "tanh"] = option(
        "linear",
        Choice("linear", "tanh"),
        "union nodes as they come out of their layer, as printed, or their tanh, which bounds scores by d a level",
    )
    image_scale: float = option(
        1.0, Positive(), "features are multiplied by it before W1: where they are large, its tanh hardly learns"
    )
    image_bias: bool = option(False, Flag(), "biases in both layers of the image, W1 and W2")
    relation_bias: bool = option(False, Flag(), "a bias in the graph convolution's W_r, and in the weights' W_delta")
    union_bias: bool = option(
        False, Flag(), "a bias in W_u (one in W_a would change nothing: it is the same for all nodes of a softmax)"
    )
    directions: Literal["mean", "sum", "concat"] = option(
        "mean", Choice("mean", "sum", "concat"), "how a GRU's two directions are combined; concat: d/2 of each"
    )
    reference_encoder: Literal["shared", "separate"] = option(
        "shared", Choice("shared", "separate"), "whether references are read by the candidates' GRUs or by others"
    )
    triplet_encoder: Literal["separate", "shared"] = option(
        "separate", Choice("separate", "shared"), "whether triplets have a GRU of their own or the words'"
    )
    triplet_embedding: Literal["shared", "separate"] = option(
        "shared", Choice("shared", "separate"), "whether triplets have the captions' word vectors or others"
    )
    triplet_state: Literal["final", "last"] = option(
        "final",
        Choice("final", "last"),
        "the state of a triplet: what each direction ends in, or both directions at the last word",
    )
    levels: Literal["separate", "shared"] = option(
        "separate", Choice("separate", "shared"), "whether objects and relations have W_a and W_u of their own"
    )
    empty_references: Literal["step", "skip"] = option(
        "step",
        Choice("step", "skip"),
        "whether a reference without nodes of a level is a step of zeros of the fusion GRU, or none",
    )
    ends: Literal["read", "none", "counted"] = option(
        "read",
        Choice("read", "none", "counted"),
        "<start> and <end>: read by the GRU and no nodes, not read, or nodes like words",
    )
    boxes: Literal["normalised", "pixels"] = option(
        "normalised", Choice("normalised", "pixels"), "the unit of boxes: shares of the image's sides, or pixels"
    )

    def __post_init__(self) -> None:
        def refuse(message: str, hint: str) -> None:
            raise UsageError(message, hint=hint)

        self.checked("faier", vars(self), refuse)
        if self.directions == "concat" and self.embed_dim % 2:
            raise UsageError(f"embed_dim is {self.embed_dim}, which two directions cannot share", hint="Give 512")

    @property
    def relations(self) -> bool:
        """Whether there is a relation level."""
        return not self.variant.endswith("-object")

    @property
    def parts(self) -> str:
        """The variant without what it says of levels: ``faier``, ``fier``, ``aier`` or ``fier+aier``."""
        return self.variant.removesuffix("-object")

    @property
    def sees_images(self) -> bool:
        """Whether images take part."""
        return self.parts != "aier"

    @property
    def reads_references(self) -> bool:
        """Whether references take part."""
        return self.parts != "fier"


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
