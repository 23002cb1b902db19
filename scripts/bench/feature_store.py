"""The feature store: writing, random and sequential reading, compared with plain h5py with one group an image; merging.

Files were just written, so they are read from memory, not from the disk. Memory of a merge may not grow with the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from scripts.bench.common import Goal, Row, Settings, Work, between, command

_PRINT = Fingerprint("made-up", "unknown", "none", "none")
_REGIONS, _SIZE, _SHARDS, _READ = 36, 2048, 4, 1000
_MERGE = "import sys; from capbench.features.maintenance import merge_stores; merge_stores(sys.argv[1], sys.argv[2:])"


def made(images: int) -> Iterator[RegionFeatures]:
    """Features like those of a ReLU layer (half of them zero), boxes and classes."""
    rng = np.random.default_rng(7)
    pool = np.maximum(rng.normal(0, 1, (4 * _REGIONS, _SIZE)), 0).astype(np.float32)
    for i in range(images):
        start = int(rng.integers(0, 3 * _REGIONS))
        features = (pool[start : start + _REGIONS] * np.float32(rng.lognormal(0, 0.3))).astype("float16")
        corners = np.sort(rng.random((_REGIONS, 2, 2), dtype=np.float32) * 400, axis=1).reshape(_REGIONS, 4)
        classes, confidences = rng.integers(0, 1600, _REGIONS).astype(np.int32), rng.random(_REGIONS, np.float32)
        yield RegionFeatures(f"image_{i:07d}", 400, 400, corners, features, classes, confidences)


def write_store(path: Path, images: int, compression: str) -> Work:
    """The store, with its journal, checks and checksums."""
    regions = list(made(images))

    def work() -> int:
        path.with_suffix(".store.h5").unlink(missing_ok=True)
        with StoreWriter(path.with_suffix(".store.h5"), _PRINT, dtype="float16", compression=compression) as writer:
            for one in regions:
                writer.add(one)
            writer.finish()
        return len(regions)

    return work


def write_groups(path: Path, images: int, compression: str) -> Work:
    """The usual layout: one group per image, nothing checked."""
    import h5py

    options = {} if compression == "none" else {"compression": compression}
    regions = list(made(images))

    def work() -> int:
        with h5py.File(path.with_suffix(".groups.h5"), "w") as file:
            for one in regions:
                group = file.create_group(one.image)
                group.create_dataset("features", data=one.features, **options)
                group.create_dataset("boxes", data=one.boxes)
                for name, values in one.flat().items():
                    group.create_dataset(name, data=values)
        return len(regions)

    return work


def read_store(path: Path, images: int, order: str) -> Work:
    """Read images of the store at random, or all in order; returns the sum of all features."""
    store = open_store(path.with_suffix(".store.h5"))
    if order == "in order":
        return lambda: sum(float(one.features.sum(dtype=np.float64)) for one in store)
    return lambda: np.array([store[name].features.sum(dtype=np.float64) for name in _drawn(images)])


def read_groups(path: Path, images: int, order: str) -> Work:
    """The same for one group an image."""
    import h5py

    file = h5py.File(path.with_suffix(".groups.h5"), "r")

    def one(name: str) -> float:
        values = {key: dataset[()] for key, dataset in file[name].items()}
        return float(values["features"].sum(dtype=np.float64))

    if order == "in order":
        return lambda: sum(one(name) for name in file)
    return lambda: np.array([one(name) for name in _drawn(images)])


def _drawn(images: int) -> list[str]:
    return [f"image_{i:07d}" for i in np.random.default_rng(1).integers(0, images, _READ).tolist()]


def merge(folder: Path, images: int) -> Row:
    """Merge shards in a process of its own."""
    shards = []
    for shard in range(_SHARDS):
        shards.append(folder / f"{images}.shard{shard}.h5")
        with StoreWriter(shards[-1], _PRINT, dtype="float16") as writer:
            for place, one in enumerate(made(images)):
                if place % _SHARDS == shard:
                    writer.add(one)
            writer.finish()
    target = folder / f"{images}.h5"
    run = command([sys.executable, "-c", _MERGE, str(target), *map(str, shards)], folder)
    what = f"merge of {_SHARDS} shards, {images:,} images"
    with open_store(target) as store:
        same = all(np.array_equal(store[one.image].features, one.features) for one in made(images))
        complete = len(store) == images
    for path in (*shards, target):
        path.unlink()
    if not (same and complete):
        return Row(what, missing="the merged store has other features")
    return Row(what, run.seconds, megabytes=run.megabytes)


def measure(settings: Settings) -> Iterator[Row]:
    """Writing and reading with each compression, then merging."""
    folder, images, repeats = settings.folder, settings.pick(200, 1_000), settings.repeats
    size = f"{_REGIONS} × {_SIZE:,} float16"
    for compression in ("none", "lzf", "gzip"):
        path = folder / compression
        peer = f"h5py, a group an image, {compression}"
        what = f"write {images:,} images of {size}"
        yield between(what, peer, write_store, write_groups, path, images, compression, repeats=repeats)
        for order, what in (("random", f"read {_READ:,} at random"), ("in order", f"read {images:,} in order")):
            if compression == "none" or order == "random":
                yield between(what, peer, read_store, read_groups, path, images, order, repeats=repeats, tolerance=1e-3)
    small, large = (merge(folder, count) for count in settings.pick((100, 400), (1_230, 12_300)))
    growth = (large.megabytes or 0) / (small.megabytes or 1)
    yield small
    yield Row(large.what, large.ours, megabytes=large.megabytes, goals=(Goal(growth, 1.25, "times the memory"),))
