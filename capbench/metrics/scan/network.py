"""SCAN, stacked cross attention between image regions and words.

References:
    Lee, Chen, Hua, Hu and He, "Stacked Cross Attention for Image-Text Matching", ECCV 2018, arXiv:1803.08024:
        regions and words in sections 3.3 and 3.4, attention and similarity in section 3.1.
    The released code, where it differs: LeakyReLU for max(0, ·), and the axis of the norm in :func:`attend`.
    Salimans and Kingma, "Weight Normalization", NIPS 2016, for one variant of the image layer.

Shapes: an image has n regions, a caption m words; there are a images and b captions; both are encoded as l2-normed
vectors of size D. Each *query* (a word of the caption for ``t2i``, a region for ``i2t``) attends to the *values* of the
other side. The cosine of a query and its weighted sum of values, the *context*, measures how well the other side covers
it; the cosines of all q queries are aggregated to one similarity of image and caption.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench.core.options import Choice, Count, Flag, Options, Positive, option

ATTENTIONS = ("t2i", "i2t")
FEATURE_NORMS = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
AGGREGATIONS = ("LogSumExp", "Mean", "Max", "Sum")

LEAK = 0.1
"""Slope of the LeakyReLU of ``clipped``; the paper prints max(0, ·), the released models were trained with the leak."""
EPSILON = 1e-8  # Added to norms in denominators, and minimum denominator of a cosine
_CAPTIONS = 32  # compared at once
_NEVER = -1e30  # before a softmax


class _InverseTemperature(Positive):
    """A positive number that remains an integer if it is one: 9 and 9.0 would be different bytes in weight files."""

    def read(self, value: object) -> float:
        number = super().read(value)
        return value if isinstance(value, int) else number


@dataclass(frozen=True)
class ScanOptions(Options):
    """Sizes of the network and settings of its attention; defaults are those of the published COCO t2i model.

    The l2-norm of ``feature_norm`` is over the **queries**, for each value.
    """

    vocabulary_size: int = option(MISSING, Count(1), "number of words, including the four special ones")
    word_dim: int = option(300, Count(1), "size of a word's vector")
    embed_dim: int = option(1024, Count(1), "size D of the common space")
    image_dim: int = option(2048, Count(1), "size of a region feature")
    layers: int = option(1, Count(1, 100), "number of layers of the GRU")
    bidirectional: bool = option(True, Flag(), "read captions in both directions and average them")
    weight_norm: bool = option(False, Flag(), "weight-norm the image layer (one scalar for the whole matrix)")
    normalise_images: bool = option(True, Flag(), "l2-norm the output of the image encoder")
    normalise_captions: bool = option(True, Flag(), "l2-norm the output of the text encoder")
    cross_attention: str = option(
        "t2i", Choice(*ATTENTIONS), "t2i: words attend to regions; i2t: regions attend to words"
    )
    feature_norm: str = option(
        "clipped_l2norm", Choice(*FEATURE_NORMS), "normalisation of products of queries and values before the softmax"
    )
    aggregation: str = option("LogSumExp", Choice(*AGGREGATIONS), "aggregation of the queries' cosines")
    lambda_softmax: float = option(9.0, _InverseTemperature(), "inverse temperature of the attention")
    lambda_lse: float = option(6.0, _InverseTemperature(), "inverse temperature of LogSumExp")

    def __post_init__(self) -> None:
        self.checked("scan", vars(self))


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
    """Regions (…, image_dim) → (…, D): a linear layer, then the l2-norm. The input is not normed."""

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
    """Word ids (b, m) → (b, m, D): embedding, GRU, mean of its two directions, l2-norm."""

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
        """ids (b, m) int64, lengths (b,) → (b, m, D), rows past a caption's length zero."""
        words = functional.dropout(self.embed(ids), dropout, self.training)  # (b, m, word_dim)
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])[0]
        if self.rnn.bidirectional:  # (b, m, 2D)
            forward, backward = states.chunk(2, dim=-1)
            states = (forward + backward) / 2
        return l2norm(states) if self.normalise else states


@dataclass(frozen=True)
class Attention:
    """Settings of the attention."""

    cross_attention: str  # ``t2i``: words are the queries and regions the values; ``i2t``: the reverse
    norm: str  # normalisation of the products of queries and values, one of :data:`FEATURE_NORMS`
    smoothing: float  # λ, the inverse temperature
    leak: float = LEAK  # slope of ``clipped`` below 0; 0 is the paper's max(0, ·)


