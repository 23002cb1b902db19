"""A file of scores read and joined to items, compared with pandas, which joins without checks."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capbench.core.records import Item
from capbench.metrics.score_files import read_score_file
from capbench.metrics.score_joining import item_id, join
from scripts.bench.common import Row, Settings, Work, between


def generated(count: int, seed: int = 0) -> list[Item]:
    """Items with distinct captions of ten words, five an image."""
    rng = random.Random(seed)
    words = [f"word{number}" for number in range(5000)]
    return [
        Item(f"image_{place // 5:07d}", f"{place} " + " ".join(rng.choices(words, k=10)), ("a reference",))
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


def ours(path: Path, count: int) -> Work:
    """Read and join by capbench."""
    items = generated(count)
    return lambda: join(read_score_file(path), items).values["score"]


def theirs(path: Path, count: int) -> Work:
    """Read and join by pandas."""
    import pandas as pd

    items = generated(count)

    def work() -> object:
        scores = pd.read_csv(path)
        if "id" in scores.columns:
            frame = pd.DataFrame({"id": [item_id(item) for item in items]})
        else:
            frame = pd.DataFrame({"image": [i.image for i in items], "caption": [i.candidate for i in items]})
        return frame.merge(scores, how="left", on=list(frame.columns))["score"].to_numpy(dtype=np.float64)

    return work


def measure(settings: Settings) -> Iterator[Row]:
    """Joined by id and by caption."""
    count = settings.pick(50_000, 1_000_000)
    items = generated(count)
    for by in ("id", "caption"):
        path = settings.folder / f"{by}.csv"
        write(path, items, by)
        what = f"{count:,} scores joined by {by}"
        yield between(what, "pandas, no checks", ours, theirs, path, count, repeats=settings.repeats, inner=2)
