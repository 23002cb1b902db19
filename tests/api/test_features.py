from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import capbench
from capbench.core.errors import MissingFileError
from tests.errors import raises


def test_features_of_others_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(capbench.UsageError, "missing-option"):
        capbench.import_features([])
    with raises(MissingFileError, "missing-file", path="none.npz"):
        capbench.import_features("none.npz")
    with raises(capbench.UsageError, "conflict", value="flickr8k-expert"):
        capbench.extract_features("photos", dataset="flickr8k-expert")
    np.savez("two.npz", image_names=["a", "b"], features=np.ones((2, 4, 8), np.float32))
    made = capbench.import_features("two.npz", detector="mine")
    assert (made.path, made.format, made.images) == (Path("features/two.h5"), "npz", 2)
