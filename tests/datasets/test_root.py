"""The folder that data is read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import UsageError
from capbench.datasets.root import find_root
from tests.errors import raises


def test_an_empty_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(UsageError, "missing-value"):
        find_root("")
    assert find_root(".").path == Path()
    assert find_root("sample").is_sample
