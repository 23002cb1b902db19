"""``capbench extract-features``: extract region features of images into an HDF5 store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import OptionGroup, Place, with_groups
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.features import ExtractedFeatures
    from capbench.features.extract import Plan

_MAX_LISTED = 5
_WORKERS = (1, 4, 16, 64)
"""Numbers of workers that ``--dry-run`` estimates for."""
_MEASURED = 8
"""Images that ``--dry-run`` measures."""


@dataclass(frozen=True)
class Pictures(OptionGroup):
    """Images of an extraction."""

    images: Annotated[
        list[Path] | None,
        typer.Option(
            "--images",
            "-i",
            metavar="PATH",
            help="Folder, image, list (.txt) or COCO JSON; repeatable. Default: all images of the data folder.",
            show_default=False,
        ),
    ] = None
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", metavar="NAME", help="Images of this data set.")] = (
        None
    )
    image_root: Annotated[
        Path | None,
        typer.Option("--image-root", metavar="DIR", help="Folder of the images of a list or a data set."),
    ] = None
    data: common.DataOption = None


@dataclass(frozen=True)
class WhichDetector(OptionGroup):
    """The detector and its settings."""

    detector: Annotated[
        str | None,
        typer.Option(
            "--detector",
            "-D",
            metavar="NAME",
            help="Detector from 'capbench models list', or module:Class.",
            show_default="'sample' on the embedded sample, else installed bottom-up weights, else torchvision-frcnn",
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Weights of the detector, or random:SEED (untrained, only to measure speed). "
            "Default: see 'capbench models list'.",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the detector, such as max_boxes=36."),
    ] = None
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="Device: auto, cpu, cuda or cuda:N.")] = "auto"
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Images per batch; more than 1 changes features slightly.")
    ] = 1
    precision: Annotated[
        str, typer.Option("--precision", help="float32, or amp-bfloat16 or amp-float16 (faster on a GPU).")
    ] = "float32"
    dtype: Annotated[str, typer.Option("--dtype", help="Type in the store: float32 or float16.")] = "float32"


@with_groups
def extract_features(
    *,
    ctx: typer.Context,
    pictures: Pictures,
    which: WhichDetector,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate time and disk space, and write nothing.")
    ] = False,
    measure: Annotated[
        int | None,
        typer.Option("--measure", min=1, metavar="N", help="With --dry-run: images to measure. Default: 8."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output store. Default: features/IMAGES.h5; with --detector features/IMAGES.DETECTOR.h5.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            "--workers",
            min=0,
            metavar="N",
            help="Processes that decode images; with --on, cluster workers; with --dry-run, repeatable.",
            show_default="0; on a GPU up to 8; with --on as many as fit",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="CPU threads of the network, part of the signature. Default: all cores; with --on or --dry-run 1.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only part I of N; join parts with 'capbench features merge'."),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option("--compression", help="Compression: none, gzip or lzf.", show_default="none, or the file's"),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an existing store instead of adding to it.")
    ] = False,
    place: Place,
    json_output: common.JsonOption = False,
) -> None:
    """Extract region features of images.

    The output is an HDF5 store. An interrupted run resumes. Exit code 1: images could not be read; they are listed in
    FILE.failed.jsonl.

    Images of the embedded sample are read by the detector 'sample', into features/sample.h5. The default for all others
    is bottom-up-caffe or bottom-up-hf if their weights are installed, else torchvision-frcnn, which is downloaded.

    --dry-run measures a few images on this machine. Its hours assume workers as fast as this machine, with their own
    cores and disk.

    Example: capbench extract-features

    Example: capbench extract-features --dataset flickr8k-expert --detector grid:resnet50 --shard 1/4

    Example: capbench extract-features --images photos --detector bottom-up-caffe --on ray --workers 4

    Example: capbench extract-features --dataset flickr8k-expert --detector grid:resnet50 --dry-run --workers 8
    """
    if dry_run:
        written = {"out", "shard", "compression", "restart", *(option.name for option in fields(Place))}
        common.check_applies(ctx, written, "--dry-run")
        _estimate(pictures, which, threads or 1, workers or _WORKERS, measure or _MEASURED, json_output=json_output)
        return
    common.check_applies(ctx, ["measure"], "'capbench extract-features' without --dry-run")
    if len(workers or ()) > 1:
        hint = "It takes one value without --dry-run"
        raise UsageError("--workers is repeated", code="duplicate", value="--workers", hint=hint)
    processes = workers[0] if workers else None
    from capbench.api.features import plan_extraction

    threads = threads or (1 if place.on is not None else None)
    planned = plan_extraction(
        pictures.images or [], out=out, shard=shard, **_named_inputs(pictures, which, threads, json_output=json_output)
    )
    model = planned.model
    images = common.count(len(planned.images), "image")
    common.note(f"{images}, detector {model.name} on {model.device}, output {planned.target}")
    result = planned.run(
        common.images_progress,
        workers=processes,
        dtype=which.dtype,
        compression=compression,
        restart=restart,
        engine=place.engine(processes, threads),
    )
    _print(result, json_output=json_output)
    if result.failed:
        raise typer.Exit(1)


def _estimate(
    pictures: Pictures,
    which: WhichDetector,
    threads: int,
    workers: Sequence[int],
    measure: int,
    *,
    json_output: bool,
) -> None:
    """Measure a few images, and print time and disk space of the extraction."""
    from capbench.api.features import find_images_and_detector
    from capbench.features import extract as extraction

    if min(workers) == 0:
        hint = "Pass 1 or more, or omit it"
        raise UsageError("--workers 0 does not apply to --dry-run", code="out-of-range", value=0, hint=hint)
    images, missing, _, opener = find_images_and_detector(
        pictures.images or [], **_named_inputs(pictures, which, threads, json_output=json_output)
    )
    numbers = sorted(set(workers))
    with common.images_progress("measuring", min(measure + 1, len(images))) as step:
        plan = extraction.measure(images, opener, count=measure, dtype=which.dtype, progress=step)
    if json_output:
        hours = {str(number): round(plan.hours(number), 4) for number in numbers}
        common.print_json({**vars(plan), "missing_images": len(missing), "threads": threads, "hours": hours})
        return
    _print_estimate(plan, numbers, threads, len(missing))


def _print_estimate(plan: Plan, numbers: list[int], threads: int, missing: int) -> None:
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


def _named_inputs(
    pictures: Pictures, which: WhichDetector, threads: int | None, *, json_output: bool
) -> dict[str, Any]:
    """Keyword arguments for :func:`capbench.api.features.find_images_and_detector`."""
    return {
        "dataset": pictures.dataset,
        "image_root": pictures.image_root,
        "detector": which.detector,
        "weights": which.weights,
        "options": _options(which.option or []),
        "device": which.device,
        "batch": which.batch,
        "precision": which.precision,
        "threads": threads,
        "data": pictures.data,
        "caller": common.caller(json_output=json_output, spelled=lambda argument: f"--{argument.replace('_', '-')}"),
    }


def _options(texts: list[str]) -> dict[str, Any]:
    from capbench.core.yaml import parse_value

    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (word.strip() for word in text.partition("="))
        if not equals or not name:
            message = f"--option {text} does not have the form name=value"
            raise UsageError(message, code="wrong-format", value=text, hint="Example: max_boxes=36")
        if name in options:
            raise UsageError(f"--option {name} is repeated", code="duplicate", value=name, hint="Pass it once")
        try:
            options[name] = parse_value(value)
        except ValueError as error:
            message = f"--option {text}: the value cannot be parsed"
            raise UsageError(message, code="wrong-format", value=value, hint="Quote it") from error
    return options


def _print(result: ExtractedFeatures, *, json_output: bool) -> None:
    from capbench.features.extract import report_path

    seconds = result.seconds
    if json_output:
        common.print_json(result.to_dict())
    else:
        speed = f" ({common.speed(result.extracted, seconds['total'])})" if result.extracted else ""
        earlier = result.images - result.extracted - len(result.failed)
        before = f", {earlier:,} earlier" if earlier else ""
        images = common.count(result.stored, "image")
        print(f"{result.path}: {images}; {result.extracted:,} extracted now{speed}{before}")
        if result.extracted and seconds["network"] > 0:
            network, whole = seconds["network"], seconds["total"] + seconds["finishing"]
            print(f"time: {whole:.1f} s, of it network {network:.1f} s ({100 * network / whole:.0f}%)")
        print(f"signature: {result.signature}")
    for failure in result.failed[:_MAX_LISTED]:
        common.warn(f"{failure.file or failure.image}: {failure.reason}")
    if result.failed:
        number = common.count(len(result.failed), "image")
        common.warn(f"no features of {number}; see {report_path(result.path)}")
