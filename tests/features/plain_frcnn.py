"""The bottom-up detector once more, in plain loops and float64, to compare with: nothing of the package is used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

Array = np.ndarray[Any, Any]
State = Mapping[str, Tensor]
LIMIT = math.log(1000 / 16)


def decode(box: Array, deltas: Array, weights: Sequence[float], pixel: int, limit: float | None) -> list[float]:
    dx, dy, dw, dh = (float(d) / w for d, w in zip(deltas, weights, strict=True))
    if limit is not None:
        dw, dh = min(dw, limit), min(dh, limit)
    w, h = box[2] - box[0] + pixel, box[3] - box[1] + pixel
    x, y = dx * w + box[0] + 0.5 * w, dy * h + box[1] + 0.5 * h
    w, h = w * math.exp(dw), h * math.exp(dh)
    return [x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h]


def clip(box: Sequence[float], size: tuple[int, int], pixel: int) -> list[float]:
    limits = [size[1] - pixel, size[0] - pixel] * 2
    return [min(max(value, 0.0), limit) for value, limit in zip(box, limits, strict=True)]


def iou(a: Sequence[float], b: Sequence[float], pixel: int) -> float:
    w, h = min(a[2], b[2]) - max(a[0], b[0]) + pixel, min(a[3], b[3]) - max(a[1], b[1]) + pixel
    if w <= 0 or h <= 0:
        return 0.0
    areas = [(c[2] - c[0] + pixel) * (c[3] - c[1] + pixel) for c in (a, b)]
    return w * h / (sum(areas) - w * h)


def order(scores: Sequence[float] | Array) -> list[int]:
    """Best first, equal ones as they stand."""
    return sorted(range(len(scores)), key=lambda i: -float(scores[i]))


def nms(
    boxes: Sequence[Sequence[float]] | Array, scores: Sequence[float] | Array, threshold: float, pixel: int
) -> list[int]:
    survivors: list[int] = []
    for i in order(scores):
        if all(iou(boxes[i], boxes[j], pixel) <= threshold for j in survivors):
            survivors.append(i)
    return survivors


def softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


def proposals(
    logits: Array,
    deltas: Array,
    anchors: Array,
    size: tuple[int, int],
    *,
    caffe: bool,
    before: int,
    after: int,
    min_size: float,
) -> Array:
    """Boxes (n, 4) of maps (12 or 24, h, w) and (48, h, w)."""
    count, pixel = len(anchors), int(caffe)
    if len(logits) == 2 * count:
        logits = 1 / (1 + np.exp(logits[:count].astype(np.float64) - logits[count:]))
    scored_boxes: list[tuple[float, list[float]]] = []
    for y in range(logits.shape[1]):
        for x in range(logits.shape[2]):
            for a in range(count):
                anchor = anchors[a] + 16.0 * np.array([x, y, x, y])
                moves = deltas[4 * a : 4 * a + 4, y, x]
                box = clip(decode(anchor, moves, (1,) * 4, pixel, None if caffe else LIMIT), size, pixel)
                scored_boxes.append((float(np.float32(logits[a, y, x])), box))
    if not caffe:  # counted before small ones are dropped
        scored_boxes = [scored_boxes[i] for i in order([score for score, _ in scored_boxes])[:before]]
        scored_boxes = [(s, b) for s, b in scored_boxes if b[2] - b[0] > min_size and b[3] - b[1] > min_size]
    else:
        scored_boxes = [(s, b) for s, b in scored_boxes if b[2] - b[0] + 1 >= min_size and b[3] - b[1] + 1 >= min_size]
        scored_boxes = [scored_boxes[i] for i in order([score for score, _ in scored_boxes])[:before]]
    survivors = nms([b for _, b in scored_boxes], [s for s, _ in scored_boxes], 0.7, pixel)[:after]
    return np.array([scored_boxes[i][1] for i in survivors]).reshape(-1, 4)


def hf_choice(regions: Array, classes: Array, deltas: Array, size: tuple[int, int], low: int, high: int) -> Any:
    """Rows, boxes in the network's pixels and class ids that HF mode keeps."""
    probabilities = softmax(classes)[:, :-1]
    ids, scores = probabilities.argmax(axis=1), probabilities.max(axis=1).astype(np.float32)
    boxes = []
    for region, moves, c in zip(regions, deltas.reshape(len(regions), -1, 4), ids, strict=True):
        boxes.append(clip(decode(region, moves[c], (10, 10, 5, 5), 0, LIMIT), size, 0))
    for threshold in (0.5, 0.6, 0.7):
        rows = nms(boxes, scores, threshold, 0)[:high]
        if len(rows) >= low:
            break
    else:
        rows = order(scores)[:low]
    return rows, np.array(boxes)[rows], ids[rows]


