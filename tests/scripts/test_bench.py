"""Benches: the form of their rows, repeated processes, one bench that fails among others, stored rows."""

from __future__ import annotations

import ast
import functools
import math
from pathlib import Path

import pytest

from capbench.core.files import read_json
from scripts.bench import __main__ as runner
from scripts.bench import ngrams
from scripts.bench.common import Goal, Row, between
from scripts.result_tables import ROOT

CAPTIONS = ngrams.generated(10, 2, 3)
MISSED = Goal(300.0, 250.0, "MB")
LONG = Row("a very long task " * 5, 1.5, "a peer with a long name " * 5, 3.0, 1_234.5, 1e-12, (MISSED,), "why " * 40)


@pytest.mark.parametrize("name", runner.names())
def test_every_bench_yields_rows(name: str) -> None:
    tree = ast.parse((ROOT / "scripts" / "bench" / f"{name}.py").read_text(encoding="utf-8"))
    assert "measure" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_two_sides_run_in_processes_and_their_outputs_are_compared() -> None:
    row = between("task", "peer", ngrams.ours, ngrams.theirs, CAPTIONS, repeats=1, tolerance=1e-9, times=1000)
    assert None not in (row.difference, row.theirs, row.ours, row.megabytes)
    assert row.difference < 1e-9  # type: ignore[operator]
    assert row.theirs > row.ours > 0  # type: ignore[operator]
    assert row.megabytes > 10  # type: ignore[operator]
    assert row.missing == ""


def test_unequal_outputs_give_no_numbers() -> None:
    row = between("task", "peer", ngrams.ours, ngrams.our_sweep, CAPTIONS, repeats=1, tolerance=-1.0)
    assert (row.ours, row.theirs, row.ratio) == (None, None, None)
    assert row.missing


def test_a_peer_that_fails_leaves_our_side_and_the_reason() -> None:
    row = between("task", "peer", functools.partial, math.sqrt, sum, [1, 2], repeats=1)  # type: ignore[arg-type]
    assert row.ours is not None
    assert row.theirs is None
    assert "TypeError" in row.missing


def test_rows_of_a_bench_are_replaced_and_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "small.json"
    runner.store(file, "b", [Row("first", 1.0)])
    runner.store(file, "a", [LONG])
    runner.store(file, "b", [Row("second", 2.0)])
    stored = read_json(file)
    assert list(stored) == ["a", "b"]
    assert [Row.of(entry) for entry in stored["a"]["rows"]] == [LONG]
    assert [entry["what"] for entry in stored["b"]["rows"]] == ["second"]
    assert {"date", "machine", "versions"} < set(stored["a"])
