"""Tables in the cache folder: built once, mapped, and built again if they cannot be read."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.cache import derived_table
from capbench.core.errors import CapbenchWarning

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


def _folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "things" / "some-3"


def _is_right(arrays: Mapping[str, NDArray[Any]]) -> bool:
    return set(arrays) == set(ARRAYS) and all(
        arrays[name].dtype == array.dtype and arrays[name].shape == array.shape and np.array_equal(arrays[name], array)
        for name, array in ARRAYS.items()
    )


def test_a_table_is_built_once_for_each_version_and_mapped() -> None:
    build = Builder()
    for version in (3, 3, 4, 3):
        arrays = derived_table("things", "some", version, build)
        assert _is_right(arrays)
    assert build.built == 2
    with pytest.raises(ValueError, match="read-only"):
        arrays["numbers"][0] = 1


@pytest.mark.parametrize("content", [b"", b"PK\3\4", None])
def test_a_damaged_table_is_built_again_with_a_warning(tmp_path: Path, content: bytes | None) -> None:
    derived_table("things", "some", 3, Builder())
    file = _folder(tmp_path) / "numbers.npy"
    file.write_bytes(file.read_bytes()[:-1] if content is None else content)
    with pytest.warns(CapbenchWarning):
        assert _is_right(derived_table("things", "some", 3, Builder()))


def test_an_interrupted_build_leaves_nothing_and_is_begun_again(tmp_path: Path) -> None:
    def interrupted() -> dict[str, NDArray[Any]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        derived_table("things", "some", 3, interrupted)
    assert not _folder(tmp_path).exists()
    leftover = _folder(tmp_path).with_name(".some-3.part")  # of a run that is killed while it writes
    leftover.mkdir()
    (leftover / "other.npy").write_bytes(b"half")
    assert _is_right(derived_table("things", "some", 3, Builder()))
    assert not leftover.exists()


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
