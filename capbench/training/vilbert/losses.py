"""What a ViLBERT learns from: losses of words, regions, alignment, contrast and matching, each a mean over a batch."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from capbench.training.vilbert.batches import IGNORED

__all__ = ["alignment_loss", "f_scores", "late_similarities", "matching_loss", "region_loss", "word_loss"]

_FAR = -1e4  # in place of a similarity with what is not there


def word_loss(logits: Tensor, words: Tensor) -> Tensor:
    """Mean cross entropy of masked words; 0 where none is masked.

    Args:
        logits: (k, vocabulary) of the masked places.
        words: (k,) what stood there.
    """
    return functional.cross_entropy(logits, words, ignore_index=IGNORED, reduction="sum") / max(1, len(words))


def region_loss(told: Tensor, targets: Tensor, variance: float | None) -> Tensor:
    """Loss of masked regions; 0 where none is masked.

    Args:
        told: (k, d) features or (k, classes) logits.
        targets: (k, d) features or (k, classes) probabilities.
        variance: of the features: mean squared error as a share of it. None: the targets are probabilities, and the
            loss is the Kullback-Leibler divergence of what is told from them (Lu et al. 2019, section 2.3).
    """
    count = max(1, len(told))
    if variance is None:
        return functional.kl_div(told.log_softmax(dim=-1), targets, reduction="sum") / count
    return ((told - targets).square().mean(dim=-1).sum() / variance) / count


def alignment_loss(logits: Tensor, together: Tensor) -> Tensor:
    """Cross entropy of "they belong together" (class 0), both classes weighing the same.

    Args:
        logits: (k, 2).
        together: (k,) bool; both kinds are among them.
    """
    losses = functional.cross_entropy(logits, (~together).long(), reduction="none")
    return (losses[together].mean() + losses[~together].mean()) / 2


def late_similarities(tokens: Tensor, present: Tensor, regions: Tensor) -> Tensor:
    """Similarity of every image with every caption: the mean over tokens of the best cosine with a region.

    Args:
        tokens: (c, m, D) of captions.
        present: (c, m) which count.
        regions: (i, n, D) of images.

    Returns:
        (i, c).
    """
    words, areas = functional.normalize(tokens, dim=-1), functional.normalize(regions, dim=-1)
    flat = words.flatten(0, 1) @ areas.flatten(0, 1).t()  # (c·m, i·n)
    best = flat.view(*words.shape[:2], *areas.shape[:2]).amax(dim=3)  # (c, m, i)
    counts = present.sum(dim=1).clamp_min(1)
    return ((best * present[..., None]).sum(dim=1) / counts[:, None]).t()


def f_scores(first: Tensor, first_present: Tensor, second: Tensor, second_present: Tensor) -> Tensor:
    """F of greedy matching by cosine of pairs of captions (Lee et al. 2020, equations 1 to 3), without padding.

    Args:
        first: (k, m, D).
        first_present: (k, m) which tokens count; at least one of each caption.
        second: (k, n, D).
        second_present: (k, n).

    Returns:
        (k,).
    """
    a, b = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
    similar = (a @ b.transpose(1, 2)).masked_fill(~(first_present[:, :, None] & second_present[:, None, :]), _FAR)
    precision = _mean(similar.amax(dim=2), first_present)
    recall = _mean(similar.amax(dim=1), second_present)
    return 2 * precision * recall / (precision + recall).clamp_min(1e-3)


def _mean(values: Tensor, present: Tensor) -> Tensor:
    return values.masked_fill(~present, 0.0).sum(dim=1) / present.sum(dim=1).clamp_min(1)


def matching_loss(own: Tensor, foreign: Tensor, temperature: float) -> Tensor:
    """Mean over all pairs of ln(1 + exp((foreign - own) / temperature)): a soft count of pairs in the wrong order.

    Captions of an image with one of its own shall match better than captions with a foreign one, over all images at
    once: a metric's scores are compared between images, too.

    Args:
        own: (b,) F-scores.
        foreign: (k,) F-scores.
        temperature: that differences are divided by.
    """
    return functional.softplus((foreign[None, :] - own[:, None]) / temperature).mean()
