from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from capbench.datasets.root import sample_dir
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter, partial_path
from tests.conftest import Ran
from tests.features.fakes import PRINT, FakeDetector, made_up, pictures

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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


# -- extract-features -------------------------------------------------------------------------------------------------


def test_without_arguments_the_whole_sample_is_extracted(capbench: Run, fake: dict[str, Any]) -> None:
    ran = capbench("extract-features")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("data: embedded synthetic sample")
    assert "features/sample.h5: 300 images; 300 extracted now" in ran.out
    assert "signature: fake+weights:abababababab" in ran.out
    assert 0 <= int(re.findall(r"network .*\((\d+)%\)", ran.out)[0]) <= 100
    assert fake["name"] == "sample"
    ids = open_store("features/sample.h5").ids
    assert {"f8k_001", "coco_001", "f30k_001", "pas_001", "0", "29"} <= set(ids)
    again = capbench("extract-features")
    assert "300 images; 0 extracted now, 300 earlier" in again.out


def test_a_data_sets_images_under_its_own_ids(capbench: Run, fake: dict[str, Any]) -> None:
    assert capbench("extract-features", "--dataset", "flickr8k-expert").code == 0
    assert fake["name"] == "sample"
    assert len(open_store("features/flickr8k-expert.h5")) == 50
    assert capbench("extract-features", "-d", "nocaps", "-o", "n.h5").code == 0
    assert sorted(map(int, open_store("n.h5").ids)) == list(range(30))


