"""``capbench extract-features``: region features of images, kept in HDF5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.cluster import Place
from capbench.cli.groups import OptionGroup, with_groups
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.features.detectors.base import Detector
    from capbench.features.extract import Extracted
    from capbench.features.images import ImageFile

__all__ = ["Pictures", "WhichDetector", "extract_features"]

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

    def find(self, *, json_output: bool) -> tuple[list[ImageFile], list[str], str]:
        """The images, ids of those that a data set has and the folder has not, and a word for them."""
        from capbench.datasets.root import find_root

        if self.images and self.dataset:
            raise UsageError("--images and --dataset cannot be given both", hint="Give one; --image-root adds a folder")
        root = find_root(self.data)
        common.announce_root(root, json_output=json_output, used=not self.images)
        return _find(self.images, self.dataset, root, self.image_root)


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

    def opener(self, threads: int | None) -> Callable[[], Detector]:
        """What opens it, here or in a worker. Raises UsageError for an option that is none."""
        options = _options(self.option or []) | ({"batch": self.batch} if self.batch > 1 else {})
        options |= {"precision": self.precision} if self.precision != "float32" else {}
        return partial(_open, self.detector, self.weights, self.device, options, threads)


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
    from capbench.features.extract import Shard, default_workers, extract
    from capbench.files import check_writable

    chosen_shard = None if shard is None else Shard.parse(shard)
    if place.on is not None:
        threads = threads or 1
    opener = which.opener(threads)
    image_files, missing, what = pictures.find(json_output=json_output)
    target = out or Path("features") / _file_name(what, which.detector)
    target = target if chosen_shard is None else chosen_shard.path(target)
    check_writable(target)
    model = opener()
    count = len(image_files)
    common.note(f"{count:,} images, detector {model.name} on {model.device}, into {target}")
    with (
        place.engine(workers, threads) as spread,
        common.images_progress(
            "extracting", count if chosen_shard is None else -(-count // chosen_shard.count)
        ) as step,
    ):
        result = extract(
            image_files,
            model,
            target,
            missing=missing,
            shard=chosen_shard,
            workers=default_workers(model.device) if workers is None else workers,
            threads=threads,
            spread=spread,
            opener=opener,
            dtype=which.dtype,
            compression=compression,
            restart=restart,
            progress=step,
        )
    _tell(result, target, json_output=json_output)
    if result.failures:
        raise typer.Exit(1)


def _open(name: str, weights: str | None, device: str, options: dict[str, Any], threads: int | None) -> Detector:
    """The detector, here or in a worker."""
    from capbench.features.detectors.base import load_detector
    from capbench.machine import keep_freed_memory

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    model = load_detector(name, weights=weights, device=device, options=options)
    if model.device == "cpu":
        keep_freed_memory()
    return model


def _find(
    images: list[Path] | None, dataset: str | None, root: DataRoot, image_root: Path | None
) -> tuple[list[ImageFile], list[str], str]:
    """The images, ids of those that a data set has and the folder has not, and a word for them."""
    if image_root is not None:
        from capbench.files import check_folder

        check_folder(image_root, "--image-root")
    if images:
        from capbench.features.images import find_images

        return find_images(images, image_root), [], images[0].stem or "images"
    from capbench.datasets.images import all_images, dataset_images

    if dataset is not None:
        return *dataset_images(dataset, root, image_root), Path(dataset).stem
    return all_images(root), [], "sample" if root.is_sample else "all"


def _file_name(what: str, detector: str) -> str:
    base = detector.replace(":", "-")
    return f"{what}.h5" if what == base else f"{what}.{base}.h5"


def _options(texts: list[str]) -> dict[str, Any]:
    from capbench.yaml_files import parse_value

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


def _tell(result: Extracted, target: Path, *, json_output: bool) -> None:
    from capbench.features.extract import report_path

    store, seconds = result.store, result.seconds
    if json_output:
        common.print_json(
            {
                "store": str(target),
                "images": result.images,
                "stored": len(store),
                "extracted": result.extracted,
                "resumed": result.resumed,
                "failed": [vars(failure) for failure in result.failures],
                "seconds": {name: round(value, 4) for name, value in seconds.items()},
                "signature": store.signature(),
            }
        )
    else:
        speed = f" ({common.speed(result.extracted, seconds['total'])})" if result.extracted else ""
        earlier = result.images - result.extracted - len(result.failures)
        were_there = f", {earlier:,} were there" if earlier else ""
        print(f"{target}: {len(store):,} images; {result.extracted:,} extracted now{speed}{were_there}")
        if result.extracted and seconds["network"] > 0:
            beside = seconds["waiting"] + seconds["writing"] + seconds["finishing"]
            share = 100 * beside / seconds["network"]
            print(f"time: network {seconds['network']:.1f} s, everything beside it {beside:.1f} s ({share:.0f}%)")
        print(f"signature: {store.signature()}")
    for failure in result.failures[:_MOST_LISTED]:
        common.warn(f"{failure.file or failure.image}: {failure.reason}")
    if result.failures:
        count = len(result.failures)
        how_many = f"{count:,} image{'s have' if count != 1 else ' has'} no features"
        common.warn(f"{how_many}; listed in {report_path(target)}")
