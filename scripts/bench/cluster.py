"""Two workers of a local Ray, compared with one; each has one thread. Seconds are wall-clock time.

Extraction of generated images by an untrained ``grid`` network, and METEOR of generated captions. Both sides must give
the same bytes. The time of the first quarter, in which workers start, is not included. Requires two idle cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from capbench.core.records import Item
from capbench.core.workers import Cluster, Engine
from capbench.features.detectors.base import Detector, load_detector
from capbench.features.extract import extract
from capbench.features.images import ImageFile, images_in
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from scripts.bench.common import Row, Settings
from scripts.bench.extraction import pictures
from scripts.bench.inputs import captions

_IDLE = 0.1
"""Largest share of processor time that other programs may use."""


def busy_share() -> float:
    """Share of processor time in use during a second; 0 if it is unknown (other systems than Linux)."""
    counts: list[list[int]] = []
    for _ in range(2):
        time.sleep(bool(counts))
        try:
            counts.append([int(count) for count in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]])
        except OSError:
            return 0.0
    passed: list[int] = [after - before for before, after in zip(*counts, strict=True)]
    return 1 - (passed[3] + passed[4]) / max(1, sum(passed))  # idle, and waiting for a disk


def opened() -> Detector:
    """An untrained network on one thread."""
    import torch

    torch.set_num_threads(1)
    return load_detector("grid:resnet50", weights="random", device="cpu")


def extraction(images: Sequence[ImageFile], folder: Path, engine: Engine) -> tuple[float, bytes]:
    """Seconds for the images, and the store."""
    times: list[float] = []
    store = folder / "store.h5"
    store.unlink(missing_ok=True)
    extract(images, opened(), store, threads=1, spread=engine, opener=opened, progress=_clock(times))
    return _steady(times), store.read_bytes()


def meteor(items: Sequence[Item], engine: Engine) -> tuple[float, bytes]:
    """Seconds for the captions, and the scores."""
    times: list[float] = []
    requests = resolve_metrics(["meteor"])
    table = score(items, requests, dataset="generated", cache=False, spread=engine, progress=_clock(times))
    return _steady(times), b"".join(values.tobytes() for values in table.values.values())


def _clock(times: list[float]) -> Callable[[int], None]:
    return lambda count: times.append(time.perf_counter()) if count else None


def _steady(times: list[float]) -> float:
    """Seconds for all parts, by the speed after every worker has done its first one."""
    begin = len(times) // 4
    return (times[-1] - times[begin]) / (len(times) - 1 - begin) * len(times)


def measure(settings: Settings) -> Iterator[Row]:
    """Both kinds of work."""
    try:
        import ray  # noqa: F401
    except ImportError:
        yield Row("2 workers (wall time)", peer="one worker", missing="ray is not installed")
        return
    busy = busy_share()
    if busy > _IDLE:
        reason = f"wall-clock time requires idle cores; other programs use {busy:.0%} of them"
        yield Row("2 workers (wall time)", peer="one worker", missing=reason)
        return
    images = images_in(pictures(settings.folder / "pictures", settings.pick(32, 256)))
    items = [
        Item(str(i), text, tuple(references))
        for i, (text, references) in enumerate(captions(settings.pick(4_000, 40_000)))
    ]
    works: dict[str, Callable[[Engine], tuple[float, bytes]]] = {
        f"extraction, grid:resnet50, {len(images)} images": lambda engine: extraction(images, settings.folder, engine),
        f"METEOR, {len(items):,} × 5": lambda engine: meteor(items, engine),
    }
    runs: dict[str, list[tuple[float, bytes]]] = {what: [] for what in works}
    for workers in (2, 1):
        with Engine(Cluster(workers=workers, memory_mb=1000), lambda _: None) as engine:
            for what, work in works.items():
                repeated = [work(engine) for _ in range(settings.repeats)]
                runs[what].append(min(repeated, key=lambda run: run[0]))
    for what, ((two, ours), (one, theirs)) in runs.items():
        what = f"{what}, 2 workers (wall time)"
        if ours == theirs:
            yield Row(what, two, "one worker", one, difference=0.0)
        else:
            yield Row(what, peer="one worker", missing="two workers give other bytes")
