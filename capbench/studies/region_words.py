"""Scores of words of a region and of other words, before and after references are fused (FAIEr, Table 5).

Each detection of COCO Entities is matched to the store's region with the highest overlap, if it is at least one half.
The region's words are those of a detection of that class. A score is the product of the nodes of a region and a word:
*before* fusion of the image and of the references' words; *after* it of their union and of the candidate's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, FiniteFloat, RootModel

from capbench.core.errors import DataError, FeatureError, MetricError, UsageError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray
from capbench.metrics.base import Metric
from capbench.metrics.faier.metric import Faier
from capbench.studies.study import WordTask
from capbench.text.vocabulary import tokenize_caption

MEANS = ("reference_own", "reference_other", "candidate_own", "candidate_other")


class EntityCaption(BaseModel):
    """The class of each word, None or ``_`` if it has no detection, and objects and boxes of each class."""

    det_sequences: list[str | None]
    detections: dict[str, list[tuple[Any, tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]]]]


Entities = RootModel[dict[str, dict[str, EntityCaption]]]  # captions of images, COCO Entities (Cornia et al., 2019)


def region_words(
    entities: Mapping[str, Mapping[str, EntityCaption]], metric: Metric, task: WordTask, progress: Progress
) -> dict[str, Any]:
    """The four :data:`MEANS` for each number n of references, of a random order of each image's captions: the first is
    the candidate, the next n its references. Progress counts images."""
    if not isinstance(metric, Faier):
        raise UsageError("only FAIEr has scores of words", code="unsupported", value=metric.name, hint="Use faier")
    most, store, rng = max(task.references), metric.store, np.random.default_rng(task.seed)
    usable = [image for image in sorted(entities) if image in store and len(entities[image]) > most]
    if not usable:
        message = f"no image of {len(entities):,} has features and {most + 1} captions with detections"
        raise UsageError(message, code="missing-features", hint="Set --features to a store of COCO's images")
    drawn = [usable[place] for place in np.sort(rng.permutation(len(usable))[: task.images]).tolist()]
    sums = {number: np.zeros((2, 2, 2)) for number in task.references}  # [after fusion, other words, number of pairs]
    unlike = 0
    for image in drawn:
        regions, captions = store[image], [*entities[image].items()]
        if regions.boxes is None or min(regions.width, regions.height) <= 1:
            raise FeatureError("has no boxes in pixels", code="missing-key", value=image, path=store.paths[0])
        order = [captions[place] for place in rng.permutation(len(captions))][: most + 1]
        boxes = regions.boxes.astype(np.float64)
        described = [described_regions(image, text, entry, boxes) for text, entry in order]
        for number, total in sums.items():
            texts = [text for text, _ in order[: number + 1]]
            for place, (text, (tokens, pairs)) in enumerate(zip(texts, described, strict=False)):
                if tokenize_caption(text) != tokens:
                    unlike += 1
                    continue
                references = None if place else texts[1:]  # before fusion, with the image alone; after it
                products = metric.products(image, text, references)[0].mean(0)
                total[int(place == 0)] += [((products * mask).sum(), mask.sum()) for mask in pairs]
        progress(1)
    notes = [f"{len(drawn):,} of {len(entities):,} images with features and {most + 1} captions, seed {task.seed}"]
    notes += [f"{unlike:,} captions are excluded: the metric's words differ from those of the file"] if unlike else []
    means = []
    for number, (values, counts) in ((number, total.reshape(4, 2).T) for number, total in sums.items()):
        if not counts.all():
            message = "no region matches a detection of a word, or no other word remains: a mean is undefined"
            raise MetricError(message, code="undefined", hint="Use features whose regions are objects")
        of_number = dict(zip(MEANS, (values / counts).tolist(), strict=True))
        means.append({"references": number, **of_number, "pairs": counts.astype(int).tolist()})
    return {"means": means, "images": len(drawn), "signature": metric.signature(), "notes": notes}


def described_regions(image: str, text: str, entry: EntityCaption, boxes: FloatArray) -> tuple[list[str], Any]:
    """Tokens of a caption and masks (2, tokens, regions) of own and other words of regions (n, 4) with a detection."""
    import torch

    from capbench.features.detectors.boxes import iou

    words, classes = text.split(" "), entry.det_sequences
    if len(words) != len(classes) or not {*classes} <= {None, "_", *entry.detections}:
        message = "does not have a class with a detection, or none, for each word"
        raise DataError(message, code="wrong-format", row=f"image {image}, '{text}'", hint="Download the file again")
    tokens = [(token, name) for word, name in zip(words, classes, strict=True) for token in tokenize_caption(word)]
    found: dict[str | None, Any] = {None: np.zeros(len(boxes), dtype=bool)}
    for name, listed in entry.detections.items():
        detections = torch.tensor([box for _, box in listed], dtype=torch.float64).reshape(-1, 4)
        overlap = iou(detections, torch.from_numpy(boxes)).numpy()
        matched = overlap.argmax(axis=1)[overlap.max(axis=1) >= 0.5]
        found[name] = np.isin(np.arange(len(boxes)), matched)
    of_word = np.array([found.get(name, found[None]) for _, name in tokens], dtype=bool).reshape(-1, len(boxes))
    detected = np.any([*found.values()], axis=0)
    return [token for token, _ in tokens], np.stack([of_word & detected, ~of_word & detected])
