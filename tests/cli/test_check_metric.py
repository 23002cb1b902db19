"""``capbench metrics --check``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

MODULE = """
from capbench import Metric
import numpy as np

def overlap(image, candidate, references):
    return float(len(set(candidate.split()) & set(" ".join(references).split())))

class Silent(Metric):
    name = "silent"
    columns = ("silent",)
    titles = {"silent": "Silent"}
    citation = "an example"

    def statistics(self, items, progress):
        return np.array([[float(len(item.candidate))] for item in items])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checked_here.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_one_line_a_check_and_exit_code_1_if_one_fails(capbench: Callable[..., Ran], folder: Path) -> None:
    ran = capbench("metrics", "--check", "checked_here:Silent")
    lines = ran.out.splitlines()
    assert ran.code == 1
    assert [line for line in lines if line.startswith("failed")] == [lines[3]]
    assert lines[3].startswith("failed  progress: ")
    assert len(lines) == 15


def test_json_holds_every_check_of_a_function(capbench: Callable[..., Ran], folder: Path) -> None:
    ran = capbench("metrics", "--check", "checked_here:overlap", "--json")
    found = json.loads(ran.out)
    assert found["metric"] == "checked_here:overlap"
    assert {check["state"] for check in found["checks"]} == {"passed", "skipped"}
    assert {"name", "promise", "state", "seen", "advice"} == set(found["checks"][0])


def test_what_is_missing_is_one_line(capbench: Callable[..., Ran]) -> None:
    ran = capbench("metrics", "--check", "tiger")
    assert ran.code == 2
    assert "--features" in ran.err
