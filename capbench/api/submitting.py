"""``capbench submit check``: check a submission to the leaderboard and compute its row."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from capbench.api.agreement import plan_agreement, study_of
from capbench.api.caller import PYTHON, Caller
from capbench.api.ranking import COLUMNS
from capbench.api.resolve import MetricInputs
from capbench.core.arguments import PathGiven
from capbench.core.training_record import TrainingOverlap
from capbench.core.typed_json import Strict
from capbench.datasets.root import find_root
from capbench.studies.results import Cell, StudyResult
from capbench.studies.run import run_plan
from capbench.studies.submissions import covered_data, judged_overlaps, load_submission, submission_entries
from capbench.studies.task_file import RankedTask, load_tasks, resolve_tasks


class SubmissionRow(Cell):
    """The number of one column of scores under one column of the leaderboard."""

    task: str
    sentinels: dict[str, float]
    no_better: bool  # not significantly better than every sentinel
    signature: str


class SubmissionResult(Strict):
    """A submission that was accepted, as JSON."""

    ok: Literal[True] = True
    name: str
    sample: bool
    data: tuple[dict[str, str], ...]  # completely covered data sets: items, joined (how), file
    rows: tuple[SubmissionRow, ...]
    overlap: tuple[TrainingOverlap, ...]  # by the items as ``group``; ``fitted``: photographs whose ratings were used
    ratings: tuple[str, ...]
    judged_ratings: tuple[str, ...]  # data sets whose ratings were used for training and that are judged
    notes: tuple[str, ...]  # what was not checked


def check_submission(
    path: str | os.PathLike[str], caller: Caller = PYTHON, *, data: PathGiven | None = None, bootstrap: int = 1000
) -> SubmissionResult:
    """Check a submission (the card, or its folder) and compute its row, with sentinels and ``bootstrap`` resamples."""
    submission, root = load_submission(Path(path)), find_root(data)
    tasks = resolve_tasks(load_tasks(COLUMNS), COLUMNS, root)
    covered = covered_data(submission, tasks, root)
    overlaps, notes = judged_overlaps(submission, covered, root)
    items = {entry.items for entry in covered}
    chosen = [task for task in tasks if task.spelled.rpartition("/")[0] in items]
    inputs: MetricInputs = {"scores": submission_entries(submission, shown=False), "data": data}
    protocols = list(dict.fromkeys(task.spelled for task in chosen))
    study = replace(study_of(None, (), protocols, inputs, caller), sentinels=True)
    plan = plan_agreement(study, inputs, caller, {"bootstrap": bootstrap})
    result = run_plan(plan, caller.progress, announce=caller.announce)
    card = submission.card
    return SubmissionResult(
        name=card.name,
        sample=result.sample,
        data=tuple({"items": entry.items, "joined": entry.joined, "file": entry.file.name} for entry in covered),
        rows=tuple(row for task in chosen for name in card.columns if (row := _row(result, task, name)) is not None),
        overlap=tuple(overlaps),
        ratings=card.ratings,
        judged_ratings=tuple(name for name in card.ratings if name in {entry.dataset for entry in covered}),
        notes=tuple(notes),
    )


def _row(result: StudyResult, task: RankedTask, name: str) -> SubmissionRow | None:
    """The row of a column of scores; None if it has no number there."""
    protocol, group = str(task.protocol), task.group
    cell = result.cell(protocol, name, group)
    if cell is None:
        return None
    return SubmissionRow(
        **cell.model_dump(),
        task=task.name,
        sentinels=result.sentinel_values(protocol, group),
        no_better=name in result.no_better(protocol, group),
        signature=result.signatures[protocol.rpartition("/")[0]][cell.label or cell.metric],
    )
