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
from scripts.golden_diff import differences, read_allowed
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


def test_every_stored_file_is_compared() -> None:
    assert {path.stem for path in TESTS.glob("*.json")} == {command.name for command in in_tests()}
    assert sum(path.stat().st_size for path in TESTS.glob("*.json")) < 200_000


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


def test_differences_are_told_by_what_they_are_of() -> None:
    before = {"cells": [{"column": "a", "value": 0.5}, {"column": "b", "value": 1}], "notes": ["one", "two"]}
    after = {"cells": [{"column": "b", "value": 1.0}, {"column": "a", "value": 0.5}], "notes": ["two"]}
    assert [str(difference) for difference in differences(before, after)] == [
        "cells[column=b].value: 1 → 1.0  (relative 0.0e+00)",
        "cells (order): column=a, column=b → column=b, column=a",
        "notes[0]: one → nothing",
    ]
    assert list(differences(before, before)) == []


def test_differences_that_are_meant_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "allowed.yaml"
    path.write_text(
        "renamed: [{from: '^REO', to: 'Reo', reason: titles}]\n"
        "allowed: [{command: 'corr.*', path: '.*value', within: 1.0e-9, reason: sums}]\n"
    )
    allowed = read_allowed(path)
    assert allowed.rename({"REO omission": ["REO", "a REO"]}) == {"Reo omission": ["Reo", "a REO"]}
    near, far = differences({"value": 1.0, "other": 1.0}, {"value": 1.0 + 1e-12, "other": 2.0})
    assert [allowed.allows("correlate", one) for one in (near, far)] == [True, False]
    assert not allowed.allows("compare", near)
    assert allowed.used == {"titles": 2, "sums": 1}
    path.write_text("allowed: [{command: 'corr.*', path: '.*value'}]\n")
    with pytest.raises(SystemExit, match="reason"):
        read_allowed(path)
