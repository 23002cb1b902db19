"""Extraction: what everything around the network costs, beside the network alone and beside a plain loop.

The same images go through the network alone (prepared beforehand, nothing stored), through a plain loop that decodes,
prepares, detects and writes one HDF5 group an image with nothing checked, and through ``capbench.features.extract``,
without worker processes unless asked (their start takes seconds: give them many images). Rounds are interleaved and
the median is told, since other programs disturb all alike. What the loop and ``extract`` wrote must be equal. Weights
are random: those do not change a pass's time.

Example: python scripts/bench/extraction.py --images photos --detector grid:mobilenet_v3_small --count 60
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capbench.core.machine import keep_freed_memory
from capbench.features.detectors.base import Detector, load_detector
from capbench.features.extract import extract
from capbench.features.images import ImageFile, decode, find_images
from capbench.features.store import open_store


def plain_loop(images: Sequence[ImageFile], detector: Detector, path: Path) -> None:
    """The short script for comparison: one image after the other, one group an image."""
    import h5py

    with h5py.File(path, "w") as file:
        for entry in images:
            regions = detector.detect([detector.preprocess(decode(entry.path))])[0]
            group = file.create_group(entry.image)
            group.create_dataset("features", data=regions.features)
            group.create_dataset("boxes", data=regions.boxes)
            for name, values in regions.flat().items():
                group.create_dataset(name, data=values)


def check_equal(images: Sequence[ImageFile], loop: Path, store: Path) -> None:
    """Raise SystemExit unless both files hold the same features and boxes."""
    import h5py

    with h5py.File(loop, "r") as file, open_store(store) as ours:
        for entry in images:
            theirs, regions = file[entry.image], ours[entry.image]
            same_boxes = regions.boxes is not None and np.array_equal(theirs["boxes"][()], regions.boxes)
            if not same_boxes or not np.array_equal(theirs["features"][()], regions.features):
                raise SystemExit(f"{entry.image}: extract wrote other regions than the plain loop")


def network_alone(prepared: Sequence[Any], detector: Detector) -> float:
    """Seconds of the forward passes alone."""
    begin = time.perf_counter()
    for image in prepared:
        detector.detect([image])
    return time.perf_counter() - begin


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds an image of each way, as the median of the rounds."""
    images = find_images([arguments.images])[: arguments.count]
    detector = load_detector(name, weights=arguments.weights, device=arguments.device)
    prepared = [detector.preprocess(decode(entry.path)) for entry in images]
    seconds: dict[str, list[float]] = {"network alone": [], "plain loop": []}
    parts: list[dict[str, float]] = []
    ways: dict[str, int] = {f"extract, {n} workers": n for n in arguments.workers}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        extract(images[:2], detector, Path(folder) / "warm.h5")
        for round_number in range(arguments.rounds):
            seconds["network alone"].append(network_alone(prepared, detector))
            loop = Path(folder) / f"{round_number}.h5"
            seconds["plain loop"].append(_timed(lambda path=loop: plain_loop(images, detector, path)))  # type: ignore[misc]
            for way, workers in ways.items():
                path = Path(folder) / f"{round_number}-{workers}.h5"
                begin = time.perf_counter()
                done = extract(images, detector, path, workers=workers)
                seconds.setdefault(way, []).append(time.perf_counter() - begin)
                if workers == 0:
                    parts.append(done.seconds)
                check_equal(images, loop, path)
    each = {way: 1e3 * statistics.median(values) / len(images) for way, values in seconds.items()}
    inside = {key: 1e3 * statistics.median(p[key] for p in parts) / len(images) for key in parts[0]} if parts else {}
    return {"detector": name, "images": len(images), "ms_an_image": each, "ms_inside_extract": inside}


def _timed(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def main() -> None:
    """Measure each detector and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a folder of images")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--detector", nargs="+", default=["grid:mobilenet_v3_small"])
    parser.add_argument("--weights", default="random:0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of the network on a CPU")
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to write; default: a temporary folder")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.device == "cpu":
        keep_freed_memory()  # as 'capbench extract-features' does
    results = [measure(name, arguments) for name in arguments.detector]
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        print(f"{result['detector']}, {result['images']} images")
        alone = result["ms_an_image"]["network alone"]
        for way, value in result["ms_an_image"].items():
            print(f"  {way:<20} {value:>9.2f} ms an image  {100 * (value / alone - 1):>+6.0f}%")
        told = ", ".join(f"{key} {value:.2f}" for key, value in result["ms_inside_extract"].items())
        print(f"  inside extract (ms): {told}")


if __name__ == "__main__":
    main()
