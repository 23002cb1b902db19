"""The cache: what is put there comes back as it was, or not at all."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchWarning

PLACES = st.integers(0, 1 << 20)  # in a file; taken modulo its length
ENTRIES = {i.to_bytes(16, "big"): bytes([i % 251]) * 40 for i in range(300)}


def _file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "things.sqlite"


def _held(space: str = "s") -> dict[bytes, bytes]:
    """Entries that a new run finds, without a warning."""
    with Cache("things") as cache:
        return cache.get(space, [*ENTRIES, b"a"])


def _fill() -> None:
    with Cache("things") as cache:
        cache.put("s", ENTRIES.items())
        cache.put("another", [(b"a", b"1")])


def _change(tmp_path: Path, *statements: str) -> None:
    connection = sqlite3.connect(_file(tmp_path), isolation_level=None)
    connection.create_function("flip", 1, lambda blob: bytes([blob[0] ^ 4]) + blob[1:])
    for statement in statements:
        connection.execute(statement)
    connection.close()


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
    with pytest.warns(CapbenchWarning, match=r"things\.sqlite\.damaged-"):
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
        with pytest.warns(CapbenchWarning, match=r"things\.sqlite\.damaged-"):
            assert cache.get("s", keys) == {}
        cache.put("s", [(b"a", b"1")])
        assert cache.get("s", [b"a"]) == {b"a": b"1"}


def test_folder_that_cannot_be_made_means_working_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(CapbenchWarning, match="'things' .*CAPBENCH_CACHE"):
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


FLIPS = {
    "value": "value = flip(value)",
    "key": "key = flip(key)",
    "space": "space = flip(space)",
    "checksum": "checksum = checksum + 1",
    "value's length": "value = substr(value, 2)",
    "value's type": "value = 7",
    "key's type": "key = CAST(space AS TEXT) || hex(key)",
    "value and checksum": "value = zeroblob(40), checksum = 0",
}


def test_values_that_changed_places_are_dropped(tmp_path: Path) -> None:
    with Cache("things") as cache:
        for space in ("s", "another"):
            cache.put(space, [(key, space.encode() + key) for key in (b"a", b"b")])
    # Between two keys of one space, with their checksums.
    _change(
        tmp_path,
        "CREATE TEMP TABLE old AS SELECT * FROM entries",
        "UPDATE entries SET (value, checksum) = (SELECT value, checksum FROM old "
        "WHERE old.space = entries.space AND old.key != entries.key)",
    )
    with Cache("things") as cache:
        assert cache.get("s", [b"a", b"b"]) == {}


def test_spaces_that_changed_places_are_dropped(tmp_path: Path) -> None:
    with Cache("things") as cache:
        for space in ("s", "another"):
            cache.put(space, [(key, space.encode() + key) for key in (b"a", b"b")])
    _change(
        tmp_path,
        "CREATE TEMP TABLE old AS SELECT * FROM entries",
        "DELETE FROM entries",
        "INSERT INTO entries SELECT (SELECT other.space FROM old other WHERE other.space != old.space LIMIT 1), "
        "key, value, checksum FROM old",
    )
    with Cache("things") as cache:
        assert cache.get("s", [b"a", b"b"]) == {}


def test_where_a_key_ends_is_part_of_the_checksum(tmp_path: Path) -> None:
    with Cache("things") as cache:
        cache.put("s", [(b"ab", b"cd")])
    _change(tmp_path, "UPDATE entries SET key = x'61', value = x'626364'")
    with Cache("things") as cache:
        assert cache.get("s", [b"a"]) == {}


def test_truncated_file_is_set_aside(tmp_path: Path) -> None:
    _fill()
    content = _file(tmp_path).read_bytes()
    _file(tmp_path).write_bytes(content[: len(content) // 2])
    with pytest.warns(CapbenchWarning, match=r"things\.sqlite\.damaged-"):
        assert _held() == {}
    with Cache("things") as cache:
        cache.put("s", ENTRIES.items())
    assert _held() == ENTRIES


def test_leftovers_of_a_log_do_no_harm(tmp_path: Path) -> None:
    _fill()
    for ending in ("-wal", "-shm"):
        _file(tmp_path).with_name(f"things.sqlite{ending}").write_bytes(b"left over" * 10_000)
    assert _held() == ENTRIES


@pytest.fixture(scope="module")
def whole_file() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPBENCH_CACHE", folder)
        _fill()
        yield (Path(folder) / "things.sqlite").read_bytes()


def _held_by(content: bytes) -> dict[bytes, bytes]:
    """Entries that two runs in turn find in a file of this content, which must be a subset of the written ones."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPBENCH_CACHE", folder)
        (Path(folder) / "things.sqlite").write_bytes(content)
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CapbenchWarning)
                with Cache("things") as cache:
                    held = cache.get("s", [*ENTRIES, b"no such key"])
                    assert held.items() <= ENTRIES.items()
                    assert cache.get("another", [b"a"]) in ({}, {b"a": b"1"})
                    cache.put("s", [entry for entry in ENTRIES.items() if entry[0] not in held])
                    held = cache.get("s", [*ENTRIES, b"no such key"])
                    assert held.items() <= ENTRIES.items()
        return held


def test_a_whole_file_gives_all(whole_file: bytes) -> None:
    assert _held_by(whole_file) == ENTRIES


@settings(deadline=None, max_examples=80)
@given(flips=st.lists(st.tuples(PLACES, st.integers(1, 255)), min_size=1, max_size=30))
def test_flipped_bytes_give_the_right_value_or_none(whole_file: bytes, flips: list[tuple[int, int]]) -> None:
    content = bytearray(whole_file)
    for place, bits in flips:
        content[place % len(content)] ^= bits
    assert _held_by(bytes(content)) == ENTRIES, "and the cache is whole again after a run"


@settings(deadline=None, max_examples=50)
@given(place=PLACES, length=st.integers(1, 6000))
def test_zeroed_bytes_give_the_right_value_or_none(whole_file: bytes, place: int, length: int) -> None:
    start = place % len(whole_file)
    assert _held_by(whole_file[:start] + bytes(min(length, len(whole_file) - start)) + whole_file[start + length :])


def _drop_what_is_damaged(folder: str) -> None:
    os.environ["CAPBENCH_CACHE"] = folder
    warnings.simplefilter("ignore", CapbenchWarning)
    with Cache("things") as cache:
        held = cache.get("s", list(ENTRIES))
        assert held.items() <= ENTRIES.items()
        cache.put("s", [entry for entry in ENTRIES.items() if entry[0] not in held])


def test_reading_a_cache_writes_nothing(tmp_path: Path) -> None:
    with Cache("scores") as cache:
        cache.put("space", [(b"key", b"value")])
        path = cache.path
    assert path is not None
    before = path.read_bytes()
    with Cache("scores") as cache, Cache("scores") as writer:
        writer._connection.execute("BEGIN IMMEDIATE")  # type: ignore[union-attr]
        assert cache.get("space", [b"key"]) == {b"key": b"value"}
        with Cache("scores") as third:  # opened while another run writes
            assert third.get("space", [b"key"]) == {b"key": b"value"}
        writer._connection.execute("ROLLBACK")  # type: ignore[union-attr]
    assert path.read_bytes() == before
