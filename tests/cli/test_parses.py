"""``capbench data parses`` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS


def test_parses_go_from_one_cache_to_another(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, number = tmp_path / "parses.gz", len(CAPTIONS)
    with parsed(CAPTIONS):
        ran = capbench("data", "parses", "export", path)
        assert (ran.code, ran.out) == (0, f"{number} parses in {path}\n")
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "other"))
    ran = capbench("data", "parses", "import", path)
    assert (ran.code, ran.out) == (0, f"{number} parses in {path}, {number} of them new\n")
    ran = capbench("data", "parses", "import", path, "--json")
    assert json.loads(ran.out) == {"file": str(path), "parses": number, "new": 0}
    ran = capbench("data", "parses", "export", path, "--json", "--replace")
    assert json.loads(ran.out) == {"file": str(path), "parses": number}


def test_what_is_wrong_is_one_line(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("data", "parses", "export", tmp_path / "parses.gz")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "there is nothing to export" in ran.err
    (tmp_path / "bad.gz").write_bytes(b"rubbish")
    ran = capbench("data", "parses", "import", tmp_path / "bad.gz")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "is damaged or no file of parses" in ran.err
