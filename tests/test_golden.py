"""The commands give the numbers that they gave: a stored number changes only on purpose.

``python scripts/golden.py write-tests`` makes the stored numbers anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.golden import TESTS
from scripts.golden_commands import SAMPLE, Command, with_needed, write_inputs
from scripts.golden_numbers import compare_numbers, in_tests, stored, titles_of
from tests.conftest import Ran

Run = Callable[..., Ran]


class Answers:
    """What commands answered in one folder; each runs once."""

    def __init__(self, folder: Path) -> None:
        write_inputs(folder)
        self.folder = folder
        self._payloads: dict[str, Any] = {}

    def get(self, name: str, capbench: Run) -> Any:
        """The JSON of a command of this name; what it needs runs before."""
        for command in with_needed(SAMPLE, [name]):
            if command.name not in self._payloads:
                ran = capbench(*command.arguments)
                assert ran.code == command.code, ran.err
                self._payloads[command.name] = json.loads(ran.out)
        return self._payloads[name]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Answers(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("command", [pytest.param(command, id=command.name) for command in in_tests()])
def test_no_number_changes(
    command: Command, answers: Answers, capbench: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(answers.folder)
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        titles = titles_of(answers.get(command.titles, capbench))
        now = stored(command, answers.get(command.name, capbench), titles)
    finally:
        torch.set_num_threads(threads)
    then = json.loads((TESTS / f"{command.name}.json").read_text(encoding="utf-8"))
    assert now["structure"] == then["structure"]
    exact = not command.networks or now["rounding"] == then["rounding"]
    assert compare_numbers(then["numbers"], now["numbers"], exact=exact) == []


def test_a_changed_number_is_noticed() -> None:
    then = {"cells": {"protocol=a, column=cider": {"value": 0.5, "n": 9, "p_value": 0.25}}, "list": [1, 2.0]}
    assert compare_numbers(then, then, exact=True) == []
    for now in (
        {"cells": {"protocol=a, column=cider": {"value": 0.5 + 1e-11, "n": 9, "p_value": 0.25}}, "list": [1, 2.0]},
        {"cells": {"protocol=a, column=meteor": {"value": 0.5, "n": 9, "p_value": 0.25}}, "list": [1, 2.0]},
        {"cells": {"protocol=a, column=cider": {"value": 0.5, "n": 9}}, "list": [1, 2.0]},
        {"cells": {"protocol=a, column=cider": {"value": 0.5, "n": 9, "p_value": 0.25}}, "list": [1]},
    ):
        assert compare_numbers(then, now, exact=True)
    apart = {"value": 0.6, "p_value": 0.5}
    assert compare_numbers({"value": 0.5, "p_value": 0.25}, apart, exact=False) == [
        "/value: 0.5 is stored, 0.6 came out"
    ]
