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

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.errors import UsageError
from capbench.core.options import Count, Number, Options, option

__all__ = [
    "EPSILON",
    "Connection",
    "Heads",
    "Layer",
    "Projected",
    "Streams",
    "Vilbert",
    "VilbertOptions",
    "attend",
    "mask_of",
]


# Sizes of a ViLBERT.


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


# The parts of ViLBERT: attention, a layer of one stream, and the connection in which the two attend to each other.

EPSILON = 1e-12
"""Of all layer normalisations."""
_MASKED = -10_000.0  # added to what may not be attended to


@dataclass(frozen=True)
class Streams:
    """Both streams: text (b, m, T) and image (b, n, V)."""

    text: Tensor
    image: Tensor


@dataclass(frozen=True)
class Projected:
    """An image stream as a connection attends to it, (..., n, B) each; queries are None if nothing needs them."""

    queries: Tensor | None
    keys: Tensor
    values: Tensor


def mask_of(present: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Truth values of tokens or regions (b, k) → what is added to attention before the softmax, (b, 1, 1, k).

    None where all are present, which takes no adding.
    """
    if present is None or bool(present.all()):
        return None
    return ((1.0 - present.to(dtype)) * _MASKED)[:, None, None, :]


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    heads: int,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    maps: list[Tensor] | None = None,
) -> Tensor:
    """Attention of several heads.

    Args:
        queries: (b, q, D).
        keys: (b, k, D).
        values: (b, k, D).
        heads: of them each has D / heads components.
        mask: (b, 1, 1, k), of :func:`mask_of`.
        dropout: share of weights that are dropped.
        maps: gets the weights, (b, heads, q, k), if given.

    Returns:
        (b, q, D).
    """
    q, k, v = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (queries, keys, values))  # (b, heads, ., d)
    if maps is None:
        contexts = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    else:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = (scores if mask is None else scores + mask).softmax(dim=-1)
        maps.append(weights)
        contexts = functional.dropout(weights, dropout) @ v
    return contexts.transpose(1, 2).flatten(-2)


class _Rest(nn.Module):
    """x → LN(x + dropout(linear(y))): how every part of a layer ends."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs, eps=EPSILON)
        self.dropout = dropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + functional.dropout(self.linear(y), self.dropout, self.training))
        return normed


class _Feed(nn.Module):
    """The two linear layers with a GELU between them."""

    def __init__(self, dim: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, inner)
        self.outer = _Rest(inner, dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.outer(x, functional.gelu(self.inner(x)))
        return fed


class Layer(nn.Module):
    """A layer of BERT: self-attention, then the feed-forward part; (b, k, D) → (b, k, D)."""

    def __init__(self, dim: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.attended = _Rest(dim, dim, dropout)
        self.feed = _Feed(dim, inner, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        """``mask`` (b, 1, 1, k) of :func:`mask_of`; ``maps`` gets the attention, (b, heads, k, k)."""
        dropout = self.dropout if self.training else 0.0
        contexts = attend(self.query(x), self.key(x), self.value(x), self.heads, mask, dropout, maps)
        fed: Tensor = self.feed(self.attended(x, contexts))
        return fed


class Connection(nn.Module):
    """Co-attention (section 2.2): tokens attend to regions, regions to tokens, each then through its own feed-forward.

    Which regions may be attended to is masked, and which tokens; that is all (the released code's mask of pairs is
    never applied).
    """

    def __init__(self, options: VilbertOptions) -> None:
        super().__init__()
        text, image, common, dropout = options.text_dim, options.image_dim, options.common_dim, options.dropout
        self.heads, self.dropout = options.common_heads, dropout
        self.image_query, self.image_key, self.image_value = (nn.Linear(image, common) for _ in range(3))
        self.text_query, self.text_key, self.text_value = (nn.Linear(text, common) for _ in range(3))
        self.image_attended = _Rest(common, image, dropout)
        self.text_attended = _Rest(common, text, dropout)
        self.image_feed = _Feed(image, options.image_inner, dropout)
        self.text_feed = _Feed(text, options.text_inner, dropout)

    def project(self, image: Tensor, *, queries: bool = True) -> Projected:
        """The image stream (..., n, V) as it takes part here; without queries if its next value is not asked for."""
        return Projected(self.image_query(image) if queries else None, self.image_key(image), self.image_value(image))

    def text_of(
        self, text: Tensor, projected: Projected, image_mask: Tensor | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """The text stream (b, m, T) after it attended to the image; ``maps`` gets the weights (b, heads, m, n)."""
        dropout = self.dropout if self.training else 0.0
        queries = self.text_query(text)
        contexts = attend(queries, projected.keys, projected.values, self.heads, image_mask, dropout, maps)
        fed: Tensor = self.text_feed(self.text_attended(text, contexts))
        return fed

    def image_of(
        self,
        image: Tensor,
        queries: Tensor,
        text: Tensor,
        text_mask: Tensor | None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """The image stream (b, n, V) after it attended to the text; ``maps`` gets the weights (b, heads, n, m).

        Texts behind the b-th are read by nothing.
        """
        dropout = self.dropout if self.training else 0.0
        keys, values = self.text_key(text)[: len(image)], self.text_value(text)[: len(image)]
        contexts = attend(queries, keys, values, self.heads, text_mask, dropout, maps)
        fed: Tensor = self.image_feed(self.image_attended(image, contexts))
        return fed

    def forward(
        self, streams: Streams, text_mask: Tensor | None, image_mask: Tensor | None, maps: list[Tensor] | None = None
    ) -> Streams:
        """Both streams, each from the other as it was before; ``maps`` gets tokens over regions, then the reverse."""
        projected = self.project(streams.image)
        assert projected.queries is not None
        text = self.text_of(streams.text, projected, image_mask, maps)
        return Streams(text, self.image_of(streams.image, projected.queries, streams.text, text_mask, maps))


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
