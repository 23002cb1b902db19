"""``capbench.explain``: explain a metric's scores for captions of one image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from typing_extensions import Unpack

from capbench.api.caller import Caller, ProgressGiven, python_caller
from capbench.api.checking import checked, refuse_with_study
from capbench.api.resolve import MetricFiles, options_by_owner, resolve, texts
from capbench.api.tasks import study_of_task
from capbench.core import plugins
from capbench.core.arguments import PathGiven
from capbench.core.errors import UsageError
from capbench.core.explanations import Explanation
from capbench.core.files import check_writable
from capbench.core.plugins import stdout_to_stderr
from capbench.metrics.abilities import Explains
from capbench.metrics.requests import resolve_metrics
from capbench.studies.explained import find_subject
from capbench.studies.study import ImageTask


@dataclass(frozen=True)
class Explained:
    """Explanation of a metric's scores for captions of one image."""

    metric: str  # label
    image: str  # id
    picture: Path | None  # file of the image; None if it is not installed
    explanation: Explanation  # the candidates, regions and notes; explanation.candidates[0] has scores and arrays
    title: str = ""  # of the study file
    files: tuple[Path, ...] = ()  # the pictures and the page that were written


@checked
def explain(
    image: PathGiven | None = None,  # id of the image, or its file
    metric: str | None = None,
    candidates: str | Sequence[str] = (),
    references: str | Sequence[str] = (),
    *,
    study: PathGiven | None = None,
    dataset: str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricFiles],
) -> Explained:
    """Explain a metric's scores for captions of one image, as ``capbench explore explain`` does.

    By default TIGEr's, for the first five captions, with the references, of ``dataset`` (by default flickr8k-expert).
    ``study`` is a study file with ``image``, in place of image, metric, captions and data set. ``out="NAME"`` writes
    the page NAME.html and a picture of each candidate, NAME.png or NAME-A.png, NAME-B.png, … (``NAME.svg`` and
    ``NAME.pdf`` select another format); ``out=""`` names them after image and metric.
    """
    from capbench.features.images import decode
    from capbench.features.store import open_store
    from capbench.reports.explain import write_explanation

    caller, of_study, title = python_caller(progress), ImageTask(), ""
    captions = texts(candidates), texts(references)
    if study is not None:
        defining = {"image": image, "metric": metric, "caption": candidates, "references": references}
        refuse_with_study({**defining, "dataset": dataset}, caller)
        planned, of_study = study_of_task(os.fspath(study), ImageTask, {}, caller=caller)
        if len(planned.metrics) != 1:
            raise UsageError(
                f"{study} has {len(planned.metrics)} metrics, but one is explained at a time",
                code="too-many",
                value=len(planned.metrics),
                hint=f"Run 'capbench explore examples {study}'",
            )
        metric, image, dataset = str(planned.metrics[0]), of_study.id, of_study.dataset
        captions, title = (list(of_study.candidates or ()), list(of_study.references or ())), planned.title
    if image is None:
        hint = f"Pass {caller.spelled('image')} ID, or a study file"
        raise UsageError("no image is named", code="missing-option", hint=hint)
    metric, errors = metric or "tiger", tuple(of_study.errors or ())
    (requested,) = resolve_metrics([metric], options_by_owner(inputs.get("options")))
    if not issubclass(requested.metric, Explains):
        _refuse(metric, caller)
    if errors and not requested.metric.explains_errors:
        message = f"{metric} finds no errors to compare with 'errors'"
        raise UsageError(message, code="unsupported", value=metric, hint="Use reo")
    plan = resolve([metric], inputs, caller, on_sample=not Path(image).exists())
    (request,), root = plan.requests, plan.root
    explainer = request.make(plan.resources)
    store = None if explainer.resources.features is None else open_store(explainer.resources.features)
    pictures = None if inputs.get("images") is None else Path(inputs["images"])  # type: ignore[arg-type]
    with nullcontext() if store is None else store:
        found = find_subject(os.fspath(image), store, *captions, dataset, root, pictures)
    subject = replace(found.subject, errors=errors)
    caller.on_data(root, found.under_root)
    page, drawn = _targets(os.fspath(out or f"{subject.image}.{request.label}"))
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
    explained = Explained(request.label, subject.image, subject.picture, explanation, title)
    if out is None:
        return explained
    pixels = None if subject.picture is None else decode(subject.picture)
    files = write_explanation(explanation, pixels, page, drawn, title=title)
    return replace(explained, files=(*files, page))


def _targets(name: str) -> tuple[Path, Path]:
    """Paths of the page and the picture, whose format is the extension of the name, by default PNG."""
    stem, _, ending = name.rpartition(".")
    named = ending.lower() in ("png", "svg", "pdf", "html")
    name, kind = (stem, ending.lower()) if named else (name, "png")
    return Path(f"{name}.html"), Path(f"{name}.{'png' if kind == 'html' else kind}")


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
