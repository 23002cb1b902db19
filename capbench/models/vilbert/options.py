"""Sizes of a ViLBERT."""

from __future__ import annotations

from dataclasses import dataclass

from capbench.errors import UsageError
from capbench.options import Count, Number, Options, option

__all__ = ["VilbertOptions"]


@dataclass(frozen=True)
class VilbertOptions(Options):
    """Sizes of the network; the defaults are those of the published weights."""

    vocabulary_size: int = option(30_522, Count(1), "word pieces")
    positions: int = option(512, Count(2), "tokens that a text may have at most")
    types: int = option(2, Count(1), "kinds of text tokens; captions are of the first")
    tasks: int = option(20, Count(0), "tasks with a token of their own; 0 without such tokens")
    text_dim: int = option(768, Count(1), "components of the text stream, T")
    text_layers: int = option(12, Count(1, 1000), "layers of the text stream")
    text_heads: int = option(12, Count(1), "attention heads of a text layer")
    text_inner: int = option(3072, Count(1), "components between the two linear layers of a text layer")
    feature_dim: int = option(2048, Count(1), "components of a region feature")
    image_dim: int = option(1024, Count(1), "components of the image stream, V")
    image_layers: int = option(6, Count(1, 1000), "layers of the image stream")
    image_heads: int = option(8, Count(1), "attention heads of an image layer")
    image_inner: int = option(1024, Count(1), "components between the two linear layers of an image layer")
    common_dim: int = option(1024, Count(1), "components in which the streams attend to each other, B")
    common_heads: int = option(8, Count(1), "attention heads of a connection")
    connections: int = option(6, Count(1, 1000), "connections, C")
    region_outputs: int = option(1601, Count(1), "what is told of a masked region: classes, or feature components")
    dropout: float = option(0.1, Number(0, 0.9), "share of activations that are dropped while training")

    def __post_init__(self) -> None:
        def refuse(message: str, hint: str) -> None:
            raise UsageError(message, hint=hint)

        self.checked("vilbert", vars(self), refuse)
        for dim, heads in (("text_dim", "text_heads"), ("image_dim", "image_heads"), ("common_dim", "common_heads")):
            if getattr(self, dim) % getattr(self, heads):
                refuse(f"{dim}={getattr(self, dim)} cannot be shared by {heads}={getattr(self, heads)}", "Change one")
        for layers in ("text_layers", "image_layers"):
            if getattr(self, layers) < self.connections:
                refuse(f"{layers}={getattr(self, layers)} are fewer than connections={self.connections}", "Change one")