def test_photographs_have_a_detector_of_photographs(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
    pictures(tmp_path / "data" / "flickr8k" / "images", 2)
    assert capbench("extract-features", "--data", "data").code == 0
    assert fake["name"] == "photographs"
    assert json.loads(capbench("features", "info", "features/all.h5", "--json").out)["images"] == 2
    for arguments, code, value in (
        (("--data", "data", "-D", "sample"), "unsupported", "sample"),
        (("--images", "data", "-D", "sample", "--dry-run"), "unsupported", "sample"),
        (("--images", "data", "--weights", "random:1"), "missing-option", "random:1"),
    ):
        fake.clear()
        ran = capbench("extract-features", *arguments)
        assert (ran.code, ran.failure.code, ran.failure.value, fake) == (2, code, value, {})
    assert [path.name for path in Path("features").glob("*.h5")] == ["all.h5"]
    scene = sample_dir() / "flickr8k" / "images" / "f8k_003.png"
    assert capbench("extract-features", "-i", scene, "-i", "data", "-o", "x.h5").code == 0
    assert fake["name"] == "photographs"


def test_folders_lists_and_coco_json(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
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
        ran = capbench("extract-features", "--images", *arguments, "--out", "x.h5", "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["extracted"] == len(ids)
        assert open_store("x.h5").ids == ids


def test_damaged_images_are_told_and_the_exit_code_is_1(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
    pictures(tmp_path / "in", 3)
    (tmp_path / "in" / "bad.jpg").write_bytes(b"\xff\xd8\xff nothing")
    ran = capbench("extract-features", "--images", "in", "--out", "x.h5")
    assert ran.code == 1
    assert "x.h5: 3 images" in ran.out
    assert "warning: in/bad.jpg: cannot be decoded" in ran.err
    assert "1 image; see x.h5.failed.jsonl" in ran.err
    assert json.loads(Path("x.h5.failed.jsonl").read_text())["image"] == "bad"


def test_shards_and_merge_give_the_bytes_of_one_run(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
    pictures(tmp_path / "in", 7)
    common = ("extract-features", "--images", "in", "--batch", "2", "--dtype", "float16")
    assert capbench(*common, "--out", "one.h5").code == 0
    for i in (1, 2):
        assert capbench(*common, "--out", "all.h5", "--shard", f"{i}/2").code == 0
    ran = capbench("features", "merge", "all.h5", "all.shard-1-of-2.h5", "all.shard-2-of-2.h5")
    assert ran.code == 0
    assert "all.h5: 7 images of 2 stores" in ran.out
    assert Path("all.h5").read_bytes() == Path("one.h5").read_bytes()


def test_options_reach_the_detector(
    capbench: Run, fake: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    pictures(tmp_path / "in", 1)
    more = ("--option", "max_boxes=36", "--device", "cpu", "--weights", "w.bin", "--precision", "amp-bfloat16")
    assert (
        capbench("extract-features", "-i", "in", "-D", "grid:resnet50", "--batch", "3", "--threads", "2", *more).code
        == 0
    )
    assert threads == [2]
    assert fake == {
        "name": "grid:resnet50",
        "weights": "w.bin",
        "device": "cpu",
        "options": {"max_boxes": 36, "batch": 3, "precision": "amp-bfloat16"},
    }
    assert Path("features/in.grid-resnet50.h5").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--images", "no"], "error: no: "),
        (["--images", "empty"], "error: empty: "),
        (["--images", "lost.json"], "lost.json, image 1: "),
        (["--images", "twice"], "'a'"),
        (["--images", "in", "--dataset", "nocaps"], "--dataset"),
        (["--images", "in", "--shard", "3/2"], "'3/2'"),
        (["--images", "in", "--dtype", "int8"], "'int8'"),
        (["--images", "in", "--compression", "zip"], "'zip'"),
        (["--dataset", "pascal-50s", "--image-root", "in"], "pascal-50s"),
    ],
)
def test_bad_requests_give_one_line(
    capbench: Run, fake: dict[str, Any], tmp_path: Path, arguments: list[str], named: str
) -> None:
    made = pictures(tmp_path / "in", 1)[0].path
    (tmp_path / "empty").mkdir()
    Path("lost.json").write_text('{"images": [{"file_name": "gone.jpg"}]}')
    for name in ("x", "y"):
        (tmp_path / "twice" / name).mkdir(parents=True)
        (tmp_path / "twice" / name / "a.png").write_bytes(made.read_bytes())
    ran = capbench("extract-features", *arguments, "--out", "x.h5")
    assert ran.code == 2
    assert named in ran.err
    assert [line for line in ran.err.splitlines() if line.startswith("error: ")] == ran.err.splitlines()[-1:]
    assert not Path("x.h5").exists()


# -- features ---------------------------------------------------------------------------------------------------------


def test_info(capbench: Run) -> None:
    store("s.h5", class_names=("x", "y", "z"))
    ran = capbench("features", "info", "s.h5")
    assert ran.code == 0
    for text in ("images:         3", "with 16 columns", "detector:       fake", "3 classes", "stored:float32"):
        assert text in ran.out
    found = json.loads(capbench("features", "info", "s.h5", "--json").out)
    assert found["images"] == 3
    assert found["fingerprint"] == PRINT.to_dict()
    partial_path("s.h5").touch()
    assert "was interrupted" in capbench("features", "info", "s.h5").err


def test_verify(capbench: Run) -> None:
    store("s.h5")
    ran = capbench("features", "info", "--verify", "s.h5")
    assert ran.code == 0
    assert "s.h5: 3 images" in ran.out
    assert "no errors" in ran.out
    with h5py.File("s.h5", "r+") as file:
        file["features"][0, 0] = np.nan
    ran = capbench("features", "info", "--verify", "s.h5")
    assert ran.code == 1
    assert "1 damaged" in ran.out
    assert "the checksum of image 'a' does not match" in ran.err
    assert json.loads(capbench("features", "info", "--verify", "s.h5", "--json").out)["ok"] is False
    Path("s.h5").write_bytes(Path("s.h5").read_bytes()[:-100])
    ran = capbench("features", "info", "--verify", "s.h5")
    assert ran.code == 2
    assert (ran.failure.code, ran.failure.path) == ("damaged", "s.h5")


def test_show_draws_the_top_boxes(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
    assert capbench("extract-features", "--dataset", "flickr8k-expert", "--out", "s.h5").code == 0
    ran = capbench("features", "show", "f8k_003", "--features", "s.h5", "--top", "2")
    assert ran.code == 0, ran.err
    regions = open_store("s.h5")["f8k_003"]
    names = open_store("s.h5").header.class_names
    assert names is not None
    assert f"{names[int(regions.flat()['class_ids'][0])]} 0.90" in ran.out
    drawn = np.asarray(Image.open("f8k_003.regions.png").convert("RGB"))
    assert drawn.shape == (800, 800, 3)
    # The top box is the left half of the picture: its right edge is drawn in the first colour.
    assert (drawn[300:500, 398:403] == (0x00, 0x72, 0xB2)).all(axis=-1).any(axis=1).all()
    path = pictures(tmp_path / "in", 1)[0].path
    assert capbench("features", "show", path, "--features", "s.h5").failure.code == "missing-image"
    assert "--features" in capbench("features", "show", "--help").out


def test_show_refuses_other_formats(capbench: Run, fake: dict[str, Any], tmp_path: Path) -> None:
    path = pictures(tmp_path / "in", 1)[0].path
    assert capbench("extract-features", "--images", path, "--out", "s.h5").code == 0
    ran = capbench("features", "show", path, "--features", "s.h5", "--out", "a.jpg")
    assert (ran.code, ran.out) == (2, "")
    assert (ran.failure.code, ran.failure.value) == ("wrong-value", ".jpg")
    assert not Path("a.jpg").exists()
