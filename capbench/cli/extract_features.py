"""``capbench extract-features``: extract region features of images into an HDF5 store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge

from capbench.api.arguments import DetectorSettings, ExtractionSettings, StoreSettings
from capbench.cli import common
from capbench.cli.options import Place, parse_options
from capbench.core.arguments import Help
from capbench.core.progress import speed

if TYPE_CHECKING:
    from capbench.api.caller import Caller
    from capbench.features.extract import Extracted

_WORKERS = (1, 4, 16, 64)  # numbers that --dry-run estimates for
_MEASURED = 8  # images that --dry-run measures


def extract_features(
    *,
    ctx: typer.Context,
    images: Annotated[
        list[Path] | None,
        Help(
            "Folder, image, list (.txt) or COCO JSON; repeatable. Default: all.",
            ("--images", "-i"),
            "PATH",
        ),
    ] = None,
    which: DetectorSettings,
    option: Annotated[list[str] | None, Help("Option of the detector: max_boxes=36.", metavar="NAME=VALUE")] = None,
    dry_run: Annotated[bool, Help("Estimate time and disk space, and write nothing.")] = False,
    workers: Annotated[int | None, Ge(0), Help("Processes that decode images, or cluster workers.")] = None,
    written: StoreSettings,
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

    Example: capbench extract-features --dataset flickr8k-expert --detector grid:resnet50 --shard 1/4
    """
    options = parse_options(option or []).get("", {})
    # Here, 'images' is --images, not the folder --image-root.
    caller = replace(common.caller(json_output=json_output), spelled=lambda name: f"--{name.replace('_', '-')}")
    settings: ExtractionSettings = {**which, **written}
    if dry_run:
        excluded = {*StoreSettings.__annotations__, *(option.name for option in fields(Place))} - {"dtype"}
        common.check_applies(ctx, excluded, "--dry-run")
        settings.setdefault("threads", 1)
        _estimate(images or [], options, settings, caller, workers, json_output)
        return
    from capbench.api.features import extract_features as extract

    if place.on is not None:
        settings.setdefault("threads", 1)
    caller = replace(caller, spread=lambda: place.engine(workers, settings.get("threads")))
    result = extract(images or [], options=options, workers=workers, progress=caller, **settings)
    _print(result, json_output)
    if result.failed:
        raise typer.Exit(1)


def _estimate(
    paths: Sequence[Path],
    options: dict[str, Any],
    settings: ExtractionSettings,
    caller: Caller,
    workers: int | None,
    json_output: bool,
) -> None:
    from capbench.api.features import find_images_and_detector
    from capbench.features import extract as extraction

    images, missing, _, opener = find_images_and_detector(paths, options, settings, caller)
    numbers, threads = sorted({*_WORKERS, workers or 1}), settings["threads"] or 1
    with common.progress("measuring", min(_MEASURED + 1, len(images))) as step:
        dtype = settings.get("dtype", "float32")
        plan = extraction.measure(images, opener, count=_MEASURED, dtype=dtype, progress=step)
    hours = {number: plan.hours(number) for number in numbers}
    facts = {**vars(plan), "missing_images": len(missing), "threads": threads}
    facts["hours"] = {str(number): round(value, 4) for number, value in hours.items()}
    absent = f"; {common.count(len(missing), 'other image')} without a file" if missing else ""
    median = f"median of {plan.measured}, {common.count(threads, 'thread')}"
    of_all = {number: value * min(number, plan.parts) for number, value in hours.items()}
    lines = [
        f"{common.count(plan.images, 'image')} in {common.count(plan.parts, 'part')}{absent}",
        f"measured: {plan.image_s:.3g} s per image ({median}), {plan.regions:.1f} regions; opening the detector "
        f"{plan.opening_s:.1f} s",
        f"disk: {plan.disk_bytes / 1e9:.2f} GB, and the same for the journal until the store is finished",
        *(f"{n:,} workers: {hours[n]:,.2f} hours, {of_all[n]:,.2f} hours of all workers" for n in numbers),
    ]
    common.answer(json_output, facts, lines)


def _print(result: Extracted, json_output: bool) -> None:
    from capbench.features.extract import report_path

    seconds = result.seconds
    quick = f" ({speed(result.extracted, seconds['total'])})" if result.extracted else ""
    earlier = result.images - result.extracted - len(result.failed)
    before = f", {earlier:,} earlier" if earlier else ""
    lines = [
        f"{result.path}: {common.count(result.stored, 'image')}; {result.extracted:,} extracted now{quick}{before}"
    ]
    if result.extracted and seconds["network"] > 0:
        network, total = seconds["network"], seconds["total"] + seconds["finishing"]
        lines.append(f"time: {total:.1f} s, of it network {network:.1f} s ({100 * network / total:.0f}%)")
    common.answer(json_output, result.to_dict(), [*lines, f"signature: {result.signature}"])
    for failure in result.failed[:5]:
        common.warn(f"{failure.file or failure.image}: {failure.reason}")
    if result.failed:
        number = common.count(len(result.failed), "image")
        common.warn(f"no features of {number}; see {report_path(result.path)}")
