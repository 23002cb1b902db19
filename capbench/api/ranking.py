"""``capbench.rank`` and ``capbench.leaderboard``: metrics on many tasks, ranked, and next to published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from typing_extensions import Unpack

from capbench.api.agreement import Names, plan_agreement, study_of
from capbench.api.caller import ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.api.resolve import DatasetsGiven, Inputs, MetricInputs, MetricsGiven, asked, texts
from capbench.core.arguments import Alpha, Corrected, PathGiven, Permutations, Resamples, Seed, Sentinels
from capbench.core.errors import check_choice
from capbench.datasets.root import DataRoot, find_root
from capbench.studies import leaderboard as boards
from capbench.studies.leaderboard import Leaderboard
from capbench.studies.ranking import TaskCollector, TaskRanking, rank_tasks, run_ranking
from capbench.studies.results import is_left_out
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.task_file import DEFAULT_TASKS, RankedTask, TaskEntry, TaskFile, load_tasks, resolve_tasks

COLUMNS = "leaderboard"
"""Name of the shipped tasks that are the columns of the leaderboard, and the tasks of its ranking."""


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
    without: Names = (),
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


class _SlowWork(Exception):  # noqa: N818  not an error: the default metrics are those without slow work
    """Interrupts a study before slow work begins."""


def _interrupt(slow: SlowPart) -> None:
    raise _SlowWork(slow)


@checked
def leaderboard(
    dataset: DatasetsGiven | None = None,
    metrics: MetricsGiven = (),
    *,
    bootstrap: Resamples = 1000,
    permutations: Permutations | None = None,
    seed: Seed = 0,
    without: Names = (),
    command: str = "",
    shown: Sequence[str] = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> Leaderboard:
    """Compute metrics on judged data sets, next to all published numbers, as ``capbench leaderboard --compute`` does.

    By default on all published data sets whose files are installed, with all metrics whose requirements are installed,
    but those that require slow preparation. ``shown`` are columns whose names are checked before anything is computed;
    ``command`` is the command that writes the same numbers.
    """
    from capbench.reports.ranking import missing_lines

    caller, root, chosen = python_caller(progress), find_root(inputs.get("data")), texts(dataset)
    tasks = _tasks(chosen, root, inputs)
    for name in shown:
        check_choice("column", name, [task.name for task in tasks])
    tests = TestSettings(resamples=permutations, seed=seed)
    intervals = BootstrapSettings(resamples=bootstrap, seed=seed)
    by_default = not asked(metrics)
    omitted, left_out, quiet = list(texts(without)), dict[str, str](), caller
    protocols = list({str(task.protocol): task.spelled for task in tasks}.values())
    while True:
        study = study_of(None, ["all"] if by_default else metrics, protocols, inputs, quiet)
        plan = plan_agreement(replace(study, without=tuple(omitted)), inputs, quiet)
        changed = replace(plan.study, bootstrap=intervals, compare=tests, sentinels=True, human_ceiling=True)
        plan = replace(plan, study=replace(changed, answers=False))
        collector = TaskCollector(tasks)
        try:
            announce = _interrupt if by_default else caller.announce
            result = run_plan(plan, caller.progress, cache=inputs.get("cache", True), announce=announce, keep=collector)
            break
        except _SlowWork as interrupted:
            (slow,) = interrupted.args
            left_out |= dict.fromkeys(slow.labels, slow.in_words())
            omitted += slow.labels
            quiet = replace(caller, note=lambda line: None, on_data=lambda root, used: None)
            caller.note(f"left out: {', '.join(slow.labels)} ({slow.in_words()}); name all metrics to include them")
    ranking = rank_tasks(result, plan, collector, tests, caller.progress, name=COLUMNS)
    board = boards.leaderboard(result, plan, tasks, ranking, command=command, left_out=left_out, everything=not chosen)
    for line in missing_lines({row.title: row.missing for row in board.rows}):
        caller.lack(line)
    return board


def _tasks(datasets: Sequence[str], root: DataRoot, inputs: Inputs) -> tuple[RankedTask, ...]:
    """The tasks of some data sets, and the default protocol of data sets without any."""
    file = load_tasks(COLUMNS)
    if datasets:
        entries = []
        for dataset in datasets:
            of_set = [entry for entry in file.tasks if entry.protocol.partition("/")[0] == dataset]
            entries += of_set or [TaskEntry(name=Path(dataset).name[:40], protocol=dataset)]
        file = TaskFile(schema=1, name=file.name, title=file.title, tasks=tuple(entries))  # type: ignore[call-arg]
    return resolve_tasks(file, COLUMNS, root, inputs.get("columns"))
