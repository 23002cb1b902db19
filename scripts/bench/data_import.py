"""Imported judgements: the import compared with Python's csv module, opening them, memory, very many ratings.

The table has three raters for each of ten candidates of an image and five references a row. The plain way reads all
cells, converts ratings and groups them by candidate, without a check. The full size correlates ten million ratings.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.common import Goal, MissingError, Row, Settings, Work, between, command
from scripts.bench.inputs import write_ratings

_CAPBENCH = [sys.executable, "-m", "capbench"]
Rated = dict[tuple[str, str, str], tuple[tuple[str, ...], list[float]]]
"""References and ratings by (image, candidate id, text)."""


def ours(table: Path) -> Work:
    """Import into an empty folder with an empty cache, then load."""
    from capbench.datasets.root import DataRoot
    from capbench.datasets.user.judgements import import_file

    def work() -> Rated:
        with tempfile.TemporaryDirectory(dir=table.parent) as name:
            os.environ["CAPBENCH_CACHE"] = str(Path(name) / "cache")
            made = import_file(table, "bench", DataRoot(Path(name) / "data", False, "bench"), scale=(1, 5))
            judgements = made.load(made.protocol().items)[0]
        rated: Rated = {(i.image, i.candidate_id, i.candidate): (i.references, []) for i in judgements.items}
        by_item, ratings = list(rated.values()), judgements.ratings["rating"]
        for item, value in zip(ratings.item.tolist(), ratings.value.tolist(), strict=True):
            by_item[item][1].append(value)
        return rated

    return work


def plain(table: Path) -> Work:
    """Read without a check."""

    def work() -> Rated:
        rated: Rated = {}
        with table.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                key = (row["image"].removesuffix(".jpg"), row["candidate_id"], row["candidate"])
                references = tuple(row[f"reference_{i}"] for i in range(1, 6))
                rated.setdefault(key, (references, []))[1].append(float(row["rating"]))
        return rated

    return work


_OPEN = """
import json, sys, time, tracemalloc
from pathlib import Path
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot

def opened():
    dataset = open_dataset("bench", DataRoot(Path(sys.argv[1]), False, "bench"))
    return dataset, dataset.load(dataset.protocol().items)[0]

begin = time.process_time()
result = opened()
seconds = time.process_time() - begin
del result
tracemalloc.start()
dataset, judgements = opened()
size = tracemalloc.get_traced_memory()[0]
texts = {text for i in judgements.items for text in (i.image, i.candidate, i.candidate_id, *i.references)}
beyond = (size - sum(map(sys.getsizeof, texts))) / sum(map(len, judgements.ratings.values()))
print(json.dumps([seconds, beyond]))
"""


def imported(folder: Path, count: int) -> tuple[Path, Row]:
    """The data folder of an import by the command, and its row."""
    table, data = folder / f"{count}.csv", folder / f"data-{count}"
    write_ratings(table, count)
    data.mkdir()
    words = [*_CAPBENCH, "data", "import", str(table), "--name", "bench", "--scale", "1-5", "--data", str(data)]
    run = command(words, folder, CAPBENCH_CACHE=str(folder / "cache"))
    table.unlink()
    return data, Row(f"data import, {count:,} ratings", run.seconds, megabytes=run.megabytes)


def opening(folder: Path, count: int, repeats: int) -> Iterator[Row]:
    """Opening with and without the cache of parsed tables; bytes a rating beyond the texts."""
    data, _ = imported(folder, count)
    cache = data.parent / "cache"
    words = [sys.executable, "-c", _OPEN, str(data)]
    shutil.rmtree(cache, ignore_errors=True)
    for title, runs in (("no cache", 1), ("cached", repeats + 1)):
        times, beyond = zip(
            *(json.loads(command(words, data.parent, CAPBENCH_CACHE=str(cache)).result) for _ in range(runs)),
            strict=True,
        )
        goals = () if title == "no cache" else (Goal(min(times), 0.3, "s"), Goal(min(beyond), 150, "bytes a rating"))
        yield Row(f"opening {count:,} imported ratings, {title}", min(times), goals=goals)


def many(folder: Path, count: int, _: int) -> Iterator[Row]:
    """Import and ``correlate`` of a large data set."""
    data, row = imported(folder, count)
    yield row
    words = [*_CAPBENCH, "correlate", "-d", "bench", "-m", "bleu-4", "--data", str(data), "--json"]
    run = command(words, folder, CAPBENCH_CACHE=str(folder / "cache"))
    goals = (Goal(run.megabytes / 1000, 8, "GB"),) if count == 10_000_000 else ()
    yield Row(f"correlate BLEU-4, {count:,} ratings", run.seconds, megabytes=run.megabytes, goals=goals)


def measure(settings: Settings) -> Iterator[Row]:
    """Import, opening, and a very large import."""
    folder, count, repeats = settings.folder, settings.pick(20_000, 100_000), settings.repeats
    write_ratings(folder / "ratings.csv", count)
    what = f"import and load, {count:,} ratings"
    yield between(what, "csv module, no checks", ours, plain, folder / "ratings.csv", repeats=repeats, inner=2)
    for number, work in ((160_000, opening), (settings.pick(100_000, 10_000_000), many)):
        try:
            yield from work(folder, number, repeats)
        except MissingError as error:
            yield Row(f"{number:,} imported ratings", missing=str(error))
