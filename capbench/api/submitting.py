"""``capbench submit check``: check a submission to the leaderboard and compute its row."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from capbench.api.agreement import plan_agreement, study_of
from capbench.api.caller import PYTHON, Caller
from capbench.api.ranking import COLUMNS
from capbench.api.resolve import MetricInputs
from capbench.core.arguments import PathGiven
from capbench.datasets.root import find_root
from capbench.studies import submissions
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.task_file import load_tasks, resolve_tasks


def check_submission(
    path: str | os.PathLike[str], caller: Caller = PYTHON, *, data: PathGiven | None = None, bootstrap: int = 1000
) -> StudyResult:
    """Check a submission (the card, or its folder) and compute its row, with sentinels and ``bootstrap`` resamples.

    The result has all protocols of the leaderboard whose items the score file covers; ``training`` is the overlap of
    the judged images with those of the card.
    """
    place, file, card = submissions.load_submission(Path(path))
    root = find_root(data)
    tasks = {task.spelled: task.protocol for task in resolve_tasks(load_tasks(COLUMNS), COLUMNS, root)}
    by_items = {spelled.rpartition("/")[0]: protocol for spelled, protocol in tasks.items()}
    covered = submissions.covered_items(file, card, by_items, root)
    trained_on = submissions.training_records(place, card, root)
    scores = submissions.score_entries({file: card}, twins=True, trained_on=trained_on)
    inputs: MetricInputs = {"scores": scores, "data": data}
    protocols = [spelled for spelled in tasks if spelled.rpartition("/")[0] in covered]
    study = replace(study_of(None, (), protocols, inputs, caller), title=card.title, sentinels=True, answers=False)
    plan = plan_agreement(study, inputs, caller, {"bootstrap": bootstrap})
    return run_plan(plan, caller.progress, announce=caller.announce)
