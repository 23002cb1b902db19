"""ViLBERT, two streams of layers that look at each other: one reads a caption, one the regions of its image.

References:
    Lu, Batra, Parikh and Lee, "ViLBERT: Pretraining Task-Agnostic Visiolinguistic Representations for
        Vision-and-Language Tasks", NeurIPS 2019, arXiv:1908.02265: co-attention in section 2.2, losses in section 2.3.
    Lu, Goswami, Rohrbach, Parikh and Lee, "12-in-1: Multi-Task Vision and Language Representation Learning",
        CVPR 2020, arXiv:1912.02315: the token that names the task.
    Devlin, Chang, Lee and Toutanova, "BERT", NAACL 2019, for the layers of both streams.

Shapes, here and below: a caption has m tokens, an image n regions, and b pairs of them are worked on at once. The text
stream is (b, m, T), the image stream (b, n, V); a *connection* lets each attend to the other in B components.

With C connections the text stream has its extra layers first. Of the published network (T = 768, V = B = 1024, twelve
and six layers, C = 6) the order is t0 ... t5, c0, v0 t6, c1, v1 t7, ... c5, v5 t11. *Layer k* is what the streams are
right after connection k, counted from 1; the end of the network is one layer of each stream further.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.errors import UsageError
from capbench.models.vilbert.layers import EPSILON, Connection, Layer, Streams, mask_of
from capbench.models.vilbert.options import VilbertOptions

__all__ = ["Heads", "Vilbert"]


class _TextEmbedding(nn.Module):
    def __init__(self, options: VilbertOptions) -> None:
        super().__init__()
        self.words = nn.Embedding(options.vocabulary_size, options.text_dim)
        self.positions = nn.Embedding(options.positions, options.text_dim)
        self.types = nn.Embedding(options.types, options.text_dim)
        self.tasks = nn.Embedding(options.tasks, options.text_dim) if options.tasks else None
        self.norm = nn.LayerNorm(options.text_dim, eps=EPSILON)
        self.dropout = options.dropout

    def forward(self, ids: Tensor, tasks: Tensor | None, types: Tensor | None) -> Tensor:
        x = self.words(ids) + self.positions.weight[: ids.shape[1]]
        x = x + (self.types.weight[0] if types is None else self.types(types))
        if tasks is not None:
            if self.tasks is None:
                raise UsageError("these weights know no tasks", hint="Leave the task out")
            # The token of the task stands behind [CLS] and has neither position nor type.
            x = torch.cat((x[:, :1], self.tasks(tasks)[:, None], x[:, 1:]), dim=1)
        return functional.dropout(self.norm(x), self.dropout, self.training)


class _ImageEmbedding(nn.Module):
    def __init__(self, options: VilbertOptions) -> None:
        super().__init__()
        self.features = nn.Linear(options.feature_dim, options.image_dim)
        self.places = nn.Linear(5, options.image_dim)
        self.norm = nn.LayerNorm(options.image_dim, eps=EPSILON)
        self.dropout = options.dropout

    def forward(self, features: Tensor, places: Tensor) -> Tensor:
        x: Tensor = self.norm(self.features(features) + self.places(places))
        return functional.dropout(x, self.dropout, self.training)


class _Transform(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(functional.gelu(self.linear(x)))
        return normed


class Heads(nn.Module):
    """What pre-training asks of the streams (section 2.3). Metrics do without."""

    def __init__(self, options: VilbertOptions) -> None:
        super().__init__()
        self.word_transform = _Transform(options.text_dim)
        self.word_bias = nn.Parameter(torch.zeros(options.vocabulary_size))
        self.region_transform = _Transform(options.image_dim)
        self.region_output = nn.Linear(options.image_dim, options.region_outputs)
        self.alignment_output = nn.Linear(options.common_dim, 2)

    def words(self, text: Tensor, embeddings: Tensor) -> Tensor:
        """Logits of masked words: (..., T) with the shared word embeddings (vocabulary, T) → (..., words)."""
        return functional.linear(self.word_transform(text), embeddings, self.word_bias)

    def regions(self, image: Tensor) -> Tensor:
        """What is told of masked regions: (..., V) → (..., region_outputs)."""
        told: Tensor = self.region_output(self.region_transform(image))
        return told

    def alignment(self, pooled_text: Tensor, pooled_image: Tensor) -> Tensor:
        """Logits (b, 2) of "they belong together" and "they do not" from pooled streams (b, B) each."""
        logits: Tensor = self.alignment_output(pooled_text * pooled_image)
        return logits


class Vilbert(nn.Module):
    """The network, with the heads of pre-training if they are wanted.

    Args:
        options: its sizes.
        generator: draws the initial weights; the global one if None.
        heads: whether it has :class:`Heads`.
    """

    def __init__(
        self, options: VilbertOptions, generator: torch.Generator | None = None, *, heads: bool = False
    ) -> None:
        super().__init__()
        self.options = options
        o = options
        self.text_embedding = _TextEmbedding(o)
        self.image_embedding = _ImageEmbedding(o)
        text = (Layer(o.text_dim, o.text_heads, o.text_inner, o.dropout) for _ in range(o.text_layers))
        image = (Layer(o.image_dim, o.image_heads, o.image_inner, o.dropout) for _ in range(o.image_layers))
        self.text_layers, self.image_layers = nn.ModuleList(text), nn.ModuleList(image)
        self.connections = nn.ModuleList(Connection(o) for _ in range(o.connections))
        self.text_pooler = nn.Linear(o.text_dim, o.common_dim)
        self.image_pooler = nn.Linear(o.image_dim, o.common_dim)
        self.heads = Heads(o) if heads else None
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initial weights: N(0, 0.02²), biases 0, normalisations 1 and 0, as BERT has them."""
        if self.text_pooler.weight.is_meta:
            return  # weights are still to be given
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0.0, 0.02, generator=generator)
            if isinstance(module, nn.Linear):
                module.bias.zero_()

    @property
    def text_first(self) -> nn.ModuleList:
        """The text layers before the first connection, which see no image."""
        return self.text_layers[: self.options.text_layers - self.options.connections]

    @property
    def image_first(self) -> nn.ModuleList:
        """The image layers before the first connection, which see no text; none in the published network."""
        return self.image_layers[: self.options.image_layers - self.options.connections]

    def text_after(self, connection: int) -> nn.Module:
        """The text layer right after a connection (from 0)."""
        return self.text_layers[self.options.text_layers - self.options.connections + connection]

    def image_after(self, connection: int) -> nn.Module:
        """The image layer right after a connection (from 0)."""
        return self.image_layers[self.options.image_layers - self.options.connections + connection]

    def read_text(
        self, ids: Tensor, mask: Tensor | None = None, tasks: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """The text stream before the first connection: no image is seen yet.

        Args:
            ids: (b, m) word pieces, [CLS] first.
            mask: (b, 1, 1, m) of :func:`mask_of`; with tasks it has their token, too.
            tasks: (b,) tasks, or None for none.
            types: (b, m) kinds of tokens; the first kind by default.

        Returns:
            (b, m, T); (b, m + 1, T) with tasks, whose token comes second.
        """
        text: Tensor = self.text_embedding(ids, tasks, types)
        for layer in self.text_first:
            text = layer(text, mask)
        return text

    def read_image(self, features: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """The image stream before the first connection: no text is seen yet.

        Args:
            features: (b, n, feature_dim), the mean of the regions first.
            places: (b, n, 5), corners and area of each region as shares of the image.
            mask: (b, 1, 1, n) of :func:`mask_of`.

        Returns:
            (b, n, V).
        """
        image: Tensor = self.image_embedding(features, places)
        for layer in self.image_first:
            image = layer(image, mask)
        return image

    def forward(
        self,
        ids: Tensor,
        features: Tensor,
        places: Tensor,
        *,
        words: Tensor | None = None,
        regions: Tensor | None = None,
        tasks: Tensor | None = None,
        types: Tensor | None = None,
    ) -> tuple[list[Streams], Streams]:
        """All of the network.

        Args:
            ids: (b, m) word pieces.
            features: (b, n, feature_dim).
            places: (b, n, 5).
            words: (b, m) which word pieces are there and no padding; all by default.
            regions: (b, n) which regions are there; all by default.
            tasks: (b,) tasks, or None for none.
            types: (b, m) kinds of tokens.

        Returns:
            The streams right after each connection, and at the end. With tasks the text has m + 1 tokens.
        """
        if words is not None and tasks is not None:
            words = torch.cat((words[:, :1], words), dim=1)
        text_mask, image_mask = mask_of(words, features.dtype), mask_of(regions, features.dtype)
        streams = Streams(self.read_text(ids, text_mask, tasks, types), self.read_image(features, places, image_mask))
        layers = []
        for place, connection in enumerate(self.connections):
            streams = connection(streams, text_mask, image_mask)
            layers.append(streams)
            streams = Streams(
                self.text_after(place)(streams.text, text_mask), self.image_after(place)(streams.image, image_mask)
            )
        return layers, streams

    def pool(self, streams: Streams) -> tuple[Tensor, Tensor]:
        """Text and image as one vector each (b, B): of [CLS], and of the first row, the mean of all regions."""
        text = functional.relu(self.text_pooler(streams.text[:, 0]))
        return text, functional.relu(self.image_pooler(streams.image[:, 0]))
