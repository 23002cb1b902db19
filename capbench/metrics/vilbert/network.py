"""ViLBERT: two streams of transformer layers, for a caption and for image regions, that attend to each other.

References:
    Lu, Batra, Parikh and Lee, "ViLBERT: Pretraining Task-Agnostic Visiolinguistic Representations for
        Vision-and-Language Tasks", NeurIPS 2019, arXiv:1908.02265: co-attention in section 2.2, losses in section 2.3.
    Lu, Goswami, Rohrbach, Parikh and Lee, "12-in-1: Multi-Task Vision and Language Representation Learning",
        CVPR 2020, arXiv:1912.02315: the task token.
    Devlin, Chang, Lee and Toutanova, "BERT", NAACL 2019, for the layers of both streams.

Shapes: a caption has m tokens, an image n regions, a batch b pairs of them. The text stream is (b, m, T), the image
stream (b, n, V); a *connection* is co-attention of both streams in B components.

If a stream has more layers than there are connections (C), the extra layers come first. In the published network (T =
768, V = B = 1024, twelve and six layers, C = 6) the order is t0 ... t5, c0, v0 t6, c1, v1 t7, ... c5, v5 t11. *Layer k*
is the state of the streams right after connection k, counted from 1; one layer of each stream follows the last
connection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.errors import UsageError
from capbench.core.options import Count, Number, Options, option

# Sizes of the network.


@dataclass(frozen=True)
class VilbertOptions(Options):
    """Sizes of the network; the defaults are those of the published weights."""

    vocabulary_size: int = option(30_522, Count(1), "number of word pieces")
    positions: int = option(512, Count(2), "maximum number of tokens of a text")
    types: int = option(2, Count(1), "number of token types; captions have the first one")
    tasks: int = option(20, Count(0), "number of task tokens")
    text_dim: int = option(768, Count(1), "components of the text stream (T)")
    text_layers: int = option(12, Count(1, 1000), "layers of the text stream")
    text_heads: int = option(12, Count(1), "attention heads of a text layer")
    text_inner: int = option(3072, Count(1), "components between the two linear layers of a text layer")
    feature_dim: int = option(2048, Count(1), "components of a region feature")
    image_dim: int = option(1024, Count(1), "components of the image stream (V)")
    image_layers: int = option(6, Count(1, 1000), "layers of the image stream")
    image_heads: int = option(8, Count(1), "attention heads of an image layer")
    image_inner: int = option(1024, Count(1), "components between the two linear layers of an image layer")
    common_dim: int = option(1024, Count(1), "components of the co-attention (B)")
    common_heads: int = option(8, Count(1), "attention heads of a connection")
    connections: int = option(6, Count(1, 1000), "number of connections (C)")
    region_outputs: int = option(1601, Count(1), "outputs for a masked region: classes, or feature components")
    dropout: float = option(0.1, Number(0, 0.9), "dropout rate in training")

    def __post_init__(self) -> None:
        heads = (("text_dim", "text_heads"), ("image_dim", "image_heads"), ("common_dim", "common_heads"))
        depth = (("text_layers", "connections"), ("image_layers", "connections"))
        for name, other in (*heads, *depth):
            size, against = getattr(self, name), getattr(self, other)
            if size % against if (name, other) in heads else size < against:
                fault = "is not divisible by" if (name, other) in heads else "is less than"
                message = f"{name}={size} {fault} {other}={against}"
                raise UsageError(message, code="conflict", value=size, hint="Change one of them")


# Building blocks: attention, a layer of one stream, and the connection of both streams.

EPSILON = 1e-12  # ε of all layer normalisations
_MASKED = -10_000.0  # added to the attention logits of masked tokens and regions


@dataclass(frozen=True)
class Streams:
    """Both streams: text (b, m, T) and image (b, n, V)."""

    text: Tensor
    image: Tensor


def mask_of(present: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Mask of tokens or regions (b, k) → summand of the attention logits (b, 1, 1, k); None if all are present."""
    if present is None or bool(present.all()):
        return None
    return ((1.0 - present.to(dtype)) * _MASKED)[:, None, None, :]


