"""``capbench extract-features``: region features of images, kept in HDF5."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import OptionGroup, Place, with_groups
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.features import ExtractedFeatures

__all__ = ["Pictures", "WhichDetector", "extract_features", "named_inputs"]

_MOST_LISTED = 5


@dataclass(frozen=True)
class Pictures(OptionGroup):
    """Which images."""

    images: Annotated[
        list[Path] | None,
        typer.Option(
            "--images",
            "-i",
            metavar="PATH",
            help="A folder, an image, a list (.txt: one path a line, or id TAB path) or COCO's JSON; repeatable. "
            "Default: all images of the data folder (*/images).",
            show_default=False,
        ),
    ] = None
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", metavar="NAME", help="The images that this data set judges.")
    ] = None
    image_root: Annotated[
        Path | None,
        typer.Option("--image-root", metavar="DIR", help="Where the images of a list or a data set are."),
    ] = None
    data: common.DataOption = None


@dataclass(frozen=True)
class WhichDetector(OptionGroup):
    """Which detector, and how it is set."""

    detector: Annotated[
        str,
        typer.Option(
            "--detector",
            "-D",
            metavar="NAME",
            help="A detector of 'capbench models list' (sample knows the embedded sample's drawn scenes only; for "
            "photographs take another), or module:Class of your own.",
        ),
    ] = "sample"
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FILE", help="The detector's weights. Default: see 'capbench models list'."),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the detector, such as max_boxes=36."),
    ] = None
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = "auto"
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Images at once; more than 1 changes features slightly, and is noted.")
    ] = 1
    precision: Annotated[
        str, typer.Option("--precision", help="float32, or amp-bfloat16 or amp-float16 (faster on a GPU, and noted).")
    ] = "float32"
    dtype: Annotated[str, typer.Option("--dtype", help="float32, or float16 for half the space.")] = "float32"


@with_groups
def extract_features(
    *,
    pictures: Pictures,
    which: WhichDetector,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The store. Default: features/WHAT.DETECTOR.h5.", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=0,
            help="Processes that decode images; under --on workers with a network each.",
            show_default="0; on a GPU up to 8; under --on as there is room for",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="Of the network on a CPU, then part of the signature; fewer are faster on a busy machine. Default: "
            "all cores; 1 under --on.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only part I of N; join them with 'capbench features merge'."),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option("--compression", help="none, gzip or lzf.", show_default="none, or as the file is"),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget what is there; else what was done before is kept and added to.")
    ] = False,
    place: Place,
    json_output: common.JsonOption = False,
) -> None:
    """Extract region features of images into an HDF5 store.

    An interrupted run goes on where it stopped. Images that cannot be read are listed in FILE.failed.jsonl, and the
    exit code is 1. Without arguments: the sample detector over the embedded sample's images, into features/sample.h5.

    Example: capbench extract-features

    Example: capbench extract-features --dataset flickr8k-expert --detector grid:resnet50 --shard 1/4

    Example: capbench extract-features --images photos --detector bottom-up-caffe --on ray --workers 4
    """
    from capbench.api.features import plan_extraction

    threads = threads or (1 if place.on is not None else None)
    planned = plan_extraction(
        pictures.images or [], out=out, shard=shard, **named_inputs(pictures, which, threads, json_output=json_output)
    )
    model = planned.model
    common.note(f"{len(planned.images):,} images, detector {model.name} on {model.device}, into {planned.target}")
    result = planned.run(
        common.images_progress,
        workers=workers,
        dtype=which.dtype,
        compression=compression,
        restart=restart,
        engine=place.engine(workers, threads),
    )
    _tell(result, json_output=json_output)
    if result.failed:
        raise typer.Exit(1)


def named_inputs(pictures: Pictures, which: WhichDetector, threads: int | None, *, json_output: bool) -> dict[str, Any]:
    """Images and detector as :func:`capbench.api.features.find_images_and_detector` takes them."""
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
            raise UsageError(f"--option {text}: not of the form name=value", hint="Example: max_boxes=36")
        if name in options:
            raise UsageError(f"--option {name} is given twice", hint="Give it once")
        try:
            options[name] = parse_value(value)
        except ValueError as error:
            raise UsageError(f"--option {text}: the value cannot be read", hint="Put it in quotes") from error
    return options


def _tell(result: ExtractedFeatures, *, json_output: bool) -> None:
    from capbench.features.extract import report_path

    seconds = result.seconds
    if json_output:
        common.print_json(result.to_dict())
    else:
        speed = f" ({common.speed(result.extracted, seconds['total'])})" if result.extracted else ""
        earlier = result.images - result.extracted - len(result.failed)
        were_there = f", {earlier:,} were there" if earlier else ""
        print(f"{result.path}: {result.stored:,} images; {result.extracted:,} extracted now{speed}{were_there}")
        if result.extracted and seconds["network"] > 0:
            beside = seconds["waiting"] + seconds["writing"] + seconds["finishing"]
            share = 100 * beside / seconds["network"]
            print(f"time: network {seconds['network']:.1f} s, everything beside it {beside:.1f} s ({share:.0f}%)")
        print(f"signature: {result.signature}")
    for failure in result.failed[:_MOST_LISTED]:
        common.warn(f"{failure.file or failure.image}: {failure.reason}")
    if result.failed:
        count = len(result.failed)
        how_many = f"{count:,} image{'s have' if count != 1 else ' has'} no features"
        common.warn(f"{how_many}; listed in {report_path(result.path)}")