def attend(o: Attention, images: Tensor, captions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of every query to the values of every image or caption (section 3.1).

    ``images``: (a, n, D); ``captions``: (b, m, D), zero past a length; ``lengths``: (b,).
    Returns weights (a, n, b, m), which sum to 1 over the values, an image's regions (``t2i``) or a caption's words
    (``i2t``); and the products of regions and words (a, n, b, m), cosines if the vectors have length 1.
    """
    queries, values = (3, 1) if o.cross_attention == "t2i" else (1, 3)
    x = s = torch.einsum("and,bmd->anbm", images, captions)
    padding = torch.arange(s.shape[3], device=s.device) >= lengths.to(s.device)[:, None]
    if o.norm.startswith("clipped"):
        x = functional.leaky_relu(x, o.leak)
    if o.norm.endswith("l2norm"):  # over the queries, which compete for each value
        x = l2norm(x, dim=queries)
    elif o.norm == "softmax":
        x = (x.masked_fill(padding, _NEVER) if queries == 3 else x).softmax(dim=queries)
    x = o.smoothing * x
    return (x.masked_fill(padding, _NEVER) if values == 3 else x).softmax(dim=values), s


def context_cosines(o: Attention, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
    """Cosines of all queries and their contexts, 0 for zero vectors: (a, b, m) for ``t2i``, (a, b, n) for ``i2t``.

    With q a query, V its values (k, D) and w their weights (k), the context is Vᵀw: its product with q is w · (Vq) and
    its squared norm wᵀ(VVᵀ)w, so that contexts are never computed. Arguments are those of :func:`attend`.
    """
    w, s = attend(o, images, captions, lengths)
    if o.cross_attention == "t2i":
        norms = torch.linalg.vector_norm(captions, dim=2)
        mixed = ((images @ images.mT) @ w.flatten(2)).view_as(w)
        products, squares = (w * s).sum(1), (w * mixed).sum(1)  # (a, b, m)
    else:
        norms = torch.linalg.vector_norm(images, dim=2)[:, None]
        mixed = torch.einsum("anbm,bmk->anbk", w, captions @ captions.mT)
        products, squares = ((w * x).sum(3).mT for x in (s, mixed))  # (a, b, n)
    cosines: Tensor = products / (norms * squares.clamp_min(EPSILON**3).sqrt()).clamp_min(EPSILON)
    return cosines


class Scan(nn.Module):
    """The network; ``image`` and ``text`` have the weight names of the published models."""

    kind: ClassVar = "capbench.scan/1"  # of weight files

    def __init__(self, options: ScanOptions, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options
        self.attention = Attention(options.cross_attention, options.feature_norm, options.lambda_softmax)
        self.image = ImageEncoder(options)
        self.text = TextEncoder(options)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None) -> None:
        """Initial weights: Xavier-uniform image layer with bias 0, U(−0.1, 0.1) words, the GRU's ±1/√D.

        A weight-normed image layer starts at ±1/√image_dim, as in the released code.
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
        """(a, n, image_dim) → (a, n, D); ``dropout`` of the inputs in training mode only."""
        return self.image(functional.dropout(regions, dropout, self.training))  # type: ignore[no-any-return]

    def encode_captions(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """ids (b, m), lengths (b,) in any order → (b, m, D), zero rows past a length; ``dropout`` of word vectors."""
        return self.text(ids, lengths, dropout)  # type: ignore[no-any-return]

    def similarities(self, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """(a, b) similarities of images (a, n, D) and captions (b, m, D), zero past their ``lengths`` (b,)."""
        order = lengths.argsort()
        columns = []
        for some in torch.split(order, _CAPTIONS):  # of similar lengths, so that there is little padding
            of, size = lengths[some], int(lengths[some].max())
            cosines = context_cosines(self.attention, images, captions[some.to(captions.device), :size], of)
            columns.append(self.aggregate(cosines, of.to(cosines.device)))
        return torch.cat(columns, dim=1)[:, order.argsort().to(images.device)]

    def aggregate(self, cosines: Tensor, lengths: Tensor) -> Tensor:
        """Cosines (a, b, q) of the queries and their contexts → similarities (a, b)."""
        o = self.options
        absent = torch.arange(cosines.shape[2], device=cosines.device) >= lengths[:, None]  # (b, q)
        if o.cross_attention == "i2t":  # all regions count
            absent = torch.zeros_like(absent)
        if o.aggregation == "LogSumExp":
            return torch.logsumexp(o.lambda_lse * cosines.masked_fill(absent, _NEVER), dim=2) / o.lambda_lse
        if o.aggregation == "Max":
            return cosines.masked_fill(absent, _NEVER).amax(dim=2)
        total = cosines.masked_fill(absent, 0.0).sum(dim=2)
        return total / (~absent).sum(dim=1) if o.aggregation == "Mean" else total
