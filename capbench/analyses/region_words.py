"""Do words that belong to a region fit it better than others, before and after references are fused? (FAIEr, Table 5)

For every detection of COCO Entities the store's region with the highest overlap is taken, if it is at least
:data:`LEAST_OVERLAP`. Its words are those of the caption that belong to a detection of that class; all others are other
words. A score is the product of the region's node and the word's, and means are over all pairs of regions and words.
*Before* fusion the nodes are those of the image, and the words those of the references; *after* it they are those of
the union of image and references, and the words those of the candidate. The paper tells neither how it matched boxes
nor what its means are over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capbench.datasets.entities import EntityCaption
from capbench.errors import FeatureError, MetricError, UsageError
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.base import Progress, Resources
from capbench.metrics.requests import MetricRequest
from capbench.records import FloatArray, IntArray
from capbench.scoring import complete
from capbench.studies.tasks import WordTask
from capbench.text.vocabulary import tokenize_caption

__all__ = ["LEAST_OVERLAP", "WordMeans", "WordScores", "classes_of_tokens", "region_words", "regions_of_boxes"]

LEAST_OVERLAP = 0.5
"""Intersection over union from which on a region is the detection's."""
_NAMES = ("COCO_val2014_{:012d}", "COCO_train2014_{:012d}", "{:012d}")


@dataclass(frozen=True)
class WordMeans:
    """Mean scores at one number of references.

    Attributes:
        references: their number.
        reference_own: of regions with the words of references that belong to them, before fusion.
        reference_other: with other words of references.
        candidate_own: of union regions with words of the candidate that belong to them.
        candidate_other: with other words of the candidate.
        pairs: of regions and words behind each of the four.
    """

    references: int
    reference_own: float
    reference_other: float
    candidate_own: float
    candidate_other: float
    pairs: tuple[int, int, int, int]


@dataclass(frozen=True)
class WordScores:
    """What :func:`region_words` found.

    Attributes:
        title: of the metric.
        means: by number of references, ascending.
        images: images that were used.
        signature: of the metric.
        notes: what was left out, one line each.
    """

    title: str
    means: tuple[WordMeans, ...]
    images: int
    signature: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        from dataclasses import asdict

        return asdict(self)


@dataclass
class _Sum:
    """Sums of scores of words that belong to a region and of others, and their numbers."""

    values: FloatArray = field(default_factory=lambda: np.zeros(2))
    pairs: IntArray = field(default_factory=lambda: np.zeros(2, dtype=np.int64))

    def add(self, products: FloatArray, owns: FloatArray, seen: FloatArray) -> None:
        """Products (words, regions), whether a word belongs to a region, and whether a region is a detection's."""
        for place, mask in enumerate((owns * seen, (1 - owns) * seen)):
            self.values[place] += float((products * mask).sum())
            self.pairs[place] += int(mask.sum())


