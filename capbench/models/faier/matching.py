"""FAIEr's matching (section 3.3, eq. 3): for each node of a candidate the best union node, and the mean of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from capbench.models.faier.graphs import Nodes
from capbench.models.scan.network import l2norm

__all__ = ["Scores", "level_scores", "mean_over_references", "paired_level_scores"]

# Products of union nodes and nodes of candidates that are formed at once.
_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Scores:
    """Scores of pairs, of one shape.

    Attributes:
        objects: S^o.
        relations: S^r; None without a relation level.
        total: S.
    """

    objects: Tensor
    relations: Tensor | None
    total: Tensor


def level_scores(union: Nodes, candidates: Nodes, *, cosine: bool) -> Tensor:
    """S of a level for every pair: union nodes (B, R, d), candidates (C, K, d) → (B, C), differentiable.

    Products are formed for some images at a time; the backward pass keeps of them which node was the best. A candidate
    without nodes has score 0, and so has every candidate where there are no union nodes.
    """
    images, regions, size = union.vectors.shape
    captions = candidates.mask.shape[0]
    rows, counts = _present(candidates)
    words = candidates.vectors.flatten(0, 1)[rows]
    if not len(words) or not images:
        return union.vectors.new_zeros(images, captions)
    z = union.vectors
    if cosine:
        z, words = l2norm(z), l2norm(words)
    full = bool(union.mask.all())
    best = []
    step = max(1, _AT_ONCE // (regions * len(words)))
    for start in range(0, images, step):
        part = z[start : start + step]
        products = (part.reshape(-1, size) @ words.t()).view(len(part), regions, len(words))
        best.append(_best(products, None if full else union.mask[start : start + step, :, None], dim=1))
    owners = rows // candidates.mask.shape[1]
    sums = z.new_zeros(images, captions).index_add(1, owners, torch.cat(best))
    return sums / counts.clamp_min(1)


def paired_level_scores(union: Nodes, candidates: Nodes, images: Tensor, *, cosine: bool) -> Tensor:
    """S of a level for candidates (C, K, d), each with the image of its number (C,): (C,)."""
    z, h = union.vectors, candidates.vectors
    if cosine:
        z, h = l2norm(z), l2norm(h)
    regions, nodes, size = z.shape[1], h.shape[1], h.shape[2]
    parts = []
    step = max(1, _AT_ONCE // (regions * max(nodes, size)))
    for start in range(0, len(images), step):
        owners = images[start : start + step]
        mask = candidates.mask[start : start + step]
        products = z[owners] @ h[start : start + step].mT  # (c, R, K)
        best = _best(products, union.mask[owners][:, :, None], dim=1)
        parts.append(torch.where(mask, best, 0.0).sum(dim=1) / mask.sum(dim=1).clamp_min(1))
    return torch.cat(parts) if parts else z.new_zeros(0)


def mean_over_references(scores: Tensor, counts: Tensor) -> Tensor:
    """Scores against each reference (B, J, C), numbers of references (B,) → their means (B, C)."""
    counts = counts.to(scores.device)
    there = torch.arange(scores.shape[1], device=scores.device) < counts[:, None]
    return torch.where(there[:, :, None], scores, 0.0).sum(dim=1) / counts[:, None]


def _present(nodes: Nodes) -> tuple[Tensor, Tensor]:
    """Places of nodes that are there among all, flattened, and how many each caption has."""
    return nodes.mask.flatten().nonzero()[:, 0], nodes.mask.sum(dim=1)


def _best(products: Tensor, mask: Tensor | None, dim: int) -> Tensor:
    """The largest product along an axis; 0 where there is nothing to be multiplied with."""
    if mask is None:
        return products.max(dim=dim).values
    best = products.masked_fill(~mask, -math.inf).max(dim=dim).values
    return torch.where(mask.any(dim=dim).expand_as(best), best, 0.0)
