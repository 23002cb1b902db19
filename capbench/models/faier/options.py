"""What a FAIEr network is: its shape, its variant, and everything that the paper leaves open."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Literal

from capbench.errors import UsageError
from capbench.options import Choice, Count, Flag, Options, Positive, option

__all__ = ["VARIANTS", "FaierOptions"]

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