def region_words(
    entities: Mapping[str, Sequence[EntityCaption]],
    request: MetricRequest,
    task: WordTask,
    *,
    resources: Resources | None = None,
    cache: bool = True,
    progress: Progress = lambda _: None,
) -> WordScores:
    """Mean scores of words that belong to a region and of others, by number of references.

    Of each image one caption is the candidate and others are its references, in an order that the seed decides; with n
    references it is the first n, so that numbers of references differ in nothing else.

    Args:
        entities: captions with their detections, by image.
        request: a metric that offers products of regions and words.
        task: numbers of references, images, seed.
        resources: what is given to it.
        cache: whether tokens and parses are cached.
        progress: called with numbers of images done.

    Raises:
        UsageError: the metric offers no such products, or no image is left.
        FeatureError, ModelError, ToolError: the metric cannot be computed.
    """
    metric = request.make(complete(resources, cache=cache))
    if metric.resources.features is None:
        raise UsageError(f"{request.label} looks at no regions", hint="Take faier")
    most = max(task.references)
    rng = np.random.default_rng(task.seed)
    with open_store(metric.resources.features) as store:
        names = {image: _stored(image, store) for image in entities}
        usable = [image for image in sorted(entities) if names[image] and len(entities[image]) > most]
        if not usable:
            absent = sum(not name for name in names.values())
            raise UsageError(
                f"no image of {len(entities):,} has features and {most + 1} captions with detections "
                f"({absent:,} have no features)",
                hint="Give features of COCO's images with --features",
            )
        drawn = [usable[place] for place in np.sort(rng.permutation(len(usable))[: task.images]).tolist()]
        sums = {number: (_Sum(), _Sum()) for number in task.references}
        unlike = 0
        for image in drawn:
            order = rng.permutation(len(entities[image])).tolist()
            candidate, *others = [entities[image][place] for place in order]
            regions = store[names[image]]
            if regions.boxes is None or min(regions.width, regions.height) <= 1:
                raise FeatureError(f"the store holds no boxes in pixels of '{names[image]}'", path=store.paths[0])
            boxes = regions.boxes.astype(np.float64)
            for number, (before, after) in sums.items():
                read = others[:number]
                words = metric.region_words(names[image], candidate.text, [caption.text for caption in read])
                if words is None:
                    raise UsageError(f"{request.label} offers no scores of words", hint="Take faier")
                unlike += not _add(after, words.candidate, candidate, boxes)
                for caption, of_reference in zip(read, words.references, strict=True):
                    unlike += not _add(before, of_reference, caption, boxes)
            progress(1)
    notes = [f"{len(drawn):,} of {len(entities):,} images with features and {most + 1} captions, seed {task.seed}"]
    if unlike:
        notes.append(f"{unlike:,} captions are left out: the metric's words are not those of the file")
    means = tuple(_means(number, *sums[number]) for number in task.references)
    return WordScores(request.rows[0].title, means, len(drawn), metric.signature(), tuple(notes))


def _stored(image: str, store: FeatureStore) -> str:
    """The name of an image in the store, ``""`` if it is not there."""
    tried = [image, *(name.format(int(image)) for name in _NAMES)] if image.isdecimal() else [image]
    return next((name for name in tried if name in store), "")


def _add(total: _Sum, scored: tuple[tuple[str, ...], FloatArray], caption: EntityCaption, boxes: FloatArray) -> bool:
    """Add a caption's products; False if its words are not the metric's."""
    names, products = scored
    classes = classes_of_tokens(caption)
    if names != tuple(token for token, _ in classes) or products.shape != (len(names), len(boxes)):
        return False
    of_class = {name: regions_of_boxes(found, boxes) for name, found in caption.boxes.items()}
    owns = np.zeros_like(products)
    seen = np.zeros(len(boxes))
    for places in of_class.values():
        seen[places] = 1.0
    for row, (_, name) in enumerate(classes):
        if name is not None:
            owns[row, of_class[name]] = 1.0
    total.add(products, owns, np.broadcast_to(seen, products.shape))
    return True


def classes_of_tokens(caption: EntityCaption) -> list[tuple[str, str | None]]:
    """The tokens that networks read of a caption, each with the class of its word."""
    return [
        (token, name)
        for word, name in zip(caption.text.split(" "), caption.classes, strict=True)
        for token in tokenize_caption(word)
    ]


def regions_of_boxes(detections: FloatArray, boxes: FloatArray) -> IntArray:
    """Places of the boxes that overlap most with each detection, if by :data:`LEAST_OVERLAP` at least.

    Args:
        detections: (n, 4) x1, y1, x2, y2.
        boxes: (m, 4) likewise.
    """
    low = np.maximum(detections[:, None, :2], boxes[None, :, :2])
    high = np.minimum(detections[:, None, 2:], boxes[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    areas = [np.clip(side[:, 2:] - side[:, :2], 0, None).prod(axis=1) for side in (detections, boxes)]
    union = areas[0][:, None] + areas[1][None] - shared
    overlap = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    best = overlap.argmax(axis=1)
    return np.unique(best[overlap[np.arange(len(best)), best] >= LEAST_OVERLAP])


def _means(number: int, before: _Sum, after: _Sum) -> WordMeans:
    pairs = np.concatenate([before.pairs, after.pairs])
    if not pairs.all():
        raise MetricError(
            "no region of the store is a detection's of a word, or no word is left over: there is no mean",
            hint="Give features whose regions are objects",
        )
    own, other, union_own, union_other = (np.concatenate([before.values, after.values]) / pairs).tolist()
    first, second, third, fourth = pairs.tolist()
    return WordMeans(number, own, other, union_own, union_other, (first, second, third, fourth))
