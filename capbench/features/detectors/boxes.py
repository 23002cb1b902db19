"""Arithmetic of boxes, in the two conventions of the published detectors.

*Inclusive* (Caffe, Detectron): ``x2`` and ``y2`` are the last pixel inside; a width is ``x2 - x1 + 1``.
*Continuous* (detectron2, torchvision): coordinates are points of the plane; a width is ``x2 - x1``.

Boxes are float tensors (n, 4) of x1, y1, x2, y2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

DELTA_LIMIT = math.log(1000.0 / 16.0)
"""Maximum logarithm of a change in size (Detectron and its successors); larger values are clamped."""


def caffe_anchors(
    base: int = 16, ratios: Sequence[float] = (0.5, 1.0, 2.0), scales: Sequence[float] = (4, 8, 16, 32)
) -> Tensor:
    """The anchors of one cell in Fast and Faster R-CNN's Caffe code: rounded, ratio-major, inclusive.

    ``base``: side of the cell in pixels (the stride); ``ratios``: height divided by width; ``scales``: multiples of the
    cell's side.
    Returns float32 (len(ratios) * len(scales), 4), around the centre of the box (0, 0, base - 1, base - 1).
    """
    centre = 0.5 * (base - 1)
    corners = []
    for ratio in ratios:
        # np.round rounds half to even, which the published anchors depend on.
        width = float(np.round(np.sqrt(base * base / ratio)))
        height = float(np.round(width * ratio))
        for scale in scales:
            x, y = 0.5 * (width * scale - 1), 0.5 * (height * scale - 1)
            corners.append([centre - x, centre - y, centre + x, centre + y])
    return torch.tensor(corners, dtype=torch.float64).float()


def centred_anchors(sizes: Sequence[float] = (64, 128, 256, 512), ratios: Sequence[float] = (0.5, 1.0, 2.0)) -> Tensor:
    """The anchors of one cell in detectron2: around (0, 0), size-major, continuous.

    ``sizes``: square roots of the anchors' areas in pixels; ``ratios``: height divided by width.
    Returns float32 (len(sizes) * len(ratios), 4).
    """
    corners = []
    for size in sizes:
        for ratio in ratios:
            width = math.sqrt(size * size / ratio)
            height = ratio * width
            corners.append([-width / 2, -height / 2, width / 2, height / 2])
    return torch.tensor(corners, dtype=torch.float64).float()


def grid(anchors: Tensor, height: int, width: int, stride: int) -> Tensor:
    """All anchors (height * width * a, 4) of a feature map: row-major cells, each with its a anchors."""
    options = {"dtype": torch.float32, "device": anchors.device}
    x = torch.arange(width, **options) * stride  # type: ignore[call-overload]
    y = torch.arange(height, **options) * stride  # type: ignore[call-overload]
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    shifts = torch.stack([columns, rows, columns, rows], dim=-1).reshape(-1, 1, 4)
    return (shifts + anchors.reshape(1, -1, 4)).reshape(-1, 4)


def decode(
    boxes: Tensor,  # (n, 4)
    deltas: Tensor,  # (n, 4 * k): dx, dy, dw, dh for each of k classes
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),  # factors of the four deltas in training
    inclusive: bool = False,  # sizes are x2 - x1 + 1; as in Caffe's code, the 1 is not subtracted again
    last_pixel: bool = False,  # subtract 1 from the new x2 and y2, as in Detectron
    limit: float | None = DELTA_LIMIT,  # maximum of dw and dh, to which they are clamped; None for no limit
) -> Tensor:
    """Move and stretch boxes: centre + d * size, size * exp(d); (n, 4 * k)."""
    pixel = 1.0 if inclusive else 0.0
    size = boxes[:, 2:] - boxes[:, :2] + pixel  # (n, 2)
    centre = boxes[:, :2] + 0.5 * size
    d = deltas.reshape(len(boxes), -1, 4)
    scale = torch.tensor(list(weights), dtype=d.dtype, device=d.device)
    d = d / scale
    stretch = d[..., 2:] if limit is None else d[..., 2:].clamp(max=limit)
    new_centre = d[..., :2] * size[:, None] + centre[:, None]
    new_size = torch.exp(stretch) * size[:, None]
    end = new_centre + 0.5 * new_size
    corners = torch.cat([new_centre - 0.5 * new_size, end - 1.0 if last_pixel else end], dim=-1)
    return corners.reshape(deltas.shape)


def clip(boxes: Tensor, height: float, width: float, *, inclusive: bool = False) -> Tensor:
    """Clip boxes (n, 4 * k) to the image: at width and height, or at the last pixel if inclusive."""
    pixel = 1.0 if inclusive else 0.0
    limits = torch.tensor([width - pixel, height - pixel] * 2, dtype=boxes.dtype, device=boxes.device)
    b = boxes.reshape(len(boxes), -1, 4)
    return torch.minimum(b, limits).clamp(min=0.0).reshape(boxes.shape)


def iou(first: Tensor, second: Tensor, *, inclusive: bool = False) -> Tensor:
    """Intersection over union (n, m) of boxes (n, 4) and (m, 4); 0 where both are empty."""
    pixel = 1.0 if inclusive else 0.0
    area_1 = ((first[:, 2:] - first[:, :2]) + pixel).prod(dim=1)
    area_2 = ((second[:, 2:] - second[:, :2]) + pixel).prod(dim=1)
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    common = (high - low + pixel).clamp(min=0.0).prod(dim=2)
    union = area_1[:, None] + area_2[None] - common
    return torch.where(union > 0, common / union.clamp(min=torch.finfo(union.dtype).tiny), torch.zeros_like(common))


def nms(boxes: Tensor, scores: Tensor, threshold: float, *, inclusive: bool = False) -> Tensor:
    """Greedy non-maximum suppression of IoUs > ``threshold``: indices of the remaining boxes, best first."""
    if len(boxes) == 0:
        return torch.zeros(0, dtype=torch.int64, device=boxes.device)
    from torchvision.ops import nms as torchvision_nms

    if inclusive:
        # x2 - x1 + 1 is the width of a continuous box that ends one pixel later.
        boxes = boxes + torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=boxes.dtype, device=boxes.device)
    result: Tensor = torchvision_nms(boxes.float(), scores.float(), threshold)
    return result


def best_class_scores(boxes: Tensor, scores: Tensor, threshold: float, *, inclusive: bool = False) -> Tensor:
    """A box's best score among the classes for which it survives class-wise NMS; 0 if it survives for none.

    From boxes (n, 4), the same for every class, and scores (n, c) without the background.
    """
    count, classes = scores.shape
    if count == 0 or classes == 0:
        return scores.new_zeros(count)
    overlaps = iou(boxes, boxes, inclusive=inclusive) > threshold
    overlaps.fill_diagonal_(False)
    order = scores.sort(dim=0, descending=True, stable=True).indices.T.contiguous()  # (c, n)
    alive = torch.ones(classes, count, dtype=torch.bool, device=boxes.device)
    rows = torch.arange(classes, device=boxes.device)
    for rank in range(count):
        box = order[:, rank]  # the box of this rank, for each class
        # A remaining box never overlaps an earlier remaining one, so removing its neighbours affects only later ones.
        alive &= ~(overlaps[box] & alive[rows, box][:, None])
    return torch.where(alive.T, scores, torch.zeros_like(scores)).amax(dim=1).clamp(min=0.0)
