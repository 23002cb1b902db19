"""Captions of one image under several metrics (FAIEr, Wang et al. 2021, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.errors import FeatureError, ToolError, UsageError
from capbench.metrics.base import Resources
from capbench.metrics.requests import MetricRequest
from capbench.records import Item, caption_key, signature_lines
from capbench.scoring import score
from capbench.studies.tasks import ImageTask

__all__ = ["ImageScores", "score_image"]


@dataclass(frozen=True)
class ImageScores:
    """What :func:`score_image` found.

    Attributes:
        image: the image's id.
        references: what candidates were compared with.
        candidates: the captions.
        scores: by title of the metric's column, one score a candidate.
        signatures: one line a metric.
        lacking: by title, what a metric waits for.
        notes: what to know, one line each.
        under_root: whether a data set below the data folder was read.
        title: of the study that names the captions; ``""`` without one.
    """

    image: str
    references: tuple[str, ...]
    candidates: tuple[str, ...]
    scores: Mapping[str, tuple[float, ...]]
    signatures: tuple[str, ...]
    lacking: Mapping[str, str]
    notes: tuple[str, ...]
    under_root: bool
    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        return asdict(self)


def score_image(
    task: ImageTask,
    requests: Sequence[MetricRequest],
    root: DataRoot,
    *,
    resources: Resources | None = None,
    cache: bool = True,
) -> ImageScores:
    """Score captions of one image with all metrics.

    Args:
        task: the image, its candidates and references. What of them is not given is taken from the data set's default
            protocol: all its candidates of the image, and the longest list of references among them.
        requests: the metrics. One that lacks features of this image, or a tool, is named.
        root: the data folder.
        resources: what is given to them.
        cache: whether the cache is used.

    Raises:
        UsageError: captions are not given and no data set has the image.
        CapbenchError: as opening the data set and scoring do.
    """
    candidates, references = task.candidates or (), task.references or ()
    notes: list[str] = []
    under_root = False
    if not (candidates and references):
        dataset = open_dataset(task.dataset or "flickr8k-expert", root)
        under_root = dataset.under_root
        items = [item for item in dataset.load(dataset.protocol().items)[0].items if item.image == task.id]
        if not items:
            raise UsageError(
                f"{dataset.name} has no image '{task.id}'",
                hint="Name another 'dataset', or give both kinds of captions",
            )
        references = references or max((item.references for item in items), key=len)
        candidates = candidates or tuple({caption_key(item.candidate): item.candidate for item in items}.values())
    judged = [Item(task.id, text, references, f"{task.id}#{place}") for place, text in enumerate(candidates)]
    scores: dict[str, tuple[float, ...]] = {}
    signatures: dict[str, str] = {}
    lacking: dict[str, str] = {}
    for request in requests:
        try:
            table = score(judged, [request], resources, dataset=task.id, cache=cache)
        except (FeatureError, ToolError) as error:
            lacking |= {row.title: f"waits: {error}" for row in request.rows}
            continue
        scores |= {row.title: tuple(table.values[row.key].tolist()) for row in request.rows}
        signatures |= table.signatures
    return ImageScores(
        task.id, references, candidates, scores, tuple(signature_lines(signatures)), lacking, tuple(notes), under_root
    )
