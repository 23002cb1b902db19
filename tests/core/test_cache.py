"""The cache: what is put there comes back as it was, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.cache import Cache, derived_table
from capbench.core.errors import CapbenchWarning


def _file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "things.sqlite"


def test_entries_are_kept_by_space_and_replaced(tmp_path: Path) -> None:
    with Cache("things") as cache:
        cache.put("one", [(b"a", b"1"), (b"b", b"2")])
        cache.put("two", [(b"a", b"3")])
        cache.put("one", [(b"b", b"22")])
    with Cache("things") as cache:
        assert cache.get("one", [b"a", b"b", b"c"]) == {b"a": b"1", b"b": b"22"}
        assert cache.get("one") == {b"a": b"1", b"b": b"22"}
        assert cache.get("two", [b"a"]) == {b"a": b"3"}
        assert cache.get("three", [b"a"]) == {}


def test_disabled_cache_holds_nothing_and_makes_no_file(tmp_path: Path) -> None:
    with Cache("things", enabled=False) as cache:
        cache.put("s", [(b"a", b"1")])
        assert cache.get("s", [b"a"]) == {}
    assert not _file(tmp_path).exists()


@pytest.mark.parametrize(
    "content", [b"this is no database at all, just some text" * 50, b"SQLite format 3\0" + b"\1" * 5000]
)
def test_a_damaged_file_is_not_used(tmp_path: Path, content: bytes) -> None:
    _file(tmp_path).parent.mkdir(exist_ok=True)
    _file(tmp_path).write_bytes(content)
    with pytest.warns(CapbenchWarning, match="cannot be used"):
        cache = Cache("things")
    cache.put("s", [(b"a", b"1")])
    assert cache.get("s", [b"a"]) == {}
    assert _file(tmp_path).read_bytes() == content


ARRAYS: dict[str, NDArray[Any]] = {
    "numbers": np.arange(1000, dtype=np.int64),
    "rows": np.arange(21, dtype=np.float32).reshape(7, 3),
    "nothing": np.empty((0, 4), dtype=np.int32),
    "text": np.frombuffer("größer".encode(), np.uint8),
}


def _folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "things" / "some-3"


def _is_right(arrays: Mapping[str, NDArray[Any]]) -> bool:
    return set(arrays) == set(ARRAYS) and all(
        arrays[name].dtype == array.dtype and arrays[name].shape == array.shape and np.array_equal(arrays[name], array)
        for name, array in ARRAYS.items()
    )


def test_a_table_is_built_once_for_each_version_and_mapped() -> None:
    build = Mock(return_value=ARRAYS)
    for version in (3, 3, 4, 3):
        arrays = derived_table("things", "some", version, build)
        assert _is_right(arrays)
    assert build.call_count == 2
    with pytest.raises(ValueError, match="read-only"):
        arrays["numbers"][0] = 1


@pytest.mark.parametrize("content", [b"", b"PK\3\4", None])
def test_a_damaged_table_is_built_again_with_a_warning(tmp_path: Path, content: bytes | None) -> None:
    derived_table("things", "some", 3, lambda: ARRAYS)
    file = _folder(tmp_path) / "numbers.npy"
    file.write_bytes(file.read_bytes()[:-1] if content is None else content)
    with pytest.warns(CapbenchWarning):
        assert _is_right(derived_table("things", "some", 3, lambda: ARRAYS))


def test_an_interrupted_build_leaves_nothing_and_is_begun_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        derived_table("things", "some", 3, Mock(side_effect=KeyboardInterrupt))
    assert not _folder(tmp_path).exists()
    leftover = _folder(tmp_path).with_name(".some-3.part")  # of a run that is killed while it writes
    leftover.mkdir()
    (leftover / "other.npy").write_bytes(b"half")
    assert _is_right(derived_table("things", "some", 3, lambda: ARRAYS))
    assert not leftover.exists()
