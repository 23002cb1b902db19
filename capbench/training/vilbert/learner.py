"""The network as it is trained: what a metric reads, and what only training asks of it."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.models.vilbert.layers import Connection, Streams, mask_of
from capbench.models.vilbert.network import Vilbert
from capbench.models.vilbert.options import VilbertOptions
from capbench.training.vilbert.losses import late_similarities

__all__ = ["VilbertLearner"]


class VilbertLearner(nn.Module):
    """A network with its heads, and the direction of fitting words (``loss.fit``).

    Args:
        options: sizes of the network.
        generator: draws the first weights; the global one if None.
        initial: their standard deviation.
    """

    def __init__(self, options: VilbertOptions, generator: torch.Generator | None, initial: float) -> None:
        super().__init__()
        self.network = Vilbert(options, generator, heads=True)
        self.fit_direction = nn.Parameter(torch.empty(options.text_dim))
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    module.weight.normal_(0.0, initial, generator=generator)
            self.fit_direction.normal_(0.0, initial, generator=generator)

    def read(self, ids: Tensor, present: Tensor, features: Tensor, places: Tensor) -> tuple[Streams, Tensor | None]:
        """Texts (c, m, T) and images (i, n, V) before the first connection, and the mask of the texts."""
        mask = mask_of(present)
        return Streams(self.network.read_text(ids, mask), self.network.read_image(features, places)), mask

    def similarities(self, text: Tensor, present: Tensor, image: Tensor) -> Tensor:
        """Similarity (i, c) of every image with every caption as the first connection attends.

        Its queries of tokens (c, m, B) are compared with its keys of regions (i, n, B): learning these similarities
        (:func:`~capbench.training.vilbert.losses.late_similarities`) is learning where tokens look.
        """
        first = cast(Connection, self.network.connections[0])
        return late_similarities(first.text_query(text), present, first.image_key(image))

    def connect(self, text: Tensor, image: Tensor, present: Tensor) -> tuple[Tensor, Streams]:
        """Pairs of a text and an image through all connections.

        Args:
            text: (k, m, T) before the first connection.
            image: (k, n, V).
            present: (k, m) what of the texts is no padding.

        Returns:
            The text right after the last connection (k, m, T), which a metric compares, and the streams at the end.
        """
        network, mask = self.network, mask_of(present)
        streams = Streams(text, image)
        last = text
        for place, connection in enumerate(network.connections):
            streams = connection(streams, mask, None)
            last = streams.text
            streams = Streams(
                network.text_after(place)(streams.text, mask), network.image_after(place)(streams.image, None)
            )
        return last, streams

    def fits(self, states: Tensor, present: Tensor) -> Tensor:
        """(k,) mean cosine of word states (k, m, T) with the direction of fitting words; (k, m) says which count."""
        cosines = functional.cosine_similarity(states, self.fit_direction, dim=-1)
        return (cosines * present).sum(dim=1) / present.sum(dim=1).clamp_min(1)

    def aligned(self, streams: Streams) -> Tensor:
        """Logits (k, 2) of "they belong together" and "they do not"."""
        heads = self.network.heads
        assert heads is not None
        return heads.alignment(*self.network.pool(streams))
