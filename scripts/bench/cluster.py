"""Two workers of a local Ray beside one, each with one thread: wall time of the work, and what the engine itself takes.

Extraction is of generated pictures by an untrained ``grid`` network, METEOR of generated captions. Both sides go
through the engine, are repeated alike and must give the same bytes; the start of Ray and of the workers' programs is
measured separately. The engine's overhead is that of 1,000 parts that do nothing. Run it on an idle machine with two
cores.

Example: python -m scripts.bench.cluster
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from capbench.core.records import Item
from capbench.core.workers import Cluster, Engine
from capbench.features.detectors.base import Detector, load_detector
from capbench.features.extract import extract
from capbench.features.images import ImageFile, images_in
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from scripts.bench.goals import captions


def nothing() -> Callable[[int], int]:
    """An opener of parts that do nothing."""
    return lambda part: part


def opened() -> Detector:
    """An untrained network on one thread."""
    import torch

    torch.set_num_threads(1)
    return load_detector("grid:resnet50", weights="random", device="cpu")


def pictures(folder: Path, count: int) -> list[ImageFile]:
    """Pictures of noise."""
    rng = np.random.default_rng(0)
    for place in range(count):
        Image.fromarray(rng.integers(0, 255, (240, 320, 3), dtype=np.uint8)).save(folder / f"{place:04}.png")
    return images_in(folder)


def extraction(images: Sequence[ImageFile], folder: Path, engine: Engine) -> tuple[float, bytes]:
    """Seconds from the first finished image to the last, for each of the images between; and the store."""
    times: list[float] = []
    store = folder / "store.h5"
    store.unlink(missing_ok=True)
    extract(images, opened(), store, threads=1, spread=engine, opener=opened, progress=lambda n: times.append(_now(n)))
    return _steady(times, len(images)), store.read_bytes()


def meteor(items: Sequence[Item], engine: Engine) -> tuple[float, bytes]:
    """Seconds from the first finished batch to the last, for all items; and the scores."""
    times: list[float] = []
    table = score(
        items,
        resolve_metrics(["meteor"]),
        dataset="generated",
        cache=False,
        spread=engine,
        progress=lambda n: times.append(_now(n)),
    )
    return _steady(times, len(items)), b"".join(values.tobytes() for values in table.values.values())


def _now(count: int) -> float:
    return time.perf_counter() if count else 0.0


def _steady(times: list[float], count: int) -> float:
    """Seconds for all, by the speed after every worker has done its first part."""
    times = [moment for moment in times if moment]
    begin = len(times) // 4
    return (times[-1] - times[begin]) / (len(times) - 1 - begin) * len(times)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--captions", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}", flush=True)
    items = [Item(str(i), text, tuple(references)) for i, (text, references) in enumerate(captions(asked.captions))]
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "pictures").mkdir()
        images = pictures(Path(name) / "pictures", asked.images)
        works: dict[str, Callable[[Engine], tuple[float, bytes]]] = {
            f"extraction, {len(images)} images": partial(extraction, images, Path(name)),
            f"METEOR, {len(items):,} captions": partial(meteor, items),
        }
        outcomes: dict[str, dict[int, tuple[float, bytes]]] = {work: {} for work in works}
        for workers in (1, 2):
            begin = time.perf_counter()
            with Engine(Cluster(workers=workers, memory_mb=1000)) as engine:
                print(f"{workers} worker(s): Ray starts in {time.perf_counter() - begin:.1f} s", flush=True)
                for what, work in works.items():
                    repeated = [work(engine) for _ in range(asked.repeats)]
                    outcomes[what][workers] = min(repeated, key=lambda run: run[0])
                list(engine.run(nothing, range(10), memory_mb=100))
                begin = time.perf_counter()
                list(engine.run(nothing, range(1000), memory_mb=100))
                print(f"  1,000 parts that do nothing: {time.perf_counter() - begin:.1f} s with the workers' start")
        for what, runs in outcomes.items():
            if runs[1][1] != runs[2][1]:
                raise SystemExit(f"{what}: two workers give other bytes")
            ratio = runs[1][0] / runs[2][0]
            print(f"{what}: one worker {runs[1][0]:.1f} s, two {runs[2][0]:.1f} s, the same bytes: {ratio:.2f} x")


if __name__ == "__main__":
    main()
