"""``capbench submit``: check a submission to the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from capbench.cli import common
from capbench.cli.commands import group
from capbench.cli.options import argument

app = group("Check a submission to the leaderboard.", "capbench submit check results/submissions/mine")


@app.command()
def check(
    submission: Annotated[Path, argument("PATH", "Folder with one card and its score file, or the card.")],
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Check a submission and compute its row of the leaderboard.

    Rejects a file that differs from its checksum, covers a data set only in part, or has unknown or repeated items.
    Prints agreement with intervals and sentinels, and the judged photographs that were used for training. See
    docs/leaderboard.md.

    Example: capbench submit check results/submissions/mine
    """
    from capbench.api.submitting import check_submission
    from capbench.reports.tables import study_document

    result = check_submission(submission, common.caller(json_output=json_output), data=data)
    common.answer(json_output, result, [study_document(result)], details=True)
    common.leave_if_missing(result)
