"""The cache of limited size: it returns its entries, stays below the limit, and keeps entries in use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from capbench.core import cache as bounded_cache
from capbench.core.cache import BoundedCache

LIMIT = 2 << 20
VALUE = bytes(range(256)) * 160  # 40 kB


def _key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _entries(first: int, last: int) -> list[tuple[bytes, bytes]]:
    return [(_key(number), _key(number) + VALUE) for number in range(first, last)]


def _file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "large.sqlite"


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> object:
    """Go on as another process."""

    def go_on(number: int) -> None:
        monkeypatch.setattr(bounded_cache, "_THIS_PROCESS", number)

    go_on(1)
    return go_on


def _held(first: int, last: int) -> list[int]:
    with BoundedCache("large", LIMIT) as cache:
        values = cache.get("s", [_key(number) for number in range(first, last)])
    assert all(value == key + VALUE for key, value in values.items())
    return sorted(int.from_bytes(key, "big") for key in values)


def test_entries_are_kept_by_space_and_replaced(tmp_path: Path) -> None:
    with BoundedCache("large", LIMIT) as cache:
        cache.put("one", [(b"a", b"1"), (b"b", b"2")])
        cache.put("two", [(b"a", b"3")])
        cache.put("one", [(b"b", b"22")])
    with BoundedCache("large", LIMIT) as cache:
        assert cache.path == _file(tmp_path)
        assert cache.get("one", [b"a", b"b", b"c"]) == {b"a": b"1", b"b": b"22"}
        assert cache.get("two", [b"a"]) == {b"a": b"3"}


def test_a_limit_of_nought_keeps_nothing_and_makes_no_file(tmp_path: Path) -> None:
    with BoundedCache("large", 0) as cache:
        cache.put("s", [(b"a", b"1")])
        assert cache.get("s", [b"a"]) == {}
    assert not _file(tmp_path).exists()


def test_the_file_does_not_grow_beyond_its_limit(tmp_path: Path, process: object) -> None:
    for run in range(12):
        process(run)  # type: ignore[operator]
        with BoundedCache("large", LIMIT) as cache:
            cache.put("s", _entries(20 * run, 20 * run + 20))
        assert _file(tmp_path).stat().st_size <= LIMIT
    assert _size(_file(tmp_path)) <= LIMIT + (1 << 20)
    held = _held(0, 240)
    assert len(held) >= 40, "most of the limit is used"
    assert set(range(220, 240)) <= set(held), "the newest are there"


def test_what_was_not_used_for_longest_goes_first(process: object) -> None:
    with BoundedCache("large", LIMIT) as cache:
        cache.put("s", _entries(0, 20))
    process(2)  # type: ignore[operator]
    with BoundedCache("large", LIMIT) as cache:
        cache.put("s", _entries(20, 40))
    process(3)  # type: ignore[operator]
    assert _held(0, 5) == [0, 1, 2, 3, 4]
    process(4)  # type: ignore[operator]
    with BoundedCache("large", LIMIT) as cache:
        cache.put("s", _entries(40, 60))
    held = set(_held(0, 60))
    assert {0, 1, 2, 3, 4, *range(20, 60)} - held == set()
    assert held - {0, 1, 2, 3, 4, *range(20, 60)} != set(range(5, 20))


def test_what_this_process_uses_stays_and_what_is_new_is_not_kept() -> None:
    with BoundedCache("large", LIMIT) as cache:
        for start in range(0, 200, 10):
            cache.put("s", _entries(start, start + 10))
    first = _held(0, 200)
    assert first[:30] == list(range(30))
    assert len(first) < 60
    with BoundedCache("large", LIMIT) as cache:
        cache.put("s", _entries(200, 260))
    assert set(first) <= set(_held(0, 260))


def test_a_lower_limit_makes_the_file_hold_less(process: object) -> None:
    with BoundedCache("large", LIMIT) as cache:
        cache.put("s", _entries(0, 40))
    process(2)  # type: ignore[operator]
    with BoundedCache("large", LIMIT // 4) as cache:
        cache.put("s", _entries(100, 101))
    assert len(_held(0, 40)) < 12
    assert _held(100, 101) == [100]


def _damage(tmp_path: Path, statement: str) -> None:
    connection = sqlite3.connect(_file(tmp_path), isolation_level=None)
    connection.create_function("flip", 1, lambda blob: bytes([blob[0] ^ 4]) + blob[1:])
    connection.execute(statement, (_key(3),))
    connection.close()


def test_a_damaged_value_counts_as_missing(tmp_path: Path) -> None:
    with BoundedCache("large", LIMIT) as cache:
        cache.put("s", _entries(0, 10))
    _damage(tmp_path, "UPDATE entries SET value = flip(value) WHERE key = ?")
    assert _held(0, 10) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert _held(3, 4) == []
