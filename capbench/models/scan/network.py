"""SCAN, stacked cross attention between image regions and words, as in the paper.

References:
    Lee, Chen, Hua, Hu and He, "Stacked Cross Attention for Image-Text Matching", ECCV 2018, arXiv:1803.08024:
        regions and words in sections 3.3 and 3.4, attention and similarity in section 3.1.
    The released code, where it differs: ``leaky_relu`` below, and the axis of the norm in :func:`attend`.
    Salimans and Kingma, "Weight Normalization", NIPS 2016, for one variant of the image layer.

Shapes, here and below: an image has n regions, a caption m words; there are a images and b captions; both become
vectors of D components, l2-normed. Each *query* (a word of the caption for ``t2i``, a region for ``i2t``) attends to
the k *values* of the other side. The cosine of a query with its attended mix of values, the *context*, tells how well
the other side covers it; the cosines of all q queries are aggregated to one similarity of image and caption.

:class:`capbench.models.scan.fast.FastScan` is the same network, computed quickly; training and metrics use that one.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench.errors import UsageError
from capbench.options import Choice, Count, Flag, Options, Positive, option

__all__ = [
    "AGGREGATIONS",
    "ATTENTIONS",
    "EPSILON",
    "FEATURE_NORMS",
    "LEAK",
    "ImageEncoder",
    "Scan",
    "ScanOptions",
    "TextEncoder",
    "aggregate",
    "attend",
    "check_lengths",
    "l2norm",
]

CrossAttention = Literal["t2i", "i2t"]
FeatureNorm = Literal["clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm"]
Aggregation = Literal["LogSumExp", "Mean", "Max", "Sum"]

ATTENTIONS: tuple[CrossAttention, ...] = ("t2i", "i2t")
FEATURE_NORMS: tuple[FeatureNorm, ...] = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
AGGREGATIONS: tuple[Aggregation, ...] = ("LogSumExp", "Mean", "Max", "Sum")

LEAK = 0.1
"""Slope of the LeakyReLU of ``clipped``; the paper prints max(0, ·), the released models were trained with the leak."""
EPSILON = 1e-8
"""Added to norms that divide, and the least denominator of a cosine."""


class _InverseTemperature(Positive):
    """A number above 0 that stays as it was written: 9 and 9.0 would be other bytes in a file of weights."""

    def read(self, value: object) -> float:
        number = super().read(value)
        return value if isinstance(value, int) else number


@dataclass(frozen=True)
class ScanOptions(Options):
    """The shape of the network and of its attention; the defaults are those of the published COCO t2i model.

    The l2-norm of ``feature_norm`` is over the **queries**, for each value.
    """

    vocabulary_size: int = option(MISSING, Count(1), "words, the four special ones included")
    word_dim: int = option(300, Count(1), "components of a word")
    embed_dim: int = option(1024, Count(1), "components of the common space, D")
    image_dim: int = option(2048, Count(1), "components of a region feature")
    layers: int = option(1, Count(1, 100), "of the GRU")
    bidirectional: bool = option(True, Flag(), "read captions both ways and average the two directions")
    weight_norm: bool = option(
        False, Flag(), "whether the image layer is weight-normed (one scalar for the whole matrix)"
    )
    normalise_images: bool = option(True, Flag(), "l2-norm what the image encoder gives")
    normalise_captions: bool = option(True, Flag(), "l2-norm what the text encoder gives")
    cross_attention: CrossAttention = option(
        "t2i", Choice(*ATTENTIONS), "t2i: words attend to regions; i2t: regions attend to words"
    )
    feature_norm: FeatureNorm = option(
        "clipped_l2norm", Choice(*FEATURE_NORMS), "what is done to products of queries and values before the softmax"
    )
    aggregation: Aggregation = option("LogSumExp", Choice(*AGGREGATIONS), "of the cosines of the queries")
    lambda_softmax: float = option(9.0, _InverseTemperature(), "inverse temperature of the attention")
    lambda_lse: float = option(6.0, _InverseTemperature(), "inverse temperature of LogSumExp")

    def __post_init__(self) -> None:
        def refuse(message: str, hint: str) -> None:
            raise UsageError(message, hint=hint)

        self.checked("scan", vars(self), refuse)

    @property
    def parameters(self) -> int:
        """How many weights the network has."""
        size, ways = self.embed_dim, 2 if self.bidirectional else 1
        first = 3 * size * (self.word_dim + size + 2) * ways
        others = (self.layers - 1) * 3 * size * (ways * size + size + 2) * ways
        image = self.image_dim * size + size + self.weight_norm
        return self.vocabulary_size * self.word_dim + first + others + image


def l2norm(x: Tensor, dim: int = -1) -> Tensor:
    """x / (‖x‖ + 1e-8) along a dimension; a zero vector stays zero, and its gradient is finite."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return x / (norm + EPSILON)


