"""``capbench examples STUDY`` and ``capbench explain STUDY``: captions of one image, as a study file names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from capbench.cli import common
from capbench.cli.given import Given
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.analyses.one_image import ImageScores
    from capbench.cli.study_flags import LeftOut
    from capbench.studies.published import PublishedTable
    from capbench.studies.tasks import ImageTask

__all__ = ["run_study", "shown_image"]


def shown_image(study: str) -> tuple[str, str, ImageTask]:
    """The title of a study file, its metric, and its image.

    Raises:
        StudyError: the study file is not there, or does not hold a study.
        UsageError: it has no 'image', or more than one metric.
    """
    from capbench.studies.config import find_study, load_study
    from capbench.studies.tasks import ImageTask

    loaded = load_study(find_study(study))
    if not isinstance(loaded.task, ImageTask):
        command = "correlate" if loaded.task is None else loaded.task.command
        raise UsageError(f"{study} holds no 'image'", hint=f"Run 'capbench {command} {study}'")
    if len(loaded.metrics) != 1 or not isinstance(loaded.metrics[0], str):
        raise UsageError(f"{study} has {len(loaded.metrics)} metrics", hint=f"Run 'capbench examples {study}'")
    return loaded.title, loaded.metrics[0], loaded.task


def run_study(study: str, given: Given, left_out: LeftOut, out: Path | None, *, json_output: bool) -> None:
    """Score the captions of a study's image with all its metrics, and print them.

    Args:
        study: the study file, or the name of one.
        given: features, weights and the data folder.
        left_out: metrics that are left out.
        out: a JSON file to write, or None.
        json_output: whether JSON is printed.

    Raises:
        Exit: a metric waits for something (exit code 1).
        CapbenchError: the study does not fit, or a metric failed.
    """
    import json
    from dataclasses import replace

    from capbench.analyses.one_image import score_image
    from capbench.cli.study_flags import plan_task, study_of_task
    from capbench.files import write_text
    from capbench.studies.published import load_published
    from capbench.studies.tasks import ImageTask

    if out is not None and out.suffix.lower() != ".json":
        raise UsageError(f"--out {out.name}: unknown ending", hint="End the name in .json")
    root = given.root()
    planned, task = study_of_task(study, ImageTask, given, left_out)
    plan, waiting = plan_task(planned, root)
    scored = score_image(task, plan.requests, root, resources=plan.resources, cache=given.cache)
    scored = replace(scored, title=planned.title)
    waiting |= scored.lacking
    common.announce_root(root, json_output=json_output, used=scored.under_root)
    published = load_published(planned.published) if planned.published else None
    if json_output:
        common.print_json(scored.to_dict())
    else:
        _print(scored, published, waiting)
    if out is not None:
        write_text(out, json.dumps(scored.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        common.note(f"wrote {out}")
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)


def _print(scored: ImageScores, published: PublishedTable | None, waiting: dict[str, str]) -> None:
    from rich import box
    from rich.table import Table

    from capbench.explanations import letter

    console = common.out()
    console.print(scored.title, style="bold", markup=False, soft_wrap=True)
    console.print(f"image {scored.image}", markup=False)
    for text in scored.references:
        console.print(f"  reference: {text}", markup=False, soft_wrap=True)
    for place, text in enumerate(scored.candidates):
        console.print(f"  {letter(place)}: {text}", markup=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    for place in range(len(scored.candidates)):
        table.add_column(letter(place), justify="right")
    for title, values in scored.scores.items():
        table.add_row(title, *(f"{value:.4f}" for value in values))
    for title in waiting:
        table.add_row(title, "waits")
    if published is not None:
        for row in published.rows:
            cells = (published.cell(column.key, row.key) for column in published.columns)
            table.add_row(
                f"{row.printed} (paper)", *("" if cell is None else cell.printed for cell in cells), style="dim"
            )
    console.print(table)
    lines = [*scored.notes]
    if published is not None:
        lines += [f"published: {published.source}", *published.notes]
    for line in (*lines, *scored.signatures):
        console.print(line, style="dim", markup=False, soft_wrap=True)
