"""METEOR: the engine without Java beside pycocoevalcap and its jar.

Every measurement runs in a fresh child process, one after the other, on the same captions, which are PTB tokens
already. By default the captions are those of the embedded sample's Flickr8k part, as often as requested
(distinct pairs are scored once by the engine without Java, so its figures hold for captions without repeats only with
``--data``, which reads Flickr8k Expert). The times leave out what is done once: the start of Java with its 60 MB of
paraphrases, and the first making of the table that replaces them; both are told beside.

Example: python scripts/bench/meteor.py --data DIR
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Captions = tuple[list[str], list[list[str]]]
_WARM: Captions = (["a dog runs"], [["a cat sits"]])


def published(data: str | None, dataset: str, items: int | None) -> Captions:
    """Candidates and references of a data set under its default protocol, tokenised."""
    from capbench.core import plugins
    from capbench.datasets.root import find_root
    from capbench.text.ptb import tokenize

    kind = plugins.load("capbench.datasets", dataset)
    chosen = kind(find_root(data or "sample")).load(kind.protocol().items)[0].items[:items]
    texts = list(dict.fromkeys(text for item in chosen for text in (item.candidate, *item.references)))
    tokens = dict(zip(texts, tokenize(texts), strict=True))
    return [tokens[item.candidate] for item in chosen], [[tokens[text] for text in item.references] for item in chosen]


def original() -> Callable[[Captions], list[float]]:
    """pycocoevalcap: one caption asked and answered after the other."""
    from capbench.text.java import find_java

    os.environ["PATH"] = f"{find_java().path.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()

    def run(captions: Captions) -> list[float]:
        candidates, references = captions
        asked = {i: [text] for i, text in enumerate(candidates)}
        return [float(x) for x in scorer.compute_score(dict(enumerate(references)), asked)[1]]

    return run


def pipelined() -> Callable[[Captions], list[float]]:
    """The same jar, asked in batches."""
    from capbench.text.java import LineProcess, meteor_jar

    jar = meteor_jar()
    arguments = ["-jar", jar.path.name, "-", "-", "-stdio", "-l", "en", "-norm"]
    process = LineProcess(arguments, name="METEOR", folder=jar.path.parent)

    def run(captions: Captions) -> list[float]:
        lines = [" ||| ".join(["SCORE", *group, text]) for text, group in zip(*captions, strict=True)]
        values: list[float] = []
        for start in range(0, len(lines), 500):
            counts = process.ask(lines[start : start + 500])
            answers = process.ask([" ||| ".join(["EVAL", *counts])], answers=len(counts) + 1)
            values += map(float, answers[:-1])
        return values

    return run


def native(workers: int) -> Callable[[Captions], list[float]]:
    """The engine without Java."""
    from capbench.text.meteor import meteor_scores, meteor_statistics

    def run(captions: Captions) -> list[float]:
        return [float(x) for x in meteor_scores(meteor_statistics(*captions, workers=workers))]

    return run


def engine(name: str) -> Callable[[Captions], list[float]]:
    """Start an engine by name."""
    if name == "pycocoevalcap":
        return original()
    if name == "jar, in batches":
        return pipelined()
    return native(int(name.rpartition(" ")[2]))


def _child(name: str, captions: Captions, pipe: Any) -> None:
    begin = time.perf_counter()
    run = engine(name)
    run(_WARM)
    ready = time.perf_counter()
    before = _processor_seconds()
    values = run(captions)
    spent = _processor_seconds() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _children_kilobytes()
    if name.startswith("native") and not name.endswith(" 1"):  # its workers have ended; all are as large as the largest
        memory += int(name.rpartition(" ")[2]) * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    pipe.send((ready - begin, spent, memory, values))
    pipe.close()
    os._exit(0)  # pycocoevalcap's own clean-up can wait for its Java for ever


def _processor_seconds() -> float:
    """User and system seconds of this process, its children that have ended, and those that still run (Linux only)."""
    ticks = 0
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    for pid in listed.stdout.split():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
        except OSError:  # the process that listed the others
            continue
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def _children_kilobytes() -> int:
    """Peak memory of the processes that this one has started and that still run (Linux only)."""
    total = 0
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    for pid in listed.stdout.split():
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as status:
                total += next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
        except OSError:
            continue
    return total


def measure(name: str, captions: Captions) -> tuple[float, float, float, list[float]]:
    """Seconds until ready, seconds for the captions, peak megabytes with child processes, scores."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(name, captions, send))
    child.start()
    send.close()
    start, seconds, kilobytes, values = receive.recv()
    child.join()
    return start, seconds, kilobytes / 1000, values


def table_seconds() -> float:
    """Seconds for making the paraphrase table in an empty cache."""
    code = (
        "import time; from capbench.text.meteor.paraphrases import paraphrase_table; t = time.perf_counter(); "
        "paraphrase_table(); print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code]
        environment = {**os.environ, "CAPBENCH_CACHE": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="folder of the published data; default: the embedded sample")
    parser.add_argument("--dataset", default="flickr8k-expert")
    parser.add_argument("--items", type=int, help="only the first N items")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of the parallel run")
    parser.add_argument("--repeats", type=int, default=2, help="runs of every engine, the least counts (default 2)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    captions = published(arguments.data, arguments.dataset, arguments.items)
    names = ["pycocoevalcap", "jar, in batches", "native, workers 1", f"native, workers {arguments.workers}"]
    rows = []
    expected: list[float] = []
    for name in dict.fromkeys(names):
        runs = [measure(name, captions) for _ in range(arguments.repeats)]
        start, seconds, megabytes, values = min(runs, key=lambda run: run[1])
        expected = expected or values
        worst = float(np.abs(np.array(values) - expected).max())
        rows.append({"engine": name, "start_s": start, "s": seconds, "mb": megabytes, "largest_difference": worst})
    if any(row["largest_difference"] for row in rows):
        raise SystemExit("the engines do not give the same scores")
    n = len(captions[0])
    if arguments.json:
        print(json.dumps({"items": n, "table_s": table_seconds(), "rows": rows}, indent=2))
        return
    print(f"{n} captions x {len(captions[1][0])} references, {platform.machine()}, {os.cpu_count()} processors,")
    print(f"Python {platform.python_version()}; the paraphrase table was made in {table_seconds():.1f} s, once\n")
    print("| engine | start s (wall) | CPU s | CPU ms a caption | ratio | peak MB | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        ratio = float(rows[0]["s"]) / float(row["s"])  # type: ignore[arg-type]
        print(
            f"| {row['engine']} | {row['start_s']:.1f} | {row['s']:.2f} | {1000 * float(row['s']) / n:.2f} "  # type: ignore[arg-type]
            f"| {ratio:.1f} | {row['mb']:.0f} | {row['largest_difference']:.0e} |"
        )


if __name__ == "__main__":
    main()
