"""Retrieval with a metric: does it score an image's own caption above the captions of other images, and the reverse?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capbench.errors import DataError, MetricError, UsageError
from capbench.metrics.base import Metric, Resources
from capbench.metrics.needs import Features
from capbench.metrics.requests import MetricRequest, Row
from capbench.records import FloatArray, Item
from capbench.scoring import complete, score
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.studies.judged import ProgressFactory, no_progress

__all__ = ["MOST_PAIRS", "MetricRetrieval", "metric_retrieval"]

MOST_PAIRS = 1_000_000
"""Pairs that are scored one by one at most, by a metric that offers no matrix."""


@dataclass(frozen=True)
class MetricRetrieval:
    """What :func:`metric_retrieval` found.

    Attributes:
        row: the metric's column.
        retrieval: recalls and ranks both ways.
        signature: of the metric.
        with_references: whether captions were compared with references of the images.
    """

    row: Row
    retrieval: Retrieval
    signature: str
    with_references: bool


def metric_retrieval(
    captions: Mapping[str, Sequence[str]],
    request: MetricRequest,
    *,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> MetricRetrieval:
    """Score the first caption of every image against every image, and rank.

    Where the column needs references, an image's references are its other captions, so that no caption is compared
    with itself. A metric that offers a matrix (:meth:`capbench.metrics.base.Metric.matrix`) encodes each side once;
    the others score pair by pair.

    Args:
        captions: captions by image id.
        request: a metric with one column.
        resources: what is given to it.
        cache: whether the cache is used.
        progress: makes progress bars.

    Raises:
        UsageError: several columns, or too many pairs to score one by one.
        DataError: no images, or one that has a caption too few.
        MetricError, FeatureError, ModelError: the metric cannot be computed.
    """
    if len(request.rows) != 1:
        names = ", ".join(row.name for row in request.rows)
        raise UsageError(f"one column is wanted, and there are {len(request.rows)}: {names}", hint="Name one column")
    (row,) = request.rows
    free = row.key.column in request.metric.ignores_references(request.options)
    references = _references(captions, free)
    metric = request.make(complete(resources, cache=cache))
    images, texts = list(captions), [captions[image][0] for image in captions]
    diagonal = tuple(Item(image, text, references[image]) for image, text in zip(images, texts, strict=True))
    metric.prepare(diagonal)
    with progress(f"{row.title}, {len(images):,} images", len(images)) as step:
        matrix = metric.matrix(images, texts, references, row.key.column, step)
        if matrix is None:
            matrix = _pair_by_pair(request, images, texts, references, resources, cache)
    recalls = retrieval(_checked(matrix, metric, len(images)), np.arange(len(images)))
    return MetricRetrieval(row, recalls, metric.signature(), not free)


def _references(captions: Mapping[str, Sequence[str]], free: bool) -> dict[str, tuple[str, ...]]:
    if not captions:
        raise DataError("there are no images to retrieve", hint="Choose other captions")
    least = 1 if free else 2
    for image, texts in captions.items():
        if len(texts) < least:
            raise DataError(
                f"the image '{image}' has {len(texts)} caption(s), and {least} are needed",
                hint="One is the query, the others are references",
            )
    return {image: () if free else tuple(texts[1:]) for image, texts in captions.items()}


def _pair_by_pair(
    request: MetricRequest,
    images: Sequence[str],
    texts: Sequence[str],
    references: Mapping[str, tuple[str, ...]],
    resources: Resources | None,
    cache: bool,
) -> FloatArray:
    if len(images) * len(texts) > MOST_PAIRS:
        needs = "region features and " if request.needs(Features) else ""
        raise UsageError(
            f"{request.label} scores {needs}pairs one by one, and there are {len(images) * len(texts):,}",
            hint=f"Take {int(MOST_PAIRS**0.5):,} images at most",
        )
    items = [Item(image, text, references[image]) for image in images for text in texts]
    table = score(items, [request], resources, dataset="retrieval", cache=cache)
    return table.values[request.score_columns[0]].reshape(len(images), len(texts))


def _checked(matrix: FloatArray, metric: Metric, n: int) -> FloatArray:
    if matrix.shape != (n, n) or not np.isfinite(matrix).all():
        raise MetricError(
            f"{metric.name} gave a matrix of shape {matrix.shape} for {n} images and captions, or one with values that "
            "are no finite numbers"
        )
    return matrix
