"""Options and inputs of FAIEr's network: captions as ids of words and triplets, boxes, and nodes of both levels.

A caption has two levels. Its *objects* are all its words. Its *relations* are the triplets of its scene graph:
⟨subject, relation, object⟩ from SPICE's parser, in base forms, each read as its words in this order ("kid stand in
grass"). Objects without relations and objects with attributes are not triplets: the words contain them already.
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

# Options of the network: sizes, variant, and everything that the paper leaves open.

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
"""The paper's FAIEr and FAIEr\\rel, FIEr, AIEr and FIEr+AIEr; ``-object`` variants have no relation level."""

_SIZE = Count(1, 1 << 20)


@dataclass(frozen=True)
class FaierOptions(Options):
    """Sizes of the network, by default the published ones, its variant, and choices that the paper leaves open.

    Parts that the paper defines have no option: the two layers of the image, the graph convolution over the complete
    graph, the attention to references, the GRU over them, the mean over a candidate's nodes of the best region.
    """

    vocabulary_size: int = option(MISSING, Count(1), "number of words, including the four special ones")
    word_dim: int = option(300, _SIZE, "components of a word vector")
    embed_dim: int = option(512, _SIZE, "components of a node (d)")
    image_dim: int = option(2048, _SIZE, "components of a region feature")
    variant: str = option(
        "faier",
        Choice(*VARIANTS),
        "inputs of the union nodes: image and references (faier), the image only (fier), references only (aier), or"
        " both separately (fier+aier); -object: without the relation level",
    )
    similarity: Literal["dot", "cosine"] = option(
        "dot", Choice("dot", "cosine"), "similarity of a union node and a candidate's node; dot as in the paper"
    )
    z: Literal["linear", "tanh"] = option(
        "linear",
        Choice("linear", "tanh"),
        "linear: the layer's output, as in the paper; tanh: its tanh, which limits scores to d per level",
    )
    image_scale: float = option(
        1.0, Positive(), "factor of the features before W1: its tanh saturates on large features"
    )
    image_bias: bool = option(False, Flag(), "use biases in both layers of the image, W1 and W2")
    relation_bias: bool = option(False, Flag(), "use a bias in the graph convolution's W_r and in W_delta")
    union_bias: bool = option(
        False, Flag(), "use a bias in W_u (a bias in W_a would have no effect: it is equal for all nodes of a softmax)"
    )
    directions: Literal["mean", "sum", "concat"] = option(
        "mean", Choice("mean", "sum", "concat"), "combination of a GRU's two directions; concat: d/2 of each"
    )
    reference_encoder: Literal["shared", "separate"] = option(
        "shared", Choice("shared", "separate"), "GRUs of references: those of the candidates, or separate ones"
    )
    triplet_encoder: Literal["separate", "shared"] = option(
        "separate", Choice("separate", "shared"), "GRU of triplets: a separate one, or that of the words"
    )
    triplet_embedding: Literal["shared", "separate"] = option(
        "shared", Choice("shared", "separate"), "word vectors of triplets: those of the captions, or separate ones"
    )
    triplet_state: Literal["final", "last"] = option(
        "final",
        Choice("final", "last"),
        "state of a triplet: the final state of each direction, or both directions at the last word",
    )
    levels: Literal["separate", "shared"] = option(
        "separate", Choice("separate", "shared"), "W_a and W_u of objects and relations"
    )
    empty_references: Literal["step", "skip"] = option(
        "step",
        Choice("step", "skip"),
        "reference without nodes at a level: a zero input of the fusion GRU (step), or none (skip)",
    )
    ends: Literal["read", "none", "counted"] = option(
        "read",
        Choice("read", "none", "counted"),
        "<start> and <end>: input of the GRU only (read), omitted (none), or nodes like words (counted)",
    )
    boxes: Literal["normalised", "pixels"] = option(
        "normalised", Choice("normalised", "pixels"), "unit of boxes: fractions of the image's sides, or pixels"
    )

    def __post_init__(self) -> None:
        for declared in self.declared():
            declared.read("faier", getattr(self, declared.name))
        if self.directions == "concat" and self.embed_dim % 2:
            raise UsageError(
                f"embed_dim={self.embed_dim} is odd, but directions=concat requires an even number",
                code="conflict",
                value=self.embed_dim,
                hint="Use 512",
            )

    @property
    def relations(self) -> bool:
        """True if there is a relation level."""
        return not self.variant.endswith("-object")

    @property
    def parts(self) -> str:
        """The variant without its suffix: ``faier``, ``fier``, ``aier`` or ``fier+aier``."""
        return self.variant.removesuffix("-object")

    @property
    def sees_images(self) -> bool:
        """True if the network reads images."""
        return self.parts != "aier"

    @property
    def reads_references(self) -> bool:
        """True if the network reads references."""
        return self.parts != "fier"


