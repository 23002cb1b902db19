"""The commands give the numbers that they gave: a stored number changes only on purpose.

``python scripts/golden.py write-tests`` makes the stored numbers anew.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from capbench.core import plugins
from scripts.golden import TESTS
from scripts.golden_columns import PARTS, PATH, differences, read, scores, statistics
from scripts.golden_commands import SAMPLE, Command, with_needed, write_inputs
from scripts.golden_numbers import NETWORK_RELATIVE, RELATIVE, compare_numbers, in_tests, stored, titles_of
from tests.conftest import Ran
from tests.installed_parser import installed_parser

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
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        titles = titles_of(answers.get(command.titles, capbench))
        now = stored(command, answers.get(command.name, capbench), titles)
    finally:
        torch.set_num_threads(threads)
    then = json.loads((TESTS / f"{command.name}.json").read_text(encoding="utf-8"))
    assert now["structure"] == then["structure"]
    relative: float | None = NETWORK_RELATIVE if command.networks else RELATIVE
    if command.networks and now["rounding"] != then["rounding"]:
        relative = None
    assert compare_numbers(then["numbers"], now["numbers"], relative=relative) == []


def test_a_changed_number_is_noticed() -> None:
    then = {"cells": {"protocol=a, column=cider": {"value": 0.5, "n": 9, "p_value": 0.25}}, "list": [1, 2.0]}
    assert compare_numbers(then, then, relative=RELATIVE) == []
    for now in (
        {"cells": {"protocol=a, column=cider": {"value": 0.5 + 1e-11, "n": 9, "p_value": 0.25}}, "list": [1, 2.0]},
        {"cells": {"protocol=a, column=meteor": {"value": 0.5, "n": 9, "p_value": 0.25}}, "list": [1, 2.0]},
        {"cells": {"protocol=a, column=cider": {"value": 0.5, "n": 9}}, "list": [1, 2.0]},
        {"cells": {"protocol=a, column=cider": {"value": 0.5, "n": 9, "p_value": 0.25}}, "list": [1]},
    ):
        assert compare_numbers(then, now, relative=RELATIVE)
    apart = {"value": 0.6, "p_value": 0.5}
    assert compare_numbers({"value": 0.5, "p_value": 0.25}, apart, relative=None) == [
        "/value: 0.5 is stored, 0.6 came out"
    ]


# Networks of a hundred million weights are slow; tests/metrics compares small ones with plain code.
MARKS = {name: [pytest.mark.slow] for name in ("bert", "clip", "vilbert")}
MARKS |= {name: [pytest.mark.java] for name, part in PARTS.items() if part.java}


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, real_data: Path) -> None:
    monkeypatch.setenv("CAPBENCH_DATA", str(real_data))


@pytest.fixture(scope="module")
def parses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of parses of all parts, which read the same captions."""
    return tmp_path_factory.mktemp("parses") / "scene-graphs.sqlite"


@pytest.mark.real_data
@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in PARTS])
def test_no_score_changes(
    name: str, parses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if name == "vilbert":
        monkeypatch.setenv("CAPBENCH_PARITY", str(request.getfixturevalue("parity")))
    with installed_parser() if PARTS[name].java else nullcontext() as folder:
        if folder:
            folder.with_name(parses.name).symlink_to(parses)
        assert differences(name, read()["parts"][name], scores(PARTS[name], tmp_path)) == []


@pytest.mark.real_data
@pytest.mark.usefixtures("published")
def test_no_statistic_changes(capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    then = read()
    now = statistics(then["parts"], tmp_path, lambda _, words: capbench(*words).out)
    assert compare_numbers(then["statistics"], now, relative=RELATIVE) == []


def test_every_metric_is_stored_and_changes_are_noticed() -> None:
    named = {metric for part in PARTS.values() for metric, _ in part.requests.values()}
    assert named == set(plugins.names("capbench.metrics"))
    assert PATH.stat().st_size < 1_000_000
    then = read()["parts"]
    for name, part in PARTS.items():
        now = copy.deepcopy(then[name])
        values = next(iter(now["flickr8k-expert"]["columns"].values()))
        second, first = sorted(range(part.items), key=lambda i: abs(values[i]))[-2:]
        values[first] *= 1 + 3 * part.tolerance
        values[second] *= 1 + part.tolerance / 3
        (line,) = differences(name, then[name], now)
        assert f"of {now['flickr8k-expert']['items'][first]}:" in line
