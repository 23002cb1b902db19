"""SCAN, stacked cross attention between image regions and words: a reference version and a fast one.

References:
    Lee, Chen, Hua, Hu and He, "Stacked Cross Attention for Image-Text Matching", ECCV 2018, arXiv:1803.08024:
        regions and words in sections 3.3 and 3.4, attention and similarity in section 3.1.
    The released code, where it differs: ``leaky_relu`` below, and the axis of the norm in :func:`attend`.
    Salimans and Kingma, "Weight Normalization", NIPS 2016, for one variant of the image layer.

Shapes: an image has n regions, a caption m words; there are a images and b captions; both are encoded as l2-normed
vectors of size D. Each *query* (a word of the caption for ``t2i``, a region for ``i2t``) attends to the k *values* of
the other side. The cosine of a query and its weighted sum of values, the *context*, measures how well the other side
covers it; the cosines of all q queries are aggregated to one similarity of image and caption.

:class:`FastScan` is the same network with a faster implementation, which training and metrics use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from capbench.core.errors import UsageError, suggest
from capbench.core.options import Choice, Count, Flag, Options, Positive, option
from capbench.weights.packed_gru import packed_captions

CrossAttention = Literal["t2i", "i2t"]
FeatureNorm = Literal["clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm"]
Aggregation = Literal["LogSumExp", "Mean", "Max", "Sum"]

ATTENTIONS: tuple[CrossAttention, ...] = ("t2i", "i2t")
FEATURE_NORMS: tuple[FeatureNorm, ...] = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
AGGREGATIONS: tuple[Aggregation, ...] = ("LogSumExp", "Mean", "Max", "Sum")

LEAK = 0.1
"""Slope of the LeakyReLU of ``clipped``; the paper prints max(0, ·), the released models were trained with the leak."""
EPSILON = 1e-8
"""Added to norms in denominators, and minimum denominator of a cosine."""


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
    cross_attention: CrossAttention = option(
        "t2i", Choice(*ATTENTIONS), "t2i: words attend to regions; i2t: regions attend to words"
    )
    feature_norm: FeatureNorm = option(
        "clipped_l2norm", Choice(*FEATURE_NORMS), "normalisation of products of queries and values before the softmax"
    )
    aggregation: Aggregation = option("LogSumExp", Choice(*AGGREGATIONS), "aggregation of the queries' cosines")
    lambda_softmax: float = option(9.0, _InverseTemperature(), "inverse temperature of the attention")
    lambda_lse: float = option(6.0, _InverseTemperature(), "inverse temperature of LogSumExp")

    def __post_init__(self) -> None:
        def reject(message: str, hint: str) -> None:
            raise UsageError(message, hint=hint)

        self.checked("scan", vars(self), reject)

    @property
    def parameters(self) -> int:
        """Number of weights of the network."""
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
        """ids (b, m) int64, lengths (b,) → (b, m, D), rows past a caption's length zero.

        Both directions read only a caption's words, so padding and the order of captions have no effect.
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
        s = l2norm(s, dim=1)  # over the queries, which compete for each value
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
    """The network; ``image`` and ``text`` have the weight names of the published models.

    Args:
        options: sizes and attention.
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
            captions: (b, m, D); rows past a length are ignored.
            lengths: (b,) from 1 to m.

        Returns:
            (a, b).

        Raises:
            UsageError: an image has no regions, or a length is not from 1 to m.
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
    """Captions' lengths (b,) as integers. Raises UsageError if captions (b, m, D) or images (a, n, D) do not match."""
    sizes: list[int] = lengths.tolist()
    if len(sizes) != len(captions) or any(not 1 <= size <= captions.shape[1] for size in sizes) or not images.shape[1]:
        raise UsageError(
            f"captions of shape {tuple(captions.shape)} do not have the lengths {sizes}, or images of shape"
            f" {tuple(images.shape)} have no regions",
            code="wrong-shape",
        )
    return sizes


# SCAN's similarities of a batch: attention of every query to every set of values, without computing contexts.
#
# With q a query, V the values (k, D) and a the attention (k), the context is Vᵀa: its product with q is a · (Vq) and
# its squared norm aᵀGa, where G = VVᵀ is the same for all queries. All products Vq of a batch are one matrix product;
# the other steps process a few sets of values at a time, which fit in the processor's cache.

Products = Literal["float32", "bfloat16"]

# Maximum numbers of regions and of words per chunk; memory is a few times their product.
_CHUNK = 4096
# Products of a batch above which the backward pass recomputes chunks instead of storing their attention.
_KEPT = 2**25
# Products that are processed together inside a chunk.
_CACHED = 2**19

Runs = Sequence[tuple[int, int]]
"""Consecutive groups of queries: (number of groups, queries per group)."""


