"""``capbench.combine``: learn one score from several metrics."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import Unpack

from capbench.api.arguments import CombinationChoices
from capbench.api.checking import checked
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    MetricInputs,
    MetricsGiven,
    ProgressGiven,
    ResolvedJudged,
    given_inputs,
    python_caller,
    resolve_judged,
    texts,
)
from capbench.core.errors import UsageError
from capbench.core.files import check_writable
from capbench.datasets.base import Dataset
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.studies.combination_result import CombinationResult, combine_metrics
from capbench.studies.study import CombineSettings, TestSettings

__all__ = ["CombinationInputs", "combine", "learn_combination"]


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
    result, _ = learn_combination(dataset, metrics, protocol, inputs, python_caller(progress))
    return result


def learn_combination(
    dataset: DatasetGiven, metrics: MetricsGiven, protocol: str | None, values: CombinationInputs, caller: Caller
) -> tuple[CombinationResult, int]:
    """Learn a combination for Python or the command line; with the number of samples of references."""
    from capbench.metrics.combination import saved_name, write_combination
    from capbench.metrics.scoring import check_ending, write_scores

    save, out = (None if path is None else Path(path) for path in (values.get("save"), values.get("out")))
    for path in filter(None, (save, out)):
        check_writable(path)
    if out is not None:
        check_ending(out)
    judged = resolve_judged(metrics, dataset, protocol, given_inputs(values), caller)
    if save is not None:
        for request in judged.requests:
            saved_name(request)
    seed = values.get("seed", 0)
    result, tables = combine_metrics(
        judged.dataset,
        judged.protocol,
        judged.requests,
        CombineSettings(values.get("learner", "auto"), values.get("folds", 10), values.get("inner_folds", 5), seed),
        tests=[_open(text, judged) for text in texts(values.get("test"))],
        lower=texts(values.get("lower")),
        compare=TestSettings(correction=values.get("correction", "holm"), resamples=values.get("resamples"), seed=seed),
        resources=judged.resources,
        cache=judged.cache,
        progress=caller.progress,
    )
    if out is not None:
        write_scores(tables[0], out)
    if save is not None and result.combination is not None:
        write_combination(result.combination, save)
    return result.model_copy(update={"saved": save, "scores": out}), len(tables)


def _open(text: str, judged: ResolvedJudged) -> tuple[Dataset, Protocol]:
    """A data set to test the combination on."""
    name, rest = split_protocol(text)
    dataset = open_dataset(name, judged.root)
    if dataset.name == judged.dataset.name:
        message = f"{judged.caller.spelled('test')} {text}: the combination is learned from {dataset.name}"
        hint = "Omit it: the results on this data set are already cross-validated"
        raise UsageError(message, code="conflict", value=text, hint=hint)
    return dataset, dataset.protocol(rest)
