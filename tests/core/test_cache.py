"""The cache: what is put there comes back as it was, or not at all."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchWarning


def _file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "things.sqlite"


def test_entries_are_kept_by_space_and_replaced(tmp_path: Path) -> None:
    with Cache("things") as cache:
        cache.put("one", [(b"a", b"1"), (b"b", b"2")])
        cache.put("two", [(b"a", b"3")])
        cache.put("one", [(b"b", b"22")])
    with Cache("things") as cache:
        assert cache.path == _file(tmp_path)
        assert cache.get("one", [b"a", b"b", b"c"]) == {b"a": b"1", b"b": b"22"}
        assert cache.get("two", [b"a"]) == {b"a": b"3"}
        assert cache.get("three", [b"a"]) == {}


def test_disabled_cache_holds_nothing_and_makes_no_file(tmp_path: Path) -> None:
    with Cache("things", enabled=False) as cache:
        cache.put("s", [(b"a", b"1")])
        assert cache.get("s", [b"a"]) == {}
        assert cache.path is None
    assert not _file(tmp_path).exists()


@pytest.mark.parametrize(
    "content", [b"this is no database at all, just some text" * 50, b"SQLite format 3\0" + b"\1" * 5000]
)
def test_a_damaged_file_is_made_anew_with_a_warning(tmp_path: Path, content: bytes) -> None:
    _file(tmp_path).parent.mkdir(exist_ok=True)
    _file(tmp_path).write_bytes(content)
    with pytest.warns(CapbenchWarning, match=r"things\.sqlite was damaged"):
        cache = Cache("things")
    cache.put("s", [(b"a", b"1")])
    assert cache.get("s", [b"a"]) == {b"a": b"1"}
    cache.close()


def test_full_disk_means_working_without(tmp_path: Path) -> None:
    cache = Cache("things")
    cache.put("s", [(b"a", b"1")])
    assert cache._connection is not None
    cache._connection.execute("PRAGMA max_page_count = 6")
    with pytest.warns(CapbenchWarning, match="full"):
        cache.put("s", [(str(i).encode(), b"x" * 1000) for i in range(1000)])
    cache.put("s", [(b"c", b"1")])
    assert cache.get("s", [b"a"]) == {}
    with Cache("things") as again:
        assert again.get("s", [b"a", b"0", b"5"]) == {b"a": b"1"}, "a batch is written whole or not at all"


def _write_many(number: int, folder: str) -> None:
    os.environ["CAPBENCH_CACHE"] = folder
    with Cache("things") as cache:
        for i in range(40):
            cache.put("s", [(f"{number}.{i}".encode(), b"x")])


def test_several_runs_may_write_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=_write_many, args=(number, str(tmp_path / "cache"))) for number in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0, 0]
    keys = [f"{number}.{i}".encode() for number in range(3) for i in range(40)]
    with Cache("things") as cache:
        assert len(cache.get("s", keys)) == 120
