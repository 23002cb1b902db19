"""What the embedded sample comes with, for metrics that look at images: its model, and features made on first use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.cli import common

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.metrics.base import Resources
    from capbench.metrics.requests import MetricRequest

__all__ = ["SAMPLE_MODEL", "SAMPLE_STORE", "is_sample_data", "with_sample"]

SAMPLE_STORE = Path("features") / "sample.h5"
"""Where ``capbench extract-features`` puts the sample's features."""
SAMPLE_MODEL = "sample"


def is_sample_data(root: DataRoot, dataset: str) -> bool:
    """Whether a data set is read from the embedded sample: not a file, nor imported judgements."""
    from capbench.datasets.base import dataset_names

    return root.is_sample and dataset.partition("@")[0] in dataset_names()


def with_sample(requests: Sequence[MetricRequest], resources: Resources, root: DataRoot) -> Resources:
    """Resources in which metrics over region features have the sample's, where neither features nor weights were given.

    A metric with weights of which no sample comes with capbench is left alone. The features are extracted, and what is
    taken is said on stderr.

    Args:
        requests: metrics that are asked for by name.
        resources: what was given.
        root: the embedded sample.

    Raises:
        CapbenchError: the features cannot be written, or the file of this name holds others.
    """
    seeing = [request for request in requests if request.reads_features()]
    if not seeing:
        return resources
    from capbench.metrics.grounding.base import GroundedMetric
    from capbench.metrics.needs import Features, Weights
    from capbench.models.registry import has_sample

    features_of, models = dict(resources.features_of), dict(resources.models)
    completed: list[str] = []
    for request in seeing:
        given = resources.of(request.label, request.metric.name)
        sampled = issubclass(request.metric, GroundedMetric) or has_sample(request.metric.name)
        if given.features or given.model or (request.needs(Weights) and not sampled):
            continue
        of_label = {request.label: SAMPLE_MODEL} if sampled else {}
        tried = replace(resources, features_of={request.label: str(SAMPLE_STORE)}, models=of_label)
        if any(not isinstance(need, Features) and not need.may_be_spared for need, _ in request.lacking(tried)):
            continue  # it waits for something that the sample has not
        features_of[request.label] = str(SAMPLE_STORE)
        models |= of_label
        completed.append(request.label)
    if not completed:
        return resources
    _extract_missing(root)
    model = f" and the model '{SAMPLE_MODEL}'" if any(label in models for label in completed) else ""
    common.note(
        f"{', '.join(completed)}: the sample's features ({SAMPLE_STORE}){model}; --features and --model change it"
    )
    return replace(resources, features_of=features_of, models=models)


def _extract_missing(root: DataRoot) -> None:
    from capbench.datasets.images import all_images
    from capbench.features.store import open_store

    images = all_images(root)
    if SAMPLE_STORE.exists():
        with open_store(SAMPLE_STORE) as store:
            if all(image.image in store for image in images):
                return
    from capbench.features.detectors.base import load_detector
    from capbench.features.extract import extract

    common.note(f"extracting the features of the sample's {len(images)} images into {SAMPLE_STORE}, once")
    with common.images_progress("extracting", len(images)) as step:
        extract(images, load_detector("sample"), SAMPLE_STORE, progress=step)
