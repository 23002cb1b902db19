"""``capbench.retrieve``: rank images by captions and captions by images with a metric's scores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
from capbench.studies.retrieval import CaptionGallery, MetricRetrieval, draw_gallery, metric_retrieval
from capbench.studies.study import RetrievalTask

if TYPE_CHECKING:
    from capbench.studies.published import PublishedTable
    from capbench.studies.study import Gallery

__all__ = ["RetrievalRequest", "RetrievalStudy", "compute_retrieval", "retrieve"]


@dataclass(frozen=True)
class RetrievalStudy:
    """Retrieval with metrics, as :func:`retrieve` returns it.

    Attributes:
        task: captions, images and references.
        gallery: the queries and the gallery.
        results: recalls and ranks of each metric column.
        missing: metrics of a study file that were not computed, by title with the reason.
        published: the published table that the study file names.
    """

    task: RetrievalTask
    gallery: CaptionGallery
    results: tuple[MetricRetrieval, ...]
    missing: Mapping[str, str]
    published: PublishedTable | None = None

    @property
    def title(self) -> str:
        """The captions and their split."""
        return self.task.captions if self.task.split is None else f"{self.task.captions}, {self.task.split}"

    def to_list(self) -> list[dict[str, Any]]:
        """The numbers as JSON, as ``capbench explore retrieve --json`` prints them."""
        return [result.to_dict() for result in self.results]


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
) -> RetrievalStudy:
    """Retrieve images by captions and captions by images, as ``capbench explore retrieve`` does.

    Args:
        metrics: names, functions or classes, or a dictionary of them by label.
        study: a study file with ``retrieval``, or the name of one that comes with capbench, in place of ``metrics``.
            The other arguments override the file. A metric that cannot be computed is then left out; see
            :attr:`RetrievalStudy.missing`.
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

    Raises:
        UsageError: neither a study file nor a metric is named, or an argument is not valid.
        StudyError: the study file does not exist or is not valid.
        DataError: an image has too few captions.
        MetricError, FeatureError, ModelError: a metric cannot be computed.
    """
    check_arguments(locals())
    request = RetrievalRequest(
        study=study,
        metrics=metrics,
        changes={
            "captions": None if captions is None else os.fspath(captions),
            "split": split,
            "images": sample_size,
            "seed": seed,
            "references": references,
            "gallery": gallery,
        },
        without=tuple(texts(without)),
    )
    found = compute_retrieval(request, MetricInputs.of(locals()), python_caller(progress))
    for title, reason in found.missing.items():
        warn(f"{title} {reason}")
    return found


@dataclass(frozen=True, kw_only=True)
class RetrievalRequest:
    """Retrieval as Python or the command line requests it; see :func:`retrieve`.

    Attributes:
        study: a study file, or None.
        metrics: metrics, without a study file.
        changes: values of :class:`capbench.studies.study.RetrievalTask`; None for those that do not change.
        without: metrics of the study file that are left out.
    """

    study: PathGiven | None = None
    metrics: MetricsGiven = ()
    changes: Mapping[str, Any]
    without: tuple[str, ...] = ()

    def over(self, task: RetrievalTask) -> RetrievalTask:
        """A task with the requested values in place of its own. Raises UsageError if one is not valid."""
        changed = {name: value for name, value in self.changes.items() if value is not None}
        return RetrievalTask.read("retrieval", {**asdict(task), **changed})


def compute_retrieval(request: RetrievalRequest, inputs: MetricInputs, caller: Caller) -> RetrievalStudy:
    """Retrieve for Python or the command line; see :func:`retrieve`."""
    from capbench.studies.published import load_published

    named = asked(request.metrics, inputs.version)
    root = find_root(inputs.data)
    missing: dict[str, str] = {}
    published = None
    if request.study is not None:
        refuse_with_study({"metrics": named}, caller)
        file = os.fspath(request.study)
        planned, task = study_of_task(file, RetrievalTask, inputs, request.without, caller)
        task = request.over(task)
        plan, missing = resolve_task(planned, root, caller)
        requests, resources = plan.requests, plan.resources
        published = load_published(planned.published) if planned.published else None
    else:
        if not named:
            raise UsageError(
                f"neither a study file nor a metric is named; {caller.no_metric}",
                code="missing-option",
                hint=f"Example: {caller.form.format(argument=caller.spelled('metrics'))}",
            )
        refuse_without(request.without, caller)
        task = request.over(RetrievalTask())
        of_sample = not Path(task.captions).exists()
        resolved = resolve(request.metrics, inputs, caller, on_sample=lambda root: root.is_sample and of_sample)
        requests, resources = resolved.requests, resolved.resources
    gallery = draw_gallery(load_split(task.captions, task.split, root), task)
    found = RetrievalStudy(task, gallery, (), missing, published)
    caller.on_data(root, not Path(task.captions).exists())
    caller.tell(f"{found.title}: {gallery.source}")
    results: list[MetricRetrieval] = []
    for metric in requests:
        try:
            results += metric_retrieval(
                gallery,
                metric,
                resources=resources,
                cache=inputs.cache,
                progress=caller.progress,
                announce=caller.note,
            )
        except CapbenchError as error:
            if request.study is None:
                raise
            missing |= {row.title: f"missing: {error}" for row in metric.rows}
    return RetrievalStudy(task, gallery, tuple(results), missing, published)
