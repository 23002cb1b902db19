"""A data folder for toys."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.datasets.root import DataRoot


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(tmp_path, False, "test")