class _WeightNormLinear(nn.Module):
    """A linear layer of weight g·v/‖v‖ with one scalar g and the norm over all of v (Salimans and Kingma, 2016)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight_g = nn.Parameter(torch.empty(()))
        self.weight_v = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight_v * (self.weight_g / self.weight_v.norm()), self.bias)


class ImageEncoder(nn.Module):
    """Regions (…, image_dim) → (…, D): a linear layer, then the l2-norm. The regions themselves are not normed."""

    def __init__(self, options: ScanOptions) -> None:
        super().__init__()
        self.normalise = options.normalise_images
        layer = _WeightNormLinear if options.weight_norm else nn.Linear
        self.fc: nn.Module = layer(options.image_dim, options.embed_dim)

    def forward(self, regions: Tensor) -> Tensor:
        """(…, image_dim) → (…, D)."""
        x: Tensor = self.fc(regions)
        return l2norm(x) if self.normalise else x


class TextEncoder(nn.Module):
    """Word numbers (b, m) → (b, m, D): embedding, GRU, mean of its two directions, l2-norm."""

    def __init__(self, options: ScanOptions) -> None:
        super().__init__()
        self.normalise = options.normalise_captions
        self.embed = nn.Embedding(options.vocabulary_size, options.word_dim)
        self.rnn = nn.GRU(
            options.word_dim,
            options.embed_dim,
            options.layers,
            batch_first=True,
            bidirectional=options.bidirectional,
        )

    def forward(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """ids (b, m) int64, lengths (b,) → (b, m, D), rows past a caption's length zero.

        The two directions see only a caption's own words, so padding and order of the captions change nothing.
        """
        words = functional.dropout(self.embed(ids), dropout, self.training)  # (b, m, word_dim)
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states = self.rnn(packed)[0]  # its data: (words of all captions, D or 2D)
        states = states._replace(data=self.common(states.data))
        return pad_packed_sequence(states, batch_first=True, total_length=ids.shape[1])[0]

    def common(self, states: Tensor) -> Tensor:
        """States of one or two directions (…, D or 2D) → vectors of the common space (…, D)."""
        if self.rnn.bidirectional:
            forward, backward = states.chunk(2, dim=-1)
            states = (forward + backward) / 2
        return l2norm(states) if self.normalise else states


def attend(options: ScanOptions, queries: Tensor, values: Tensor) -> Tensor:
    """The context of each query: queries (q, D), values (k, D) → (q, D)."""
    s = values @ queries.t()  # (k, q); cosines, where both are l2-normed
    if options.feature_norm.startswith("clipped"):
        s = functional.leaky_relu(s, LEAK)
    if options.feature_norm.endswith("l2norm"):
        s = l2norm(s, dim=1)  # over the queries: what a value gives to one of them, it does not give to the others
    if options.feature_norm == "softmax":
        s = s.softmax(dim=1)
    weights = (options.lambda_softmax * s).softmax(dim=0)  # over the values
    return weights.t() @ values


def aggregate(options: ScanOptions, cosines: Tensor) -> Tensor:
    """Cosines of queries and their contexts (…, q) → similarities (…)."""
    if options.aggregation == "LogSumExp":
        return torch.logsumexp(options.lambda_lse * cosines, dim=-1) / options.lambda_lse
    if options.aggregation == "Max":
        return cosines.max(dim=-1).values
    return cosines.mean(dim=-1) if options.aggregation == "Mean" else cosines.sum(dim=-1)


class Scan(nn.Module):
    """The network: ``image`` and ``text`` have the published models' names of weights.

    Args:
        options: shape and attention.
        generator: draws the initial weights; the global one if None.
    """

    text_encoder = TextEncoder

    def __init__(self, options: ScanOptions, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options
        self.image = ImageEncoder(options)
        self.text = self.text_encoder(options)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initial weights: Xavier-uniform image layer with bias 0, U(−0.1, 0.1) words, the GRU's ±1/√D.

        A weight-normed image layer starts at ±1/√image_dim, as the released code leaves it.
        """
        options = self.options
        layer = self.image.fc
        if isinstance(layer, _WeightNormLinear):
            bound = 1 / math.sqrt(options.image_dim)
            layer.weight_v.uniform_(-bound, bound, generator=generator)
            layer.weight_g.copy_(layer.weight_v.norm())
            layer.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(layer, nn.Linear):
            bound = math.sqrt(6 / (options.image_dim + options.embed_dim))
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.zero_()
        self.text.embed.weight.uniform_(-0.1, 0.1, generator=generator)
        bound = 1 / math.sqrt(options.embed_dim)
        for weight in self.text.rnn.parameters():
            weight.uniform_(-bound, bound, generator=generator)

    def encode_images(self, regions: Tensor, dropout: float = 0.0) -> Tensor:
        """(a, n, image_dim) → (a, n, D); ``dropout`` of the inputs acts in training mode only."""
        encoded: Tensor = self.image(functional.dropout(regions, dropout, self.training))
        return encoded

    def encode_captions(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """ids (b, m), lengths (b,) in any order → (b, m, D), zero rows past a length; ``dropout`` of word vectors."""
        encoded: Tensor = self.text(ids, lengths, dropout)
        return encoded

    def similarities(self, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """Similarity of every image with every caption, differentiable.

        Args:
            images: (a, n, D).
            captions: (b, m, D); rows past a length are not looked at.
            lengths: (b,) of 1 to m.

        Returns:
            (a, b).

        Raises:
            UsageError: an image has no regions, or a length is not one of 1 to m.
        """
        sizes = check_lengths(images, captions, lengths)
        if not len(images) or not sizes:
            return images.new_zeros(len(images), len(sizes))
        texts = [caption[:size] for caption, size in zip(captions, sizes, strict=True)]
        return torch.stack([torch.stack([self.similarity(image, text) for text in texts]) for image in images])

    def similarity(self, image: Tensor, caption: Tensor) -> Tensor:
        """Regions (n, D), words (m, D) → ()."""
        queries, values = (caption, image) if self.options.cross_attention == "t2i" else (image, caption)
        contexts = attend(self.options, queries, values)  # (q, D)
        norms = torch.linalg.vector_norm(queries, dim=-1) * torch.linalg.vector_norm(contexts, dim=-1)
        return aggregate(self.options, (queries * contexts).sum(dim=-1) / norms.clamp_min(EPSILON))


def check_lengths(images: Tensor, captions: Tensor, lengths: Tensor) -> list[int]:
    """Captions' lengths (b,) as numbers. Raises UsageError if captions (b, m, D) or images (a, n, D) do not fit."""
    sizes: list[int] = lengths.tolist()
    if len(sizes) != len(captions) or any(not 1 <= size <= captions.shape[1] for size in sizes) or not images.shape[1]:
        raise UsageError(
            f"captions of shape {tuple(captions.shape)} do not have the lengths {sizes}, or images of shape"
            f" {tuple(images.shape)} have no regions"
        )
    return sizes
