"""Proposals and selected boxes of the two modes of bottom-up attention, as functions of tensors."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import HFSelection, region_features
from capbench.features.detectors.images import Prepared

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Regions that a mode selects, in its order."""

    rows: Tensor  # int64 (n,), indices of their proposals
    boxes: Tensor  # float (n, 4) in pixels of the original image
    class_ids: Tensor  # int64 (n,), 0 for the first class after the background
    class_scores: Tensor  # float (n,)

    def record(self, image: Prepared, features: Tensor, **more: Tensor) -> RegionFeatures:
        """One image's record, from the features of all proposals; ``more``: ids and scores of the selected ones."""
        flat = {"class_ids": self.class_ids, "class_scores": self.class_scores, **more}
        return region_features(image, self.boxes, features[self.rows], **flat)


def propose(
    logits: Tensor,  # (a, h, w), or (2 * a, h, w) with all background logits first, of one image
    deltas: Tensor,  # (4 * a, h, w)
    anchors: Tensor,  # (a, 4) of one cell
    size: tuple[int, int],  # height and width of the image in the network's pixels, without padding
    code: Literal["detectron2", "caffe", "detectron"] = "detectron2",
    *,
    stride: int = 16,  # pixels per cell
    before: int = 6000,  # number of proposals before suppression
    after: int = 300,  # maximum number of proposals after suppression
    nms: float = 0.7,  # maximum IoU
    min_size: float = 0.0,  # sides must be at least this, in detectron2 longer than this
) -> tuple[Tensor, Tensor]:
    """Proposals of a proposal network of detectron2 (continuous boxes), py-faster-rcnn or Detectron (inclusive boxes).

    The best ``before`` are taken before small ones are removed, in py-faster-rcnn (``caffe``) afterwards.

    Returns boxes (n, 4), clipped, and their logits (n,) (with two logits per anchor: probabilities), best first.
    """
    inclusive = code != "detectron2"
    logits, number = logits.float(), len(anchors)
    if len(logits) == 2 * number:
        # Background logits of all anchors come first; Caffe's softmax runs over the two.
        logits = logits.reshape(2, number, *logits.shape[1:]).softmax(dim=0)[1]
    scores = logits.permute(1, 2, 0).reshape(-1)  # (h * w * a), in the order of :func:`boxes.grid`, as the deltas
    moves = deltas.float().reshape(number, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)
    order = scores.sort(descending=True, stable=True).indices[: None if code == "caffe" else before]
    cells = bx.grid(anchors, logits.shape[1], logits.shape[2], stride)[order]
    limit, last_pixel = None if code == "caffe" else bx.DELTA_LIMIT, code == "detectron"
    boxes = bx.decode(cells, moves[order], inclusive=inclusive, last_pixel=last_pixel, limit=limit)
    boxes = bx.clip(boxes, *size, inclusive=inclusive)
    sides = boxes[:, 2:] - boxes[:, :2]
    wide = (sides + 1.0 >= min_size if inclusive else sides > min_size).all(dim=1)
    boxes, scores = boxes[wide][:before], scores[order][wide][:before]
    keep = bx.nms(boxes, scores, nms, inclusive=inclusive)[:after]
    return boxes[keep], scores[keep]


DELTA_WEIGHTS = (10.0, 10.0, 5.0, 5.0)  # factors of the box deltas in training


def caffe_selection(
    regions: Tensor,  # (n, 4), inclusive, in pixels of the original image
    probabilities: Tensor,  # (n, classes), without the background
    *,
    threshold: float = 0.2,  # minimum best score
    nms: float = 0.3,  # maximum IoU within a class
    min_boxes: int = 10,  # if fewer reach the threshold, the best ``min_boxes`` are selected
    max_boxes: int = 100,  # if more reach it, the best ``max_boxes`` are selected
) -> tuple[Tensor, Tensor]:
    """Proposals that Caffe mode selects: those whose best class score after class-wise suppression reaches a threshold.

    Returns rows int64 (k,), in the proposals' order, or best first if a limit applies; and all best scores (n,).
    """
    best = bx.best_class_scores(regions, probabilities, nms, inclusive=True)
    rows = (best >= threshold).nonzero()[:, 0]
    if not min_boxes <= len(rows) <= max_boxes:
        limit = min_boxes if len(rows) < min_boxes else max_boxes
        rows = best.sort(descending=True, stable=True).indices[:limit]
    return rows, best


def hf_chosen(
    image: Prepared,
    options: HFSelection,
    proposals: Tensor,  # (n, 4) in the network's pixels
    classes: Tensor,  # logits (n, c + 1), the background last
    deltas: Tensor,  # (n, 4 * c), or (n, 4) for all classes
) -> Chosen:
    """Regions that HF mode selects: each proposal's best class and its regressed box, suppressed over all classes.

    Thresholds ``nms`` are tried in turn until ``min_boxes`` regions remain. If none leaves that many, the original code
    crashes; here, the ``min_boxes`` regions with the best scores are selected.
    """
    _, h, w = image.pixels.shape
    scores, ids = classes.float().softmax(dim=1)[:, :-1].max(dim=1)
    class_boxes = bx.decode(proposals.float(), deltas.float(), weights=DELTA_WEIGHTS).reshape(len(proposals), -1, 4)
    column = ids if class_boxes.shape[1] > 1 else torch.zeros_like(ids)
    boxes = bx.clip(class_boxes[torch.arange(len(ids), device=ids.device), column], h, w)
    for threshold in options.nms:
        rows = bx.nms(boxes, scores, threshold)[: options.max_boxes]
        if len(rows) >= options.min_boxes:
            break
    else:
        rows = scores.sort(descending=True, stable=True).indices[: options.min_boxes]
    y, x = image.height / h, image.width / w  # original pixels per network pixel
    return Chosen(rows, boxes[rows] * boxes.new_tensor([x, y, x, y]), ids[rows], scores[rows])
