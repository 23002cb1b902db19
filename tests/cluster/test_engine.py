from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.core.workers import Cluster, Engine, PartFailure, parse_engine
from tests.cluster import parts

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(Cluster(workers=2, memory_mb=300), lambda note: None) as engine:
        yield engine


def test_every_part_is_done_once_and_each_worker_opens_once(engine: Engine, tmp_path: Path) -> None:
    results = dict(engine.run(partial(parts.opened, tmp_path), range(20), memory_mb=300))
    assert results == {number: number * number for number in range(20)}
    assert len(list((tmp_path / "opened").iterdir())) == 2
    assert all(len(list((tmp_path / f"part{number}").iterdir())) == 1 for number in range(20))


def test_a_part_that_fails_is_done_again_and_after_three_times_reported(engine: Engine, tmp_path: Path) -> None:
    work = [1, parts.DIES, 2, parts.RAISES, parts.DIES_ONCE, 4]
    results = dict(engine.run(partial(parts.opened, tmp_path), work, memory_mb=300))
    assert results == {
        0: 1,
        1: PartFailure("its worker died three times, possibly for lack of memory"),
        2: 4,
        3: PartFailure("ValueError: nothing came of it"),
        4: parts.DIES_ONCE**2,
        5: 16,
    }
    for part in (parts.DIES, parts.RAISES):
        assert len(list((tmp_path / f"part{part}").iterdir())) == 3


def test_an_error_of_the_user_is_raised_at_once(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"numbers\.txt.*is no number"):
        list(engine.run(partial(parts.opened, tmp_path), [parts.REFUSES], memory_mb=300))
    assert len(list((tmp_path / f"part{parts.REFUSES}").iterdir())) == 1


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert parse_engine("ray") is None
    assert parse_engine("ray:auto") == "auto"
    assert parse_engine("ray:ray://head:10001") == "ray://head:10001"
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert parse_engine("ray") == "head:6379"
