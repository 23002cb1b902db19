"""The files between a metric and its equations: those whose functions run while a metric scores captions of the sample.

``python -m scripts.trace_score [METRIC ...]`` prints for each metric the number of files of ``capbench/metrics`` and
``capbench/text`` (tokenisers, n-grams, parses) that its ``statistics`` and ``scores`` run, their lines, and their names
in the order of the first calls. Networks have random weights. Metrics that need SPICE's parser require it.

``python -m scripts.trace_score --study NAME`` prints the files between the flags of ``capbench correlate NAME`` and its
tables: those of :data:`PATH` whose functions run, and the records of the whole study that are made, which hold its
protocols.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import capbench
from capbench.core import plugins
from capbench.metrics.registry import metric_names
from scripts.golden_columns import PARTS

ROOT = Path(capbench.__file__).parent
FOLDERS = (str(ROOT / "metrics"), str(ROOT / "text"))
METHODS = ("statistics", "scores", "combine_each")


@contextmanager
def traced(cls: type[Any], files: dict[str, None]) -> Iterator[None]:
    """Collect the files whose functions run in a metric's methods."""

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = event == "call" and code.co_name != "<module>"
        file = code.co_filename
        if is_function and file.startswith(FOLDERS) and not file.endswith("score_cache.py"):  # counts progress
            files[file] = None

    def watched(method: Any) -> Any:
        @wraps(method)
        def run(*given: Any, **named: Any) -> Any:
            before = sys.getprofile()
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                return method(*given, **named)
            finally:
                sys.setprofile(before)
                threading.setprofile(None)

        return run

    own = {name: getattr(cls, name) for name in METHODS if hasattr(cls, name)}
    defined = {name: vars(cls)[name] for name in own if name in vars(cls)}
    for name, method in own.items():
        setattr(cls, name, watched(method))
    try:
        yield
    finally:
        for name in own:
            delattr(cls, name)
        for name, method in defined.items():
            setattr(cls, name, method)


def trace(metric: str, folder: Path) -> list[Path]:
    """The files that scoring three captions of the sample runs, in the order of their first call."""
    part, label, options = next(
        (part, label, options)
        for part in PARTS.values()
        for label, (name, options) in reversed(part.requests.items())
        if name == metric
    )
    items = capbench.load("flickr8k-expert", data="sample").items[:3]
    given = part.files(folder, items)
    options = {**given.pop("options", {}), **options}
    if isinstance(given.get("model"), dict):
        given["model"] = {label: given["model"].get(label) or given["model"][metric]}
    files: dict[str, None] = {}
    with traced(plugins.load("capbench.metrics", metric), files):
        capbench.score(items, metrics={label: metric}, options={label: options}, cache=False, **given)
    return [Path(file) for file in files]


PATH = ("cli", "api", "studies", "reports")
"""Folders between flags and tables; data sets, metrics and statistics compute what a study names."""


def study_path(name: str) -> tuple[list[str], list[str]]:
    """Files and records of ``capbench correlate NAME`` on the sample, in the order of their first use."""
    files: dict[str, None] = {}
    records: dict[str, None] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        code, known = frame.f_code, frame.f_globals.get("__name__", "").split(".")
        if event != "call" or known[0] != "capbench" or known[1:2] == [] or known[1] not in PATH:
            return
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(ROOT)):  # not the body of a class
            files[code.co_filename] = None

    def counted(cls: type[Any]) -> None:
        init = cls.__init__

        @wraps(init)
        def make(self: Any, *given: Any, **named: Any) -> None:
            records[cls.__name__] = None
            init(self, *given, **named)

        cls.__init__ = make

    for module in pkgutil.walk_packages([str(ROOT)], "capbench."):
        if module.name.split(".")[1] in PATH:
            for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                fields = vars(cls).get("__annotations__", {})
                own = cls.__module__ == module.name and isinstance(fields, dict) and not hasattr(cls, "__total__")
                if own and ("protocols" in fields or "list" in str(fields.get("protocol", ""))):
                    counted(cls)
    sys.argv = ["capbench", "correlate", name, "--data", "sample"]
    sys.setprofile(note)
    try:
        importlib.import_module("capbench.cli.app").main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    return [str(Path(file).relative_to(ROOT)) for file in files], list(records)


def main(metrics: list[str]) -> None:
    if metrics[:1] == ["--study"]:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            files, records = study_path(metrics[1])
        print(f"\n{len(files)} files: {', '.join(files)}\n{len(records)} records: {', '.join(records)}")
        return
    print("| metric | metrics | text | lines | files |\n|---|--:|--:|--:|---|")
    for metric in metrics or metric_names():
        with tempfile.TemporaryDirectory() as folder:
            try:
                run = trace(metric, Path(folder))
            except capbench.CapbenchError as error:
                print(f"| {metric} | | | | not traced: {error.message} |")
                continue
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in run)
        names = [str(file.relative_to(ROOT)) for file in run]
        of_metrics = len([name for name in names if name.startswith("metrics")])
        count = f"{of_metrics} | {len(names) - of_metrics}"
        print(f"| {metric} | {count} | {lines:,} | {', '.join(names)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
