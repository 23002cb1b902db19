"""``capbench metrics --check``."""

from __future__ import annotations

import importlib
import json
import sys
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
    (failed,) = (line for line in lines if line.startswith("failed"))
    assert failed.startswith("failed  statistics: progress of 0 items for 10")


def test_a_function_is_a_metric_of_every_command(capbench: Callable[..., Ran], folder: Path) -> None:
    import capbench as package

    metrics = ("-m", "checked_here:overlap", "-m", "mine=checked_here:overlap")
    answer = json.loads(capbench("correlate", "-d", "flickr8k-expert", *metrics, "--json").out)
    values = {cell["label"]: cell["value"] for cell in answer["cells"]}
    function = importlib.import_module("checked_here").overlap
    result = package.correlate("flickr8k-expert", metrics=[function], data="sample")
    assert values == {"overlap": result.value("overlap"), "mine": result.value("overlap")}
    compared = json.loads(capbench("compare", "checked_here:overlap", "bleu-1", "--bootstrap=100", "--json").out)
    assert {cell["label"]: cell["value"] for cell in compared["cells"]}["overlap"] == values["overlap"]
    assert "overlap" in capbench("metrics", "checked_here:overlap").out


def test_json_holds_every_check_of_a_function(capbench: Callable[..., Ran], folder: Path) -> None:
    ran = capbench("metrics", "--check", "checked_here:overlap", "--json")
    found = json.loads(ran.out)
    assert found["metric"] == "checked_here:overlap"
    assert {check["state"] for check in found["checks"]} == {"passed", "skipped"}
    assert {"name", "promise", "state", "seen", "advice"} == set(found["checks"][0])


@pytest.mark.parametrize(
    "command",
    [
        "score -d flickr8k-expert -m noisy:letters --json",
        "correlate -d pascal-50s -m noisy:letters --references-curve --counts 1 --draws 1 --json",
        "explore retrieve -m noisy:letters --json",
        "metrics --check noisy:letters --json",
    ],
)
def test_what_a_metric_prints_is_not_a_result(
    command: str, capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "print('imported')\n\ndef letters(candidate):\n    print('called')\n    return len(candidate)\n"
    (tmp_path / "noisy.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("noisy", None)
    ran = capbench(*command.split())
    assert json.loads(ran.out)
    assert {"imported", "called"} <= set(ran.err.splitlines())
