"""``capbench.references``: agreement with human judgements against the number of references."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments, refuse_with_study, refuse_without
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    VersionGiven,
    asked,
    python_caller,
    resolve_judged,
    resolve_task,
    study_of_task,
    texts,
    warn,
)
from capbench.core.errors import CapbenchError, UsageError
from capbench.datasets.root import find_root
from capbench.studies.judged import ProgressFactory, judge
from capbench.studies.references import ReferenceCurves, curve_protocol, reference_curves
from capbench.studies.study import CurveTask

if TYPE_CHECKING:
    from capbench.datasets.protocol import Protocol
    from capbench.studies.judged import Judged
    from capbench.studies.plan import Plan

__all__ = ["CurveRequest", "ReferenceStudy", "compute_curves", "references"]

_DATASET = "pascal-50s"
_METRICS = ("bleu-4", "rouge-l", "cider")
Each = Callable[[str, ReferenceCurves], None]
"""Receives the name of the study file (``""`` without one) and the curves of one protocol, once they are computed."""


@dataclass(frozen=True)
class ReferenceStudy:
    """Curves over the number of references, as :func:`references` returns them.

    Attributes:
        curves: one entry for each protocol.
        missing: metrics and protocols that were not computed, by title with the reason.
    """

    curves: tuple[ReferenceCurves, ...]
    missing: Mapping[str, str]

    def to_list(self) -> list[dict[str, Any]]:
        """The curves as JSON, as ``capbench correlate --references-curve STUDY --json`` prints them."""
        return [curves.model_dump(mode="json") for curves in self.curves]


def references(
    dataset: DatasetGiven | None = None,
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    protocol: str | None = None,
    counts: Iterable[int] | None = None,
    draws: int | None = None,
    seed: int | None = None,
    without: str | Sequence[str] = (),
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool | ProgressFactory = False,
) -> ReferenceStudy:
    """Measure agreement against the number of references, as ``capbench correlate --references-curve`` does.

    Args:
        dataset: a data set's name, a file of judgements, or a class; by default ``pascal-50s``.
        metrics: names, functions or classes; by default BLEU-4, ROUGE-L and CIDEr.
        study: a study file with ``curves``, or the name of one that comes with capbench, in place of ``dataset``,
            ``metrics`` and ``protocol``. A metric or protocol that cannot be computed is then left out; see
            :attr:`ReferenceStudy.missing`.
        protocol: one of the data set's protocols; by default the default one, with all references.
        counts: numbers of references; by default 0 (if a metric can), 1, 2, 5, 10, … all.
        draws: random orders of the references; by default 5.
        seed: of the orders; by default 0.
        without: metrics, labels or columns of the study file that are left out.
        options: see :class:`capbench.api.resolve.MetricInputs`, as for ``features``, ``model``, ``images``, ``data``,
            ``cache``, ``version`` and ``columns``.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: a number of references or an argument is not valid.
        StudyError: the study file does not exist or is not valid.
        ProtocolError: the protocol samples references itself, or has no human judgements.
        DataError, MetricError, StatisticError: as :func:`capbench.correlate` raises them.
    """
    check_arguments(locals())
    request = CurveRequest(
        study=study,
        dataset=dataset,
        metrics=metrics,
        protocol=protocol,
        counts=None if counts is None else tuple(counts),
        draws=draws,
        seed=seed,
        without=tuple(texts(without)),
    )
    found = compute_curves(request, MetricInputs.of(locals()), python_caller(progress))
    for title, reason in found.missing.items():
        warn(f"{title} {reason}")
    return found


@dataclass(frozen=True, kw_only=True)
class CurveRequest:
    """Curves over the number of references, as Python or the command line requests them; see :func:`references`."""

    study: PathGiven | None = None
    dataset: DatasetGiven | None = None
    metrics: MetricsGiven = ()
    protocol: str | None = None
    counts: tuple[int, ...] | None = None
    draws: int | None = None
    seed: int | None = None
    without: tuple[str, ...] = ()

    def over(self, task: CurveTask) -> CurveTask:
        """A task with the requested numbers in place of its own. Raises UsageError if one is not valid."""
        requested = {"counts": self.counts, "draws": self.draws, "seed": self.seed}
        changed = {name: value for name, value in requested.items() if value is not None}
        return CurveTask.read("references", {**asdict(task), **changed})


def compute_curves(
    request: CurveRequest,
    inputs: MetricInputs,
    caller: Caller,
    each: Each = lambda study, curves: None,
) -> ReferenceStudy:
    """Compute curves for Python or the command line; see :func:`references`.

    Args:
        request: the curves.
        inputs: inputs of the metrics.
        caller: Python or the command line.
        each: receives the curves of each protocol once they are computed.
    """
    if inputs.scores:
        raise UsageError(
            f"{caller.spelled('scores')}: a score file has no scores for other numbers of references",
            code="conflict",
            hint=f"Omit {caller.spelled('scores')}",
        )
    if request.study is not None:
        return _of_study(os.fspath(request.study), request, inputs, caller, each)
    refuse_without(request.without, caller)
    judged = resolve_judged(
        request.metrics if asked(request.metrics) else _METRICS,
        _DATASET if request.dataset is None else request.dataset,
        request.protocol,
        inputs,
        caller,
        find_protocol=curve_protocol,
    )
    task = request.over(CurveTask())
    with caller.progress("scoring", None) as step:
        curves = reference_curves(
            judged.dataset,
            judged.protocol,
            judged.requests,
            counts=task.counts,
            draws=task.draws,
            seed=task.seed,
            resources=judged.resources,
            cache=judged.cache,
            sample=judged.sample,
            progress=step,
        )
    each("", curves)
    return ReferenceStudy((curves,), {})


def _of_study(study: str, request: CurveRequest, inputs: MetricInputs, caller: Caller, each: Each) -> ReferenceStudy:
    """The curves of each protocol of a study file.

    Raises:
        UsageError: arguments exclude each other, or no metric can be computed.
    """
    defining = {
        "dataset": texts(request.dataset),
        "metrics": asked(request.metrics),
        "protocol": request.protocol,
    }
    refuse_with_study(defining, caller)
    root = find_root(inputs.data)
    planned, task = study_of_task(study, CurveTask, inputs, request.without, caller)
    plan, missing = resolve_task(planned, root, caller)
    if not plan.requests:
        reasons = "; ".join(f"{title} {reason}" for title, reason in missing.items())
        message = f"{planned.name}: no metric can be computed: {reasons}"
        raise UsageError(message, code="missing-option", value=planned.name)
    caller.on_data(root, plan.uses_root)
    computed = []
    for dataset, protocol in plan.protocols:
        try:
            judged = judge(dataset, protocol.items, plan.requests, plan.resources, cache=inputs.cache)
            missing |= {
                f"{entry.request.rows[0].title} on {protocol}": f"missing: {entry.error}" for entry in judged.lacking
            }
            curves = _of_protocol(plan, protocol, judged, request.over(task), caller, cache=inputs.cache)
        except CapbenchError as error:
            missing[str(protocol)] = f"missing: {error}"
            continue
        computed.append(curves)
        each(planned.name, curves)
    return ReferenceStudy(tuple(computed), missing)


def _of_protocol(
    plan: Plan, protocol: Protocol, judged: Judged, task: CurveTask, caller: Caller, *, cache: bool
) -> ReferenceCurves:
    """The curves of one protocol of a study, of the metrics that can be computed there."""
    dataset, incomplete = judged.dataset, {entry.request.label for entry in judged.lacking}
    requests = [request for request in plan.requests if request.label not in incomplete]
    counts = task.counts
    if counts is not None and not any(r.metric.reference_free() & set(r.columns) for r in requests):
        counts = tuple(number for number in counts if number)
    with caller.progress(f"scoring {protocol}", None) as step:
        return reference_curves(
            dataset,
            protocol,
            requests,
            counts=counts,
            draws=task.draws,
            seed=task.seed,
            resources=plan.resources,
            cache=cache,
            sample=plan.root.is_sample and dataset.under_root,
            progress=step,
        )
