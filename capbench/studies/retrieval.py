"""Retrieval with a metric: ranks images by their scores for a caption, and captions by their scores for an image.

After FAIEr (Wang and others, CVPR 2021, Table 6): the first four of each image's captions are its references, and the
others are queries and gallery. Any of an image's own captions is a correct answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capbench.core.errors import DataError
from capbench.core.plugins import stdout_to_stderr
from capbench.core.records import FloatArray, IntArray, Item
from capbench.core.typed_json import Strict, Tidy
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.scoring import complete
from capbench.stats.retrieval import retrieval
from capbench.studies.scoring import ProgressFactory, no_progress
from capbench.studies.study import RetrievalTask


class MetricRetrieval(Strict):
    """Recalls and ranks of one metric column in both directions."""

    metric: str
    title: str
    references: bool  # whether captions were compared with references of the images
    signature: str
    images: int
    captions: int
    recall_sum: float
    image_to_text: dict[str, float]  # r@1, r@5, r@10 in percent, median_rank, mean_rank
    text_to_image: dict[str, float]


class RetrievalResult(Tidy):
    """Retrieval with metrics."""

    title: str  # the captions and their split
    source: str  # the sample of images, one line
    images: int
    captions: int
    results: tuple[MetricRetrieval, ...]
    missing: dict[str, str]  # metrics of a study file that were not computed, by title with the reason
    published: str | None = None  # name of the published table of the study file

    def rows(self) -> list[dict[str, Any]]:
        """The numbers as JSON, one row for each metric column."""
        return [result.model_dump(mode="json", exclude={"title"}) for result in self.results]


@dataclass(frozen=True, eq=False)
class CaptionGallery:
    """Input of retrieval: n images, and m captions that are queries and gallery."""

    images: tuple[str, ...]  # in published order
    captions: tuple[str, ...]  # with an image's captions next to each other
    image_of: IntArray  # (m) index of each caption's image
    references: Mapping[str, tuple[str, ...]]
    source: str


def draw_gallery(captions: Mapping[str, Sequence[str]], task: RetrievalTask) -> CaptionGallery:
    """Sample images (PCG64 over the sorted ids), and divide their captions into references and queries."""
    if len(captions) < 2:
        message = f"there are {len(captions)} images, and retrieval requires at least two"
        raise DataError(message, code="too-few", value=len(captions), hint="Choose other captions")
    count, least = min(task.images, len(captions)), task.references + 1
    by_id = sorted(captions)
    drawn = {by_id[place] for place in np.random.default_rng(task.seed).permutation(len(by_id))[:count].tolist()}
    images = tuple(image for image in captions if image in drawn)
    for image in images:
        if (given := len(captions[image])) < least:
            message = f"the image '{image}' has {given} caption(s), and {least} are required"
            hint = f"Choose {given - 1} references" if given > 1 else "Leave the image out"
            raise DataError(message, code="too-few", value=image, hint=hint)
    last = least if task.gallery == "one" else None
    queries = [captions[image][task.references : last] for image in images]
    chosen = f"all {count:,} images"
    if count < len(captions):
        chosen = f"{count:,} of {len(captions):,} images, drawn with seed {task.seed}"
    rest = "the next one is query and gallery" if task.gallery == "one" else "the others are queries and gallery"
    total = sum(map(len, queries))
    return CaptionGallery(
        images,
        tuple(text for of_image in queries for text in of_image),
        np.repeat(np.arange(len(images)), [len(of_image) for of_image in queries]),
        {image: tuple(captions[image][: task.references]) for image in images},
        f"{chosen}; the first {task.references} captions of an image are its references, {rest} ({total:,})",
    )


@stdout_to_stderr()
def metric_retrieval(
    gallery: CaptionGallery,
    request: MetricRequest,
    *,
    resources: Resources | None = None,
    progress: ProgressFactory = no_progress,
) -> list[MetricRetrieval]:
    """Score every caption against every image, and rank; columns that ignore references get none."""
    metric = request.make(complete(resources))
    n = len(gallery.images)
    free = {row.key.column for row in request.rows} & request.ignores_references
    bare = dict.fromkeys(gallery.images, ())
    metric.prepare(_items(gallery, bare if len(free) == len(request.rows) else gallery.references))
    matrices: dict[str, FloatArray] = {}
    for references in (bare, gallery.references):
        titles = {row.key.column: row.title for row in request.rows if (row.key.column in free) == (references is bare)}
        for column, title in titles.items():
            with progress(f"{title}, {n:,} images", n) as step:
                if (matrix := metric.matrix(gallery.captions, references, column, step)) is not None:
                    matrices[column] = matrix
        if pairwise := [column for column in titles if column not in matrices]:
            with progress(request.label, n * len(gallery.captions)) as step:
                matrices |= _pair_by_pair(metric, request.label, gallery, pairwise, references, step)
    return [
        MetricRetrieval(
            metric=row.name,
            title=row.title,
            references=row.key.column not in free,
            signature=metric.signature(),
            **retrieval(matrices[row.key.column], gallery.image_of),
        )
        for row in request.rows
    ]


def _items(gallery: CaptionGallery, references: Mapping[str, tuple[str, ...]]) -> tuple[Item, ...]:
    """(m) every caption with its image."""
    images = (gallery.images[place] for place in gallery.image_of.tolist())
    return tuple(Item(image, text, references[image]) for image, text in zip(images, gallery.captions, strict=True))


def _pair_by_pair(
    metric: Metric,
    label: str,
    gallery: CaptionGallery,
    columns: Sequence[str],
    references: Mapping[str, tuple[str, ...]],
    progress: Callable[[int], None],
) -> dict[str, FloatArray]:
    """(n, m) scores of columns, in batches of pairs, after one-time work for every caption (SPICE's parses)."""
    items = _items(gallery, references)
    for plain in metric.inputs() if isinstance(metric, CombinedMetric) else [metric]:
        plain.open(items)
        if work := plain.slow_work(items):
            work.run_in(progress, label)
    n, m = len(gallery.images), len(gallery.captions)
    scores = {column: np.empty(n * m) for column in columns}
    for start in range(0, n * m, metric.batch_size):
        pairs = (divmod(pair, m) for pair in range(start, min(start + metric.batch_size, n * m)))
        named = ((gallery.images[row], gallery.captions[place]) for row, place in pairs)
        batch = [Item(image, text, references[image]) for image, text in named]
        metric.open(batch)
        of_batch = metric.scores(np.asarray(metric.statistics(batch, progress), dtype=np.float64))
        for column in columns:
            scores[column][start : start + len(batch)] = of_batch[column]
    return {column: values.reshape(n, m) for column, values in scores.items()}
