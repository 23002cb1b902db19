"""pycocoevalcap's evaluation with capbench's classes, compared with its own; without SPICE, starts of Java included."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from capbench.core.errors import ToolError
from capbench.core.records import Item
from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import expert


class _NoSpice:
    """In place of SPICE, whose parser alone takes minutes."""

    def method(self) -> str:
        return "SPICE"

    def compute_score(self, gts: Any, res: Any) -> tuple[float, list[float]]:
        raise ToolError("SPICE is not measured")


def _evaluation(kind: Any, items: Sequence[Item]) -> Work:
    """Evaluates items as images of COCO; returns the scores of the corpus and of every image."""
    texts = {number: [{"caption": text} for text in item.references] for number, item in enumerate(items)}
    coco = SimpleNamespace(imgToAnns=texts, getImgIds=lambda: list(texts))
    results = SimpleNamespace(imgToAnns={number: [{"caption": item.candidate}] for number, item in enumerate(items)})

    def work() -> object:
        evaluation = kind(coco, results)
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation.evaluate()
        names = [name for name in evaluation.eval if name != "SPICE"]
        rows = [[of_image[name] for name in names] for of_image in [evaluation.eval, *evaluation.evalImgs]]
        return np.array(rows, dtype=np.float64)

    return work


def ours(items: Sequence[Item]) -> Work:
    """capbench.coco."""
    import warnings

    from capbench import coco

    warnings.simplefilter("ignore")
    vars(coco)["Spice"] = _NoSpice
    return _evaluation(coco.COCOEvalCap, items)


def theirs(items: Sequence[Item]) -> Work:
    """pycocoevalcap."""
    from capbench.text.java import find_java

    os.environ["PATH"] = f"{find_java().path.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    from pycocoevalcap import eval as original

    class Silent(_NoSpice):
        def compute_score(self, gts: Any, res: Any) -> tuple[float, list[float]]:
            return 0.0, [0.0] * len(gts)

    vars(original)["Spice"] = Silent
    return _evaluation(original.COCOEvalCap, items)


def measure(settings: Settings) -> Iterator[Row]:
    """The evaluation of judged captions."""
    name, items = expert(settings.data)
    items = items[: settings.pick(500, 5_664)]
    what = f"COCOEvalCap without SPICE; {name}, {len(items):,} × 5"
    yield between(what, "pycocoevalcap", ours, theirs, items, repeats=settings.repeats, tolerance=1e-9)
