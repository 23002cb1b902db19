from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import capbench


def test_features_of_others_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(capbench.UsageError, match="no file of features"):
        capbench.import_features([])
    with pytest.raises(capbench.CapbenchError, match=r"none\.npz"):
        capbench.import_features("none.npz")
    with pytest.raises(capbench.UsageError, match="given both"):
        capbench.extract_features("photos", dataset="flickr8k-expert")
    np.savez("two.npz", image_names=["a", "b"], features=np.ones((2, 4, 8), np.float32))
    made = capbench.import_features("two.npz", detector="mine")
    assert (made.path, made.format, made.images) == (Path("features/two.h5"), "npz", 2)
