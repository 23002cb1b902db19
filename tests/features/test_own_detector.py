from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from capbench.features.store import open_store
from tests.conftest import Ran
from tests.features.fakes import pictures
from tests.plugged import install, on_path

Run = Callable[..., Ran]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # module:Class puts the working folder there
    monkeypatch.delitem(sys.modules, "stripes", raising=False)
    pictures(tmp_path / "pictures", 2)
    page = (Path(__file__).resolve().parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
    section = page.partition("## A detector of your own\n")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    return str(code)


def test_a_registered_detector_is_known_by_name(
    example: str, tmp_path: Path, capbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[capbench.detectors]\nstripes = stripes:Stripes\nbroken = no_such_module:Broken\n"
    install(tmp_path / "packages", "stripes-package", entries, {"stripes": example})
    with on_path(tmp_path / "packages", monkeypatch):
        ran = capbench("extract-features", "-D", "stripes", "-i", "pictures", "--option", "count=3", "-o", "a.h5")
        assert ran.code == 0, ran.err
        assert "a.h5: 2 images; 2 extracted now" in ran.out
        (line,) = re.findall(r"signature: (.*)", ran.out)
        assert line.startswith("stripes+weights:none+mode:3_stripes+single+float32+id:")
        workers = capbench("extract-features", "-D", "stripes", "-i", "pictures", "-o", "c.h5", "--workers", 1)
        assert workers.code == 0, workers.err
        broken = capbench("extract-features", "-D", "broken", "-i", "pictures", "-o", "b.h5")
    with open_store("a.h5") as store:
        assert store.ids == ["p000", "p001"]
        regions = store["p001"]
    assert regions.features.shape == (3, 3)
    assert regions.boxes is not None
    np.testing.assert_array_equal(regions.boxes[:, [0, 2]], [[0, 10], [10, 20], [20, 30]])
    assert "no_such_module:Broken" in broken.err
    assert "stripes-package" in broken.err
