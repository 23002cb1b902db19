from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capbench.core.errors import FeatureError
from capbench.features.extract import Shard, extract, report_path
from capbench.features.images import ImageFile
from capbench.features.maintenance import merge_stores, verify_store
from capbench.features.store import open_store
from capbench.features.writing import partial_path
from tests.conftest import Ran
from tests.errors import raises
from tests.features.fakes import FakeDetector, pictures
from tests.plugged import install, on_path

COUNT = 14


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[ImageFile]:
    return pictures(tmp_path_factory.mktemp("pictures"), COUNT)


def test_images_become_a_verified_store(images: list[ImageFile], tmp_path: Path) -> None:
    steps: list[int] = []
    result = extract(images, FakeDetector(), tmp_path / "a.h5", progress=steps.append)
    assert (result.images, result.extracted, result.resumed, result.failed) == (COUNT, COUNT, 0, ())
    assert sum(steps) == COUNT
    assert verify_store(result.store).bad == 0
    assert result.store.ids == sorted(entry.image for entry in images)
    assert result.store.header.class_names == ("dark", "bright")
    with Image.open(images[3].path) as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)
    regions = result.store[images[3].image]
    assert (regions.width, regions.height) == (30, pixels.shape[0])
    together = float(pixels.sum()) % 1000
    np.testing.assert_allclose(regions.features[0], np.resize(pixels.mean(axis=(0, 1)), 16) + together, rtol=1e-5)
    assert result.seconds["network"] > 0
    assert not report_path(tmp_path / "a.h5").exists()


@pytest.mark.parametrize(("batch", "workers"), [(1, 0), (4, 2)])
def test_workers_and_shards_change_no_byte(images: list[ImageFile], tmp_path: Path, batch: int, workers: int) -> None:
    extract(images, FakeDetector(batch), tmp_path / "single.h5")
    extract(images, FakeDetector(batch), tmp_path / "workers.h5", workers=workers)
    single = (tmp_path / "single.h5").read_bytes()
    assert (tmp_path / "workers.h5").read_bytes() == single
    shards = []
    for i in (1, 2, 3):
        shard = Shard(i, 3)
        path = shard.path(tmp_path / "a.h5")
        extract(images, FakeDetector(batch), path, shard=shard)
        shards.append(path)
    assert [path.name for path in shards] == [f"a.shard-{i}-of-3.h5" for i in (1, 2, 3)]
    merge_stores(tmp_path / "merged.h5", shards)
    assert (tmp_path / "merged.h5").read_bytes() == single


def test_batches_are_those_of_the_fingerprint(images: list[ImageFile], tmp_path: Path) -> None:
    detector = FakeDetector(4)
    store = extract(images, detector, tmp_path / "a.h5").store
    assert detector.seen == [4, 4, 4, 2]
    assert store.fingerprint.batch == "batched:4"
    with raises(FeatureError, "wrong-features", path=tmp_path / "a.h5"):
        extract(images, FakeDetector(), tmp_path / "a.h5")


