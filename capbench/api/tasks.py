"""Study files with a task; ``capbench.retrieve``, which runs one or the arguments' task."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Unpack

from capbench.api.agreement import Names
from capbench.api.arguments import RetrievalChanges
from capbench.api.caller import PYTHON, Caller, ProgressGiven, python_caller
from capbench.api.checking import checked, refuse_with_study, refuse_without
from capbench.api.resolve import (
    CachedInputs,
    Inputs,
    MetricsGiven,
    asked,
    resolve,
    resolve_study,
    texts,
    with_inputs,
)
from capbench.core.arguments import PathGiven
from capbench.core.errors import CapbenchError, UsageError
from capbench.core.yaml import find_config
from capbench.datasets.captions import load_split
from capbench.datasets.root import find_root
from capbench.metrics.metric_request import MetricRequest
from capbench.studies.plan import Plan
from capbench.studies.retrieval import RetrievalResult, draw_gallery, metric_retrieval
from capbench.studies.study import RetrievalTask, Study, Task
from capbench.studies.study_file import load_study

TaskType = TypeVar("TaskType", bound=Task)


def study_of_task(
    file: str, task: type[TaskType], inputs: Inputs, without: Sequence[str] = (), caller: Caller = PYTHON
) -> tuple[Study, TaskType]:
    """A study file with a task, and the task, with inputs that override the file."""
    if inputs.get("columns"):
        flag = caller.spelled("columns")
        hint = f"Omit {flag}, or use 'capbench data import'"
        raise UsageError(f"{flag} excludes a study file with a task", code="conflict", value=flag, hint=hint)
    study = load_study(find_config(file))
    if not isinstance(study.task, task):
        command = "correlate" if study.task is None else study.task.command
        hint = f"Run 'capbench {command} {file}'"
        raise UsageError(f"{file} has no '{task.key}'", code="missing-key", value=task.key, hint=hint)
    return replace(with_inputs(study, inputs, caller), without=tuple(without)), study.task


def plan_task(
    file: str, task: type[TaskType], inputs: Inputs, without: Sequence[str] = (), caller: Caller = PYTHON
) -> tuple[Plan, TaskType, dict[str, str]]:
    """The plan of a study file with a task for the metrics that can be computed, and missing requirements by title."""
    study, settings = study_of_task(file, task, inputs, without, caller)
    plan = resolve_study(study, find_root(inputs.get("data")), caller, task=True)
    able, waiting = list[MetricRequest](), dict[str, str]()
    for request in plan.requests:
        if reason := request.lacks(plan.resources):
            waiting |= {row.title: f"requires {reason}" for row in request.rows}
        else:
            able.append(request)
    return replace(plan, requests=tuple(able)), settings, waiting


class RetrievalInputs(CachedInputs, RetrievalChanges, total=False):
    """Inputs of the metrics, captions and images."""


@checked
def retrieve(
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    without: Names = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[RetrievalInputs],
) -> RetrievalResult:
    """Retrieve images by captions and captions by images, as ``capbench explore retrieve`` does.

    ``study`` is a study file with ``retrieval``, or the name of one that comes with capbench, in place of ``metrics``;
    the other arguments override it, and a metric that cannot be computed is in ``missing`` of the result. Other inputs:
    :class:`capbench.api.arguments.RetrievalChanges` and :class:`capbench.api.resolve.CachedInputs`.
    """
    caller, root = python_caller(progress), find_root(inputs.get("data"))
    task, missing = RetrievalTask(), dict[str, str]()
    if study is not None:
        refuse_with_study({"metrics": asked(metrics, inputs.get("version"))}, caller)
        plan, task, missing = plan_task(os.fspath(study), RetrievalTask, inputs, texts(without), caller)
    given = {name: value for name, value in inputs.items() if name in RetrievalChanges.__annotations__}
    given["captions"] = os.fspath(inputs.get("captions", task.captions))
    given["images"] = given.pop("sample_size", task.images)  # the input 'images' is the folder of the pictures
    task = task.read(task.key, {**vars(task), **given})
    of_file = Path(task.captions).exists()
    if study is None:
        refuse_without(texts(without), caller)
        plan = resolve(metrics, inputs, caller, on_sample=not of_file)
    items, source = draw_gallery(load_split(task.captions, task.split, root), task)
    title = task.captions if task.split is None else f"{task.captions}, {task.split}"
    caller.on_data(root, not of_file)
    caller.tell(f"{title}: {source}")
    results: list[dict[str, Any]] = []
    for metric in plan.requests:
        try:
            results += metric_retrieval(items, metric, resources=plan.resources, progress=caller.progress)
        except CapbenchError as error:
            if study is None:
                raise
            missing |= {row.title: f"missing: {error}" for row in metric.rows}
    for row, reason in missing.items():
        caller.lack(f"{row} {reason}")
    published = plan.study.published
    return RetrievalResult(title=title, source=source, results=tuple(results), missing=missing, published=published)
