"""SCAN's similarities of a batch: attention of every query to every set of values, without forming contexts.

With q a query, V the values (k, D) and a the attention (k), the context is Vᵀa: its product with q is a · (Vq) and
its squared norm aᵀGa, where G = VVᵀ is the same for all queries. All products Vq of a batch are one matrix product,
and what follows is done for a few sets of values at a time, which stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from capbench.errors import UsageError, suggest
from capbench.models.scan.network import EPSILON, LEAK, ScanOptions, aggregate, check_lengths

__all__ = ["Products", "similarities"]

Products = Literal["float32", "bfloat16"]

# Regions, and words, of one chunk: memory is bounded by a few times their product.
_CHUNK = 4096
# Products of a batch beyond which the backward pass computes chunks again instead of keeping their attention.
_KEPT = 2**25
# Products worked on at once inside a chunk.
_CACHED = 2**19

Runs = Sequence[tuple[int, int]]
"""Consecutive groups of queries: (how many groups, queries in each)."""


def similarities(
    options: ScanOptions, images: Tensor, captions: Tensor, lengths: Tensor, products: Products = "float32"
) -> Tensor:
    """Similarity of every image with every caption, differentiable.

    Captions of the same length are done together, so there is no padding in any norm, softmax or sum.

    Args:
        options: of the attention.
        images: (a, n, D).
        captions: (b, m, D); rows past a length are not looked at.
        lengths: (b,) of 1 to m.
        products: ``bfloat16`` rounds the factors of the large matrix products (three significant digits).

    Returns:
        (a, b) float32 (float64 if the inputs are).

    Raises:
        UsageError: an image has no regions, a length is not one of 1 to m, or ``products`` is another.
    """
    if products not in ("float32", "bfloat16"):
        raise UsageError(f"products is '{products}'", hint=suggest(products, ["float32", "bfloat16"]))
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
    """Views (…, groups, queries) of (…, T), one a run."""
    of_runs = x.split_with_sizes([groups * size for groups, size in runs], dim=-1)
    return [of_run.unflatten(-1, run) for of_run, run in zip(of_runs, runs, strict=True)]  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    """Products s (g, k, T), Gram matrices (g, k, k) → a · s and aᵀGa, both (g, T), for the attention a of each query.

    Its gradient by hand: autograd would keep some ten arrays of the size of s, this keeps s and a.
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
            # Of the softmax: a·(da − Σ a·da), where da = dp·s + 2·dq·Ga, so that the sum is known already.
            x = torch.bmm(gram[here] * (2 * scale), weighted).addcmul_(s_here, dp * scale)
            x -= (dp * product[here][:, None] + 2 * dq * square[here][:, None]).mul_(scale)
            x.mul_(a)
            torch.addcmul(_through_norm(s_here, x, runs, feature_norm), a, dp, out=of_s[here])
        return of_s, of_gram, None, None, None


def _slices(s: Tensor) -> list[slice]:
    """Sets of values that are worked on together: few on a CPU, so that they stay in its cache, all on a GPU."""
    many = max(1, _CACHED // max(1, s.shape[1] * s.shape[2])) if s.device.type == "cpu" else max(1, s.shape[0])
    return [slice(at, at + many) for at in range(0, s.shape[0], many)]


def _normalised(s: Tensor, runs: Runs, feature_norm: str) -> Tensor:
    """The products (g, k, T) made comparable between values, a new array."""
    if feature_norm == "softmax":
        return torch.cat([group.softmax(-1).flatten(-2) for group in _by_group(s, runs)], dim=-1)
    x = functional.leaky_relu(s, LEAK) if feature_norm.startswith("clipped") else s.clone()
    if feature_norm.endswith("l2norm"):
        for group in _by_group(x, runs):
            group /= torch.linalg.vector_norm(group, dim=-1, keepdim=True).add_(EPSILON)
    return x


def _through_norm(s: Tensor, gradient: Tensor, runs: Runs, feature_norm: str) -> Tensor:
    """Gradient (g, k, T) for the products, of one for what :func:`_normalised` makes of them; may change it."""
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
            # x = y/(‖y‖ + ε): dy = (dx − y·(y·dx)/(‖y‖·(‖y‖ + ε)))/(‖y‖ + ε); where ‖y‖ is 0, so is y.
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
