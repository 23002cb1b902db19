"""Losses on a square matrix of similarities: row i is image i, column j caption j, pairs that belong together on the
diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional

from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.training.matching import LossOptions

__all__ = ["batch_loss", "hinge_loss", "info_nce"]


def batch_loss(scores: Tensor, options: LossOptions, step: int) -> Tensor:
    """The loss that the settings ask for.

    Args:
        scores: (b, b).
        options: which loss, and its numbers.
        step: from 0; ``hardest_after`` counts it.
    """
    if options.kind == "info-nce":
        return info_nce(scores, options.temperature)
    return hinge_loss(scores, options.margin, options.hardest and step >= options.hardest_after, options.reduction)


def hinge_loss(
    scores: Tensor, margin: float = 0.2, hardest: bool = True, reduction: Literal["sum", "mean"] = "sum"
) -> Tensor:
    """Triplet hinge loss in both directions (Lee et al. 2018, eq. 11 and 12; hardest negatives: Faghri et al. 2018).

    Args:
        scores: (b, b).
        margin: by how much a pair shall be above its negatives.
        hardest: only the worst negative of each row and of each column counts (``max_violation``), else all do.
        reduction: ``sum`` over the batch as released, or ``mean`` over the b·(b − 1) negatives of each direction
            (``hardest``: over its b), the two directions added.

    Raises:
        UsageError: the matrix is not square, or ``reduction`` is another.
    """
    size = _size(scores)
    if reduction not in ("sum", "mean"):
        raise UsageError(f"reduction is '{reduction}'", hint="Choices: sum, mean")
    pairs = scores.diagonal()  # of what belongs together
    same = torch.eye(size, dtype=torch.bool, device=scores.device)
    captions = (margin + scores - pairs[:, None]).clamp_min(0).masked_fill(same, 0)  # another caption of the image
    images = (margin + scores - pairs[None, :]).clamp_min(0).masked_fill(same, 0)  # another image of the caption
    if hardest:
        captions, images = captions.max(1).values, images.max(0).values
    total = captions.sum() + images.sum()
    return total if reduction == "sum" else total / (size if hardest else max(1, size * (size - 1)))


def info_nce(scores: Tensor, temperature: float = 0.1) -> Tensor:
    """Symmetric InfoNCE (van den Oord et al. 2018; both directions as in CLIP): mean of two mean cross entropies.

    Args:
        scores: (b, b).
        temperature: that the scores are divided by.

    Raises:
        UsageError: the matrix is not square, or the temperature is not above 0.
    """
    if not temperature > 0:
        raise UsageError(f"temperature is {temperature}", hint="Give a number above 0")
    partners = torch.arange(_size(scores), device=scores.device)
    logits = scores / temperature
    return (functional.cross_entropy(logits, partners) + functional.cross_entropy(logits.t(), partners)) / 2


def _size(scores: Tensor) -> int:
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or not len(scores):
        raise UsageError(f"the matrix of similarities has shape {tuple(scores.shape)}, which is not square")
    return len(scores)
