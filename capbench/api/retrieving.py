"""``capbench.retrieve``: rank images by captions and captions by images with a metric's scores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments, refuse_with_study, refuse_without
from capbench.api.resolve import (
    Caller,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    VersionGiven,
    asked,
    given_inputs,
    python_caller,
    resolve,
    resolve_task,
    study_of_task,
    texts,
    warn,
)
from capbench.core.errors import CapbenchError, UsageError
from capbench.datasets.captions import load_split
from capbench.datasets.root import find_root
from capbench.studies.judged import ProgressFactory
from capbench.studies.retrieval import MetricRetrieval, RetrievalResult, draw_gallery, metric_retrieval
from capbench.studies.study import RetrievalTask

if TYPE_CHECKING:
    from capbench.studies.study import Gallery

__all__ = ["compute_retrieval", "retrieve"]


def retrieve(
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    captions: PathGiven | None = None,
    split: str | None = None,
    sample_size: int | None = None,
    seed: int | None = None,
    references: int | None = None,
    gallery: Gallery | None = None,
    without: str | Sequence[str] = (),
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> RetrievalResult:
    """Retrieve images by captions and captions by images, as ``capbench explore retrieve`` does.

    Args:
        metrics: names, functions or classes, or a dictionary of them by label.
        study: a study file with ``retrieval``, or the name of one that comes with capbench, in place of ``metrics``.
            The other arguments override the file. A metric that cannot be computed is then left out; see
            :attr:`capbench.studies.retrieval.RetrievalResult.missing`.
        captions: a corpus of captions, or a file; by default ``flickr8k``.
        split: split or domain of the captions; by default all images.
        sample_size: number of sampled images; by default 1,000, or all.
        seed: seed of the sample; by default 0.
        references: number of captions per image that are references; by default 4.
        gallery: ``rest`` (default) for all captions that are not references as queries and gallery, or ``one`` for one
            of each image.
        without: metrics, labels or columns of the study file that are left out.
        options: see :class:`capbench.api.resolve.MetricInputs`, as for ``features``, ``model``, ``images`` (the folder
            of the pictures), ``data``, ``cache`` and ``version``.
        progress: see :func:`capbench.api.caller.python_caller`.
    """
    check_arguments(locals())
    changes = {
        "captions": None if captions is None else os.fspath(captions),
        "split": split,
        "images": sample_size,
        "seed": seed,
        "references": references,
        "gallery": gallery,
    }
    inputs, caller = given_inputs(locals()), python_caller(progress)
    found = compute_retrieval(metrics, study, changes, texts(without), inputs, caller)
    for title, reason in found.missing.items():
        warn(f"{title} {reason}")
    return found


def compute_retrieval(
    metrics: MetricsGiven,
    study: PathGiven | None,
    changes: Mapping[str, Any],
    without: Sequence[str],
    inputs: MetricInputs,
    caller: Caller,
) -> RetrievalResult:
    """Retrieve for Python or the command line; ``changes`` are values of the task, None for its own or the default."""
    root, missing, published = find_root(inputs.get("data")), dict[str, str](), None
    task, changed = RetrievalTask(), {name: value for name, value in changes.items() if value is not None}
    if study is not None:
        refuse_with_study({"metrics": asked(metrics, inputs.get("version"))}, caller)
        planned, task = study_of_task(os.fspath(study), RetrievalTask, inputs, without, caller)
        plan, missing = resolve_task(planned, root, caller)
        requests, resources, published = plan.requests, plan.resources, planned.published
    task = RetrievalTask.read("retrieval", {**asdict(task), **changed})
    of_file = Path(task.captions).exists()
    if study is None:
        if not asked(metrics, inputs.get("version")):
            message = f"neither a study file nor a metric is named; {caller.no_metric}"
            hint = f"Example: {caller.form.format(argument=caller.spelled('metrics'))}"
            raise UsageError(message, code="missing-option", hint=hint)
        refuse_without(without, caller)
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
    return RetrievalResult(
        title=title,
        source=gallery.source,
        images=len(gallery.images),
        captions=len(gallery.captions),
        results=tuple(results),
        missing=missing,
        published=published,
    )
