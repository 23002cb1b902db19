"""``capbench.retrieve``: rank images by captions and captions by images with a metric's scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from capbench.api.arguments import RetrievalChanges
from capbench.api.checking import checked, refuse_with_study, refuse_without
from capbench.api.resolve import (
    CachedInputs,
    MetricsGiven,
    PathGiven,
    ProgressGiven,
    asked,
    plan_task,
    python_caller,
    resolve,
    texts,
)
from capbench.core.errors import CapbenchError, UsageError
from capbench.datasets.captions import load_split
from capbench.datasets.root import find_root
from capbench.studies.retrieval import MetricRetrieval, RetrievalResult, draw_gallery, metric_retrieval
from capbench.studies.study import RetrievalTask


class RetrievalInputs(CachedInputs, RetrievalChanges, total=False):
    """Inputs of the metrics, captions and images."""


@checked
def retrieve(
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    without: str | Sequence[str] = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[RetrievalInputs],
) -> RetrievalResult:
    """Retrieve images by captions and captions by images, as ``capbench explore retrieve`` does.

    ``study`` is a study file with ``retrieval``, or the name of one that comes with capbench, in place of ``metrics``;
    the other arguments override it, and a metric that cannot be computed is in ``missing`` of the result. Other inputs:
    :class:`capbench.api.arguments.RetrievalChanges` and :class:`capbench.api.resolve.CachedInputs`.
    """
    caller, root = python_caller(progress), find_root(inputs.get("data"))
    changed: dict[str, Any] = {name: inputs[name] for name in RetrievalChanges.__annotations__ if name in inputs}  # type: ignore[literal-required]
    if "sample_size" in changed:
        changed["images"] = changed.pop("sample_size")
    if "captions" in changed:
        changed["captions"] = os.fspath(changed["captions"])
    task, missing, published = RetrievalTask(), dict[str, str](), None
    if study is not None:
        refuse_with_study({"metrics": asked(metrics, inputs.get("version"))}, caller)
        plan, task, missing = plan_task(os.fspath(study), RetrievalTask, inputs, texts(without), caller)
        requests, resources, published = plan.requests, plan.resources, plan.study.published
    task = RetrievalTask.read("retrieval", {**asdict(task), **changed})
    of_file = Path(task.captions).exists()
    if study is None:
        if not asked(metrics, inputs.get("version")):
            message = "neither a study file nor a metric is named"
            raise UsageError(message, code="missing-option", hint=caller.no_metric)
        refuse_without(texts(without), caller)
        resolved = resolve(metrics, inputs, caller, on_sample=lambda root: root.is_sample and not of_file)
        requests, resources = resolved.requests, resolved.resources
    gallery = draw_gallery(load_split(task.captions, task.split, root), task)
    title = task.captions if task.split is None else f"{task.captions}, {task.split}"
    caller.on_data(root, not of_file)
    caller.tell(f"{title}: {gallery.source}")
    results: list[MetricRetrieval] = []
    for metric in requests:
        try:
            results += metric_retrieval(
                gallery, metric, resources=resources, cache=inputs.get("cache", True), progress=caller.progress
            )
        except CapbenchError as error:
            if study is None:
                raise
            missing |= {row.title: f"missing: {error}" for row in metric.rows}
    for row, reason in missing.items():
        caller.lack(f"{row} {reason}")
    return RetrievalResult(
        title=title,
        source=gallery.source,
        images=len(gallery.images),
        captions=len(gallery.captions),
        results=tuple(results),
        missing=missing,
        published=published,
    )
