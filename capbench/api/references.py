"""``capbench.references``: agreement with human judgements against the number of references."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from typing_extensions import Unpack

from capbench.api.arguments import Draws
from capbench.api.checking import checked, refuse_with_study, refuse_without
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    MetricInputs,
    MetricsGiven,
    PathGiven,
    ProgressGiven,
    asked,
    python_caller,
    resolve_judged,
    resolve_task,
    study_of_task,
    texts,
    warn,
)
from capbench.core.arguments import Seed
from capbench.core.errors import CapbenchError, UsageError
from capbench.datasets.root import find_root
from capbench.studies.judged import judge
from capbench.studies.references import ReferenceCurves, ReferenceResult, curve_protocol, reference_curves
from capbench.studies.study import CurveTask

__all__ = ["compute_curves", "references"]

_DATASET = "pascal-50s"
_METRICS = ("bleu-4", "rouge-l", "cider")
Each = Callable[[str, ReferenceCurves], None]
"""Receives the name of the study file (``""`` without one) and the curves of one protocol, once they are computed."""


@checked
def references(
    dataset: DatasetGiven | None = None,
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    protocol: str | None = None,
    counts: Sequence[int] | None = None,
    draws: Draws | None = None,
    seed: Seed | None = None,
    without: str | Sequence[str] = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> ReferenceResult:
    """Measure agreement against the number of references, as ``capbench correlate --references-curve`` does.

    By default BLEU-4, ROUGE-L and CIDEr on ``pascal-50s`` with all references. ``study`` is a study file with
    ``curves``, or the name of one that comes with capbench, in place of ``dataset``, ``metrics`` and ``protocol``; a
    metric or protocol that cannot be computed is then in ``missing`` of the result. Other inputs:
    :class:`capbench.api.resolve.MetricInputs`; score files have no scores for other references.
    """
    changes, caller = {"counts": counts, "draws": draws, "seed": seed}, python_caller(progress)
    found = compute_curves(study, dataset, metrics, protocol, changes, texts(without), inputs, caller)
    for title, reason in found.missing.items():
        warn(f"{title} {reason}")
    return found


def compute_curves(
    study: PathGiven | None,
    dataset: DatasetGiven | None,
    metrics: MetricsGiven,
    protocol: str | None,
    changes: Mapping[str, Any],
    without: Sequence[str],
    inputs: MetricInputs,
    caller: Caller,
    each: Each = lambda study, curves: None,
) -> ReferenceResult:
    """Compute curves for Python or the command line; ``changes`` are values of the task, None for its own."""
    if inputs.get("scores", ()):
        scores = caller.spelled("scores")
        message = f"{scores}: a score file has no scores for other numbers of references"
        raise UsageError(message, code="conflict", hint=f"Omit {scores}")
    changed = {name: value for name, value in changes.items() if value is not None}
    if study is None:
        refuse_without(without, caller)
        task = CurveTask.read("references", {**asdict(CurveTask()), **changed})
        found = resolve_judged(
            metrics if asked(metrics) else _METRICS,
            _DATASET if dataset is None else dataset,
            protocol,
            inputs,
            caller,
            find_protocol=curve_protocol,
        )
        curves = reference_curves(
            found.judged().require_all(), found.protocol, task, sample=found.sample, progress=caller.progress
        )
        each("", curves)
        return ReferenceResult(curves=(curves,), missing={})
    refuse_with_study({"dataset": texts(dataset), "metrics": asked(metrics), "protocol": protocol}, caller)
    planned, task = study_of_task(os.fspath(study), CurveTask, inputs, without, caller)
    task = CurveTask.read("references", {**asdict(task), **changed})
    plan, missing = resolve_task(planned, find_root(inputs.get("data")), caller)
    if not plan.requests:
        reasons = "; ".join(f"{title} {reason}" for title, reason in missing.items())
        message = f"{planned.name}: no metric can be computed: {reasons}"
        raise UsageError(message, code="missing-option", value=planned.name)
    caller.on_data(plan.root, plan.uses_root)
    computed = []
    for opened, chosen in plan.protocols:
        try:
            judged = judge(opened, chosen.items, plan.requests, plan.resources, cache=inputs.get("cache", True))
            missing |= {f"{one.request.rows[0].title} on {chosen}": f"missing: {one.error}" for one in judged.lacking}
            sample = plan.root.is_sample and opened.under_root
            curves = reference_curves(judged, chosen, task, sample=sample, progress=caller.progress)
        except CapbenchError as error:
            missing[str(chosen)] = f"missing: {error}"
            continue
        computed.append(curves)
        each(planned.name, curves)
    return ReferenceResult(curves=tuple(computed), missing=missing)
