"""Atomic writes: the file named in errors, and the permissions of the result. Texts on disk."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, UsageError
from tests.errors import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    place = tmp_path / "place"
    place.mkdir()
    return place


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_an_input_that_disappears_is_the_file_that_is_named(folder: Path, mode: str) -> None:
    (folder / "out").write_text("before")
    path = folder / "input"
    with raises(MissingFileError, "missing-file", path=path), files.atomic_write(folder / "out", mode):
        path.read_bytes()
    assert (folder / "out").read_text() == "before"
    assert [path.name for path in folder.iterdir()] == ["out"]


def test_an_input_that_cannot_be_read_is_the_file_that_is_named(folder: Path) -> None:
    with raises(DataError, "unreadable", path=folder), files.atomic_write(folder / "out"):
        folder.open()
    assert list(folder.iterdir()) == []


def test_another_error_of_the_block_is_not_one_of_the_output(folder: Path) -> None:
    with pytest.raises(OSError, match="reading failed") as caught, files.atomic_write(folder / "out"):
        raise OSError(errno.EIO, "reading failed")
    assert type(caught.value) is OSError


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("size", [10, 100_000])  # written at the end, and within the block
def test_a_full_disk_is_an_error_of_the_output(folder: Path, mode: str, size: int) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    data: Any = "x" * size if mode == "w" else b"x" * size
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        with (
            raises(UsageError, "unwritable", path=folder / "out"),
            files.atomic_write(folder / "out", mode) as stream,
        ):
            stream.write(data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []


def test_an_error_while_two_files_are_written_names_the_right_one(folder: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        with (
            raises(UsageError, "unwritable", path=folder / "one"),
            files.atomic_write(folder / "one") as one,
            files.atomic_write(folder / "two"),
        ):
            one.write("x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_a_new_file_has_the_permissions_of_the_processs_umask(folder: Path, mask: int) -> None:
    code = "import sys; from capbench.core import files; files.write_text(sys.argv[1], 'x')"
    command = [sys.executable, "-c", code, str(folder / "out")]
    subprocess.run(command, check=True, umask=mask)
    assert stat.S_IMODE((folder / "out").stat().st_mode) == 0o666 & ~mask


def test_writing_leaves_the_umask_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(_mask: int) -> int:
        raise AssertionError("other threads would create files with these permissions")

    monkeypatch.setattr(os, "umask", changed)
    threads = [threading.Thread(target=files.write_text, args=(folder / f"{i}", "x")) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2", "3"]


def test_records_of_scalars_stand_on_one_line(tmp_path: Path) -> None:
    content = {
        "a": 1,
        "é": [],
        "rows": [{"x": 0.1, "y": None}, {"x": 1e-9, "y": "b\n"}],
        "values": [1, 2],
        "deep": {"k": {}},
    }
    path = tmp_path / "results.json"
    files.write_json(path, content)
    assert json.loads(path.read_text(encoding="utf-8")) == content
    assert path.read_text(encoding="utf-8").splitlines()[3:6] == [
        ' "rows": [',
        '  {"x": 0.1, "y": null},',
        '  {"x": 1e-09, "y": "b\\n"}',
    ]
    with pytest.raises(ValueError):
        files.json_text([math.nan])
