"""``capbench metrics --check``, and a function as a metric of commands."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checked_here.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_one_line_a_check_and_exit_code_1_if_one_fails(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    ran = capbench("metrics", "--check", "checked_here:Silent")
    assert ran.code == 1
    (failed,) = (line for line in ran.out.splitlines() if line.startswith("failed"))
    assert failed.startswith("failed  statistics: progress of 0 items for 10")
    answer = found("metrics", "--check", "checked_here:overlap")
    assert answer["metric"] == "checked_here:overlap"
    assert {check["state"] for check in answer["checks"]} == {"passed", "skipped"}
    assert {"name", "promise", "state", "seen", "advice"} == set(answer["checks"][0])


def test_a_function_is_a_metric_of_every_command(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    import capbench as package

    metrics = ("-m", "checked_here:overlap", "-m", "mine=checked_here:overlap")
    answer = found("correlate", "-d", "flickr8k-expert", *metrics)
    values = {cell["label"]: cell["value"] for cell in answer["cells"]}
    function = importlib.import_module("checked_here").overlap
    value = package.correlate("flickr8k-expert", metrics=[function], data="sample").value("overlap")
    assert values == {"overlap": value, "mine": value}
    assert "overlap" in capbench("metrics", "checked_here:overlap").out


@pytest.mark.parametrize(
    "command",
    [
        "score -d flickr8k-expert -m noisy:letters",
        "correlate -d pascal-50s -m noisy:letters --references-curve --counts 1 --draws 1",
        "explore retrieve -m noisy:letters",
        "metrics --check noisy:letters",
    ],
)
def test_what_a_metric_prints_is_not_a_result(command: str, capbench: Callable[..., Ran]) -> None:
    source = "print('imported')\n\ndef letters(candidate):\n    print('called')\n    return len(candidate)\n"
    Path("noisy.py").write_text(source, encoding="utf-8")
    sys.modules.pop("noisy", None)
    ran = capbench(*command.split(), "--json")
    assert json.loads(ran.out)
    assert {"imported", "called"} <= set(ran.err.splitlines())
