"""Extraction of region features, compared with a plain loop.

The plain loop decodes, prepares, detects and writes one HDF5 group an image, without checks. Images are generated,
weights random. What the loop and ``extract`` wrote must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capbench.features.detectors.base import Detector, load_detector
from capbench.features.extract import extract
from capbench.features.images import decode, images_in
from capbench.features.store import open_store
from scripts.bench.common import Row, Settings, Work, between


def pictures(folder: Path, count: int) -> Path:
    """A folder with smooth random photographs of 640 × 480."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for place in range(count):
        small = Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8))
        small.resize((640, 480)).save(folder / f"{place:04}.jpg")
    return folder


def _detector(name: str) -> Detector:
    import torch

    from capbench.core.machine import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()  # as 'capbench extract-features' does
    return load_detector(name, weights="random:0", device="cpu")


def ours(folder: Path, name: str) -> Work:
    """``extract`` in this process."""
    images, detector, store = images_in(folder), _detector(name), folder.parent / "ours.h5"
    extract(images[:2], detector, folder.parent / "warm.h5", threads=1)

    def work() -> Path:
        store.unlink(missing_ok=True)
        extract(images, detector, store, threads=1, workers=0)
        return store

    return work


def plain_loop(folder: Path, name: str) -> Work:
    """One image after the other, one group an image."""
    import h5py

    images, detector, path = images_in(folder), _detector(name), folder.parent / "plain.h5"
    detector.detect([detector.preprocess(decode(images[0].path))])

    def work() -> Path:
        with h5py.File(path, "w") as file:
            for entry in images:
                regions = detector.detect([detector.preprocess(decode(entry.path))])[0]
                group = file.create_group(entry.image)
                group.create_dataset("features", data=regions.features)
                group.create_dataset("boxes", data=regions.boxes)
                for key, values in regions.flat().items():
                    group.create_dataset(key, data=values)
        return path

    return work


def difference(store: Path, loop: Path) -> float:
    """Largest difference of features and boxes of both files."""
    import h5py

    with h5py.File(loop, "r") as file, open_store(store) as regions:
        pairs = [(file[one.image]["features"][()], one.features) for one in regions]
        pairs += [(file[one.image]["boxes"][()], one.boxes) for one in regions if one.boxes is not None]
        return max(float(np.abs(a - b).max()) for a, b in pairs) if len(file) == len(regions) else np.inf


def measure(settings: Settings) -> Iterator[Row]:
    """The comparison."""
    name, count = "grid:mobilenet_v3_small", settings.pick(20, 200)
    folder = pictures(settings.folder / "photos", count)
    what = f"extraction, {name}, {count} images"
    yield between(what, "plain loop", ours, plain_loop, folder, name, repeats=settings.repeats, difference=difference)
