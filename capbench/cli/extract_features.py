"""``capbench extract-features``: extract region features of images into an HDF5 store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from annotated_types import Ge

from capbench.api.arguments import DetectorSettings, ExtractionSettings, StoreSettings
from capbench.cli import common
from capbench.cli.options import Place, parse_options
from capbench.core.arguments import Help
from capbench.core.progress import speed

if TYPE_CHECKING:
    from capbench.features.extract import Extracted


def extract_features(
    *,
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

    Example: capbench extract-features --dataset flickr8k-expert --detector grid:resnet50 --shard 1/4
    """
    options = parse_options(option or []).get("", {})
    # Here, 'images' is --images, not the folder --image-root.
    caller = replace(common.caller(json_output=json_output), spelled=lambda name: f"--{name.replace('_', '-')}")
    settings: ExtractionSettings = {**which, **written}
    from capbench.api.features import extract_features as extract

    if place.on is not None:
        settings.setdefault("threads", 1)
    caller = replace(caller, spread=lambda: place.engine(workers, settings.get("threads")))
    result = extract(images or [], options=options, workers=workers, progress=caller, **settings)
    _print(result, json_output)
    if result.failed:
        raise typer.Exit(1)


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
