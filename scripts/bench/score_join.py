"""A file of scores read and joined to items: capbench beside pandas, which joins without checking anything.

Each measurement runs in a fresh child process; both sides run equally often, the best run of each counts, and their
values are compared. Peak memory is that of the child process, items included.

Example: python scripts/bench/score_join.py --items 1000000 --repeats 2
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import platform
import random
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from capbench.core.records import FloatArray, Item
from capbench.metrics.score_files import read_score_file
from capbench.metrics.score_joining import item_id, join

CAPTIONS_AN_IMAGE = 5


def generated(count: int, seed: int = 0) -> list[Item]:
    """Items with distinct captions of ten words, five an image."""
    rng = random.Random(seed)
    words = [f"word{number}" for number in range(5000)]
    return [
        Item(
            f"image_{place // CAPTIONS_AN_IMAGE:07d}",
            f"{place} " + " ".join(rng.choices(words, k=10)),
            ("a reference",),
        )
        for place in range(count)
    ]


def write(path: Path, items: list[Item], by: str) -> None:
    """A file of scores in another order than that of the items."""
    order = list(range(len(items)))
    random.Random(1).shuffle(order)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "score"] if by == "id" else ["image", "caption", "score"])
        for place in order:
            item = items[place]
            name = [item_id(item)] if by == "id" else [item.image, item.candidate]
            writer.writerow([*name, place / len(items)])


def ours(path: Path, items: list[Item]) -> FloatArray:
    """Read and join by capbench."""
    return join(read_score_file(path), items).values["score"]


def pandas(path: Path, items: list[Item]) -> FloatArray:
    """Read and join by pandas."""
    import pandas as pd

    scores = pd.read_csv(path)
    if "id" in scores.columns:
        frame = pd.DataFrame({"id": [item_id(item) for item in items]})
    else:
        frame = pd.DataFrame({"image": [i.image for i in items], "caption": [i.candidate for i in items]})
    merged = frame.merge(scores, how="left", on=list(frame.columns))
    return merged["score"].to_numpy(dtype=np.float64)


def _measure(side: Callable[[Path, list[Item]], FloatArray], path: Path, count: int, pipe: Connection) -> None:
    items = generated(count)
    before = time.process_time()
    values = side(path, items)
    seconds = time.process_time() - before
    pipe.send((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, values))


def measured(
    side: Callable[[Path, list[Item]], FloatArray], path: Path, count: int, repeats: int
) -> tuple[float, float, FloatArray]:
    """Best processor time in seconds, peak memory in MB, values."""
    runs = []
    for _ in range(repeats):
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=_measure, args=(side, path, count, there))
        child.start()
        runs.append(here.recv())
        child.join()
    return min(run[0] for run in runs), max(run[1] for run in runs), runs[0][2]


def main() -> None:
    """Measure both sides and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{options.items:,} scores, best of {options.repeats}, {platform.machine()}, Python {platform.python_version()}"
    )
    print("| joined by | capbench | memory | pandas | memory | processor time, ratio |\n|---|---:|---:|---:|---:|---:|")
    items = generated(options.items)
    with tempfile.TemporaryDirectory() as folder:
        for by in ("id", "caption"):
            path = Path(folder) / f"{by}.csv"
            write(path, items, by)
            mine, my_memory, values = measured(ours, path, options.items, options.repeats)
            peer, peer_memory, theirs = measured(pandas, path, options.items, options.repeats)
            np.testing.assert_array_equal(values, theirs)
            row = (
                f"{mine:.1f} s",
                f"{my_memory:,.0f} MB",
                f"{peer:.1f} s",
                f"{peer_memory:,.0f} MB",
                f"{mine / peer:.1f}",
            )
            print(f"| {by} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
