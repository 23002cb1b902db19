"""``capbench submit``: check a submission to the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

app = typer.Typer(
    name="submit",
    help="Check a submission to the leaderboard.\n\nExample: capbench submit check results/submissions/mine",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Keep 'check' a command of its own although it is the only one."""


@app.command()
def check(
    submission: Annotated[
        Path, typer.Argument(metavar="PATH", help="Folder with one card and its score files, or the card.")
    ],
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Check a submission and compute its row of the leaderboard.

    Rejects files that differ from their checksums, cover a data set only in part, or have unknown or repeated items.
    Prints agreement with intervals and sentinels, and the judged photographs that were used for training. See
    docs/leaderboard.md.

    Example: capbench submit check results/submissions/mine

    Example: capbench submit check mine/card.yaml --json
    """
    from capbench.api.submitting import check_submission

    result = check_submission(submission, common.caller(json_output=json_output), data=data)
    if json_output:
        common.print_json(result.model_dump(mode="json"))
        return
    for one in result.data:
        print(f"{one['file']}: covers {one['items']} (joined by {one['joined']})")
    for row in result.rows:
        place = f"{row.column}  {row.task}  {row.protocol}{', ' + row.group if row.group else ''}"
        if row.value is None:
            print(f"{place}: {row.undefined}")
            continue
        interval = "" if row.low is None else f"  [{row.low:.4f}, {row.high:.4f}]"
        print(f"{place}: {row.value:.4f}{interval}  n={row.n:,}")
        if row.sentinels:
            marked = "; not significantly better than every sentinel" if row.no_better else ""
            print(f"  sentinels: {', '.join(f'{name} {value:.4f}' for name, value in row.sentinels.items())}{marked}")
        print(f"  signature: {row.signature}")
    for line in result.overlap_lines:
        print(line)
    for dataset in result.judged_ratings:
        print(f"{result.name}: its training used the human ratings of {dataset}, which is judged")
    for line in result.notes:
        common.note(line)
