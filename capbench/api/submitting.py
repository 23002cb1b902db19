"""``capbench submit check``: check a submission to the leaderboard and compute its row."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capbench.api.agreement import CorrelationResult, StudyRequest, plan_agreement
from capbench.api.caller import PYTHON, Caller
from capbench.api.leaderboard import COLUMNS
from capbench.api.resolve import MetricInputs, PathGiven
from capbench.core.training_record import TrainingOverlap
from capbench.datasets.root import find_root
from capbench.studies.study import StatisticsChoice
from capbench.studies.submissions import (
    Covered,
    Submission,
    covered_data,
    judged_overlaps,
    load_submission,
    submission_entries,
)
from capbench.studies.task_file import load_tasks, resolve_tasks

__all__ = ["SubmissionCheck", "check_submission"]


@dataclass(frozen=True, eq=False)
class SubmissionCheck:
    """A submission that was accepted.

    Attributes:
        submission: the card and the score files.
        covered: the data sets that are covered completely.
        result: the numbers, with intervals and sentinels.
        tasks: (name, protocol, group) of the leaderboard's columns with a number.
        overlaps: photographs shared with the training, for each of ``covered``.
        notes: what was not checked, one line each.
    """

    submission: Submission
    covered: tuple[Covered, ...]
    result: CorrelationResult
    tasks: tuple[tuple[str, str, str], ...]
    overlaps: tuple[TrainingOverlap, ...]
    notes: tuple[str, ...]

    @property
    def judged_ratings(self) -> list[str]:
        """Data sets whose ratings were used for training and are among the judged ones."""
        return [name for name in self.submission.card.ratings if name in {one.dataset for one in self.covered}]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each column of scores and task, as JSON values."""
        rows = []
        for task, protocol, group in self.tasks:
            sentinels = self.result.sentinels_of(protocol)
            cells = [] if sentinels is None else [cell for cell in sentinels.cells if cell.group == group]
            below = set() if sentinels is None else set(sentinels.no_better(group))
            for name in self.submission.card.columns:
                cell = self.result.cell(protocol, name, group)
                if cell is None:
                    continue
                rows.append(
                    {
                        "column": name,
                        "task": task,
                        "protocol": protocol,
                        "group": group,
                        "value": cell.value,
                        "low": cell.low,
                        "high": cell.high,
                        "n": cell.n,
                        "undefined": cell.undefined,
                        "sentinels": {one.column: one.value for one in cells if one.value is not None},
                        "no_better": name in below,
                        "signature": self.result.signatures[protocol.rpartition("/")[0]][cell.label or cell.metric],
                    }
                )
        return rows

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        keys = ("photographs", "trained", "fitted")
        return {
            "ok": True,
            "name": self.submission.card.name,
            "sample": self.result.sample,
            "data": [{"items": one.items, "joined": one.joined, "file": one.file.name} for one in self.covered],
            "rows": self.rows(),
            "overlap": [{"items": one.group, **{key: asdict(one)[key] for key in keys}} for one in self.overlaps],
            "ratings": list(self.submission.card.ratings),
            "judged_ratings": self.judged_ratings,
            "notes": list(self.notes),
        }


def check_submission(
    path: str | os.PathLike[str], caller: Caller = PYTHON, *, data: PathGiven | None = None, bootstrap: int = 1000
) -> SubmissionCheck:
    """Check a submission and compute its row.

    Args:
        path: the card, or its folder.
        caller: Python or the command line.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        bootstrap: number of resamples for intervals.

    Raises:
        DataError: the submission is not valid; see :mod:`capbench.studies.submissions`.
    """
    submission = load_submission(Path(path))
    root = find_root(data)
    tasks = resolve_tasks(load_tasks(COLUMNS), COLUMNS, root)
    covered = covered_data(submission, tasks, root)
    overlaps, notes = judged_overlaps(submission, covered, root)
    items = {one.items for one in covered}
    chosen = [task for task in tasks if task.spelled.rpartition("/")[0] in items]
    request = StudyRequest(
        protocols=list(dict.fromkeys(task.spelled for task in chosen)),
        statistics=StatisticsChoice(bootstrap=bootstrap),
        sentinels=True,
    )
    inputs = MetricInputs(scores=submission_entries(submission, shown=False), data=data)
    result = plan_agreement(request, inputs, caller).run()
    places = tuple((task.name, str(task.protocol), task.group) for task in chosen)
    return SubmissionCheck(submission, tuple(covered), result, places, tuple(overlaps), tuple(notes))
