"""Tables in the cache folder: built once, checked at every opening, rebuilt when they are invalid."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capbench.core import cache
from capbench.core.cache import derived_table
from capbench.core.errors import CapbenchWarning, UsageError
from tests.errors import raises

ARRAYS: dict[str, NDArray[Any]] = {
    "numbers": np.arange(1000, dtype=np.int64),
    "rows": np.arange(21, dtype=np.float32).reshape(7, 3),
    "nothing": np.empty((0, 4), dtype=np.int32),
    "text": np.frombuffer("größer".encode(), np.uint8),
}


class Builder:
    """Returns the arrays and counts its calls."""

    def __init__(self) -> None:
        self.built = 0

    def __call__(self) -> dict[str, NDArray[Any]]:
        self.built += 1
        return ARRAYS


def _file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "things" / "some-3.table"


def _is_right(arrays: dict[str, np.memmap[Any, Any]]) -> bool:
    return list(arrays) == list(ARRAYS) and all(
        arrays[name].dtype == array.dtype and arrays[name].shape == array.shape and np.array_equal(arrays[name], array)
        for name, array in ARRAYS.items()
    )


def test_a_table_is_built_once_and_mapped(tmp_path: Path) -> None:
    build = Builder()
    for _ in range(2):
        arrays = derived_table("things", "some", 3, build)
        assert _is_right(arrays)
    assert build.built == 1
    assert arrays["numbers"].filename == str(_file(tmp_path))
    assert all(array.offset % 64 == 0 for array in arrays.values() if array.size)
    with pytest.raises(ValueError, match="read-only"):
        arrays["numbers"][0] = 1


def test_equal_arrays_make_equal_files(tmp_path: Path) -> None:
    derived_table("things", "some", 3, Builder())
    content = _file(tmp_path).read_bytes()
    _file(tmp_path).unlink()
    derived_table("things", "some", 3, Builder())
    assert _file(tmp_path).read_bytes() == content


def test_versions_do_not_meet(tmp_path: Path) -> None:
    build = Builder()
    derived_table("things", "some", 3, build)
    derived_table("things", "some", 4, build)
    derived_table("things", "some", 3, build)
    assert build.built == 2


def _sealed(header: bytes) -> bytes:
    """A file with this header and no arrays, of the right length and checksum."""
    return cache._FIRST_LINE % (len(header), zlib.crc32(header)) + header


def _header(**arrays: Any) -> bytes:
    return _sealed(json.dumps({"name": "some", "version": 3, "arrays": arrays}).encode() + b"\n")


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "one bit in an array": (lambda content: content[:-500] + bytes([content[-500] ^ 1]) + content[-499:], "checksum"),
    "zeroed bytes": (lambda content: content[:1000] + bytes(3000) + content[4000:], "checksum"),
    "zeroed header": (lambda content: bytes(300) + content[300:], "first line"),
    "checksum": (lambda content: content.replace(content[36:44], b"00000000"), "checksum"),
    "truncated": (lambda content: content[:-1], "8,402 bytes.* 8,403"),
    "too long": (lambda content: content + b"\0", "8,404 bytes.* 8,403"),
    "empty": (lambda _: b"", "first line"),
    "other file": (lambda _: b"PK\3\4" * 100, "first line"),
    "no header": (lambda _: _sealed(b"[]\n"), "header"),
    "header without end": (lambda _: _sealed(b"[" * 100_000), "header"),
    "other version": (
        lambda _: _sealed(b'{"name": "some", "version": 2, "arrays": {}}\n'),
        "version 2 of 'some'.* version 3 of 'some'",
    ),
    "other table": (lambda _: _sealed(b'{"name": "x", "version": 3, "arrays": {}}\n'), "version 3 of 'x'"),
    "array beyond the end": (lambda _: _header(numbers=["<i8", [1000], 0]), "header"),
    "array before the start": (lambda _: _header(numbers=["<i8", [1], -1000]), "header"),
    "array of objects": (lambda _: _header(numbers=["|O", [1], 0]), "header"),
    "array of negative length": (lambda _: _header(numbers=["<i8", [-1], 0]), "header"),
    "endless array": (lambda _: _header(numbers=["<i8", [1 << 62, 1 << 62], 0]), "header"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_an_invalid_table_is_built_again_with_one_warning(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    build = Builder()
    derived_table("things", "some", 3, build)
    content = _file(tmp_path).read_bytes()
    _file(tmp_path).write_bytes(damage(content))
    with pytest.warns(CapbenchWarning, match=rf"some-3\.table .*{reason}") as warned:
        assert _is_right(derived_table("things", "some", 3, build))
    assert len(warned) == 1
    assert build.built == 2
    assert _file(tmp_path).read_bytes() == content
    derived_table("things", "some", 3, build)
    assert build.built == 2


def test_a_folder_in_the_place_of_a_table_is_one_line(tmp_path: Path) -> None:
    _file(tmp_path).mkdir(parents=True)
    with (
        pytest.warns(CapbenchWarning, match=r"some-3\.table"),
        raises(UsageError, "unwritable", path=_file(tmp_path)),
    ):
        derived_table("things", "some", 3, Builder())


@settings(deadline=None, max_examples=100)
@given(place=st.integers(0, 1 << 20), changed=st.binary(min_size=1, max_size=400))
def test_changed_bytes_never_change_a_table(place: int, changed: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPBENCH_CACHE", folder)
        derived_table("things", "some", 3, Builder())
        path = Path(folder) / "things" / "some-3.table"
        content = bytearray(path.read_bytes())
        start = place % len(content)
        content[start : start + len(changed)] = changed
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CapbenchWarning)
            assert _is_right(derived_table("things", "some", 3, Builder()))


def test_an_interrupted_build_leaves_nothing_and_is_begun_again(tmp_path: Path) -> None:
    def interrupted() -> dict[str, NDArray[Any]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        derived_table("things", "some", 3, interrupted)
    assert not _file(tmp_path).exists()
    # What a run leaves that is killed while it writes.
    leftover = _file(tmp_path).parent / ".some-3.table.abcdefgh.part"
    leftover.write_bytes(b"half")
    assert _is_right(derived_table("things", "some", 3, Builder()))
    assert not leftover.exists()


def test_a_right_table_needs_no_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    derived_table("things", "some", 3, Builder())
    monkeypatch.setattr("capbench.core.files.lock", lambda *_: pytest.fail("asked for a lock"))
    assert _is_right(derived_table("things", "some", 3, Builder()))


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("capbench.core.files.os.fsync", full)
    with raises(UsageError, "unwritable", path=_file(tmp_path)):
        derived_table("things", "some", 3, Builder())
    assert [path.name for path in _file(tmp_path).parent.iterdir()] == ["some-3.table.lock"]


def test_a_disk_that_loses_data_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_write", lambda path, *_: path.write_bytes(b"something else"))
    with raises(UsageError, "unwritable", path=_file(tmp_path)):
        derived_table("things", "some", 3, Builder())


def test_only_numbers_are_written() -> None:
    with pytest.raises(TypeError, match="object"):
        derived_table("things", "some", 3, lambda: {"objects": np.array([{}])})


def _build_in_a_process(folder: str, start: Any) -> None:
    os.environ["CAPBENCH_CACHE"] = folder

    def build() -> dict[str, NDArray[Any]]:
        with open(Path(folder) / "builds", "a") as stream:
            stream.write("x")
        return ARRAYS

    start.wait()
    assert _is_right(derived_table("things", "some", 3, build))


def test_several_processes_build_a_table_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    runs = [context.Process(target=_build_in_a_process, args=(str(tmp_path / "cache"), start)) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0, 0]
    assert (tmp_path / "cache" / "builds").read_text() == "x"
