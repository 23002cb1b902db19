"""SCAN, stacked cross attention between image regions and words (Lee et al., ECCV 2018, arXiv:1803.08024).

An image is n region features of ``image_dim`` numbers, a caption m words. Both become vectors of D numbers,
l2-normed. Each query (a word of the caption for ``t2i``, a region for ``i2t``) attends to the values of the other
side; the cosine of a query with its attended mix of values, the *context*, tells how well the other side covers it,
and the cosines are aggregated to one similarity of image and caption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench.errors import UsageError, suggest
from capbench.models.scan.attention import EPSILON, Products, similarities
from capbench.models.scan.packed_gru import Packing, packed_gru

__all__ = [
    "AGGREGATIONS",
    "ATTENTIONS",
    "FEATURE_NORMS",
    "ImageEncoder",
    "Scan",
    "ScanOptions",
    "TextEncoder",
    "l2norm",
]

CrossAttention = Literal["t2i", "i2t"]
FeatureNorm = Literal["clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm"]
Aggregation = Literal["LogSumExp", "Mean", "Max", "Sum"]

ATTENTIONS: tuple[CrossAttention, ...] = ("t2i", "i2t")
FEATURE_NORMS: tuple[FeatureNorm, ...] = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
AGGREGATIONS: tuple[Aggregation, ...] = ("LogSumExp", "Mean", "Max", "Sum")


@dataclass(frozen=True)
class ScanOptions:
    """The shape of the network and of its attention; the defaults are those of the published COCO t2i model.

    Attributes:
        vocabulary_size: words, the four special ones included.
        word_dim, embed_dim, image_dim: components of a word, of the common space, of a region feature.
        layers: of the GRU.
        bidirectional: read captions both ways and average the two directions.
        weight_norm: the image side's layer is weight-normed (one scalar for the whole matrix).
        normalise_images, normalise_captions: l2-norm what the encoders give.
        cross_attention: ``t2i``: words attend to regions; ``i2t``: regions attend to words.
        feature_norm: what is done to the products of queries and values before the softmax over values. Its l2-norm
            is over the **queries**, for each value.
        aggregation: of the cosines of the queries.
        lambda_softmax: inverse temperature of the attention.
        lambda_lse: inverse temperature of LogSumExp.
    """

    vocabulary_size: int
    word_dim: int = 300
    embed_dim: int = 1024
    image_dim: int = 2048
    layers: int = 1
    bidirectional: bool = True
    weight_norm: bool = False
    normalise_images: bool = True
    normalise_captions: bool = True
    cross_attention: CrossAttention = "t2i"
    feature_norm: FeatureNorm = "clipped_l2norm"
    aggregation: Aggregation = "LogSumExp"
    lambda_softmax: float = 9.0
    lambda_lse: float = 6.0

    def __post_init__(self) -> None:
        choices: tuple[tuple[str, Sequence[str]], ...] = (
            ("cross_attention", ATTENTIONS),
            ("feature_norm", FEATURE_NORMS),
            ("aggregation", AGGREGATIONS),
        )
        for name, known in choices:
            value = getattr(self, name)
            if value not in known:
                raise UsageError(f"{name} is '{value}'", hint=suggest(str(value), list(known)))
        for name in ("vocabulary_size", "word_dim", "embed_dim", "image_dim", "layers"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}", hint="Give a whole number of 1 or more")
        for name in ("bidirectional", "weight_norm", "normalise_images", "normalise_captions"):
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"{name} is {getattr(self, name)!r}", hint="Give true or false")
        for name in ("lambda_softmax", "lambda_lse"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise UsageError(f"{name} is {value!r}", hint="Give a number above 0")

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
        self.fc: nn.Module = (
            _WeightNormLinear(options.image_dim, options.embed_dim)
            if options.weight_norm
            else nn.Linear(options.image_dim, options.embed_dim)
        )

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
        return (self._stepwise if ids.device.type == "cpu" else self._packed)(ids, lengths, dropout)

    def _packed(self, ids: Tensor, lengths: Tensor, dropout: float) -> Tensor:
        """By ``nn.GRU``, which is fast on a GPU."""
        words = functional.dropout(self.embed(ids), dropout, self.training)
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        flat = self.rnn(packed)[0]
        return pad_packed_sequence(flat._replace(data=self._common(flat.data)), True, 0.0, ids.shape[1])[0]

    def _stepwise(self, ids: Tensor, lengths: Tensor, dropout: float) -> Tensor:
        """By :func:`packed_gru`, which is fast on a CPU."""
        packing = Packing(lengths)
        own = ids[packing.captions, packing.steps]
        if dropout and self.training:
            rows = functional.dropout(self.embed(own), dropout)
            which = torch.arange(len(own))
        else:  # the same word is multiplied once
            distinct, which = torch.unique(own, return_inverse=True)
            rows = self.embed(distinct)
        x = self._common(packed_gru(self.rnn, rows, which, packing))
        padded = x.new_zeros(ids.shape[0] * ids.shape[1], x.shape[1])
        padded = padded.index_copy(0, packing.captions * ids.shape[1] + packing.steps, x)
        return padded.view(*ids.shape, -1)

    def _common(self, x: Tensor) -> Tensor:
        """States of one or two directions → vectors of the common space."""
        if self.rnn.bidirectional:
            forward, backward = x.chunk(2, dim=-1)
            x = (forward + backward) / 2
        return l2norm(x) if self.normalise else x


class Scan(nn.Module):
    """The network: ``image`` and ``text`` have the published models' names of weights.

    Args:
        options: shape and attention.
        generator: draws the initial weights; the global one if None.
    """

    def __init__(self, options: ScanOptions, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options
        self.image = ImageEncoder(options)
        self.text = TextEncoder(options)
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
        """(b, n, image_dim) → (b, n, D); ``dropout`` of the inputs acts in training mode only."""
        encoded: Tensor = self.image(functional.dropout(regions, dropout, self.training))
        return encoded

    def encode_captions(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """ids (b, m), lengths (b,) in any order → (b, m, D), zero rows past a length; ``dropout`` of word vectors."""
        encoded: Tensor = self.text(ids, lengths, dropout)
        return encoded

    def similarities(
        self,
        images: Tensor,
        captions: Tensor,
        lengths: Tensor,
        products: Products = "float32",
    ) -> Tensor:
        """Similarity of every image with every caption, differentiable.

        Captions of the same length are done together, so there is no padding in any norm, softmax or sum.

        Args:
            images: (a, n, D).
            captions: (b, m, D); rows past a length are not looked at.
            lengths: (b,) of 1 to m.
            products: ``bfloat16`` rounds the factors of the large matrix products (three significant digits).

        Returns:
            (a, b) float32 (float64 if the inputs are).

        Raises:
            UsageError: an image has no regions, a length is not one of 1 to m, or ``products`` is another.
        """
        return similarities(self.options, images, captions, lengths, products)
