"""``capbench.explain``: explain a metric's scores for captions of one image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from typing_extensions import Unpack

from capbench.api.checking import checked, refuse_with_study
from capbench.api.resolve import (
    Caller,
    MetricFiles,
    PathGiven,
    ProgressGiven,
    given_inputs,
    options_by_owner,
    python_caller,
    resolve,
    texts,
)
from capbench.core import plugins
from capbench.core.errors import UsageError
from capbench.core.explanations import Explanation
from capbench.core.files import check_writable
from capbench.core.plugins import stdout_to_stderr
from capbench.metrics.abilities import Explains
from capbench.metrics.requests import resolve_metrics
from capbench.studies.explained import find_subject

__all__ = ["Explained", "compute_explanation", "explain"]


@dataclass(frozen=True)
class Explained:
    """Explanation of a metric's scores for captions of one image."""

    metric: str  # label
    image: str  # id
    picture: Path | None  # file of the image; None if it is not installed
    explanation: Explanation  # the candidates, regions and notes; explanation.candidates[0] has scores and arrays
    title: str = ""  # of the study file
    files: tuple[Path, ...] = ()  # the pictures and the page that were written
    points: float | None = None  # smallest font size of most texts in the pictures; None if none was written


@checked
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
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricFiles],
) -> Explained:
    """Explain a metric's scores for captions of one image, as ``capbench explore explain`` does.

    Args:
        image: id of the image, or its file.
        metric: a metric with explanations: ``tiger`` (default), ``reo``, ``faier``, ``vilbertscore``.
        candidates: captions; by default the first five of the data set.
        references: references; by default the data set's.
        study: a study file with ``image``, in place of the arguments above.
        dataset: data set of the references and ratings; by default flickr8k-expert.
        out: ``NAME`` writes the page NAME.html and a picture of each candidate, NAME.png or NAME-A.png, NAME-B.png, …;
            ``NAME.svg`` and ``NAME.pdf`` select another format.
        title: title of the page and the pictures.
        progress: see :func:`capbench.api.caller.python_caller`.
        inputs: see :class:`capbench.api.resolve.MetricFiles`.
    """
    return compute_explanation(
        None if image is None else os.fspath(image),
        metric,
        texts(candidates),
        texts(references),
        inputs,
        python_caller(progress),
        study=None if study is None else os.fspath(study),
        dataset=dataset,
        out=None if out is None else os.fspath(out),
        title=title,
    )


def compute_explanation(
    image: str | None,
    metric: str | None,
    candidates: Sequence[str],
    references: Sequence[str],
    inputs: MetricFiles,
    caller: Caller,
    *,
    study: str | None,
    dataset: str | None,
    out: str | None,
    kind: str | None = None,
    title: str = "",
    size: tuple[float, float] | None = None,
    font_size: float | None = None,
) -> Explained:
    """Explain for Python or the command line; see :func:`explain`.

    ``out``: None writes no files, ``""`` files named after image and metric; ``kind``: format of pictures; ``size``:
    of a picture in inches.
    """
    from capbench.features.images import decode
    from capbench.features.store import open_store
    from capbench.reports.explain import write_explanation

    of_study = ""
    errors: tuple[Mapping[str, Sequence[str]], ...] = ()
    if study is not None:
        defining = {"image": image, "metric": metric, "caption": candidates, "references": references}
        refuse_with_study({**defining, "dataset": dataset}, caller)
        of_study, metric, image, dataset, candidates, references, errors = _of_study(study)
    if image is None:
        hint = f"Pass {caller.spelled('image')} ID, or a study file"
        raise UsageError("no image is named", code="missing-option", hint=hint)
    metric = metric or "tiger"
    (requested,) = resolve_metrics([metric], options_by_owner(inputs.get("options")))
    if not issubclass(requested.metric, Explains):
        _refuse(metric, caller)
    if errors and not requested.metric.explains_errors:
        message = f"{metric} finds no errors to compare with 'errors'"
        raise UsageError(message, code="unsupported", value=metric, hint="Use reo")
    of_sample = not Path(image).exists()
    resolved = resolve([metric], given_inputs(inputs), caller, on_sample=lambda root: root.is_sample and of_sample)
    root, (request,) = resolved.root, resolved.requests
    explainer = request.make(resolved.resources)
    store = None if explainer.resources.features is None else open_store(explainer.resources.features)
    pictures = None if inputs.get("images") is None else Path(inputs["images"])  # type: ignore[arg-type]
    with nullcontext() if store is None else store:
        found = find_subject(image, store, candidates, references, dataset, root, pictures)
    subject = replace(found.subject, errors=errors)
    caller.on_data(root, found.under_root)
    page, drawn = _targets(out or f"{subject.image}.{request.label}", kind)
    for path in () if out is None else (drawn, page):
        check_writable(path)
    with stdout_to_stderr():
        explanation = explainer.explain(subject) if isinstance(explainer, Explains) else None
    if explanation is None:
        _refuse(request.label, caller)
    notes = list(found.notes)
    if explanation.regions is not None and explanation.regions.boxes is None:
        notes.append("the store has no boxes, so regions cannot be drawn")
    explanation = replace(explanation, notes=(*notes, *explanation.notes))
    for note in explanation.notes:
        caller.note(note)
    explained = Explained(request.label, subject.image, subject.picture, explanation, title or of_study)
    if out is None:
        return explained
    pixels = None if subject.picture is None else decode(subject.picture)
    title = explained.title
    files, points = write_explanation(explanation, pixels, page, drawn, title=title, size=size, font_size=font_size)
    return replace(explained, files=(*files, page), points=points)


def _targets(name: str, kind: str | None) -> tuple[Path, Path]:
    """Paths of the page and the picture. Raises UsageError if a format differs from the extension of the name."""
    stem, dot, ending = name.rpartition(".")
    own = ending.lower() if dot and ending.lower() in ("png", "svg", "pdf") else None
    if kind is not None and own not in (None, kind):
        message = f"the formats of {name} and --format {kind} differ"
        raise UsageError(message, code="conflict", value=kind, hint="Omit one of the two")
    name = stem if own or (dot and ending.lower() == "html") else name
    return Path(f"{name}.html"), Path(f"{name}.{kind or own or 'png'}")


def _of_study(
    study: str,
) -> tuple[str, str, str, str | None, Sequence[str], Sequence[str], tuple[Mapping[str, Sequence[str]], ...]]:
    """Title, metric, image, data set, candidates, references and errors of a study file with an image."""
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
    captions = task.candidates or (), task.references or ()
    return loaded.title, loaded.metrics[0], task.id, task.dataset, *captions, tuple(task.errors or ())


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
