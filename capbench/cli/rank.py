"""``capbench rank``: one ranking of metrics over many tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.options import LeftOut, MetricNames, ScoringInputs
from capbench.core.arguments import Alpha, Corrected, Help, Permutations, Seed, Sentinels


def rank(
    *,
    names: MetricNames,
    tasks: Annotated[str | None, Help("Task file, or a shipped one. Default: default.", metavar="FILE")] = None,
    sentinels: Sentinels = True,
    permutations: Permutations | None = None,
    correction: Corrected = "holm",
    alpha: Alpha = 0.05,
    seed: Annotated[Seed, Help("Seed of the permutations.")] = 0,
    out: Annotated[Path | None, common.output("Folder for ranking.json, .csv, .md and .tex.", "DIR")] = None,
    left_out: LeftOut,
    details: common.DetailsOption = False,
    digits: common.DigitsOption = None,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Rank metrics over many tasks.

    A task is a protocol with a weight. The default tasks are all published judgements whose files are installed; the
    default metrics are all (with --scores, only the score files). Metrics are ranked by their weighted mean over
    tasks, with significance clusters from one permutation test across all tasks. See docs/rank.md.

    Exit code 1: done, but a metric has no value on some task, or a task of --tasks has no data (listed).

    Example: capbench rank --tasks tasks.yaml --scores fleur.csv -m cider,fleur --out ranking
    """
    from capbench.api.ranking import rank as compute
    from capbench.core.files import check_writable
    from capbench.reports.ranking import ranking_document
    from capbench.reports.table import TableStyle
    from capbench.studies.task_file import DEFAULT_TASKS

    common.check_out_folder(out)
    if out is not None:
        check_writable(out / "ranking.json")
    result = compute(
        names.names,
        tasks=tasks or DEFAULT_TASKS,
        sentinels=sentinels,
        permutations=permutations,
        correction=correction,
        alpha=alpha,
        seed=seed,
        without=left_out.names,
        progress=common.caller(json_output=json_output),
        **inputs.values(),
    )
    document = ranking_document(result, TableStyle(digits=digits), short=not details)
    common.answer(json_output, result, [document], details=details)
    if out is not None:
        common.wrote(*result.write(out))
    if result.is_incomplete or (tasks is not None and result.missing_tasks):
        raise typer.Exit(1)
