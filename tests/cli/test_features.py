from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capbench.datasets.root import sample_dir
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter, partial_path
from tests.conftest import Ran
from tests.features.fakes import PRINT, FakeDetector, made_up, pictures

Run = Callable[..., Ran]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A detector in the place of the real ones; what it was asked for."""
    asked: dict[str, Any] = {}

    def load(name: str, **arguments: Any) -> FakeDetector:
        asked.update(arguments, name=name)
        return FakeDetector(int(arguments["options"].get("batch", 1)))

    monkeypatch.setattr("capbench.features.detectors.base.load_detector", load)
    monkeypatch.setattr("capbench.features.detectors.base.detector_of_photographs", lambda *_: "photographs")
    return asked


def store(path: str, images: tuple[str, ...] = ("a", "b", "c"), **options: Any) -> Path:
    with StoreWriter(path, options.pop("fingerprint", PRINT), **options) as writer:
        for image in images:
            writer.add(made_up(image))
        writer.finish()
    return Path(path)


def test_without_arguments_the_whole_sample_is_extracted_once(capbench: Run, fake: dict[str, Any]) -> None:
    ran = capbench("extract-features")
    assert ran.code == 0, ran.err
    assert "features/sample.h5: 300 images; 300 extracted now" in ran.out
    assert "signature: fake+weights:abababababab" in ran.out
    assert 0 <= int(re.findall(r"network .*\((\d+)%\)", ran.out)[0]) <= 100
    assert fake["name"] == "sample"
    assert {"f8k_001", "coco_001", "f30k_001", "pas_001", "0", "29"} <= set(open_store("features/sample.h5").ids)
    assert "300 images; 0 extracted now, 300 earlier" in capbench("extract-features").out


def test_photographs_have_a_detector_of_photographs(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
    pictures(tmp_path / "data" / "flickr8k" / "images", 2)
    assert capbench("extract-features", "--data", "data").code == 0
    assert fake["name"] == "photographs"
    assert len(open_store("features/all.h5")) == 2
    scene = sample_dir() / "flickr8k" / "images" / "f8k_003.png"
    assert capbench("extract-features", "-i", scene, "-i", "data", "-o", "x.h5").code == 0
    assert fake["name"] == "photographs"


def test_folders_lists_and_coco_json(found: Callable[..., Any], fake: dict[str, Any], tmp_path: Path) -> None:
    made = pictures(tmp_path / "in" / "deep", 3)
    Path("list.txt").write_text("# two\nin/deep/p000.png\nother id\tin/deep/p001.png\n")
    Path("coco.json").write_text(json.dumps({"images": [{"id": 7, "file_name": "p002.png"}]}))
    for arguments, ids in (
        (["in"], ["p000", "p001", "p002"]),
        (["list.txt"], ["other id", "p000"]),
        (["coco.json", "--image-root", "in/deep"], ["p002"]),
        ([str(made[1].path)], ["p001"]),
    ):
        Path("x.h5").unlink(missing_ok=True)
        assert found("extract-features", "--images", *arguments, "--out", "x.h5")["extracted"] == len(ids)
        assert open_store("x.h5").ids == ids


def test_options_reach_the_detector(
    capbench: Run, fake: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    pictures(tmp_path / "in", 1)
    more = ("--option", "max_boxes=36", "--device", "cpu", "--weights", "w.bin", "--precision", "amp-bfloat16")
    command = ("extract-features", "-i", "in", "-D", "grid:resnet50", "--batch", "3", "--threads", "2", *more)
    assert capbench(*command).code == 0
    assert threads == [2]
    options = {"max_boxes": 36, "batch": 3, "precision": "amp-bfloat16"}
    assert fake == {"name": "grid:resnet50", "weights": "w.bin", "device": "cpu", "options": options}
    assert Path("features/in.grid-resnet50.h5").exists()


def test_info_and_verify(capbench: Run, found: Callable[..., Any]) -> None:
    store("s.h5", class_names=("x", "y", "z"))
    ran = capbench("features", "info", "s.h5")
    for text in ("images:         3", "with 16 columns", "detector:       fake", "3 classes"):
        assert text in ran.out
    facts = found("features", "info", "s.h5")
    assert (facts["images"], facts["fingerprint"]) == (3, PRINT.to_dict())
    partial_path("s.h5").touch()
    assert "was interrupted" in capbench("features", "info", "s.h5").err
    verify = ("features", "info", "--verify", "s.h5")
    assert "s.h5: 3 images" in capbench(*verify).out
    with h5py.File("s.h5", "r+") as file:
        file["features"][0, 0] = np.nan
    ran = capbench(*verify)
    assert (ran.code, "1 damaged" in ran.out) == (1, True)
    assert "the checksum of image 'a' does not match" in ran.err
    assert found(*verify, code=1)["ok"] is False
    Path("s.h5").write_bytes(Path("s.h5").read_bytes()[:-100])
    ran = capbench(*verify)
    assert (ran.code, ran.failure.code, ran.failure.path) == (2, "damaged", "s.h5")


def test_import_export_and_pool_say_what_they_did(capbench: Run, found: Callable[..., Any]) -> None:
    np.savez("grid.npz", image_names=np.array(["a.jpg", "b.jpg"]), features=np.ones((2, 9, 4), np.float32))
    ran = capbench("features", "import", "grid.npz")
    assert ran.code == 0, ran.err
    assert "features/grid.h5: 2 images from npz" in ran.out
    assert "name it with --detector" in ran.err
    facts = found("features", "import", "grid.npz", "--replace", "--detector", "grid")
    assert (facts["images"], facts["format"], facts["duplicates"]) == (2, "npz", 0)
    assert facts["signature"].startswith("grid+weights:unknown+mode:imported+")
    assert capbench("features", "import", "grid.npz").failure.code == "exists"
    pooled = found("features", "pool", "features/grid.h5", "p.h5", "--windows", "2x2/1", "--grid", "3x3")
    assert (pooled["images"], pooled["windows"], open_store("p.h5").signature()) == (2, 4, pooled["signature"])
    exported = found("features", "export", "p.h5", "again.npz")
    assert (exported["images"], exported["format"]) == (2, "npz")
    assert found("features", "import", "again.npz", "--out", "again.h5")["images"] == 2
