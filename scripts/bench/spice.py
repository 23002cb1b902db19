"""Time of SPICE: the first run, which parses; a later run, which finds everything parsed; the original.

Run: python -m scripts.bench.spice --data DIR [--items N] [--original]

The parser must be set up ('capbench doctor --install spice'). The first run has an empty cache. ``--original``
runs SPICE 1.0's own classes on the same items in the same way as its program does (every occurrence of a caption is
parsed, with all annotators), which takes minutes; its counts are compared with ours.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np

from capbench import __version__
from capbench.core.records import FloatArray, Item
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import find_root
from capbench.metrics.spice import Spice
from capbench.text import ptb
from capbench.text.java import find_java, run_batch
from capbench.text.spice import parser as spice
from capbench.text.spice import scene_graph
from capbench.text.spice.parser import SPICE_FILES, class_path, spice_folder

_SCRIPT = Path(__file__).with_name("spice_original.js")


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="folder of the data sets; default: CAPBENCH_DATA")
    arguments.add_argument("--items", type=int, help="only the first N items of Flickr8k Expert")
    arguments.add_argument("--original", action="store_true", help="also run the original")
    chosen = arguments.parse_args()
    dataset = Flickr8kExpert(find_root(chosen.data))
    judgements = dataset.load(dataset.selections[dataset.default[0]])[0]
    items = list(dict.fromkeys(judgements.items))[: chosen.items]
    texts = [text for item in items for text in (item.candidate, *item.references)]
    ptb.tokenize(texts)
    print(f"capbench {__version__}, Java {find_java().version}, {platform.machine()}, {os.cpu_count()} cores")
    print(f"{len(items):,} items of Flickr8k Expert, {len(texts):,} captions, {len(set(texts)):,} of them distinct")

    installed = spice_folder()
    with tempfile.TemporaryDirectory() as cache:
        folder = Path(cache) / "spice-parser"
        folder.mkdir()
        for file in SPICE_FILES:
            (folder / file.name).symlink_to(installed / file.name)
        before = os.environ.get("CAPBENCH_CACHE")
        os.environ["CAPBENCH_CACHE"] = cache
        before_s = _cpu_s()
        first, first_s = _score(items)
        spice.stop()
        first_cpu_s = _cpu_s() - before_s
        scene_graph.forget()
        _, later_s = _score(items)
        if before is None:
            del os.environ["CAPBENCH_CACHE"]
        else:
            os.environ["CAPBENCH_CACHE"] = before
    print(f"first run   {first_s:8.1f} s, {first_cpu_s:.0f} s of processor time")
    print(f"later run   {later_s:8.2f} s")
    if chosen.original:
        before_s = _cpu_s()
        counts, original_s = _original(items)
        differing = int((counts != first).any(axis=1).sum())
        cpu_s = _cpu_s() - before_s
        print(f"original    {original_s:8.1f} s, {cpu_s:.0f} s of processor time")
        print(f"ratio of processor time, first run: {cpu_s / first_cpu_s:.1f}")
        print(f"items whose counts differ: {differing}")
        if differing:
            raise SystemExit("the two sides do not give the same counts")


def _cpu_s() -> float:
    """Processor seconds of this process and of its children that have ended, user and system."""
    return sum(os.times()[:4])


def _score(items: list[Item]) -> tuple[FloatArray, float]:
    start = time.perf_counter()
    metric = Spice()
    metric.open(items)
    counts = metric.statistics(items, lambda _: None)
    return counts, time.perf_counter() - start


def _original(items: list[Item]) -> tuple[FloatArray, float]:
    candidates, references = Spice().tokenize(items)
    request = json.dumps({"candidates": candidates, "references": references})
    start = time.perf_counter()
    answer = run_batch(
        ["-Xmx4g", "-cp", class_path(spice_folder()), "org.mozilla.javascript.tools.shell.Main", str(_SCRIPT)],
        request + "\n",
        name="SPICE 1.0",
        folder=spice_folder(),
        timeout_s=7200.0,
    )
    return np.array(json.loads(answer), dtype=np.float64), time.perf_counter() - start


if __name__ == "__main__":
    main()