NO_REFERENCE = "."
"""Reference of an image without references (section 3.1). It has no triplets."""


@dataclass(frozen=True)
class CaptionCode:
    """A caption as input of the network.

    Attributes:
        words: ids of its words, including ``<start>`` and ``<end>`` unless ``ends`` is ``none``.
        triplets: ids of the words of each triplet; no triplet is empty.
    """

    words: tuple[int, ...]
    triplets: tuple[tuple[int, ...], ...] = ()


def triplet_text(triplet: Triplet) -> str:
    """⟨subject, relation, object⟩ as one text, to be tokenised like a caption."""
    return " ".join(triplet)


def caption_code(text: str, triplets: Sequence[Triplet], vocabulary: Vocabulary, options: FaierOptions) -> CaptionCode:
    """Ids of a caption's words and triplets; no triplets without a relation level."""
    words = tuple(vocabulary.encode(text))
    if options.ends == "none":
        words = words[1:-1]
    if not options.relations:
        return CaptionCode(words)
    coded = (tuple(map(vocabulary.number, _words(triplet))) for triplet in triplets)
    return CaptionCode(words, tuple(numbers or (UNKNOWN,) for numbers in coded))


@functools.lru_cache(1 << 16)  # many captions share triplets
def _words(triplet: Triplet) -> tuple[str, ...]:
    return tuple(tokenize_caption(triplet_text(triplet)))


@dataclass(frozen=True)
class CaptionBatch:
    """Captions as tensors.

    Attributes:
        ids: (C, m) int64 word ids, padded.
        lengths: (C,) int64, on the CPU; 0 for a caption without words.
        triplet_ids: (T, w) int64 word ids of the distinct triplets, padded.
        triplet_lengths: (T,) int64, on the CPU, each 1 or more.
        triplets_of: (C, K) int64 row of each caption's triplets in ``triplet_ids``, padded with -1.
    """

    ids: Tensor
    lengths: Tensor
    triplet_ids: Tensor
    triplet_lengths: Tensor
    triplets_of: Tensor

    def to(self, device: str | torch.device, non_blocking: bool = False) -> CaptionBatch:
        """A copy with all tensors except lengths on a device."""
        ids, triplet_ids, triplets_of = (
            tensor.to(device, non_blocking=non_blocking) for tensor in (self.ids, self.triplet_ids, self.triplets_of)
        )
        return CaptionBatch(ids, self.lengths, triplet_ids, self.triplet_lengths, triplets_of)


def collate(captions: Sequence[CaptionCode]) -> CaptionBatch:
    """Captions as tensors; each distinct triplet of the batch occurs once."""
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
    """Boxes of an image's regions in the network's unit.

    Args:
        boxes: (R, 4) x1, y1, x2, y2 in pixels.
        width: of the image, in pixels.
        height: of the image, in pixels.
        options: the network's options, with the unit.

    Raises:
        FeatureError: there are no boxes, which the relation level requires.
    """
    if boxes is None:
        raise FeatureError(
            "there are no boxes, but FAIEr's relation level requires them",
            code="wrong-features",
            hint="Use a store with boxes, or a model without a relation level (variant faier-object)",
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
        mask: (..., K) bool, False for padding.
    """

    vectors: Tensor
    mask: Tensor

    def __getitem__(self, index: Any) -> Nodes:
        """Nodes at these indices of the first axes."""
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
        """Nodes at these indices of the first axes: (B, J) indices of C captions give references (B, J, K, d)."""
        return Graph(self.objects[index], None if self.relations is None else self.relations[index])

    @property
    def levels(self) -> tuple[Nodes, ...]:
        """Objects, and relations if there are any."""
        return (self.objects,) if self.relations is None else (self.objects, self.relations)
