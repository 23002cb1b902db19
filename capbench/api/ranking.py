"""``capbench.rank``: one ranking of metrics over many tasks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.api.agreement import StudyRequest, plan_agreement
from capbench.api.checking import check_arguments
from capbench.api.resolve import (
    Caller,
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
    warn,
)
from capbench.api.results import ON_SAMPLE
from capbench.core.errors import UsageError
from capbench.datasets.root import find_root
from capbench.studies.judged import ProgressFactory
from capbench.studies.ranking import TaskRanking, run_ranking
from capbench.studies.results import is_left_out
from capbench.studies.study import TestSettings
from capbench.studies.task_file import DEFAULT_TASKS, load_tasks, resolve_tasks

if TYPE_CHECKING:
    import pandas as pd

    from capbench.stats.pairs import Correction

__all__ = ["RankingRequest", "RankingResult", "compute_ranking", "rank"]


def rank(
    metrics: MetricsGiven = (),
    *,
    tasks: PathGiven = DEFAULT_TASKS,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    discretise: int | None = None,
    sentinels: bool = True,
    permutations: int | None = None,
    correction: Correction = "holm",
    alpha: float = 0.05,
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
) -> RankingResult:
    """Rank metrics over many tasks, as ``capbench rank`` does.

    Args:
        metrics: names, functions or classes, or a dictionary of them by label.
        tasks: a task file (YAML), or the name of one that comes with capbench.
        scores: see :class:`capbench.api.resolve.MetricInputs`, as for ``allow_missing``, ``options``, ``features``,
            ``model``, ``images``, ``data``, ``cache``, ``version`` and ``columns``.
        discretise: a number of classes: also rank the metrics with scores rounded to that many quantile classes.
        sentinels: False to omit sentinel metrics, which have no rank and enter no test.
        permutations: number of permutations; by default 10,000, or the number that the correction requires.
        correction: correction for the number of pairs, ``holm``, ``bh`` or ``none``.
        alpha: significance level.
        seed: seed of the permutations.
        without: metrics, labels or columns that are left out.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: no metric is named, or an argument is not valid.
        StudyError: the task file is not valid; all problems are listed.
        DataError, MetricError: as :func:`capbench.correlate` raises them.
        StatisticError: no metric has a value on any task, or some metrics have no task in common with the others.
    """
    check_arguments(locals(), required=["alpha"])
    if not asked(metrics) and not scores:
        raise UsageError("no metric is named", code="missing-option", hint=python_caller(False).no_metric)
    settings = {"correction": correction, "alpha": alpha, "resamples": permutations, "seed": seed}
    request = RankingRequest(
        tasks=tasks,
        metrics=metrics,
        settings=TestSettings.read("rank", {name: value for name, value in settings.items() if value is not None}),
        classes=discretise,
        sentinels=sentinels,
        without=without,
    )
    result = compute_ranking(request, given_inputs(locals()), python_caller(progress))
    for place, reason in (*result.missing_tasks.items(), *result.missing_metrics.items()):
        if not is_left_out(reason):
            warn(f"{place} is not ranked: {reason}")
    return result


@dataclass(frozen=True, kw_only=True)
class RankingRequest:
    """A ranking, as Python or the command line requests it; see :func:`rank`.

    Attributes:
        tasks: a task file, or the name of a shipped one.
        metrics: metrics; all if these and files of scores are empty.
        settings: settings of the tests.
        classes: number of quantile classes of a second ranking; None for none.
        sentinels: True to compute sentinel metrics, too.
        without: metrics, labels or columns that are left out.
    """

    tasks: PathGiven = DEFAULT_TASKS
    metrics: MetricsGiven = ()
    settings: TestSettings = field(default_factory=TestSettings)
    classes: int | None = None
    sentinels: bool = True
    without: str | Sequence[str] = ()


def compute_ranking(request: RankingRequest, inputs: MetricInputs, caller: Caller) -> RankingResult:
    """Rank metrics for Python or the command line; see :func:`rank`."""
    if request.classes is not None and request.classes < 2:
        raise UsageError(
            f"{caller.spelled('discretise')} {request.classes}: scores require two classes or more",
            code="out-of-range",
            value=request.classes,
            hint="Example: 5",
        )
    file = load_tasks(request.tasks)
    tasks = resolve_tasks(file, request.tasks, find_root(inputs.get("data")), inputs.get("columns"))
    study = StudyRequest(
        metrics=request.metrics,
        protocols=list({str(task.protocol): task.spelled for task in tasks}.values()),
        without=request.without,
    )
    planned = plan_agreement(study, inputs, caller)
    found = run_ranking(
        planned.plan,
        tasks,
        request.settings,
        caller.progress,
        name=file.name,
        title=file.title,
        classes=request.classes,
        sentinels=request.sentinels,
        cache=planned.cache,
        announce=planned.announce,
    )
    return RankingResult.of(found)


class RankingResult(TaskRanking):
    """Metrics ranked over many tasks, as :func:`capbench.rank` returns them.

    ``print(result)`` prints the table. The attributes are those of :class:`capbench.studies.ranking.TaskRanking`, which
    ``rank --json`` prints.
    """

    @classmethod
    def of(cls, result: TaskRanking) -> RankingResult:
        """The same ranking."""
        return cls.model_construct(**{name: getattr(result, name) for name in TaskRanking.model_fields})

    def write(self, folder: PathGiven, *, escape_formulas: bool = False) -> list[Path]:
        """Write CSV, JSON, Markdown and LaTeX files, as ``capbench rank --out`` does.

        Args:
            folder: the folder of the files.
            escape_formulas: True to mark texts in the CSV file that a spreadsheet would take for formulas.

        Returns:
            The files.
        """
        from capbench.reports.ranking import write_ranking

        return write_ranking(self, Path(folder), escape_formulas=escape_formulas)

    def to_latex(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        digits: int | None = None,
        percent: bool | None = None,
        bold: bool = True,
    ) -> str:
        """The table as LaTeX, for the packages booktabs and threeparttable.

        Args:
            columns: the columns to show, in this order: ``rank``, ``overall``, ``tasks``, or names of tasks; all by
                default.
            digits: digits after the decimal point; by default four, or two for percentages.
            percent: True to multiply all values by 100, False for none; by default accuracies only.
            bold: True to emphasise the best value of each column.

        Raises:
            UsageError: the table has no such column; the choices are listed.
        """
        from capbench.reports.ranking import to_latex
        from capbench.reports.table import TableStyle

        return to_latex(self, TableStyle.of(columns, digits, percent=percent, bold=bold))

    def to_markdown(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        digits: int | None = None,
        percent: bool | None = None,
        bold: bool = True,
    ) -> str:
        """The table as Markdown; the arguments are those of :meth:`to_latex`, as for errors."""
        from capbench.reports.ranking import to_markdown
        from capbench.reports.table import TableStyle

        return to_markdown(self, TableStyle.of(columns, digits, percent=percent, bold=bold))

    def to_frame(
        self, *, columns: str | Sequence[str] | None = None, digits: int | None = None, percent: bool | None = None
    ) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``rank``, ``overall``, and the statistic of each task.

        Args:
            columns: those after ``metric``; all by default.
            digits: digits after the decimal point; by default all.
            percent: True to multiply values by 100. By default they are numbers from 0 to 1.

        Raises:
            UsageError: there is no such column; the choices are listed.
        """
        import pandas as pd

        from capbench.reports.table import TableStyle

        names = ["overall", *(task.name for task in self.tasks)]
        rows = [
            {"metric": metric.column, "rank": metric.rank, "overall": metric.overall, **metric.values}
            for metric in self.ranking.metrics
        ]
        frame = pd.DataFrame(rows, columns=["metric", "rank", *names])
        return TableStyle.of(columns, digits, percent=percent).frame(frame, names, keep=["metric"])

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each test of two metrics."""
        import pandas as pd

        from capbench.studies.ranking import MetricPair

        return pd.DataFrame([pair.model_dump() for pair in self.ranking.pairs], columns=[*MetricPair.model_fields])

    def __repr__(self) -> str:
        listed = ", ".join(metric.column for metric in self.ranking.metrics)
        return f"RankingResult({len(self.tasks)} tasks: {listed}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from rich.console import Console

        from capbench.reports.ranking import print_ranking

        text = io.StringIO()
        print_ranking(self, Console(file=text, width=200, highlight=False, force_jupyter=False, color_system=None))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
