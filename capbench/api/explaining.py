"""``capbench.explain``: explain a metric's scores for captions of one image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from capbench.api.checking import check_arguments, refuse_with_study
from capbench.api.resolve import (
    Caller,
    FilesGiven,
    MetricInputs,
    OptionsGiven,
    PathGiven,
    given_inputs,
    options_by_owner,
    python_caller,
    resolve,
)
from capbench.core import plugins
from capbench.core.errors import UsageError
from capbench.core.explanations import Explanation
from capbench.core.files import check_writable
from capbench.core.plugins import stdout_to_stderr
from capbench.metrics.abilities import Explains
from capbench.metrics.base import Metric
from capbench.metrics.requests import resolve_metrics
from capbench.studies.explained import find_subject
from capbench.studies.judged import ProgressFactory

if TYPE_CHECKING:
    from capbench.core.explanations import Subject
    from capbench.datasets.root import DataRoot

__all__ = ["Explained", "PlannedExplanation", "explain", "plan_explanation"]


@dataclass(frozen=True)
class Explained:
    """Explanation of a metric's scores for captions of one image.

    Attributes:
        metric: label of the metric.
        image: id of the image.
        picture: file of the image; None if it is not installed.
        explanation: the candidates, regions and notes; ``explanation.candidates[0]`` has scores and arrays.
        files: the picture and the page that were written.
        points: font size of most texts in the picture, in points; None if it was not written.
    """

    metric: str
    image: str
    picture: Path | None
    explanation: Explanation
    files: tuple[Path, ...] = ()
    points: float | None = None


def explain(
    image: PathGiven | None = None,
    metric: str | None = None,
    candidates: str | Sequence[str] = (),
    references: str | Sequence[str] = (),
    *,
    study: PathGiven | None = None,
    dataset: str | None = None,
    out: PathGiven | None = None,
    title: str = "",
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> Explained:
    """Explain a metric's scores for captions of one image, as ``capbench explore explain`` does.

    Args:
        image: id of the image, or its file.
        metric: a metric with explanations: ``tiger`` (default), ``reo``, ``faier``, ``vilbertscore``.
        candidates: captions; by default the first five of the data set.
        references: references; by default the data set's.
        study: a study file with ``image``, in place of the arguments above.
        dataset: data set of the references and ratings; by default flickr8k-expert.
        out: ``NAME`` writes the page NAME.html and the picture NAME.png; ``NAME.svg`` and ``NAME.pdf`` select another
            format of the picture.
        title: title of the page and the picture.
        options: see :class:`capbench.api.resolve.MetricInputs`, as for ``features``, ``model``, ``images`` and
            ``data``.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: the metric has no explanations, or an argument is invalid.
        FeatureError, ModelError, MetricError: a requirement of the metric is missing.
    """
    inputs = given_inputs(locals())
    check_arguments({**inputs, "progress": progress})
    planned = plan_explanation(
        None if image is None else os.fspath(image),
        metric,
        _several(candidates),
        _several(references),
        inputs,
        python_caller(progress),
        study=None if study is None else os.fspath(study),
        dataset=dataset,
    )
    if out is None:
        return planned.explain()
    stem, _, ending = os.fspath(out).rpartition(".")
    kind = ending.lower() if stem and ending.lower() in ("png", "svg", "pdf", "html") else ""
    name = stem if kind else os.fspath(out)
    page, drawn = Path(f"{name}.html"), Path(f"{name}.{kind if kind not in ('', 'html') else 'png'}")
    return planned.write(page, drawn, title=title or planned.title)


def _several(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


@dataclass(frozen=True)
class PlannedExplanation:
    """A metric and captions of an image, resolved and checked.

    Attributes:
        label: label of the metric.
        metric: the metric with its inputs.
        subject: the image with candidates and references.
        title: title of the study file; ``""`` without one.
        notes: notes on the captions.
        root: the data folder.
        under_root: True if anything was read from the data folder.
        caller: Python or the command line.
    """

    label: str
    metric: Metric
    subject: Subject
    title: str
    notes: tuple[str, ...]
    root: DataRoot
    under_root: bool
    caller: Caller

    @stdout_to_stderr()
    def explain(self) -> Explained:
        """Explain without writing files."""
        explanation = self.metric.explain(self.subject) if isinstance(self.metric, Explains) else None
        if explanation is None:
            _refuse(self.label, self.caller)
        notes = list(self.notes)
        if explanation.regions is not None and explanation.regions.boxes is None:
            notes.append("the store has no boxes, so regions cannot be drawn")
        explanation = replace(explanation, notes=(*notes, *explanation.notes))
        for note in explanation.notes:
            self.caller.note(note)
        return Explained(self.label, self.subject.image, self.subject.picture, explanation)

    def write(
        self,
        page: Path,
        drawn: Path,
        *,
        title: str = "",
        size: tuple[float, float] | None = None,
        font_size: float | None = None,
    ) -> Explained:
        """Explain, and write a page and a picture.

        Args:
            page: path of the HTML page.
            drawn: path of the picture.
            title: title of both.
            size: width and height of the picture in inches.
            font_size: font size of the picture.
        """
        from capbench.features.images import decode
        from capbench.reports.explain import write_explanation

        for path in (drawn, page):
            check_writable(path)
        explained = self.explain()
        picture = None if self.subject.picture is None else decode(self.subject.picture)
        points = write_explanation(
            explained.explanation, picture, page, drawn, title=title, size=size, font_size=font_size
        )
        return replace(explained, files=(drawn, page), points=points)


def plan_explanation(
    image: str | None,
    metric: str | None,
    candidates: Sequence[str],
    references: Sequence[str],
    inputs: MetricInputs,
    caller: Caller,
    *,
    study: str | None,
    dataset: str | None,
) -> PlannedExplanation:
    """Resolve an explanation for Python or the command line; see :func:`explain`."""
    from capbench.features.store import open_store

    title: str = ""
    errors: tuple[Mapping[str, Sequence[str]], ...] = ()
    if study is not None:
        defining = {"image": image, "metric": metric, "caption": candidates, "references": references}
        refuse_with_study({**defining, "dataset": dataset}, caller)
        title, metric, image, dataset, candidates, references, errors = _of_study(study)
    if image is None:
        hint = f"Pass {caller.spelled('image')} ID, or a study file"
        raise UsageError("no image is named", code="missing-option", hint=hint)
    metric = metric or "tiger"
    (requested,) = resolve_metrics([metric], options_by_owner(inputs.get("options")))
    if not issubclass(requested.metric, Explains):
        _refuse(metric, caller)
    if errors and not getattr(requested.metric, "explains_errors", False):
        message = f"{metric} finds no errors to compare with 'errors'"
        raise UsageError(message, code="unsupported", value=metric, hint="Use reo")
    of_sample = not Path(image).exists()
    resolved = resolve([metric], inputs, caller, on_sample=lambda root: root.is_sample and of_sample)
    root, (request,) = resolved.root, resolved.requests
    explainer = request.make(resolved.resources)
    store = None if explainer.resources.features is None else open_store(explainer.resources.features)
    pictures = Path(images) if (images := inputs.get("images")) is not None else None
    with nullcontext() if store is None else store:
        looked_up = find_subject(image, store, candidates, references, dataset, root, pictures)
    subject = replace(looked_up.subject, errors=errors)
    caller.on_data(root, looked_up.under_root)
    notes = tuple(looked_up.notes)
    return PlannedExplanation(request.label, explainer, subject, title, notes, root, looked_up.under_root, caller)


def _of_study(
    study: str,
) -> tuple[str, str, str, str | None, Sequence[str], Sequence[str], tuple[Mapping[str, Sequence[str]], ...]]:
    """Title, metric, image, data set, candidates, references and errors of a study file with an image.

    Raises:
        StudyError: the study file does not exist or is invalid.
        UsageError: it has no 'image', or more than one metric.
    """
    from capbench.studies.study import ImageTask
    from capbench.studies.study_file import find_study, load_study

    loaded = load_study(find_study(study))
    task = loaded.task
    if not isinstance(task, ImageTask):
        command = "correlate" if task is None else task.command
        hint = f"Run 'capbench {command} {study}'"
        raise UsageError(f"{study} has no 'image'", code="missing-key", value="image", hint=hint)
    if len(loaded.metrics) != 1 or not isinstance(loaded.metrics[0], str):
        raise UsageError(
            f"{study} has {len(loaded.metrics)} metrics, but one is explained at a time",
            code="too-many",
            value=len(loaded.metrics),
            hint=f"Run 'capbench explore examples {study}'",
        )
    texts = task.candidates or (), task.references or ()
    return loaded.title, loaded.metrics[0], task.id, task.dataset, *texts, tuple(task.errors or ())


def _refuse(name: str, caller: Caller) -> NoReturn:
    """Raise UsageError for a metric without explanations."""
    from capbench.metrics.registry import metric_names

    able = [n for n in metric_names() if issubclass(plugins.load("capbench.metrics", n), Explains)]
    raise UsageError(
        f"{caller.spelled('metric')} {name} has no explanations",
        code="unsupported",
        value=name,
        hint=f"Metrics with explanations: {', '.join(able)}",
    )
