"""Retrieval with a metric: ranks images by their scores for a caption, and captions by their scores for an image.

After FAIEr (Wang and others, CVPR 2021, Table 6): the first four of each image's captions are its references, and the
others are queries and gallery. Any of an image's own captions is a correct answer; none of them is a reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capbench.core.errors import DataError, MetricError
from capbench.core.plugins import stdout_to_stderr
from capbench.core.progress import LONG_S, part_of, words
from capbench.core.records import FloatArray, IntArray, Item
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources
from capbench.metrics.scoring import complete
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.studies.judged import ProgressFactory, no_progress
from capbench.studies.study import RetrievalTask

_WARM_UP = 64  # untimed pairs at the start, which load tables
_TIMED = 1024


@dataclass(frozen=True, eq=False)
class CaptionGallery:
    """Input of retrieval.

    Attributes:
        images: (n) image ids, in published order.
        captions: (m) queries and gallery, with an image's captions next to each other.
        image_of: (m) index of each caption's image.
        references: each image's references.
        source: description of the random sample, one line.
    """

    images: tuple[str, ...]
    captions: tuple[str, ...]
    image_of: IntArray
    references: Mapping[str, tuple[str, ...]]
    source: str

    def items(self, *, free: bool) -> tuple[Item, ...]:
        """(m) every caption with its image; without references if ``free``."""
        return tuple(
            Item(self.images[place], text, () if free else self.references[self.images[place]])
            for text, place in zip(self.captions, self.image_of.tolist(), strict=True)
        )


@dataclass(frozen=True)
class MetricRetrieval:
    """Result of :func:`metric_retrieval` for one column.

    Attributes:
        row: the metric's column.
        retrieval: recalls and ranks in both directions.
        signature: signature of the metric.
        with_references: True if captions were compared with references of the images.
    """

    row: Row
    retrieval: Retrieval
    signature: str
    with_references: bool

    def to_dict(self) -> dict[str, Any]:
        """All fields as values for JSON."""
        return {
            "metric": self.row.name,
            "references": self.with_references,
            "signature": self.signature,
        } | self.retrieval.to_dict()


def draw_gallery(captions: Mapping[str, Sequence[str]], task: RetrievalTask) -> CaptionGallery:
    """Sample images, and divide their captions into references and queries.

    The sample comes from numpy's PCG64 generator seeded with ``task.seed``, over the images by sorted id, so it is
    independent of the order of a file.

    Args:
        captions: captions by image id.
        task: numbers of images, references and queries.

    Raises:
        DataError: there are fewer than two images, or one has too few captions.
    """
    if len(captions) < 2:
        raise DataError(
            f"there are {len(captions)} images, and retrieval requires at least two",
            code="too-few",
            value=len(captions),
            hint="Choose other captions",
        )
    count, least = min(task.images, len(captions)), task.references + 1
    by_id = sorted(captions)
    drawn = {by_id[place] for place in np.random.default_rng(task.seed).permutation(len(by_id))[:count].tolist()}
    images = tuple(image for image in captions if image in drawn)
    queries: list[str] = []
    image_of: list[int] = []
    for place, image in enumerate(images):
        texts = captions[image]
        if len(texts) < least:
            raise DataError(
                f"the image '{image}' has {len(texts)} caption(s), and {least} are required",
                code="too-few",
                value=image,
                hint=f"{task.references} are references and the next is a query: choose {len(texts) - 1} references"
                if len(texts) > 1
                else "Leave the image out",
            )
        of_image = texts[task.references :] if task.gallery == "rest" else texts[task.references : least]
        queries += of_image
        image_of += [place] * len(of_image)
    chosen = f"all {count:,} images"
    if count < len(captions):
        chosen = f"{count:,} of {len(captions):,} images, drawn with seed {task.seed}"
    rest = "the next one is query and gallery" if task.gallery == "one" else "the others are queries and gallery"
    return CaptionGallery(
        images,
        tuple(queries),
        np.array(image_of, dtype=np.int64),
        {image: tuple(captions[image][: task.references]) for image in images},
        f"{chosen}; the first {task.references} captions of an image are its references, {rest} ({len(queries):,})",
    )


@stdout_to_stderr()
def metric_retrieval(
    gallery: CaptionGallery,
    request: MetricRequest,
    *,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
    announce: Callable[[str], None] = lambda _: None,
) -> list[MetricRetrieval]:
    """Score every caption against every image, and rank.

    A metric with a matrix (:meth:`capbench.metrics.base.Metric.matrix`) encodes each side once; the others score pair
    by pair, all columns at once, and without the score cache.

    Args:
        gallery: images, captions and references; columns that work without references get none.
        request: a metric and its columns.
        resources: features, weights and images for the metric.
        cache: True to use other caches (tokens, parses).
        progress: makes progress bars.
        announce: called with the estimated time before scoring pair by pair.

    Raises:
        MetricError, FeatureError, ModelError, ToolError: the metric cannot be computed.
    """
    metric = request.make(complete(resources, cache=cache))
    by_column: dict[str, FloatArray] = {}
    n = len(gallery.images)
    free = {row.key.column for row in request.rows} & request.ignores_references
    metric.prepare(gallery.items(free=len(free) == len(request.rows)))
    for row in request.rows:
        column = row.key.column
        references = dict.fromkeys(gallery.images, ()) if column in free else gallery.references
        if row.key.column not in by_column:
            with progress(f"{row.title}, {n:,} images", n) as step:
                matrix = metric.matrix(gallery.images, gallery.captions, references, column, step)
            if matrix is not None:
                by_column[column] = matrix
                continue
            left = [other for other in request.rows if (other.key.column in free) == (column in free)]
            columns = [other.key.column for other in left]
            with progress(request.label, n * len(gallery.captions)) as step:
                by_column |= _pair_by_pair(metric, request.label, gallery, columns, column in free, step, announce)
    return [
        MetricRetrieval(
            row,
            retrieval(_checked(by_column[row.key.column], metric, gallery), gallery.image_of),
            metric.signature(),
            row.key.column not in free,
        )
        for row in request.rows
    ]


def _pair_by_pair(
    metric: Metric,
    label: str,
    gallery: CaptionGallery,
    columns: Sequence[str],
    free: bool,
    progress: Callable[[int], None],
    announce: Callable[[str], None],
) -> dict[str, FloatArray]:
    """(n, m) scores of columns, in batches of pairs; the first batches estimate the remaining time."""
    _slow_work(metric, label, gallery, free, progress, announce)
    n, m = len(gallery.images), len(gallery.captions)
    scores = {column: np.empty(n * m) for column in columns}
    seconds = 0.0
    for number, (start, end) in enumerate(_batches(n * m, metric.batch_size)):
        items = [
            Item(image, gallery.captions[pair % m], () if free else gallery.references[image])
            for pair in range(start, end)
            for image in [gallery.images[pair // m]]
        ]
        began = time.perf_counter()
        metric.open(items)
        # One-time loading in the first batches would inflate every estimate.
        steps = progress if number > 1 else lambda _: None
        of_batch = metric.scores(np.asarray(metric.statistics(items, steps), dtype=np.float64))
        seconds = time.perf_counter() - began
        for column in columns:
            scores[column][start:end] = of_batch[column]
        if number == 1 or end == n * m:
            left = seconds / (end - start) * (n * m - end)
            if left:
                announce(f"{label} scores {n * m:,} pairs one by one: {words(left)}")
    return {column: values.reshape(n, m) for column, values in scores.items()}


def _batches(pairs: int, size: int) -> Iterator[tuple[int, int]]:
    """Untimed pairs, timed pairs, then batches of the metric's size."""
    start = 0
    for length in (_WARM_UP, _TIMED):
        if start < pairs:
            yield start, min(start + length, pairs)
        start = min(start + length, pairs)
    for first in range(start, pairs, size):
        yield first, min(first + size, pairs)


def _slow_work(
    metric: Metric,
    label: str,
    gallery: CaptionGallery,
    free: bool,
    progress: Callable[[int], None],
    announce: Callable[[str], None],
) -> None:
    """One-time work for every caption (SPICE's parses), before any pair is scored."""
    items = gallery.items(free=free)
    for plain in metric.inputs() if isinstance(metric, CombinedMetric) else [metric]:
        plain.open(items)
        work = plain.slow_work(items)
        if work is None:
            continue
        if work.seconds > LONG_S:
            announce(f"{work.subject} {len(work.units):,} {work.unit} first, {words(work.seconds)}")
        work.run(part_of(progress, label, len(work.units), work.unit, work.seconds))


def _checked(matrix: FloatArray, metric: Metric, gallery: CaptionGallery) -> FloatArray:
    n, m = len(gallery.images), len(gallery.captions)
    if matrix.shape != (n, m) or not np.isfinite(matrix).all():
        raise MetricError(
            f"{metric.name} returned a matrix of shape {matrix.shape} for {n} images and {m} captions, or one with "
            "values that are not finite numbers",
            code="wrong-shape" if matrix.shape != (n, m) else "not-a-number",
            value=metric.name,
        )
    return matrix
