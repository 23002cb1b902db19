"""SPICE with an empty cache, compared with SPICE 1.0 itself.

The parser must be installed (``capbench doctor --install spice``). The peer runs SPICE 1.0's classes on the same items
as its program does: every occurrence of a caption is parsed, with all annotators. The full size takes minutes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from capbench.core.errors import CapbenchError
from capbench.core.records import Item
from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import expert

_SCRIPT = Path(__file__).with_name("spice_original.js")


def ours(folder: Path, installed: Path, items: Sequence[Item]) -> Work:
    """Counts from an empty cache: parses every distinct caption."""
    cache = Path(tempfile.mkdtemp(dir=folder))
    (cache / "spice-parser").mkdir()
    for file in installed.iterdir():
        (cache / "spice-parser" / file.name).symlink_to(file)
    os.environ["CAPBENCH_CACHE"] = str(cache)
    from capbench.metrics.spice import Spice

    def work() -> object:
        metric = Spice()
        metric.open(items)
        return metric.statistics(items, lambda _: None)

    return work


def theirs(_: Path, installed: Path, items: Sequence[Item]) -> Work:
    """Counts by SPICE 1.0."""
    from capbench.metrics.spice import Spice
    from capbench.text.java import run_lines
    from capbench.text.spice.parser import class_path

    candidates, references = Spice().tokenize(items)
    request = json.dumps({"candidates": candidates, "references": references})
    words = ["-Xmx4g", "-cp", class_path(installed), "org.mozilla.javascript.tools.shell.Main", str(_SCRIPT)]

    def work() -> object:
        (answer,) = run_lines(words, [request], name="SPICE 1.0", folder=installed, timeout_s=7200.0)
        return np.array(json.loads(answer), dtype=np.float64)

    return work


def measure(settings: Settings) -> Iterator[Row]:
    """SPICE of the first items."""
    from capbench.text.spice.parser import spice_folder

    name, items = expert(settings.data)
    items = items[: settings.pick(10, 100)]
    texts = [text for item in items for text in (item.candidate, *item.references)]
    what = f"SPICE; {name}, {len(items)} items, {len(texts)} captions, {len(set(texts))} distinct"
    try:
        installed = spice_folder()
    except CapbenchError as error:
        yield Row(what, peer="SPICE 1.0", missing=str(error))
        return
    yield between(what, "SPICE 1.0", ours, theirs, settings.folder, installed, items, repeats=1)
