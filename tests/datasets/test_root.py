"""The folder that data is read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import UsageError
from capbench.datasets.root import DataRoot, find_root
from tests.errors import raises


def test_an_empty_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(UsageError, "missing-value"):
        find_root("")
    assert find_root(".").path == Path()
    assert find_root("sample").is_sample


def test_a_file_is_also_found_in_the_folder_of_open_sets(tmp_path: Path) -> None:
    root = DataRoot(tmp_path, False, "test")
    direct, collected = tmp_path / "set/a.csv", tmp_path / "open/set/a.csv"
    assert root.locate("set/a.csv") == direct
    for place in (collected, direct):
        place.parent.mkdir(parents=True)
        place.touch()
        assert root.locate("set/a.csv") == root.file("set/b.csv", "set/a.csv") == place