def test_what_is_there_is_not_done_again(images: list[ImageFile], tmp_path: Path) -> None:
    extract(images[:9], FakeDetector(), tmp_path / "a.h5")
    detector = FakeDetector()
    result = extract(images, detector, tmp_path / "a.h5")
    assert len(detector.seen) == COUNT - 9
    assert result.extracted == COUNT - 9
    extract(images, FakeDetector(), tmp_path / "whole.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
    detector = FakeDetector()
    assert extract(images, detector, tmp_path / "a.h5").extracted == 0
    assert detector.seen == []
    assert extract(images, FakeDetector(mode="else"), tmp_path / "a.h5", restart=True).extracted == COUNT


@pytest.mark.parametrize("batch", [1, 4])
def test_an_interrupt_keeps_what_was_done(images: list[ImageFile], tmp_path: Path, batch: int) -> None:
    class Interrupted(FakeDetector):
        def detect(self, prepared):  # type: ignore[no-untyped-def]
            if len(self.seen) == 2:
                raise KeyboardInterrupt
            return super().detect(prepared)

    for restart, again in ((True, " without --restart"), (False, "")):
        with pytest.raises(KeyboardInterrupt, match=f"^{2 * batch} of {COUNT} images .* again{again} to"):
            extract(images, Interrupted(batch), tmp_path / "a.h5", restart=restart)
        partial_path(tmp_path / "a.h5").unlink()
    with pytest.raises(KeyboardInterrupt):
        extract(images, Interrupted(batch), tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
    detector = FakeDetector(batch)
    result = extract(images, detector, tmp_path / "a.h5")
    assert result.resumed == 2 * batch
    extract(images, FakeDetector(batch), tmp_path / "whole.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_failures_stay_listed_until_their_images_are_stored(images: list[ImageFile], tmp_path: Path) -> None:
    def listed() -> list[str]:
        path = report_path(tmp_path / "a.h5")
        return [json.loads(line)["image"] for line in path.read_text().splitlines()] if path.exists() else []

    broken = tmp_path / "broken.png"
    broken.touch()
    result = extract([*images[:2], ImageFile("broken", broken)], FakeDetector(), tmp_path / "a.h5", missing=["gone"])
    assert [failure.image for failure in result.failed] == listed() == ["gone", "broken"]
    assert extract(images[2:4], FakeDetector(), tmp_path / "a.h5").failed == ()
    assert listed() == ["gone", "broken"]
    assert extract([ImageFile("broken", images[0].path)], FakeDetector(), tmp_path / "a.h5").failed == ()
    assert listed() == ["gone"]
    report_path(tmp_path / "a.h5").write_text("not a list\n")
    extract([ImageFile("gone", images[0].path)], FakeDetector(), tmp_path / "a.h5")
    assert listed() == []


@pytest.fixture
def damaged(images: list[ImageFile], tmp_path: Path) -> list[ImageFile]:
    folder = tmp_path / "damaged"
    folder.mkdir()
    whole = images[0].path.read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.jpg").write_text("no image")
    (folder / "empty.png").touch()
    Image.fromarray(np.zeros((13, 9, 3), np.uint8)).save(folder / "thirteen.png")
    Image.fromarray(np.full((9, 9, 3), 255, np.uint8)).save(folder / "white.png")
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4)).save(folder / "deep.png")
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(folder / "whole.jpg")
    jpeg = (folder / "whole.jpg").read_bytes()
    (folder / "whole.jpg").unlink()
    (folder / "cut.jpg").write_bytes(jpeg[: len(jpeg) * 2 // 3])
    return [ImageFile(path.name, path) for path in sorted(folder.iterdir())]


@pytest.mark.parametrize(("batch", "workers"), [(1, 0), (1, 1), (5, 0)])
def test_damaged_images_are_listed_and_stop_nothing(
    images: list[ImageFile], damaged: list[ImageFile], tmp_path: Path, batch: int, workers: int
) -> None:
    # The white one fails in the network, amid its neighbours in the batch, which must not go down with it.
    order = [*damaged[:3], *images, *damaged[3:], ImageFile("gone", tmp_path / "gone.png")]
    order.insert(5, order.pop(next(i for i, entry in enumerate(order) if entry.image == "white.png")))
    result = extract(order, FakeDetector(batch), tmp_path / "a.h5", missing=["absent"], workers=workers)
    assert result.store.ids == sorted(entry.image for entry in images)
    listed = [json.loads(line) for line in report_path(tmp_path / "a.h5").read_text().splitlines()]
    assert [(failure["image"], failure["file"]) for failure in listed] == [
        (failure.image, failure.file) for failure in result.failed
    ]
    reasons = {failure["image"]: failure["reason"] for failure in listed}
    assert {entry.image for entry in damaged} | {"gone", "absent"} <= reasons.keys()
    assert reasons["thirteen.png"] == "is 13 pixels high, which brings bad luck"
    assert "NaN" in reasons["white.png"]
    assert "mode I" in reasons["deep.png"]
    assert all(reasons.values())
    if batch == 1:
        extract(images, FakeDetector(), tmp_path / "whole.h5")
        assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
    extract(images, FakeDetector(batch), tmp_path / "a.h5")
    assert len(report_path(tmp_path / "a.h5").read_text().splitlines()) == len(listed)


@pytest.mark.parametrize(
    ("batch", "workers", "kills"),
    [(1, 0, 8), *(pytest.param(*run, marks=pytest.mark.slow) for run in ((1, 0, 35), (4, 0, 10), (1, 2, 5)))],
)
def test_kills_at_random_moments_lose_nothing(tmp_path: Path, batch: int, workers: int, kills: int) -> None:
    folder, store = tmp_path / "pictures", tmp_path / "killed.h5"
    images = pictures(folder, 60)
    extract(images, FakeDetector(batch), tmp_path / "calm.h5")
    calm = (tmp_path / "calm.h5").read_bytes()
    rng, sizes = np.random.default_rng(kills), []
    run = [sys.executable, "-m", "tests.features.extraction_run", str(folder), str(store), str(batch), str(workers)]
    for done in range(kills):
        pipe = subprocess.PIPE
        process = subprocess.Popen(run, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        # At any moment of the whole run, and every other time of the part in which images are stored: with workers, and
        # on a busy machine, most of a run is their start.
        limit = time.monotonic() + float(rng.uniform(0, 0.45 if workers == 0 else 2.5))
        if done % 2:
            while not partial_path(store).exists() and process.poll() is None:
                time.sleep(0.001)
            if workers:
                size = _size(partial_path(store))
                while _size(partial_path(store)) == size and process.poll() is None:
                    time.sleep(0.001)
            limit = time.monotonic() + float(rng.uniform(0, 0.35))
        time.sleep(max(0.0, limit - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)  # its workers hold the pipes, too
        rest, errors = process.communicate()
        assert "Traceback" not in errors
        if store.exists():  # whatever has its name is whole
            assert store.read_bytes() == calm
            if rest == "done\n" or not partial_path(store).exists():
                store.unlink()
                partial_path(store).unlink(missing_ok=True)
        elif partial_path(store).exists():
            sizes.append(partial_path(store).stat().st_size)
    result = extract(images, FakeDetector(batch), store)
    assert store.read_bytes() == calm
    assert verify_store(result.store).bad == 0
    assert len(set(sizes)) > 1, "no kill met a run that was under way"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_an_end_while_the_file_is_built_leaves_the_old_one(
    images: list[ImageFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(images[:5], FakeDetector(), tmp_path / "a.h5")
    before = (tmp_path / "a.h5").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("capbench.features.layout.os.replace", lambda *_: sys.exit())
        with pytest.raises(SystemExit):
            extract(images, FakeDetector(), tmp_path / "a.h5")
    assert (tmp_path / "a.h5").read_bytes() == before
    assert len(open_store(tmp_path / "a.h5")) == 5
    assert extract(images, FakeDetector(), tmp_path / "a.h5").extracted == 0
    assert len(open_store(tmp_path / "a.h5")) == COUNT
    assert not (tmp_path / ".a.h5.finishing").exists()


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
