from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from capbench.cache import Cache
from capbench.errors import CapbenchWarning


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


def test_many_keys_are_looked_up_at_once() -> None:
    keys = [str(i).encode() for i in range(5000)]
    with Cache("things") as cache:
        cache.put("s", [(key, key * 2) for key in keys])
        assert cache.get("s", keys) == {key: key * 2 for key in keys}


def test_disabled_cache_holds_nothing_and_makes_no_file(tmp_path: Path) -> None:
    with Cache("things", enabled=False) as cache:
        cache.put("s", [(b"a", b"1")])
        assert cache.get("s", [b"a"]) == {}
        assert cache.path is None
    assert not _file(tmp_path).exists()


@pytest.mark.parametrize(
    "content", [b"this is no database at all, just some text" * 50, b"SQLite format 3\0" + b"\1" * 5000]
)
def test_damaged_file_is_set_aside_with_a_warning(tmp_path: Path, content: bytes) -> None:
    _file(tmp_path).parent.mkdir(exist_ok=True)
    _file(tmp_path).write_bytes(content)
    with pytest.warns(CapbenchWarning, match="was damaged .* set aside as things.sqlite.damaged-"):
        cache = Cache("things")
    cache.put("s", [(b"a", b"1")])
    assert cache.get("s", [b"a"]) == {b"a": b"1"}
    cache.close()
    (aside,) = _file(tmp_path).parent.glob("*.damaged-*")
    assert aside.read_bytes() == content


def test_file_that_is_damaged_in_the_middle_is_set_aside_when_it_is_read(tmp_path: Path) -> None:
    keys = [i.to_bytes(16, "big") for i in range(20_000)]
    with Cache("things") as cache:
        cache.put("s", [(key, key * 3) for key in keys])
    content = bytearray(_file(tmp_path).read_bytes())
    content[40_000:400_000] = b"\xff" * 360_000
    _file(tmp_path).write_bytes(content)
    with Cache("things") as cache:
        with pytest.warns(CapbenchWarning, match="was damaged"):
            assert cache.get("s", keys) == {}
        cache.put("s", [(b"a", b"1")])
        assert cache.get("s", [b"a"]) == {b"a": b"1"}


def test_file_of_another_format_is_set_aside(tmp_path: Path) -> None:
    _file(tmp_path).parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(_file(tmp_path))
    connection.execute("PRAGMA user_version = 99")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.warns(CapbenchWarning, match="is of format 99"):
        Cache("things").close()


def test_folder_that_cannot_be_made_means_working_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(CapbenchWarning, match="cannot be used .* working without. Set CAPBENCH_CACHE"):
        cache = Cache("things")
    cache.put("s", [(b"a", b"1")])
    assert cache.get("s", [b"a"]) == {}


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


def test_interrupted_batch_leaves_nothing_behind() -> None:
    from capbench.cache import _write as write

    with Cache("things") as cache:
        assert cache._connection is not None
        with pytest.raises(sqlite3.IntegrityError):
            write(cache._connection, "s", [(b"a", b"1"), (b"b", None)])  # type: ignore[list-item]
        assert cache.get("s", [b"a"]) == {}
        cache.put("s", [(b"a", b"2")])
        assert cache.get("s", [b"a"]) == {b"a": b"2"}


def _write_many(number: int, folder: str) -> None:
    import os

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
