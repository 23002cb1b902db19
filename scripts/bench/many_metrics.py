"""``compare`` and ``train combination`` of 20 metrics whose scores are in a file; generated ratings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from scripts.bench.common import Goal, MissingError, Row, Settings, command, least

_CAPBENCH = [sys.executable, "-m", "capbench"]


def write(folder: Path, count: int, columns: int) -> list[str]:
    """Import ratings of ten captions per image, and write scores that correlate with them; returns the columns."""
    rng = np.random.default_rng(0)
    names = [f"m{place:02}" for place in range(columns)]
    quality = rng.normal(size=count)
    ratings = np.clip(np.floor(quality + rng.normal(size=count) * 0.8 + 3.5), 1, 5)
    scores = quality[:, None] + rng.normal(size=(count, columns)) * (1 + 0.08 * np.arange(columns))
    with (folder / "judged.csv").open("w") as judged, (folder / "scored.csv").open("w") as scored:
        print("image,candidate,candidate_id,rating", file=judged)
        print("image,candidate_id", *names, sep=",", file=scored)
        for row, (rating, values) in enumerate(zip(ratings, scores, strict=True)):
            print(f"{row // 10}.jpg,caption {row},{row},{rating:g}", file=judged)
            print(f"{row // 10}.jpg,{row}", *(f"{value:.6f}" for value in values), sep=",", file=scored)
    (folder / "data").mkdir()
    importing = [*_CAPBENCH, "data", "import", str(folder / "judged.csv"), "--name", "bench", "--scale", "1-5"]
    command([*importing, "--data", str(folder / "data")], folder)
    return names


def measure(settings: Settings) -> Iterator[Row]:
    """Both commands; goals hold for 40,000 ratings."""
    folder, count = settings.folder, settings.pick(4_000, 40_000)
    names = write(folder, count, 20)
    options = ["-d", "bench", "--data", str(folder / "data"), "--scores", str(folder / "scored.csv"), "--json"]
    inputs = [word for name in names for word in ("-m", name)]
    for words, limits in ((["compare", *names], (None, 250)), (["train", "combination", *inputs], (20, 250))):
        what = f"{' '.join(words[: 1 if limits[0] is None else 2])}, {len(names)} metrics, {count:,} ratings"
        work = partial(command, [*_CAPBENCH, *words, *options], folder, CAPBENCH_CACHE=str(folder / "cache"))
        try:
            (run,) = least(work, repeats=1 if settings.full else settings.repeats)
        except MissingError as error:
            yield Row(what, missing=str(error))
            continue
        values = ((run.seconds, limits[0], "s"), (run.megabytes, limits[1], "MB"))
        goals = tuple(Goal(value, limit, unit) for value, limit, unit in values if limit)
        yield Row(what, run.seconds, megabytes=run.megabytes, goals=goals)
