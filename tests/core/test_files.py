"""Atomic writes: the file named in errors, and the permissions of the result."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capbench.core import files
from capbench.core.errors import UsageError
from tests.errors import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    place = tmp_path / "place"
    place.mkdir()
    return place


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


def test_the_standard_input_is_read(tmp_path: Path) -> None:
    """A pipe, as a shell's <(command), too."""
    (tmp_path / "r.json").write_text(json.dumps({"a": ["a dog"]}))
    code = (
        "import sys; from capbench.datasets.user.captions import captions_in_memory\n"
        "print(captions_in_memory('/dev/stdin', sys.argv[1]).items[0].candidate)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "r.json")]
    given = '[{"image_id": "a", "caption": "a cat"}]'
    ran = subprocess.run(command, input=given, capture_output=True, text=True)
    assert ran.stdout == "a cat\n", ran.stderr


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
