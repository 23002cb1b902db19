"""``capbench.references``: agreement with human judgements against the number of references."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace

from typing_extensions import Unpack

from capbench.api.agreement import plan_judged
from capbench.api.arguments import CurveChanges
from capbench.api.checking import checked, refuse_with_study, refuse_without
from capbench.api.resolve import (
    DatasetGiven,
    MetricInputs,
    MetricsGiven,
    PathGiven,
    ProgressGiven,
    asked,
    plan_task,
    python_caller,
    texts,
)
from capbench.core.errors import CapbenchError, UsageError
from capbench.studies.references import ReferenceResult, curve_protocol, reference_curves
from capbench.studies.scoring import load_scorable
from capbench.studies.study import CurveTask

_DATASET = "pascal-50s"
_METRICS = ("bleu-4", "rouge-l", "cider")


class CurveInputs(MetricInputs, CurveChanges, total=False):
    """Inputs of the metrics, numbers and orders of references."""


@checked
def references(
    dataset: DatasetGiven | None = None,
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    protocol: str | None = None,
    without: str | Sequence[str] = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[CurveInputs],
) -> ReferenceResult:
    """Measure agreement against the number of references, as ``capbench correlate --references-curve`` does.

    By default BLEU-4, ROUGE-L and CIDEr on ``pascal-50s`` with all references. ``study`` is a study file with
    ``curves``, or the name of one that comes with capbench, in place of ``dataset``, ``metrics`` and ``protocol``; a
    metric or protocol that cannot be computed is then in ``missing`` of the result. Other inputs: ``counts`` (by
    default 0 if a metric can, 1, 2, 5, 10, … all), ``draws`` (5) and ``seed`` of the random orders, and
    :class:`capbench.api.resolve.MetricInputs`; score files have no scores for other references.
    """
    caller, omitted = python_caller(progress), texts(without)
    changes = {name: inputs[name] for name in CurveChanges.__annotations__ if name in inputs}  # type: ignore[literal-required]
    if inputs.get("scores"):
        scores = caller.spelled("scores")
        message = f"{scores}: a score file has no scores for other numbers of references"
        raise UsageError(message, code="conflict", hint=f"Omit {scores}")
    task, missing = CurveTask(), dict[str, str]()
    if study is None:
        refuse_without(omitted, caller)
        named = metrics if asked(metrics) else _METRICS
        plan = plan_judged(dataset or _DATASET, named, protocol, inputs, caller)
        ((opened, _),) = plan.protocols
        plan = replace(plan, protocols=((opened, curve_protocol(opened, protocol)),))
    else:
        refuse_with_study({"dataset": texts(dataset), "metrics": asked(metrics), "protocol": protocol}, caller)
        plan, task, missing = plan_task(os.fspath(study), CurveTask, inputs, omitted, caller)
        caller.on_data(plan.root, plan.uses_root)
    task = CurveTask.read("references", {**asdict(task), **changes})
    if not plan.requests:
        reasons = "; ".join(f"{title} {reason}" for title, reason in missing.items())
        message = f"{plan.study.name}: no metric can be computed: {reasons}"
        raise UsageError(message, code="missing-option", value=plan.study.name)
    computed = []
    for opened, chosen in plan.protocols:
        try:
            judged = load_scorable(opened, chosen.items, plan.requests, plan.resources, cache=inputs.get("cache", True))
            judged = judged.require_all() if study is None else judged
            missing |= {f"{one.request.rows[0].title} on {chosen}": f"missing: {one.error}" for one in judged.unscored}
            sample = plan.root.is_sample and opened.under_root
            computed.append(reference_curves(judged, chosen, task, sample=sample, progress=caller.progress))
        except CapbenchError as error:
            if study is None:
                raise
            missing[str(chosen)] = f"missing: {error}"
    for title, reason in missing.items():
        caller.lack(f"{title} {reason}")
    return ReferenceResult(curves=tuple(computed), missing=missing, name=plan.study.name if study else "")
