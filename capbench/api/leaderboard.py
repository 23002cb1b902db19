"""``capbench.leaderboard``: metrics, score files and published numbers on all judged data sets, in one table."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.api.agreement import plan_agreement, study_of
from capbench.api.checking import check_arguments
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ScoresGiven,
    VersionGiven,
    asked,
    given_inputs,
    python_caller,
    texts,
    warn,
)
from capbench.api.results import ON_SAMPLE
from capbench.core.errors import count
from capbench.core.files import write_text
from capbench.datasets.root import DataRoot, find_root
from capbench.studies.judged import ProgressFactory
from capbench.studies.leaderboard import BY_RANK, Leaderboard, check_columns
from capbench.studies.leaderboard import leaderboard as assemble
from capbench.studies.plan import Plan
from capbench.studies.ranking import TaskCollector, rank_tasks
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.task_file import RankedTask, TaskEntry, TaskFile, load_tasks, resolve_tasks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "LeaderboardRequest", "LeaderboardResult", "compute_leaderboard", "leaderboard"]

COLUMNS = "leaderboard"
"""Name of the shipped tasks that are the columns, and the tasks of the ranking."""


def leaderboard(
    dataset: DatasetGiven | Sequence[DatasetGiven] | None = None,
    metrics: MetricsGiven = (),
    *,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    bootstrap: int = 1000,
    permutations: int | None = None,
    seed: int = 0,
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
) -> LeaderboardResult:
    """Compute metrics on all judged data sets, next to all published numbers, as ``capbench leaderboard`` does.

    Args:
        dataset: data sets; by default all published ones whose files are installed.
        metrics: names, functions or classes, or a dictionary of them by label; by default all whose requirements are
            installed, without those that require slow preparation.
        scores: see :class:`capbench.api.resolve.MetricInputs`, as for ``allow_missing``, ``options``, ``features``,
            ``model``, ``images``, ``data``, ``cache``, ``version`` and ``columns``.
        bootstrap: number of resamples for intervals.
        permutations: number of permutations; by default 10,000, or the number that the correction requires.
        seed: seed of resamples and permutations.
        without: metrics, labels or columns that are left out.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: an argument is not valid.
        StudyError: there are no such data sets or metrics; all problems are listed.
        DataError, MetricError: as :func:`capbench.correlate` raises them.
        StatisticError: no metric has a value on any data set.
    """
    from capbench.reports.ranking import missing_lines

    check_arguments(locals(), required=["bootstrap", "seed"], several=["dataset"])
    tests = {"resamples": permutations, "seed": seed}
    request = LeaderboardRequest(
        datasets=dataset,
        metrics=metrics,
        bootstrap=BootstrapSettings.read("bootstrap", {"resamples": bootstrap, "seed": seed}),
        tests=TestSettings.read("compare", {name: value for name, value in tests.items() if value is not None}),
        without=without,
    )
    result = compute_leaderboard(request, given_inputs(locals()), python_caller(progress))
    for line in missing_lines({row.title: row.missing for row in result.rows}):
        warn(line)
    return result


@dataclass(frozen=True, kw_only=True)
class LeaderboardRequest:
    """A leaderboard, as Python or the command line requests it; see :func:`leaderboard`.

    Attributes:
        datasets: data sets; all if empty.
        metrics: metrics; all that can be computed without slow work if empty.
        bootstrap: settings of the intervals.
        tests: settings of the tests.
        without: metrics, labels or columns that are left out.
        command: the command that writes the same numbers.
        shown: names of columns that are to be shown, which are checked before anything is computed.
    """

    datasets: DatasetGiven | Sequence[DatasetGiven] | None = None
    metrics: MetricsGiven = ()
    bootstrap: BootstrapSettings
    tests: TestSettings
    without: str | Sequence[str] = ()
    command: str = ""
    shown: Sequence[str] = ()


class _SlowWork(Exception):  # noqa: N818  not an error: the default metrics are those without slow work
    """Interrupts a study before slow work begins."""

    def __init__(self, slow: SlowPart) -> None:
        self.slow = slow


def _interrupt(slow: SlowPart) -> None:
    raise _SlowWork(slow)


def compute_leaderboard(request: LeaderboardRequest, inputs: MetricInputs, caller: Caller) -> LeaderboardResult:
    """Compute a leaderboard for Python or the command line; see :func:`leaderboard`."""
    root = find_root(inputs.get("data"))
    datasets = texts(request.datasets)
    columns = _tasks(COLUMNS, datasets, root, inputs)
    check_columns(request.shown, [task.name for task in columns])
    by_default = not asked(request.metrics)
    without, left_out = list(texts(request.without)), dict[str, str]()
    quiet = caller
    while True:
        protocols = list({str(task.protocol): task.spelled for task in columns}.values())
        study = study_of(None, ["all"] if by_default else request.metrics, protocols, inputs, quiet)
        plan = _with_statistics(plan_agreement(replace(study, without=tuple(without)), inputs, quiet), request)
        collector = TaskCollector(columns)

        try:
            announce = _interrupt if by_default else caller.announce
            result = run_plan(plan, caller.progress, cache=inputs.get("cache", True), announce=announce, keep=collector)
        except _SlowWork as interrupted:
            work = "; ".join(f"{w.subject} {len(w.units):,} {w.unit} first" for w in interrupted.slow.works)
            for label in interrupted.slow.labels:
                left_out[label] = work
            without += interrupted.slow.labels
            quiet = replace(caller, note=lambda line: None, on_data=lambda root, used: None)
            caller.note(f"left out: {', '.join(interrupted.slow.labels)} ({work}); name all metrics to include them")
            continue
        break
    ranking = rank_tasks(result, plan, collector, request.tests, caller.progress, name=COLUMNS)
    board = assemble(
        result, plan, columns, ranking, command=request.command, left_out=left_out, everything=not datasets
    )
    return LeaderboardResult.of(board)


def _with_statistics(plan: Plan, request: LeaderboardRequest) -> Plan:
    """The plan with intervals, tests and sentinels."""
    study = replace(
        plan.study,
        bootstrap=request.bootstrap,
        compare=request.tests,
        sentinels=True,
        human_ceiling=True,
        answers=False,
    )
    return replace(plan, study=study)


def _tasks(name: str, datasets: Sequence[str], root: DataRoot, inputs: MetricInputs) -> tuple[RankedTask, ...]:
    """Tasks of a shipped file on some data sets, and the default protocol of data sets that it does not contain."""
    file = load_tasks(name)
    if datasets:
        entries = []
        for dataset in datasets:
            of_set = [entry for entry in file.tasks if entry.protocol.partition("/")[0] == dataset]
            entries += of_set or [TaskEntry(name=Path(dataset).name[:40], protocol=dataset)]
        file = TaskFile(schema=1, name=file.name, title=file.title, tasks=tuple(entries))  # type: ignore[call-arg]
    return resolve_tasks(file, name, root, inputs.get("columns"))


class LeaderboardResult(Leaderboard):
    """Metrics and published numbers on all data sets, as :func:`capbench.leaderboard` returns them.

    ``print(result)`` prints the tables. The attributes are those of :class:`capbench.studies.leaderboard.Leaderboard`,
    which ``leaderboard --json`` prints.
    """

    @classmethod
    def of(cls, board: Leaderboard) -> LeaderboardResult:
        """The same leaderboard."""
        return cls.model_construct(**{name: getattr(board, name) for name in Leaderboard.model_fields})

    @property
    def is_incomplete(self) -> bool:
        """True if a metric that was not left out has no computed number in a column whose data is installed."""
        return any(row.missing for row in self.rows)

    def to_latex(self, columns: Sequence[str] = (), *, sort: str = BY_RANK, digits: int = 1) -> str:
        """One compact table for the packages booktabs and graphicx.

        Args:
            columns: names of columns, in their order; by default all, or, of more than eight, those with published
                numbers.
            sort: ``rank``, or the name of a column.
            digits: digits after the decimal point.
        """
        from capbench.reports.leaderboard import to_latex

        return to_latex(self, columns, sort=sort, digits=digits)

    def write_html(self, path: PathGiven, *, sort: str = BY_RANK, digits: int = 1) -> None:
        """Write one HTML page, as ``capbench leaderboard --html`` does; for the arguments see :meth:`to_latex`."""
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
                "low": ours and ours.low,
                "high": ours and ours.high,
                "n": ours and ours.n,
                "rank": ours and ours.rank,
                "top": ours and ours.top,
                "published": printed and printed.value,
            }
            for row in self.rows
            for column in self.columns
            if (ours := row.ours.get(column.name)) or row.printed.get(column.name)
            for printed in [row.printed.get(column.name)]
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        sample = ON_SAMPLE if self.sample else ""
        return f"LeaderboardResult({count(len(self.rows), 'metric')} on {count(len(self.columns), 'task')}{sample})"

    def __str__(self) -> str:
        from rich.console import Console

        from capbench.reports.leaderboard import print_leaderboard

        text = io.StringIO()
        print_leaderboard(self, Console(file=text, width=200, highlight=False, force_jupyter=False, color_system=None))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
