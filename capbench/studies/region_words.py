"""Scores of words of a region and of other words, before and after references are fused (FAIEr, Table 5).

Each detection of COCO Entities is matched to the store's region with the highest overlap, if it is at least one half.
The region's words are those of the caption that belong to a detection of that class; all others are other words. A
score is the product of the region's node and the word's node, and means are over all pairs of regions and words.
*Before* fusion the nodes are those of the image and of the references' words; *after* it they are those of the union of
image and references and of the candidate's words. The paper specifies neither how boxes are matched nor what its means
are over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError, FeatureError, MetricError, UsageError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, IntArray
from capbench.metrics.base import Metric
from capbench.metrics.faier.metric import Faier
from capbench.studies.study import WordTask
from capbench.text.vocabulary import tokenize_caption

MEANS = ("reference_own", "reference_other", "candidate_own", "candidate_other")
_LEAST_OVERLAP = 0.5  # intersection over union
_NAMES = ("{}", "COCO_val2014_{:0>12}", "COCO_train2014_{:0>12}", "{:0>12}")


class EntityCaption(NamedTuple):
    """A caption, its tokens with the class of their word's detection or None, and the boxes (n, 4) of each class."""

    text: str
    tokens: Sequence[tuple[str, str | None]]
    boxes: Mapping[str, FloatArray]


def read_entities(path: Path) -> dict[str, list[EntityCaption]]:
    """Read the captions of each image of COCO Entities (Cornia et al., CVPR 2019); DataError if it has another form."""
    data, row = files.read_json(path), ""
    entities: dict[str, list[EntityCaption]] = {}
    try:
        for image, captions in data.items():
            row, entities[image] = f"image {image}", []
            for text, entry in captions.items():
                row = f"image {image}, '{text[:40]}'"
                found = entry["detections"].items()
                boxes = {name: np.array([box for _, box in listed], dtype=np.float64) for name, listed in found}
                if not all(box.shape[1:] == (4,) and np.isfinite(box).all() for box in boxes.values()):
                    raise ValueError("a box is not four numbers")
                words = zip(text.split(" "), entry["det_sequences"], strict=True)
                tokens = [(t, None if name == "_" else name) for word, name in words for t in tokenize_caption(word)]
                if unknown := {name for _, name in tokens} - {None, *boxes}:
                    raise ValueError(f"the class {unknown.pop()!r} has no detection")
                entities[image].append(EntityCaption(text, tokens, boxes))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        message = f"is not in the form of COCO Entities ({error})"
        raise DataError(
            message, code="wrong-format", path=path, row=row or None, hint="Download the file again"
        ) from error
    return entities


def region_words(
    entities: Mapping[str, Sequence[EntityCaption]], metric: Metric, task: WordTask, progress: Progress = lambda _: None
) -> dict[str, Any]:
    """Mean scores of words that belong to a region and of others, by number of references; progress counts images.

    Of each image, one caption is the candidate and the others are its references, in an order that depends on the seed;
    with n references the first n are used.

    Returns:
        Number of images, signature, notes, and ``means``: for each number of references the four of :data:`MEANS`, and
        the numbers of pairs of a region and a word behind them.

    Raises:
        UsageError: the metric is not FAIEr, or no image remains.
        FeatureError, ModelError, ToolError, MetricError: the metric cannot be computed, or a mean is undefined.
    """
    if not isinstance(metric, Faier):
        raise UsageError("only FAIEr has scores of words", code="unsupported", value=metric.name, hint="Use faier")
    most, store, rng = max(task.references), metric.store, np.random.default_rng(task.seed)
    names = {image: next((n for n in (name.format(image) for name in _NAMES) if n in store), "") for image in entities}
    usable = [image for image in sorted(entities) if names[image] and len(entities[image]) > most]
    if not usable:
        message = f"no image of {len(entities):,} has features and {most + 1} captions with detections"
        raise UsageError(message, code="missing-features", hint="Set --features to a store of COCO's images")
    drawn = [usable[place] for place in np.sort(rng.permutation(len(usable))[: task.images]).tolist()]
    sums = {number: np.zeros((2, 2, 2)) for number in task.references}  # [after fusion, other words, number of pairs]
    unlike = 0
    for image in drawn:
        candidate, *others = (entities[image][place] for place in rng.permutation(len(entities[image])).tolist())
        regions = store[names[image]]
        if regions.boxes is None or min(regions.width, regions.height) <= 1:
            raise FeatureError("has no boxes in pixels", code="missing-key", value=names[image], path=store.paths[0])
        boxes = regions.boxes.astype(np.float64)
        for number, total in sums.items():
            read = [candidate, *others[:number]]
            scored = metric.region_words(names[image], candidate.text, [caption.text for caption in read[1:]])
            for caption, (words, products) in zip(read, scored, strict=True):
                if words != [token for token, _ in caption.tokens] or products.shape[1] != len(boxes):
                    unlike += 1
                    continue
                of_class = {name: matched(found, boxes) for name, found in caption.boxes.items()}
                own, detected = np.zeros(products.shape, dtype=bool), np.zeros(len(boxes), dtype=bool)
                for places in of_class.values():
                    detected[places] = True
                for row, (_, name) in enumerate(caption.tokens):
                    own[row, of_class.get(name or "", [])] = True
                for kind, mask in enumerate((own & detected, ~own & detected)):
                    total[int(caption is candidate), kind] += (products * mask).sum(), mask.sum()
        progress(1)
    notes = [f"{len(drawn):,} of {len(entities):,} images with features and {most + 1} captions, seed {task.seed}"]
    if unlike:
        notes.append(f"{unlike:,} captions are excluded: the metric's words differ from those of the file")
    means = []
    for number, total in sums.items():
        values, pairs = total.reshape(4, 2).T
        if not pairs.all():
            message = "no region matches a detection of a word, or no other word remains: a mean is undefined"
            raise MetricError(message, code="undefined", hint="Use features whose regions are objects")
        of_number = dict(zip(MEANS, (values / pairs).tolist(), strict=True))
        means.append({"references": number, **of_number, "pairs": pairs.astype(int).tolist()})
    return {"means": means, "images": len(drawn), "signature": metric.signature(), "notes": notes}


def matched(detections: FloatArray, boxes: FloatArray) -> IntArray:
    """Indices of the boxes (m, 4) with the largest overlap of each detection (n, 4), if it is enough."""
    import torch

    from capbench.features.detectors.boxes import iou

    overlap = iou(torch.from_numpy(detections), torch.from_numpy(boxes)).numpy()
    best = overlap.argmax(axis=1)
    return np.unique(best[overlap[np.arange(len(best)), best] >= _LEAST_OVERLAP])
