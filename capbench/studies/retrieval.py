"""Retrieval with a metric: ranks images by their scores for a caption, and captions by their scores for an image.

After FAIEr (Wang and others, CVPR 2021, Table 6): the first four of each image's captions are its references, and all
others are queries and gallery, whose number the paper leaves open. Any of an image's own captions is a correct answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from capbench.core.errors import DataError
from capbench.core.plugins import stdout_to_stderr
from capbench.core.records import Item
from capbench.core.typed_json import Tidy
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.scoring import complete
from capbench.stats.retrieval import retrieval
from capbench.studies.scoring import ProgressFactory, no_progress
from capbench.studies.study import RetrievalTask


class RetrievalResult(Tidy):
    """Retrieval with metrics."""

    title: str  # the captions and their split
    source: str  # the sample of images, one line
    results: tuple[dict[str, Any], ...]  # of each metric column, from :func:`metric_retrieval`
    missing: dict[str, str]  # metrics of a study file that were not computed, by title with the reason
    published: str | None = None  # name of the published table of the study file

    def rows(self) -> list[dict[str, Any]]:
        """The numbers as JSON, one row for each metric column."""
        return list(self.results)


def draw_gallery(captions: Mapping[str, Sequence[str]], task: RetrievalTask) -> tuple[list[Item], str]:
    """Sample images (PCG64 over the sorted ids), and divide their captions into references and queries.

    Returns the queries, which are also the gallery, by image in published order, and the sample in one line.
    """
    if len(captions) < 2:
        message = f"there are {len(captions)} images, and retrieval requires at least two"
        raise DataError(message, code="too-few", value=len(captions), hint="Choose other captions")
    drawn = set(np.random.default_rng(task.seed).permutation(sorted(captions))[: task.images].tolist())
    items: list[Item] = []
    for image, texts in captions.items():
        if image in drawn:
            if len(texts) <= task.references:
                message = f"the image '{image}' has {len(texts)} caption(s), and {task.references + 1} are required"
                raise DataError(message, code="too-few", value=image, hint="Choose fewer references")
            items += [Item(image, query, tuple(texts[: task.references])) for query in texts[task.references :]]
    sample = f"{len(drawn):,} of {len(captions):,} images, drawn with seed {task.seed}"
    return items, f"{sample}; the first {task.references} captions are references, the others queries and gallery"


@stdout_to_stderr()
def metric_retrieval(
    items: Sequence[Item],  # the queries, which are also the gallery
    request: MetricRequest,
    resources: Resources | None = None,
    progress: ProgressFactory = no_progress,
) -> list[dict[str, Any]]:
    """Score every caption against every image, and rank.

    Returns for each column ``metric`` (its name), ``title``, ``references`` (True if it uses them), ``signature``, and
    the results of :func:`~capbench.stats.retrieval.retrieval`.
    """
    metric, free = request.make(complete(resources)), request.ignores_references
    if free.issuperset(row.key.column for row in request.rows):
        items = [replace(item, references=()) for item in items]
    places = {image: place for place, image in enumerate(dict.fromkeys(item.image for item in items))}
    image_of = np.array([places[item.image] for item in items])
    metric.prepare(items)
    with progress(f"{request.label}, {len(places):,} images", len(places) * len(items)) as step:
        matrices = metric.matrix(items, step)
    return [
        {
            "metric": row.name,
            "title": row.title,
            "references": row.key.column not in free,
            "signature": metric.signature(),
            **retrieval(matrices[row.key.column], image_of),
        }
        for row in request.rows
    ]
