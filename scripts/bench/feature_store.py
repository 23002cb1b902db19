"""The feature store: writing, random and sequential reading, compression; beside plain h5py with one group an image.

Features are made up to look like those of a ReLU layer (half of them zero, log-normal otherwise). Reading is done by a
fresh process; files were just written, so that they come from memory and not from the disk: what is measured is the
format, not the drive. ``--cold`` asks the kernel to drop each file from memory first. Every way runs ``--repeats``
times, in turn, and the best of each number is told; all must read back the same features and boxes.

Example: python scripts/bench/feature_store.py --images 2000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter

_PRINT = Fingerprint("made-up", "unknown", "none", "none")


def made_up(images: int, regions: int, size: int, dtype: str) -> Iterator[RegionFeatures]:
    """Features half of which are zero, boxes and classes."""
    rng = np.random.default_rng(7)
    pool = np.maximum(rng.normal(0, 1, (4 * regions, size)), 0).astype(np.float32)
    for i in range(images):
        start = int(rng.integers(0, 3 * regions))
        features = (pool[start : start + regions] * np.float32(rng.lognormal(0, 0.3))).astype(dtype)
        corners = rng.random((regions, 2, 2)).astype(np.float32) * np.float32(400)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        yield RegionFeatures(
            f"image_{i:07d}",
            400,
            400,
            boxes,
            features,
            rng.integers(0, 1600, regions).astype(np.int32),
            rng.random(regions).astype(np.float32),
        )


def write_store(path: Path, images: Iterator[RegionFeatures], dtype: str, compression: str) -> None:
    """The store, with its journal, checks and checksums."""
    with StoreWriter(path, _PRINT, dtype=dtype, compression=compression) as writer:
        for regions in images:
            writer.add(regions)
        writer.finish()


def write_groups(path: Path, images: Iterator[RegionFeatures], dtype: str, compression: str) -> None:
    """The usual layout: one group per image, nothing checked."""
    import h5py

    options = {} if compression == "none" else {"compression": compression}
    with h5py.File(path, "w") as file:
        for regions in images:
            group = file.create_group(regions.image)
            group.create_dataset("features", data=regions.features, **options)
            group.create_dataset("boxes", data=regions.boxes)
            for name, values in regions.flat().items():
                group.create_dataset(name, data=values)


def read_store(path: Path) -> tuple[list[str], Callable[[str], Any], Callable[[], Any]]:
    """Ids, reading one image, reading all in order."""
    store = open_store(path)
    return store.ids, store.__getitem__, lambda: sum(len(regions) for regions in store)


def read_groups(path: Path) -> tuple[list[str], Callable[[str], Any], Callable[[], Any]]:
    """The same for one group an image."""
    import h5py

    file = h5py.File(path, "r")
    names = list(file)

    def one(image: str) -> dict[str, Any]:
        return {name: values[()] for name, values in file[image].items()}

    return names, one, lambda: sum(len(one(name)["features"]) for name in names)


_WAYS = {"store": (write_store, read_store), "group an image": (write_groups, read_groups)}


def _child(way: str, path: Path, pipe: Any) -> None:
    begin = time.perf_counter()
    names, one, everything = _WAYS[way][1](path)
    opened = time.perf_counter() - begin
    rng = np.random.default_rng(1)
    times = []
    for i in rng.permutation(len(names))[:1000]:
        begin = time.perf_counter()
        one(names[i])
        times.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    everything()
    scanned = time.perf_counter() - begin
    digest = hashlib.sha256()
    for name in sorted(names):
        regions = one(name)
        for part in ("features", "boxes"):
            values = regions[part] if isinstance(regions, dict) else getattr(regions, part)
            digest.update(np.ascontiguousarray(values).tobytes())
    pipe.send((opened, times, scanned, digest.hexdigest()))


def _cool(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def measure(way: str, compression: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write, then read in a fresh process."""
    path = folder / "bench.h5"
    images = list(made_up(arguments.images, arguments.regions, arguments.size, arguments.dtype))
    volume = sum(regions.features.nbytes for regions in images) / 1e6
    begin = time.perf_counter()
    _WAYS[way][0](path, iter(images), arguments.dtype, compression)
    written = time.perf_counter() - begin
    del images
    if arguments.cold:
        _cool(path)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child = context.Process(target=_child, args=(way, path, theirs))
    child.start()
    opened, times, scanned, digest = mine.recv()
    child.join()
    result = {
        "way": way,
        "compression": compression,
        "write_mb_s": round(volume / written),
        "size": round(path.stat().st_size / 1e6 / volume, 3),
        "open_ms": round(1e3 * opened, 1),
        "one_median_ms": round(1e3 * float(np.median(times)), 3),
        "one_p99_ms": round(1e3 * float(np.percentile(times, 99)), 3),
        "scan_mb_s": round(volume / scanned),
        "digest": digest,
    }
    path.unlink()
    return result


def best(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The best of each number: the highest rate, the shortest time."""
    return {
        key: value
        if isinstance(value, str)
        else (max if key.endswith("_mb_s") else min)(result[key] for result in runs)
        for key, value in runs[0].items()
    }


def main() -> None:
    """Measure all ways and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--dtype", default="float16", choices=("float16", "float32"))
    parser.add_argument("--folder", help="where to write; default: a temporary folder")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="drop files from memory before they are read (Linux)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for _ in range(arguments.repeats):
            for compression in ("none", "lzf", "gzip"):
                for way in _WAYS:
                    measured = measure(way, compression, arguments, Path(folder))
                    runs.setdefault((way, compression), []).append(measured)
    results = [best(of_way) for of_way in runs.values()]
    if len({result["digest"] for of_way in runs.values() for result in of_way}) != 1:
        raise SystemExit("the ways read back different features or boxes")
    if arguments.json:
        print(json.dumps({"machine": platform.machine(), "cores": os.cpu_count(), "results": results}, indent=2))
        return
    print(f"{arguments.images:,} images of {arguments.regions} x {arguments.size} {arguments.dtype}")
    print("way             compression  write MB/s   size  open ms  one image ms (median, p99)  all MB/s")
    for r in results:
        print(
            f"{r['way']:<15} {r['compression']:<11} {r['write_mb_s']:>11} {r['size']:>6.2f} {r['open_ms']:>8.1f} "
            f"{r['one_median_ms']:>18.3f} {r['one_p99_ms']:>8.3f} {r['scan_mb_s']:>9}"
        )


if __name__ == "__main__":
    main()
