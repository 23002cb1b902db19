"""Importing judgements: ``capbench data import`` beside reading the same table with Python's csv module.

The table is generated: three raters for each of ten candidates of an image, five references a row. The plain way reads
all cells, turns ratings into numbers and groups them by candidate, and checks nothing. Both are measured in processor
time of this process, and must give the same candidates, references and ratings.

The imported file is then opened twice in processes of their own: without a cached table, so that all rows are read and
checked, and with one. Sizes are those of the Python objects beyond the distinct texts, and the peak of the process.

Example: python scripts/bench/data_import.py --ratings 100000
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from capbench.core.records import Judgements
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgements import import_file

_WORDS = "a the dog cat man woman runs sits on grass red blue ball field with two three boats lake kite hill"

T = TypeVar("T")
Rated = dict[tuple[str, str, str], tuple[tuple[str, ...], list[float]]]


def write_table(path: Path, ratings: int, seed: int = 0) -> None:
    """A CSV file with so many ratings."""
    rng, words = random.Random(seed), _WORDS.split()

    def caption() -> str:
        return " ".join(rng.choices(words, k=rng.randint(8, 14)))

    def rows() -> list[list[object]]:
        table: list[list[object]] = []
        for image in itertools.count():
            references = [caption() for _ in range(5)]
            for candidate, text in enumerate(caption() for _ in range(10)):
                for rater in range(3):
                    if len(table) == ratings:
                        return table
                    rating = rng.randint(1, 5)
                    table.append([f"{image}.jpg", text, *references, rating, f"rater-{rater}", f"{image}-{candidate}"])
        return table

    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["image", "candidate", *(f"reference_{i}" for i in range(1, 6)), "rating", "rater", "candidate_id"]
        )
        writer.writerows(rows())


def plain(path: Path) -> Rated:
    """References and ratings by (image, candidate id, text), read without a check."""
    rated: Rated = {}
    with open(path, newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            key = (row["image"].removesuffix(".jpg"), row["candidate_id"], row["candidate"])
            references = tuple(row[f"reference_{i}"] for i in range(1, 6))
            rated.setdefault(key, (references, []))[1].append(float(row["rating"]))
    return rated


def as_plain(judgements: Judgements) -> Rated:
    """The imported judgements, in the form of the plain way."""
    rated: Rated = {(item.image, item.candidate_id, item.candidate): (item.references, []) for item in judgements.items}
    by_item = list(rated.values())
    ratings = judgements.ratings["rating"]
    for item, value in zip(ratings.item.tolist(), ratings.value.tolist(), strict=True):
        by_item[item][1].append(value)
    return rated


def seconds(work: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Shortest processor time of some runs, and the result of the last one."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        result = work()
        times.append(time.process_time() - started)
    return min(times), result


_OPEN = """
import json, re, sys, time, tracemalloc
from pathlib import Path
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot

def opened():
    dataset = open_dataset("benchmark", DataRoot(Path(sys.argv[1]), False, "benchmark"))
    return dataset, dataset.load(dataset.protocol().items)[0]

begin = time.process_time()
result = opened()
seconds = time.process_time() - begin
# Not ru_maxrss, which a process inherits from the one that starts it.
peak = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024 / 1e6
del result
tracemalloc.start()
dataset, judgements = opened()
size = tracemalloc.get_traced_memory()[0]
texts = {text for i in judgements.items for text in (i.image, i.candidate, i.candidate_id, *i.references)}
beyond = (size - sum(map(sys.getsizeof, texts))) / sum(map(len, judgements.ratings.values()))
print(json.dumps([seconds, peak, beyond]))
"""


def opening(folder: Path, cached: bool) -> list[float]:
    """Seconds, peak in MB, and bytes per rating of opening the imported file in a new process."""
    cache = folder / "cache"
    if not cached:
        shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-c", _OPEN, str(folder / "data")]
    done = subprocess.run(command, env={**os.environ, "CAPBENCH_CACHE": str(cache)}, capture_output=True, check=True)
    numbers: list[float] = json.loads(done.stdout)
    return numbers


def main() -> None:
    """Run both, compare what they read, and print a line of Markdown."""
    parser = argparse.ArgumentParser(description="Speed of data import")
    parser.add_argument("--ratings", type=int, default=100_000, help="rows of the table (default 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the shortest counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CAPBENCH_CACHE"] = str(folder / "cache")
        table, root = folder / "ratings.csv", DataRoot(folder / "data", False, "benchmark")
        write_table(table, arguments.ratings)

        def ours() -> Judgements:
            shutil.rmtree(folder / "cache", ignore_errors=True)
            made = import_file(table, "benchmark", root, replace=True, scale=(1, 5))
            return made.load(made.protocol().items)[0]

        plain_time, read = seconds(lambda: plain(table), arguments.repeats)
        our_time, judgements = seconds(ours, arguments.repeats)
        megabytes = table.stat().st_size / 1e6
        opened = [opening(folder, cached=False), *(opening(folder, cached=True) for _ in range(arguments.repeats))]
    if as_plain(judgements) != read:
        raise SystemExit("the two ways disagree")
    print(f"{platform.machine()}, Python {platform.python_version()}; processor time\n")
    print("| ratings | file | capbench: read, check, keep, load | csv: read and group | ratio |\n|---|---|---|---|---|")
    print(
        f"| {arguments.ratings:,} | {megabytes:.0f} MB | {our_time:.2f} s | {plain_time:.2f} s "
        f"| {our_time / plain_time:.1f} |\n"
    )
    print("| opening it | time | peak | beyond the texts |\n|---|---|---|---|")
    for title, (spent, peak, beyond) in (("read and check", opened[0]), ("from the cache", min(opened[1:]))):
        print(f"| {title} | {spent:.2f} s | {peak:.0f} MB | {beyond:.0f} bytes a rating |")


if __name__ == "__main__":
    main()