def caffe_choice(regions: Array, probabilities: Array, low: int, high: int) -> list[int]:
    """Rows that Caffe mode keeps of inclusive boxes; probabilities are without the background."""
    best = np.zeros(len(regions))
    for scores in probabilities.T:
        for i in nms(regions, scores, 0.3, 1):
            best[i] = max(best[i], scores[i])
    rows = [i for i in range(len(regions)) if best[i] >= 0.2]
    if low <= len(rows) <= high:
        return rows
    return order(best)[: low if len(rows) < low else high]


def _conv(x: Tensor, state: State, name: str, stride: int = 1, pad: int = 0, dilation: int = 1) -> Tensor:
    """A convolution as a product with unfolded patches, then its bias or its normalisation."""
    weight = state[f"{name}.weight"].double()
    out, _, kernel, _ = weight.shape
    height, width = ((side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for side in x.shape[2:])
    if kernel == 1:
        patches = x[:, :, ::stride, ::stride].flatten(2)
    else:
        patches = F.unfold(x, kernel, dilation=dilation, padding=pad, stride=stride)
    y = (weight.flatten(1) @ patches).reshape(len(x), out, height, width)
    if f"{name}.bias" in state:
        return y + state[f"{name}.bias"].double()[:, None, None]
    scale, shift, mean, variance = (
        state[f"{name}.norm.{tensor}"].double()[:, None, None]
        for tensor in ("weight", "bias", "running_mean", "running_var")
    )
    return (y - mean) / torch.sqrt(variance + 1e-5) * scale + shift


def _stage(x: Tensor, state: State, name: str, stride: int, dilation: int = 1) -> Tensor:
    number = 0
    while f"{name}.{number}.conv1.weight" in state:
        block, step = f"{name}.{number}", stride if number == 0 else 1
        y = _conv(x, state, f"{block}.conv1", step).clamp(min=0)
        y = _conv(y, state, f"{block}.conv2", 1, dilation, dilation).clamp(min=0)
        y = _conv(y, state, f"{block}.conv3")
        if f"{block}.shortcut.weight" in state:
            x = _conv(x, state, f"{block}.shortcut", step)
        x, number = (x + y).clamp(min=0), number + 1
    return x


def backbone(image: Array, state: State) -> Tensor:
    """res4 (1, c, h, w) of a prepared picture (3, h, w)."""
    x = _conv(torch.from_numpy(image)[None].double(), state, "backbone.stem.conv1", 2, 3).clamp(min=0)
    height, width = (math.ceil((side - 3) / 2) + 1 for side in x.shape[2:])
    windows = [
        [x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].amax((2, 3)) for j in range(width)] for i in range(height)
    ]
    x = torch.stack([torch.stack(row, dim=-1) for row in windows], dim=-2)
    for number, stride in ((2, 1), (3, 2), (4, 2)):
        x = _stage(x, state, f"backbone.res{number}", stride)
    return x


def first_stage(res4: Tensor, state: State) -> tuple[Array, Array]:
    head = "proposal_generator.rpn_head."
    hidden = _conv(res4, state, head + "conv", 1, 1).clamp(min=0)
    logits, deltas = (_conv(hidden, state, head + layer)[0] for layer in ("objectness_logits", "anchor_deltas"))
    return logits.float().numpy(), deltas.numpy()


def pool(res4: Array, regions: Array, side: int = 14) -> Array:
    """RoIPool of (c, h, w) with halves rounded away from zero."""
    _, height, width = res4.shape
    result = np.zeros((len(regions), len(res4), side, side))
    for r, region in enumerate(regions):
        x1, y1, x2, y2 = (math.floor(abs(v) / 16 + 0.5) * (1 if v >= 0 else -1) for v in region)
        across, down = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
        for i in range(side):
            top, bottom = y1 + i * down // side, y1 - (-(i + 1) * down // side)
            for j in range(side):
                left, right = x1 + j * across // side, x1 - (-(j + 1) * across // side)
                cell = res4[:, max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
                if cell.size and bottom > 0 and right > 0:
                    result[r, :, i, j] = cell.max(axis=(1, 2))
    return result


def second_stage(pooled: Array, state: State) -> tuple[Array, Array, Array, Array]:
    """Features, class logits, box deltas and attribute logits."""
    head = "roi_heads.box_predictor."

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ state[f"{head}{name}.weight"].double().T + state[f"{head}{name}.bias"].double()

    features = _stage(torch.from_numpy(pooled), state, "roi_heads.res5", 1, 2).mean((2, 3))
    classes = linear(features, "cls_score")
    embedded = state[head + "cls_embedding.weight"].double()[classes.argmax(1)]
    hidden = linear(torch.cat([features, embedded], dim=1), "fc_attr").clamp(min=0)
    outputs = (features, classes, linear(features, "bbox_pred"), linear(hidden, "attr_score"))
    first, second, third, fourth = (output.numpy() for output in outputs)
    return first, second, third, fourth
