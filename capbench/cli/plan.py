"""``capbench plan``: estimate the time and disk space of an extraction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.extract_features import Pictures, WhichDetector, named_inputs
from capbench.cli.options import with_groups

if TYPE_CHECKING:
    from capbench.features.extract import Plan

__all__ = ["app"]

app = typer.Typer(
    name="plan",
    help="Estimate time and disk space of an extraction.\n\nExample: capbench plan extract --detector grid:resnet50",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _plan() -> None:
    pass


@app.command("extract")
@with_groups
def extract(
    *,
    pictures: Pictures,
    which: WhichDetector,
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads of each worker.")] = 1,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Number of workers to estimate for; repeatable.",
            show_default="1, 4, 16, 64",
        ),
    ] = None,
    measure: Annotated[int, typer.Option("--measure", min=1, help="Images to measure.")] = 8,
    json_output: common.JsonOption = False,
) -> None:
    """Estimate time and disk space of extract-features.

    Measures a few images on this machine and writes nothing. The hours assume workers as fast as this machine, with
    their own cores and disk.

    Example: capbench plan extract --detector grid:resnet50 --dataset flickr8k-expert --workers 8 --workers 64
    """
    from capbench.api.features import find_images_and_detector
    from capbench.features import extract as extraction

    images, missing, _, opener = find_images_and_detector(
        pictures.images or [], **named_inputs(pictures, which, threads, json_output=json_output)
    )
    numbers = sorted(set(workers or (1, 4, 16, 64)))
    with common.images_progress("measuring", min(measure + 1, len(images))) as step:
        plan = extraction.measure(images, opener, count=measure, dtype=which.dtype, progress=step)
    if json_output:
        hours = {str(number): round(plan.hours(number), 4) for number in numbers}
        common.print_json({**vars(plan), "missing_images": len(missing), "threads": threads, "hours": hours})
        return
    _print(plan, numbers, threads, len(missing))


def _print(plan: Plan, numbers: list[int], threads: int, missing: int) -> None:
    from rich import box
    from rich.table import Table

    absent = f"; {common.count(missing, 'other image')} without a file" if missing else ""
    print(f"{common.count(plan.images, 'image')} in {common.count(plan.parts, 'part')}{absent}")
    print(
        f"measured: {plan.image_s:.3g} s per image (median of {plan.measured}, {common.count(threads, 'thread')}), "
        f"{plan.regions:.1f} regions; opening the detector {plan.opening_s:.1f} s"
    )
    print(f"disk: {plan.disk_bytes / 1e9:.2f} GB, and the same for the journal until the store is finished")
    shown = Table(box=box.SIMPLE_HEAD)
    for head in ("workers", "hours", "hours of all workers"):
        shown.add_column(head, justify="right")
    for number in numbers:
        hours = plan.hours(number)
        shown.add_row(f"{number:,}", f"{hours:,.2f}", f"{hours * min(number, plan.parts):,.2f}")
    common.out().print(shown)
