"""``capbench.rank``: one ranking of metrics over many tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import Unpack

from capbench.api.agreement import plan_agreement, study_of
from capbench.api.checking import checked
from capbench.api.resolve import MetricInputs, MetricsGiven, PathGiven, ProgressGiven, python_caller, texts
from capbench.core.arguments import Alpha, Corrected, Permutations, Seed, Sentinels
from capbench.datasets.root import find_root
from capbench.studies.ranking import TaskRanking, run_ranking
from capbench.studies.results import is_left_out
from capbench.studies.study import TestSettings
from capbench.studies.task_file import DEFAULT_TASKS, load_tasks, resolve_tasks


@checked
def rank(
    metrics: MetricsGiven = (),
    *,
    tasks: PathGiven = DEFAULT_TASKS,
    sentinels: Sentinels = True,
    permutations: Permutations | None = None,
    correction: Corrected = "holm",
    alpha: Alpha = 0.05,
    seed: Seed = 0,
    without: str | Sequence[str] = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> TaskRanking:
    """Rank metrics (by default all) over the tasks of a file or of a shipped one, as ``capbench rank`` does.

    ``sentinels=False`` omits sentinel metrics, which have no rank and enter no test. Other inputs:
    :class:`capbench.api.resolve.MetricInputs`.
    """
    caller, file = python_caller(progress), load_tasks(tasks)
    resolved = resolve_tasks(file, tasks, find_root(inputs.get("data")), inputs.get("columns"))
    protocols = list({str(task.protocol): task.spelled for task in resolved}.values())
    study = replace(study_of(None, metrics, protocols, inputs, caller), without=tuple(texts(without)))
    result = run_ranking(
        plan_agreement(study, inputs, caller),
        resolved,
        TestSettings(correction=correction, alpha=alpha, resamples=permutations, seed=seed),
        caller.progress,
        cache=inputs.get("cache", True),
        announce=caller.announce,
        name=file.name,
        title=file.title,
        sentinels=sentinels,
    )
    for place, reason in (*result.missing_tasks.items(), *result.missing_metrics.items()):
        if not is_left_out(reason):
            caller.lack(f"{place} is not ranked: {reason}")
    return result
