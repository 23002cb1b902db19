"""``capbench.rank``: one ranking of metrics over many tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from capbench.api.agreement import plan_agreement, study_of
from capbench.api.checking import checked
from capbench.api.resolve import (
    Caller,
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
from capbench.core.arguments import Alpha, Corrected, Permutations, Seed, Sentinels
from capbench.core.errors import UsageError
from capbench.datasets.root import find_root
from capbench.studies.ranking import MetricPair, TaskRanking, run_ranking
from capbench.studies.results import is_left_out
from capbench.studies.study import TestSettings
from capbench.studies.task_file import DEFAULT_TASKS, load_tasks, resolve_tasks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RankingResult", "compute_ranking", "rank"]


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
) -> RankingResult:
    """Rank metrics over many tasks, as ``capbench rank`` does.

    Args:
        tasks: a task file (YAML), or the name of one that comes with capbench.
        sentinels: False to omit sentinel metrics, which have no rank and enter no test.
        permutations: number of permutations; by default 10,000, or the number that the correction requires.
        without: metrics, labels or columns that are left out.
        progress: see :func:`capbench.api.caller.python_caller`.
        inputs: see :class:`capbench.api.resolve.MetricInputs`.
    """
    if not asked(metrics) and not inputs.get("scores"):
        raise UsageError("no metric is named", code="missing-option", hint=python_caller(False).no_metric)
    settings = {"correction": correction, "alpha": alpha, "resamples": permutations, "seed": seed}
    result = compute_ranking(
        inputs,
        python_caller(progress),
        tasks=tasks,
        metrics=metrics,
        settings=TestSettings.read("rank", {name: value for name, value in settings.items() if value is not None}),
        sentinels=sentinels,
        without=without,
    )
    for place, reason in (*result.missing_tasks.items(), *result.missing_metrics.items()):
        if not is_left_out(reason):
            warn(f"{place} is not ranked: {reason}")
    return result


def compute_ranking(
    inputs: MetricInputs,
    caller: Caller,
    *,
    tasks: PathGiven,
    metrics: MetricsGiven,
    settings: TestSettings,
    sentinels: bool = True,
    without: str | Sequence[str] = (),
) -> RankingResult:
    """Rank metrics for Python or the command line; see :func:`rank`."""
    file = load_tasks(tasks)
    resolved = resolve_tasks(file, tasks, find_root(inputs.get("data")), inputs.get("columns"))
    protocols = list({str(task.protocol): task.spelled for task in resolved}.values())
    study = replace(study_of(None, metrics, protocols, inputs, caller), without=tuple(texts(without)))
    found = run_ranking(
        plan_agreement(study, inputs, caller),
        resolved,
        settings,
        caller.progress,
        cache=inputs.get("cache", True),
        announce=caller.announce,
        name=file.name,
        title=file.title,
        sentinels=sentinels,
    )
    return RankingResult.model_construct(**dict(found))


class Style(TypedDict, total=False):
    """Choices for a written table."""

    columns: str | Sequence[str] | None  # rank, overall, tasks, or names of tasks, in this order; all by default
    digits: int | None  # after the decimal point
    percent: bool | None  # False for fractions, not × 100
    bold: bool  # True, the default, emphasises the best value of each column


class RankingResult(TaskRanking):
    """Metrics ranked over many tasks, as :func:`capbench.rank` returns them.

    ``print(result)`` prints the table. The attributes are those of :class:`capbench.studies.ranking.TaskRanking`, which
    ``rank --json`` prints.
    """

    def write(self, folder: PathGiven, *, escape_formulas: bool = False) -> list[Path]:
        """Write CSV, JSON, Markdown and LaTeX files, as ``capbench rank --out`` does, and return them.

        ``escape_formulas`` marks texts in the CSV file that a spreadsheet would take for formulas.
        """
        from capbench.reports.ranking import write_ranking

        return write_ranking(self, Path(folder), escape_formulas=escape_formulas)

    def to_latex(self, **style: Unpack[Style]) -> str:
        """The table as LaTeX; see :class:`Style`."""
        from capbench.reports.markup import latex
        from capbench.reports.ranking import ranking_document
        from capbench.reports.table import TableStyle

        return latex(ranking_document(self, TableStyle.of(**style)))

    def to_markdown(self, **style: Unpack[Style]) -> str:
        """The table as Markdown; see :class:`Style`."""
        from capbench.reports.markup import markdown
        from capbench.reports.ranking import ranking_document
        from capbench.reports.table import TableStyle

        return markdown(ranking_document(self, TableStyle.of(**style)))

    def to_frame(
        self, *, columns: str | Sequence[str] | None = None, digits: int | None = None, percent: bool | None = None
    ) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``rank``, ``overall``, and the statistic of each task.

        By default all columns, as numbers from 0 to 1; ``percent`` multiplies them by 100.
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

        return pd.DataFrame([asdict(pair) for pair in self.ranking.pairs], columns=[f.name for f in fields(MetricPair)])

    def __repr__(self) -> str:
        listed = ", ".join(metric.column for metric in self.ranking.metrics)
        return f"RankingResult({len(self.tasks)} tasks: {listed}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from capbench.reports.ranking import ranking_document
        from capbench.reports.terminal import print_document, printed

        return printed(partial(print_document, ranking_document(self, short=True)))