def similarities(
    options: ScanOptions, images: Tensor, captions: Tensor, lengths: Tensor, products: Products = "float32"
) -> Tensor:
    """Similarity of every image with every caption, differentiable.

    Captions of equal length are processed together, so no norm, softmax or sum includes padding.

    Args:
        options: settings of the attention.
        images: (a, n, D).
        captions: (b, m, D); rows past a length are ignored.
        lengths: (b,) of 1 to m.
        products: ``bfloat16`` rounds the factors of the large matrix products (three significant digits).

    Returns:
        (a, b) float32 (float64 if the inputs are).

    Raises:
        UsageError: an image has no regions, a length is not from 1 to m, or invalid ``products``.
    """
    if products not in ("float32", "bfloat16"):
        hint = suggest(products, ["float32", "bfloat16"])
        raise UsageError(f"products is '{products}'", code="wrong-value", value=products, hint=hint)
    sizes = check_lengths(images, captions, lengths)
    if not len(images) or not sizes:
        return images.new_zeros(len(images), len(sizes))
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    width = captions.shape[1]
    rows = [caption * width + word for caption in order for word in range(sizes[caption])]
    words = captions.flatten(0, 1)[torch.tensor(rows, device=captions.device)]
    regions = images.shape[1]
    recomputed = torch.is_grad_enabled() and images.shape[0] * regions * len(rows) > _KEPT
    chunks: list[list[int]] = [[]]
    for caption in order:
        if chunks[-1] and sum(chunks[-1]) + sizes[caption] > _CHUNK:
            chunks.append([])
        chunks[-1].append(sizes[caption])
    words_of_chunks = words.split_with_sizes([sum(chunk) for chunk in chunks])
    rows_of_blocks: list[Tensor] = []
    for block in torch.split(images, max(1, _CHUNK // regions)):
        columns: list[Tensor] = []
        for chunk, chunk_words in zip(chunks, words_of_chunks, strict=True):
            if recomputed:
                columns.append(checkpoint(_chunk, options, block, chunk_words, chunk, products, use_reentrant=False))
            else:
                columns.append(_chunk(options, block, chunk_words, chunk, products))
        rows_of_blocks.append(torch.cat(columns, dim=1))
    place = torch.empty(len(order), dtype=torch.int64)
    place[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(rows_of_blocks)[:, place.to(captions.device)]


def _chunk(options: ScanOptions, images: Tensor, words: Tensor, lengths: Sequence[int], products: Products) -> Tensor:
    """Images (a, n, D), words (T, D) of captions sorted by length → (a, b)."""
    runs = [(lengths.count(length), length) for length in dict.fromkeys(lengths)]
    a, n, _ = images.shape
    flat = images.flatten(0, 1)
    left, right = (flat, words) if options.cross_attention == "t2i" else (words, flat)
    low = torch.bfloat16 if products == "bfloat16" else images.dtype
    s = (left.to(low) @ right.to(low).t()).to(images.dtype)
    norms = torch.linalg.vector_norm(right, dim=-1)  # of the queries
    if options.cross_attention == "t2i":
        cosine = _cosine(options, s.view(a, n, -1), images, norms, runs)  # (a, T)
        of_runs = cosine.split_with_sizes([groups * size for groups, size in runs], dim=1)
        return torch.cat([aggregate(options, x.view(a, *run)) for x, run in zip(of_runs, runs, strict=True)], dim=1)
    columns = []
    pieces = [groups * size for groups, size in runs]
    for run, products_of_run, values in zip(
        runs, s.split_with_sizes(pieces), words.split_with_sizes(pieces), strict=True
    ):
        cosine = _cosine(options, products_of_run.view(*run, a * n), values.view(*run, -1), norms, [(a, n)])
        columns.append(aggregate(options, cosine.view(-1, a, n)).t())
    return torch.cat(columns, dim=1)


def _cosine(options: ScanOptions, s: Tensor, values: Tensor, norms: Tensor, runs: Runs) -> Tensor:
    """Products s (g, k, T), values (g, k, D), norms of the queries (T,) → cosines with the contexts (g, T)."""
    gram = torch.bmm(values, values.mT)
    product, square = _Attention.apply(s, gram, runs, options.feature_norm, float(options.lambda_softmax))
    cosine: Tensor = product / (norms * square.clamp_min(EPSILON**3).sqrt()).clamp_min(EPSILON)
    return cosine


def _by_group(x: Tensor, runs: Runs) -> list[Tensor]:
    """Views (…, groups, queries) of (…, T), one per run."""
    of_runs = x.split_with_sizes([groups * size for groups, size in runs], dim=-1)
    return [of_run.unflatten(-1, run) for of_run, run in zip(of_runs, runs, strict=True)]  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    """Products s (g, k, T), Gram matrices (g, k, k) → a · s and aᵀGa, both (g, T), for the attention a of each query.

    With a hand-written gradient: autograd would store about ten arrays of the size of s, this stores s and a.
    """

    @staticmethod
    def forward(
        ctx: Any, s: Tensor, gram: Tensor, runs: Runs, feature_norm: str, scale: float
    ) -> tuple[Tensor, Tensor]:
        g, _, total = s.shape
        attention = torch.empty_like(s)
        product, square = s.new_empty(g, total), s.new_empty(g, total)
        for here in _slices(s):
            x = _normalised(s[here], runs, feature_norm)
            a = attention[here]
            torch.softmax(x.mul_(scale), 1, out=a)
            torch.sum(torch.mul(a, s[here], out=x), 1, out=product[here])
            torch.sum(torch.bmm(gram[here], a, out=x).mul_(a), 1, out=square[here])
        ctx.save_for_backward(s, gram, attention, product, square)
        ctx.how = runs, feature_norm, scale
        return product, square

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_product: Tensor, of_square: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        s, gram, attention, product, square = ctx.saved_tensors
        runs, feature_norm, scale = ctx.how
        of_s, of_gram = torch.empty_like(s), torch.empty_like(gram)
        for here in _slices(s):
            s_here, a = s[here], attention[here]
            dp, dq = of_product[here][:, None], of_square[here][:, None]
            weighted = a * dq
            torch.bmm(weighted, a.mT, out=of_gram[here])
            # Gradient of the softmax: a·(da − Σ a·da), where da = dp·s + 2·dq·Ga, so that the sum is already known.
            x = torch.bmm(gram[here] * (2 * scale), weighted).addcmul_(s_here, dp * scale)
            x -= (dp * product[here][:, None] + 2 * dq * square[here][:, None]).mul_(scale)
            x.mul_(a)
            torch.addcmul(_through_norm(s_here, x, runs, feature_norm), a, dp, out=of_s[here])
        return of_s, of_gram, None, None, None


def _slices(s: Tensor) -> list[slice]:
    """Sets of values that are processed together: few on a CPU, so that they fit in its cache, all on a GPU."""
    many = max(1, _CACHED // max(1, s.shape[1] * s.shape[2])) if s.device.type == "cpu" else max(1, s.shape[0])
    return [slice(at, at + many) for at in range(0, s.shape[0], many)]


def _normalised(s: Tensor, runs: Runs, feature_norm: str) -> Tensor:
    """The normalised products (g, k, T), as a new array."""
    if feature_norm == "softmax":
        return torch.cat([group.softmax(-1).flatten(-2) for group in _by_group(s, runs)], dim=-1)
    x = functional.leaky_relu(s, LEAK) if feature_norm.startswith("clipped") else s.clone()
    if feature_norm.endswith("l2norm"):
        for group in _by_group(x, runs):
            group /= torch.linalg.vector_norm(group, dim=-1, keepdim=True).add_(EPSILON)
    return x


def _through_norm(s: Tensor, gradient: Tensor, runs: Runs, feature_norm: str) -> Tensor:
    """Gradient (g, k, T) of the products from that of :func:`_normalised`'s output, which may be overwritten."""
    if feature_norm == "softmax":
        for group, of_group in zip(_by_group(s, runs), _by_group(gradient, runs), strict=True):
            x = group.softmax(-1)
            of_group -= (of_group * x).sum(-1, keepdim=True)
            of_group *= x
        return gradient
    clipped = feature_norm.startswith("clipped")
    if feature_norm.endswith("l2norm"):
        y = functional.leaky_relu(s, LEAK) if clipped else s
        for group, of_group in zip(_by_group(y, runs), _by_group(gradient, runs), strict=True):
            # x = y/(‖y‖ + ε): dy = (dx − y·(y·dx)/(‖y‖·(‖y‖ + ε)))/(‖y‖ + ε); if ‖y‖ is 0, y is 0.
            norm = torch.linalg.vector_norm(group, dim=-1, keepdim=True)
            along = (of_group * group).sum(-1, keepdim=True)
            divisor = norm + EPSILON
            along /= (norm * divisor).clamp_min_(EPSILON**3)
            of_group -= group * along
            of_group /= divisor
    if clipped:
        through: Tensor = torch.ops.aten.leaky_relu_backward(gradient, s, LEAK, False)
        return through
    return gradient


# The fast implementation of SCAN, with the same weights and equal results up to rounding. On a CPU, captions are
# encoded by :func:`capbench.weights.packed_gru.packed_gru`; similarities are those of :func:`similarities`.


class FastTextEncoder(TextEncoder):
    """The text encoder with :func:`packed_captions` on a CPU; on a GPU ``nn.GRU`` is fast."""

    def forward(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """As :meth:`TextEncoder.forward`: ids (b, m) int64, lengths (b,) → (b, m, D)."""
        if ids.device.type != "cpu":
            return super().forward(ids, lengths, dropout)
        states, packing = packed_captions(self.rnn, self.embed, ids, lengths, dropout if self.training else 0.0)
        x = self.common(states)  # (T, D)
        padded = x.new_zeros(ids.shape[0] * ids.shape[1], x.shape[1])
        padded = padded.index_copy(0, packing.captions * ids.shape[1] + packing.steps, x)
        return padded.view(*ids.shape, -1)


class FastScan(Scan):
    """The network with the fast text encoder and the fast similarities."""

    text_encoder = FastTextEncoder

    def similarities(self, images: Tensor, captions: Tensor, lengths: Tensor, products: Products = "float32") -> Tensor:
        """As :meth:`Scan.similarities`; ``products`` as in :func:`capbench.metrics.grounding.scan.similarities`."""
        return similarities(self.options, images, captions, lengths, products)
