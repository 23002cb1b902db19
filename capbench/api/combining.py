"""``capbench.combine``: learn one score from several metrics."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import Unpack

from capbench.api.agreement import plan_judged
from capbench.api.arguments import CombinationChoices
from capbench.api.caller import ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.api.resolve import DatasetGiven, MetricInputs, MetricsGiven, texts
from capbench.core.files import check_writable
from capbench.studies.combine import CombinationResult, combine_metrics
from capbench.studies.study import CombineSettings, TestSettings


class CombinationInputs(MetricInputs, CombinationChoices, total=False):
    """Inputs of the metrics, and how the combination is learned."""


@checked
def combine(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    progress: ProgressGiven = False,
    **inputs: Unpack[CombinationInputs],
) -> CombinationResult:
    """Learn one score from several metrics, as ``capbench train combination`` does.

    Other inputs: :class:`capbench.api.arguments.CombinationChoices` and :class:`capbench.api.resolve.MetricInputs`.
    """
    from capbench.metrics.combination import saved_name, write_combination
    from capbench.metrics.scoring import check_ending, write_scores

    caller, seed = python_caller(progress), inputs.get("seed", 0)
    save, out = (None if path is None else Path(path) for path in (inputs.get("save"), inputs.get("out")))
    for path in filter(None, (save, out)):
        check_writable(path)
    if out is not None:
        check_ending(out)
    plan = plan_judged(dataset, metrics, protocol, inputs, caller)
    if save is not None:
        for request in plan.requests:
            saved_name(request)
    result, tables = combine_metrics(
        *plan.protocols[0],
        plan.requests,
        CombineSettings(inputs.get("learner", "auto"), inputs.get("folds", 10), inputs.get("inner_folds", 5), seed),
        lower=texts(inputs.get("lower")),
        compare=TestSettings(correction=inputs.get("correction", "holm"), resamples=inputs.get("resamples"), seed=seed),
        resources=plan.resources,
        cache=inputs.get("cache", True),
        progress=caller.progress,
    )
    if out is not None:
        write_scores(tables[0], out)
        if len(tables) > 1:
            caller.tell(f"{out} has the scores of the first of {len(tables)} samples of references")
    if save is not None and result.combination is not None:
        write_combination(result.combination, save)
    return result
