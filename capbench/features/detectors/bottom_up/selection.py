"""Which boxes the two published modes of the bottom-up detector propose and keep: tensors in, tensors out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from capbench.features.detectors import boxes as bx

__all__ = ["Chosen", "caffe_proposals", "caffe_selection", "hf_detections", "hf_proposals"]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Regions that a mode keeps, in its order.

    Attributes:
        rows: int64 (n,), which proposals they are.
        boxes: float (n, 4) in pixels of the original image.
        class_ids: int64 (n,), 0 is the first class that is no background.
        class_scores: float (n,).
    """

    rows: Tensor
    boxes: Tensor
    class_ids: Tensor
    class_scores: Tensor


# -- first stage ------------------------------------------------------------------------------------------------------


def _flat(logits: Tensor, deltas: Tensor, anchors: int) -> tuple[Tensor, Tensor]:
    """Scores (h * w * a,) and deltas (h * w * a, 4) of one image, in the order of :func:`boxes.grid`."""
    if len(logits) == 2 * anchors:
        # Background logits of all anchors come first; Caffe's softmax runs over the two.
        logits = logits.reshape(2, anchors, *logits.shape[1:]).softmax(dim=0)[1]
    scores = logits.permute(1, 2, 0).reshape(-1)
    moves = deltas.reshape(anchors, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)
    return scores, moves


def hf_proposals(
    logits: Tensor,
    deltas: Tensor,
    anchors: Tensor,
    size: tuple[int, int],
    *,
    stride: int = 16,
    before: int = 6000,
    after: int = 300,
    nms: float = 0.7,
    min_size: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Proposals as detectron2's proposal network gives them: best first, then clipped, then those without area dropped.

    Args:
        logits: (a, h, w), or (2 * a, h, w) with all background logits first, of one image.
        deltas: (4 * a, h, w).
        anchors: (a, 4) of one cell.
        size: height and width of the image in the network's pixels, without padding.
        stride: pixels a cell.
        before: proposals that go into suppression.
        after: proposals that come out.
        nms: largest IoU.
        min_size: sides must be longer than this.

    Returns:
        Boxes (n, 4), and their logits (n,) (with two logits an anchor: probabilities), best first.
    """
    scores, moves = _flat(logits.float(), deltas.float(), len(anchors))
    all_anchors = bx.grid(anchors, logits.shape[1], logits.shape[2], stride)
    order = scores.sort(descending=True, stable=True).indices[:before]
    boxes = bx.clip(bx.decode(all_anchors[order], moves[order]), *size)
    scores = scores[order]
    wide = bx.wide_enough(boxes, min_size)
    boxes, scores = boxes[wide], scores[wide]
    keep = bx.nms(boxes, scores, nms)[:after]
    return boxes[keep], scores[keep]


def caffe_proposals(
    logits: Tensor,
    deltas: Tensor,
    anchors: Tensor,
    size: tuple[int, int],
    scale: float,
    *,
    stride: int = 16,
    before: int = 6000,
    after: int = 300,
    nms: float = 0.7,
    min_size: float = 16.0,
) -> tuple[Tensor, Tensor]:
    """Proposals as py-faster-rcnn's proposal layer gives them: clipped, small ones dropped, then best first.

    Arguments are those of :func:`hf_proposals`, for inclusive boxes; sides must have at least ``min_size * scale``
    pixels, where ``scale`` is what the image was resized by.

    Returns:
        Boxes (n, 4), and probabilities (n,) (with one logit an anchor: logits), best first.
    """
    scores, moves = _flat(logits.float(), deltas.float(), len(anchors))
    all_anchors = bx.grid(anchors, logits.shape[1], logits.shape[2], stride)
    boxes = bx.clip(bx.decode(all_anchors, moves, inclusive=True, limit=None), *size, inclusive=True)
    wide = bx.wide_enough(boxes, min_size * scale, inclusive=True)
    boxes, scores = boxes[wide], scores[wide]
    order = scores.sort(descending=True, stable=True).indices[:before]
    boxes, scores = boxes[order], scores[order]
    keep = bx.nms(boxes, scores, nms, inclusive=True)[:after]
    return boxes[keep], scores[keep]


# -- second stage -----------------------------------------------------------------------------------------------------


def caffe_selection(
    regions: Tensor,
    probabilities: Tensor,
    *,
    threshold: float = 0.2,
    nms: float = 0.3,
    min_boxes: int = 10,
    max_boxes: int = 100,
) -> tuple[Tensor, Tensor]:
    """Which proposals Caffe mode keeps: those whose best class score after class-wise suppression reaches a threshold.

    Args:
        regions: (n, 4), inclusive, in pixels of the original image.
        probabilities: (n, classes), without the background.
        threshold: least best score.
        nms: largest IoU within a class.
        min_boxes: if fewer reach the threshold, this many of the best are kept.
        max_boxes: if more do, this many of the best are kept.

    Returns:
        Rows int64 (k,), in the proposals' order, or best first (equal scores in the proposals' order) where a limit
        decided; and the best scores (n,) of all proposals.
    """
    best = bx.best_class_scores(regions, probabilities, nms, inclusive=True)
    rows = (best >= threshold).nonzero()[:, 0]
    if not min_boxes <= len(rows) <= max_boxes:
        limit = min_boxes if len(rows) < min_boxes else max_boxes
        rows = best.sort(descending=True, stable=True).indices[:limit]
    return rows, best


def hf_detections(
    proposals: Tensor,
    classes: Tensor,
    deltas: Tensor,
    size: tuple[int, int],
    scales_yx: tuple[float, float] = (1.0, 1.0),
    *,
    nms: Sequence[float] = (0.5, 0.6, 0.7),
    min_boxes: int = 36,
    max_boxes: int = 36,
    delta_weights: Sequence[float] = (10.0, 10.0, 5.0, 5.0),
) -> Chosen:
    """Which regions HF mode keeps: each proposal's best class and its regressed box, suppressed over all classes.

    Thresholds are tried in turn until ``min_boxes`` survive. If none lets so many through, the original code crashes;
    here the ``min_boxes`` with the best scores are kept.

    Args:
        proposals: (n, 4) in the network's pixels.
        classes: logits (n, c + 1), the background last.
        deltas: (n, 4 * c), or (n, 4) for all classes.
        size: height and width of the image in the network's pixels.
        scales_yx: original pixels by network pixels, down and across.
        nms: thresholds.
        min_boxes: least number of regions.
        max_boxes: largest number of regions.
        delta_weights: what box deltas were multiplied by in training.
    """
    scores, ids = classes.float().softmax(dim=1)[:, :-1].max(dim=1)
    class_boxes = bx.decode(proposals.float(), deltas.float(), weights=delta_weights).reshape(len(proposals), -1, 4)
    column = ids if class_boxes.shape[1] > 1 else torch.zeros_like(ids)
    boxes = bx.clip(class_boxes[torch.arange(len(ids), device=ids.device), column], *size)
    for threshold in nms:
        rows = bx.nms(boxes, scores, threshold)[:max_boxes]
        if len(rows) >= min_boxes:
            break
    else:
        rows = scores.sort(descending=True, stable=True).indices[:min_boxes]
    y, x = scales_yx
    return Chosen(rows, boxes[rows] * boxes.new_tensor([x, y, x, y]), ids[rows], scores[rows])
