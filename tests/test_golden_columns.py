"""Scores of published items and statistics of them are those that are stored: a number changes only on purpose.

``python scripts/golden.py write-tests`` scores anew and names each number that differs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from capbench.core import plugins
from scripts.golden_columns import PARTS, PATH, differences, read, scores, statistics
from tests.conftest import Ran
from tests.installed_parser import installed_parser

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
    stored = read()
    now = statistics(stored["parts"], tmp_path, lambda _, words: capbench(*words).out)
    assert now.keys() == stored["statistics"].keys()
    for command, numbers in now.items():
        assert numbers == stored["statistics"][command], command


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
