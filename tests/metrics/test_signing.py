"""User-defined metrics are signed with their source, so that a changed metric does not get old scores."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import capbench
from capbench.core.errors import CapbenchWarning
from capbench.core.options import Choice, Flag
from capbench.core.records import Item, ScoreColumn
from capbench.metrics.base import Metric
from capbench.metrics.registry import metric_names
from capbench.metrics.requests import metric_class, resolve_metrics
from capbench.metrics.scoring import score
from capbench.metrics.signing import code_signature

ITEMS = (Item("i1", "a dog", ("the dog",)), Item("i2", "two cats", ("cats",)))

SOURCE = """
import numpy as np
from capbench.metrics.base import Metric
from helper_of_own import FACTOR

class Own(Metric):
    name = "own"
    columns = ("own",)
    titles = {"own": "Own"}
    citation = "nobody"

    def statistics(self, items, progress):
        progress(len(items))
        return np.array([[FACTOR * float(len(item.candidate))] for item in items])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # Bytecode counts as new if its source was changed in the same second and has the same size.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    _forget()


def _forget() -> None:
    for name in ("own_metric", "other_metric", "helper_of_own", "packed_own", "packed_own.metric", "packed_own.rest"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    code_signature.cache_clear()


def _write(folder: Path, module: str = "own_metric", factor: int = 1, source: str = SOURCE) -> None:
    _forget()
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    (folder / "helper_of_own.py").write_text(f"FACTOR = {factor}\n", encoding="utf-8")


def _values(name: str) -> tuple[list[float], int]:
    table = score(ITEMS, resolve_metrics([name]), dataset="x")
    return table.values[ScoreColumn("own", "own")].tolist(), table.cached["own"]


def test_a_changed_module_that_it_imports_is_changed_code(folder: Path) -> None:
    _write(folder)
    _values("own_metric:Own")
    _write(folder, factor=3)
    assert _values("own_metric:Own") == ([15, 24], 0)


def test_code_without_a_source_is_never_cached() -> None:
    namespace: dict[str, type[Metric]] = {"__name__": "typed_in"}  # type: ignore[dict-item]
    exec(SOURCE.replace("from helper_of_own import FACTOR", "FACTOR = 1"), namespace)
    own = namespace["Own"]
    assert code_signature(own) is None
    from capbench.metrics.metric_request import MetricRequest

    for _ in range(2):
        with pytest.warns(CapbenchWarning, match="own"):
            table = score(ITEMS, [MetricRequest(own, own.columns)], dataset="x")
        assert table.cached == {"own": 0}
        assert "code:Own@unknown" in table.signatures["own"]


def _cider_of(checkout: Path) -> tuple[float, bool]:
    """The CIDEr of a file under the code in a folder, and True if scores came from the cache."""
    (checkout / "items.json").write_text('{"a": "a dog runs", "b": "two men talk"}', encoding="utf-8")
    (checkout / "references.json").write_text('{"a": ["a dog is running"], "b": ["men talk"]}', encoding="utf-8")
    words = ["score", "--candidates", "items.json", "--references", "references.json", "-m", "cider", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "capbench", *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)["scores"][0]["corpus"], "came from the cache" in ran.stderr


def test_an_edited_formula_in_a_checkout_is_scored_anew(tmp_path: Path) -> None:
    package = tmp_path / "capbench"
    shutil.copytree(Path(capbench.__file__).parent, package, ignore=shutil.ignore_patterns("sample*"))
    before, cached = _cider_of(tmp_path)
    assert not cached
    ngram = package / "metrics" / "ngram.py"
    source = ngram.read_text(encoding="utf-8")
    ngram.write_text(source.replace("return cider_d(", "return 2 * cider_d("), encoding="utf-8")
    assert _cider_of(tmp_path) == (2 * before, False)
    (package / "metrics" / "meteor.py").write_text("", encoding="utf-8")  # not a part of CIDEr
    assert _cider_of(tmp_path) == (2 * before, True)


def test_every_signed_value_of_an_option_changes_the_signature() -> None:
    for name in metric_names():
        options = metric_class(name).option_type()
        for declared in options.declared():
            kind, default = declared.kind, declared.default
            values: list[Any] = [2 * default or 1] if isinstance(default, int | float) else []
            if isinstance(kind, Choice):
                values = [choice for choice in kind.choices if default not in (None, choice)]
            if isinstance(kind, Flag):
                values = [not default]
            for value in values if declared.sign_as != "" else []:
                changed = replace(options, **{declared.name: value})
                assert changed.signature_parts() != options.signature_parts(), (name, declared.name, value)