def attend(
    queries: Tensor,  # (b, q, D)
    keys: Tensor,  # (b, k, D); ``values`` too
    values: Tensor,
    heads: int,  # number of heads, with D / heads components each
    mask: Tensor | None = None,  # (b, 1, 1, k) from :func:`mask_of`
    dropout: float = 0.0,  # dropout rate of the weights
    maps: list[Tensor] | None = None,  # list to which the weights (b, heads, q, k) are appended
) -> Tensor:
    """Multi-head attention, (b, q, D)."""
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
    """LN(x + dropout(linear(y))), the end of each part of a layer."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs, eps=EPSILON)
        self.dropout = dropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + functional.dropout(self.linear(y), self.dropout, self.training))
        return normed


class _Feed(nn.Module):
    """Feed-forward part: two linear layers with a GELU between them."""

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
        """``mask`` (b, 1, 1, k) from :func:`mask_of`; the attention (b, heads, k, k) is appended to ``maps``."""
        dropout = self.dropout if self.training else 0.0
        contexts = attend(self.query(x), self.key(x), self.value(x), self.heads, mask, dropout, maps)
        fed: Tensor = self.feed(self.attended(x, contexts))
        return fed


class Connection(nn.Module):
    """Co-attention (section 2.2): tokens attend to regions and regions to tokens, each with a feed-forward part."""

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

    def forward(
        self, streams: Streams, text_mask: Tensor | None, image_mask: Tensor | None, maps: list[Tensor] | None = None
    ) -> Streams:
        """Both streams after attention to each other.

        ``maps`` as in :func:`attend`: tokens over regions (b, heads, m, n), then regions over tokens (b, heads, n, m).
        """
        text, image, dropout = streams.text, streams.image, self.dropout if self.training else 0.0
        queries, keys, values = self.image_query(image), self.image_key(image), self.image_value(image)
        contexts = attend(self.text_query(text), keys, values, self.heads, image_mask, dropout, maps)
        new_text = self.text_feed(self.text_attended(text, contexts))
        contexts = attend(queries, self.text_key(text), self.text_value(text), self.heads, text_mask, dropout, maps)
        return Streams(new_text, self.image_feed(self.image_attended(image, contexts)))


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
            assert self.tasks is not None
            # The task's token follows [CLS] and has neither position nor type.
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
    """Output layers for pre-training (section 2.3). Metrics do not use them."""

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
        """Predictions of masked regions: (..., V) → (..., region_outputs)."""
        predicted: Tensor = self.region_output(self.region_transform(image))
        return predicted


class Vilbert(nn.Module):
    """The network, optionally with the heads of pre-training; ``generator`` draws the initial weights."""

    kind: ClassVar = "capbench.vilbert/1"  # of weight files

    def __init__(
        self, options: VilbertOptions, generator: torch.Generator | None = None, *, heads: bool = False
    ) -> None:
        super().__init__()
        self.options = o = options
        self.text_embedding = _TextEmbedding(o)
        self.image_embedding = _ImageEmbedding(o)
        text = (Layer(o.text_dim, o.text_heads, o.text_inner, o.dropout) for _ in range(o.text_layers))
        image = (Layer(o.image_dim, o.image_heads, o.image_inner, o.dropout) for _ in range(o.image_layers))
        self.text_layers, self.image_layers = nn.ModuleList(text), nn.ModuleList(image)
        self.connections = nn.ModuleList(Connection(o) for _ in range(o.connections))
        self.text_pooler = nn.Linear(o.text_dim, o.common_dim)
        self.image_pooler = nn.Linear(o.image_dim, o.common_dim)
        self.heads = Heads(o) if heads else None
        self.draw(0.02, generator)

    @torch.no_grad()
    def draw(self, deviation: float, generator: torch.Generator | None) -> None:
        """Draw initial weights as in BERT: N(0, deviation²), biases 0, normalisations 1 and 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0.0, deviation, generator=generator)
            if isinstance(module, nn.Linear):
                module.bias.zero_()

    def read_text(
        self, ids: Tensor, mask: Tensor | None = None, tasks: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """The text stream before the first connection, (b, m, T), with tasks (b, m + 1, T), their token second.

        ``ids``: (b, m) word pieces, [CLS] first; ``mask``: (b, 1, 1, m) from :func:`mask_of`, with the task's token;
        ``tasks``: (b,); ``types``: (b, m) token types, the first type by default.
        """
        text: Tensor = self.text_embedding(ids, tasks, types)
        for layer in self.text_layers[: -self.options.connections]:
            text = layer(text, mask)
        return text

    def read_image(self, features: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """The image stream (b, n, V) before the first connection.

        ``features``: (b, n, feature_dim), the mean of the regions first; ``places``: (b, n, 5), corners and area of
        each region as fractions of the image; ``mask``: (b, 1, 1, n) from :func:`mask_of`.
        """
        image: Tensor = self.image_embedding(features, places)
        for layer in self.image_layers[: -self.options.connections]:
            image = layer(image, mask)
        return image

    def connect(
        self,
        streams: Streams,  # before the first connection
        text_mask: Tensor | None = None,  # (b, 1, 1, m) from :func:`mask_of`
        image_mask: Tensor | None = None,  # (b, 1, 1, n) from :func:`mask_of`
        *,
        last: int | None = None,  # number of the last connection, from 1, after which nothing is computed
        maps: list[Tensor] | None = None,  # receives each connection's attention (:meth:`Connection.forward`)
    ) -> tuple[list[Streams], Streams]:
        """The streams right after each connection, and at the end; a layer of both follows each connection."""
        layers: list[Streams] = []
        first = -self.options.connections
        parts = zip(self.connections, self.text_layers[first:], self.image_layers[first:], strict=True)
        for connection, text_layer, image_layer in parts:
            layers.append(streams := connection(streams, text_mask, image_mask, maps))
            if len(layers) == last:
                break
            streams = Streams(text_layer(streams.text, text_mask), image_layer(streams.image, image_mask))
        return layers, streams

    def pool(self, streams: Streams) -> tuple[Tensor, Tensor]:
        """One vector (b, B) each for text, from [CLS], and image, from its first row, the mean of all regions."""
        text = functional.relu(self.text_pooler(streams.text[:, 0]))
        return text, functional.relu(self.image_pooler(streams.image[:, 0]))
