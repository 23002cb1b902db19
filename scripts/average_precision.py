"""Average precision of a detector, for tests (PASCAL VOC 2010 onwards; Everingham et al., IJCV 2010 and 2015)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError

__all__ = ["average_precision", "match_detections", "mean_average_precision"]

Floats = NDArray[np.float64]


def _overlaps(boxes: NDArray[np.floating], others: NDArray[np.floating]) -> Floats:
    """IoU (n, m) of continuous boxes; 0 where both are empty."""
    a, b = boxes.astype(np.float64).reshape(-1, 4), others.astype(np.float64).reshape(-1, 4)
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.clip(high - low, 0.0, None).prod(axis=2)
    union = (a[:, 2:] - a[:, :2]).prod(axis=1)[:, None] + (b[:, 2:] - b[:, :2]).prod(axis=1)[None] - common
    result: Floats = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return result


def match_detections(
    detected: NDArray[np.floating], scores: NDArray[np.floating], truth: NDArray[np.floating], threshold: float = 0.5
) -> NDArray[np.bool_]:
    """Correct detections of one class in one image: each object is found at most once, by the best-scored one.

    As in PASCAL VOC's evaluation a detection is compared with the object that it overlaps most; if that one has been
    found by a better-scored detection already, it is wrong.

    Args:
        detected: boxes (n, 4) as x1, y1, x2, y2.
        scores: (n,).
        truth: boxes (m, 4).
        threshold: least IoU.

    Returns:
        Mask (n,) in the detections' order.
    """
    right = np.zeros(len(detected), dtype=np.bool_)
    if len(detected) == 0 or len(truth) == 0:
        return right
    overlaps = _overlaps(detected, truth)
    taken = np.zeros(len(truth), dtype=np.bool_)
    for i in np.argsort(-np.asarray(scores), kind="stable"):
        best = int(overlaps[i].argmax())
        if overlaps[i, best] >= threshold and not taken[best]:
            right[i] = taken[best] = True
    return right


def average_precision(scores: NDArray[np.floating], right: NDArray[np.bool_], objects: int) -> float:
    """Area under the precision-recall curve, precision taken as the highest at that recall or a higher one.

    Detections of equal score enter together, so their order does not matter.

    Args:
        scores: (n,) of all detections of one class in all images.
        right: (n,), whether each is right.
        objects: how many objects of that class there are.

    Raises:
        StatisticError: there are no objects, or a score is not finite.
    """
    if objects < 1:
        raise StatisticError("average precision is not defined without objects")
    if len(scores) == 0:
        return 0.0
    values = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(values).all():
        raise StatisticError("a detection's score is not finite")
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(right[order])
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)  # the last of each run of equal scores
    recall = hits[last] / objects
    precision = hits[last] / (last + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))


def mean_average_precision(
    detected: Sequence[tuple[NDArray[np.floating], NDArray[np.integer], NDArray[np.floating]]],
    truth: Sequence[tuple[NDArray[np.floating], NDArray[np.integer]]],
    threshold: float = 0.5,
) -> tuple[float, dict[int, float]]:
    """Mean over classes of the average precision; classes without objects do not count.

    Args:
        detected: of each image boxes (n, 4), class ids (n,) and scores (n,).
        truth: of each image boxes (m, 4) and class ids (m,).
        threshold: least IoU of a detection with its object.

    Returns:
        The mean, and the average precision of each class.

    Raises:
        StatisticError: the two do not have the same number of images, or there are no objects.
    """
    if len(detected) != len(truth):
        raise StatisticError(f"{len(detected)} images have detections, {len(truth)} have objects")
    classes = sorted({int(c) for _, ids in truth for c in ids})
    if not classes:
        raise StatisticError("average precision is not defined without objects")
    each: dict[int, float] = {}
    for c in classes:
        scores, right, objects = [], [], 0
        for (boxes, ids, values), (true_boxes, true_ids) in zip(detected, truth, strict=True):
            mine, true = ids == c, true_ids == c
            scores.append(values[mine])
            right.append(match_detections(boxes[mine], values[mine], true_boxes[true], threshold))
            objects += int(true.sum())
        each[c] = average_precision(np.concatenate(scores), np.concatenate(right), objects)
    return float(np.mean(list(each.values()))), each
