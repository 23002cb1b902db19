"""``capbench.leaderboard``: metrics, score files and published numbers on all judged data sets, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from capbench.api.agreement import plan_agreement, study_of
from capbench.api.checking import checked
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    MetricInputs,
    MetricsGiven,
    PathGiven,
    ProgressGiven,
    asked,
    python_caller,
    texts,
    warn,
)
from capbench.api.results import ON_SAMPLE
from capbench.core.arguments import Permutations, Resamples, Seed
from capbench.core.errors import check_choice, count
from capbench.core.files import write_text
from capbench.datasets.root import DataRoot, find_root
from capbench.studies.leaderboard import Leaderboard
from capbench.studies.leaderboard import leaderboard as assemble
from capbench.studies.ranking import TaskCollector, rank_tasks
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.task_file import RankedTask, TaskEntry, TaskFile, load_tasks, resolve_tasks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "LeaderboardResult", "compute_leaderboard", "leaderboard"]

COLUMNS = "leaderboard"
"""Name of the shipped tasks that are the columns, and the tasks of the ranking."""


@checked
def leaderboard(
    dataset: DatasetGiven | Sequence[DatasetGiven] | None = None,
    metrics: MetricsGiven = (),
    *,
    bootstrap: Resamples = 1000,
    permutations: Permutations | None = None,
    seed: Seed = 0,
    without: str | Sequence[str] = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> LeaderboardResult:
    """Compute metrics on judged data sets, next to all published numbers, as ``capbench leaderboard --compute`` does.

    By default on all published data sets whose files are installed, with all metrics whose requirements are installed,
    but those that require slow preparation.

    Args:
        bootstrap: number of resamples for intervals.
        permutations: number of permutations; by default 10,000, or the number that the correction requires.
        without: metrics, labels or columns that are left out.
        progress: see :func:`capbench.api.caller.python_caller`.
        inputs: see :class:`capbench.api.resolve.MetricInputs`.
    """
    from capbench.reports.ranking import missing_lines

    tests = {"resamples": permutations, "seed": seed}
    result = compute_leaderboard(
        inputs,
        python_caller(progress),
        datasets=dataset,
        metrics=metrics,
        bootstrap=BootstrapSettings.read("bootstrap", {"resamples": bootstrap, "seed": seed}),
        tests=TestSettings.read("compare", {name: value for name, value in tests.items() if value is not None}),
        without=without,
    )
    for line in missing_lines({row.title: row.missing for row in result.rows}):
        warn(line)
    return result


class _SlowWork(Exception):  # noqa: N818  not an error: the default metrics are those without slow work
    """Interrupts a study before slow work begins."""

    def __init__(self, slow: SlowPart) -> None:
        self.slow = slow


def _interrupt(slow: SlowPart) -> None:
    raise _SlowWork(slow)


def compute_leaderboard(
    inputs: MetricInputs,
    caller: Caller,
    *,
    datasets: DatasetGiven | Sequence[DatasetGiven] | None = None,
    metrics: MetricsGiven = (),
    bootstrap: BootstrapSettings,
    tests: TestSettings,
    without: str | Sequence[str] = (),
    command: str = "",
    shown: Sequence[str] = (),
) -> LeaderboardResult:
    """Compute a leaderboard for Python or the command line; see :func:`leaderboard`.

    ``command`` writes the same numbers; ``shown`` are names of columns that are checked before anything is computed.
    """
    root = find_root(inputs.get("data"))
    chosen = texts(datasets)
    columns = _tasks(chosen, root, inputs)
    for name in shown:
        check_choice("column", name, [task.name for task in columns])
    by_default = not asked(metrics)
    without, left_out, quiet = list(texts(without)), dict[str, str](), caller
    protocols = list({str(task.protocol): task.spelled for task in columns}.values())
    while True:
        study = study_of(None, ["all"] if by_default else metrics, protocols, inputs, quiet)
        plan = plan_agreement(replace(study, without=tuple(without)), inputs, quiet)
        changed = replace(plan.study, bootstrap=bootstrap, compare=tests, sentinels=True, human_ceiling=True)
        plan = replace(plan, study=replace(changed, answers=False))
        collector = TaskCollector(columns)
        try:
            announce = _interrupt if by_default else caller.announce
            result = run_plan(plan, caller.progress, cache=inputs.get("cache", True), announce=announce, keep=collector)
            break
        except _SlowWork as interrupted:
            work = "; ".join(f"{w.subject} {len(w.units):,} {w.unit} first" for w in interrupted.slow.works)
            left_out |= dict.fromkeys(interrupted.slow.labels, work)
            without += interrupted.slow.labels
            quiet = replace(caller, note=lambda line: None, on_data=lambda root, used: None)
            caller.note(f"left out: {', '.join(interrupted.slow.labels)} ({work}); name all metrics to include them")
    ranking = rank_tasks(result, plan, collector, tests, caller.progress, name=COLUMNS)
    board = assemble(result, plan, columns, ranking, command=command, left_out=left_out, everything=not chosen)
    return LeaderboardResult.model_construct(**dict(board))


def _tasks(datasets: Sequence[str], root: DataRoot, inputs: MetricInputs) -> tuple[RankedTask, ...]:
    """The tasks of some data sets, and the default protocol of data sets without any."""
    file = load_tasks(COLUMNS)
    if datasets:
        entries = []
        for dataset in datasets:
            of_set = [entry for entry in file.tasks if entry.protocol.partition("/")[0] == dataset]
            entries += of_set or [TaskEntry(name=Path(dataset).name[:40], protocol=dataset)]
        file = TaskFile(schema=1, name=file.name, title=file.title, tasks=tuple(entries))  # type: ignore[call-arg]
    return resolve_tasks(file, COLUMNS, root, inputs.get("columns"))


class LeaderboardResult(Leaderboard):
    """Metrics and published numbers on all data sets, as :func:`capbench.leaderboard` returns them.

    ``print(result)`` prints the tables. The attributes are those of :class:`capbench.studies.leaderboard.Leaderboard`,
    which ``leaderboard --json`` prints.
    """

    @property
    def is_incomplete(self) -> bool:
        """True if a metric that was not left out has no computed number in a column whose data is installed."""
        return any(row.missing for row in self.rows)

    def to_latex(self, columns: Sequence[str] = (), *, sort: str = "", digits: int = 1) -> str:
        """One compact table, by default of all columns, or, of more than eight, of those with published numbers.

        The rows are in the order of the column ``sort``, by default the first.
        """
        from capbench.reports.leaderboard import board_document
        from capbench.reports.markup import latex

        return latex(board_document(self, columns, sort=sort, digits=digits))

    def write_html(self, path: PathGiven, *, sort: str = "", digits: int = 1) -> None:
        """Write one HTML page, as ``capbench leaderboard --html`` does."""
        from capbench.reports.leaderboard import to_html

        write_text(path, to_html(self, sort=sort, digits=digits))

    def to_frame(self) -> pd.DataFrame:
        """A row for each number: ``metric``, ``column``, ``protocol``, ``origin``, ``value``, interval, ``rank``, …"""
        import pandas as pd

        rows = [
            {
                "metric": row.name,
                "column": column.name,
                "protocol": column.versioned,
                "origin": row.origin if ours else "second-hand" if printed and printed.second_hand else "printed",
                "value": row.value(column.name),
                **{key: ours and getattr(ours, key) for key in ("low", "high", "n", "rank", "top")},
                "published": printed and printed.value,
            }
            for row in self.rows
            for column in self.columns
            for ours, printed in [(row.ours.get(column.name), row.printed.get(column.name))]
            if ours or printed
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        sample = ON_SAMPLE if self.sample else ""
        return f"LeaderboardResult({count(len(self.rows), 'metric')} on {count(len(self.columns), 'task')}{sample})"

    def __str__(self) -> str:
        from capbench.reports.leaderboard import print_leaderboard
        from capbench.reports.terminal import printed

        return printed(partial(print_leaderboard, self))
