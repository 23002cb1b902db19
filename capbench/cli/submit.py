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
    submission: Annotated[Path, argument("PATH", "Folder with one card and its score files, or the card.")],
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Check a submission and compute its row of the leaderboard.

    Rejects files that differ from their checksums, cover a data set only in part, or have unknown or repeated items.
    Prints agreement with intervals and sentinels, and the judged photographs that were used for training. See
    docs/leaderboard.md.

    Example: capbench submit check results/submissions/mine
    """
    from capbench.api.submitting import check_submission

    result = check_submission(submission, common.caller(json_output=json_output), data=data)
    lines = [f"{entry['file']}: covers {entry['items']} (joined by {entry['joined']})" for entry in result.data]
    for row in result.rows:
        place = f"{row.column}  {row.task}  {row.protocol}{', ' + row.group if row.group else ''}"
        if row.value is None:
            lines.append(f"{place}: {row.undefined}")
            continue
        interval = "" if row.low is None else f"  [{row.low:.4f}, {row.high:.4f}]"
        lines.append(f"{place}: {row.value:.4f}{interval}  n={row.n:,}")
        if row.sentinels:
            marked = "; not significantly better than every sentinel" if row.no_better else ""
            values = ", ".join(f"{name} {value:.4f}" for name, value in row.sentinels.items())
            lines.append(f"  sentinels: {values}{marked}")
        lines.append(f"  signature: {row.signature}")
    for overlap in result.overlap:
        shared = overlap.line() or "no photograph shared with the declared training data"
        lines.append(f"{result.name} on {overlap.group}: {shared}")
    for name in result.judged_ratings:
        lines.append(f"{result.name}: its training used the human ratings of {name}, which is judged")
    common.answer(json_output, result, [*lines, *result.notes])
