"""``--on ray`` from the command line: the same bytes as one process, whatever the number of workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from PIL import Image

from capbench.features.store import open_store
from tests.conftest import Ran

pytestmark = pytest.mark.cluster

POISONED = "tests.cluster.poisoned:Poisoned"
ON_RAY = ("--on", "ray", "--worker-memory", "900")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(70):
        Image.new("RGB", (20 + number % 7, 16), (number, 3 * number % 256, 80)).save(folder / f"{number:03}.png")
    return folder


def test_workers_change_no_byte_of_a_store(capbench: Callable[..., Ran], pictures: Path, tmp_path: Path) -> None:
    def extracted(name: str, *arguments: str) -> bytes:
        store = tmp_path / name
        ran = capbench("extract-features", "-i", pictures, "-D", POISONED, "-o", store, "--threads", "1", *arguments)
        assert ran.code == 0, ran.err
        return store.read_bytes()

    alone = extracted("alone.h5")
    assert extracted("two.h5", *ON_RAY, "--workers", "2") == alone
    with open_store(tmp_path / "two.h5") as store:
        assert dict(store.fingerprint.versions)["threads"] == "1"


def test_an_image_that_kills_its_worker_is_reported_and_the_rest_is_done(
    capbench: Callable[..., Ran], pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "pictures"
    shutil.copytree(pictures, folder)
    Image.new("RGB", (13, 16)).save(folder / "030x.png")  # of 71 images, in the second part of 16
    store = tmp_path / "store.h5"
    command = ("extract-features", "-i", folder, "-D", POISONED, "-o", store, *ON_RAY, "--workers", "2")
    ran = capbench(*command, "--json")
    assert ran.code == 1
    failed = json.loads(ran.out)["failed"]
    assert [entry["image"] for entry in failed] == [f"{n:03}" for n in range(16, 31)] + ["030x"]
    assert "a part of 16 images failed: its worker died three times" in failed[0]["reason"]
    with open_store(store) as opened:
        assert len(opened) == 71 - 16
    # Mended, the same command does what is left.
    (folder / "030x.png").unlink()
    assert capbench(*command).code == 0
    alone = tmp_path / "alone.h5"
    assert capbench("extract-features", "-i", pictures, "-D", POISONED, "-o", alone, "--threads", "1").code == 0
    assert store.read_bytes() == alone.read_bytes()


def test_a_killed_head_leaves_what_was_done(capbench: Callable[..., Ran], pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    store = tmp_path / "store.h5"
    arguments = ["extract-features", "-i", str(pictures), "-D", POISONED, "-o", str(store), *ON_RAY, "--workers", "2"]
    environment = os.environ | {"POISONED_PAUSE": "0.2", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "capbench", *arguments], env=environment, stderr=subprocess.PIPE, start_new_session=True
    )
    journal = Path(f"{store}.partial")
    until = time.monotonic() + 300
    while not (journal.exists() and journal.stat().st_size > 3_000) and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it had ended before it was killed"
    assert not store.exists()
    ran = capbench(*arguments, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["resumed"] >= 16
    alone = tmp_path / "alone.h5"
    assert capbench("extract-features", "-i", pictures, "-D", POISONED, "-o", alone, "--threads", "1").code == 0
    assert store.read_bytes() == alone.read_bytes()


WORKERS = ["2", pytest.param("1", marks=pytest.mark.slow)]


@pytest.mark.parametrize("workers", WORKERS)
def test_workers_change_no_score(workers: str, capbench: Callable[..., Ran], tmp_path: Path) -> None:
    command = ("score", "-m", "bleu", "-m", "cider", "-m", "meteor", "-d", "flickr8k-expert", "--no-cache")
    alone = capbench(*command, "-o", tmp_path / "alone.csv", "--json")
    assert alone.code == 0, alone.err
    spread = capbench(*command, "-o", tmp_path / "spread.csv", "--json", *ON_RAY, "--workers", workers)
    assert spread.code == 0, spread.err
    assert spread.out == alone.out
    assert (tmp_path / "spread.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


@pytest.mark.parametrize("numbers", ["2", pytest.param("12", marks=pytest.mark.slow)])
def test_scores_of_networks_come_from_workers_too(numbers: str, capbench: Callable[..., Ran], tmp_path: Path) -> None:
    store = tmp_path / "sample.h5"
    assert capbench("extract-features", "-o", store).code == 0
    command: tuple[str | Path, ...] = ("score", "-d", "flickr8k-expert", "--features", store, "--no-cache", "--json")
    for metric in ("tiger", "reo", "faier", "vilbertscore"):
        command = (*command, "-m", metric, "--model", f"{metric}=sample")
    alone = capbench(*command)
    assert alone.code == 0, alone.err
    runs = [capbench(*command, *ON_RAY, "--workers", number) for number in numbers]
    assert [ran.code for ran in runs] == [0] * len(numbers), runs[0].err + runs[-1].err
    assert len({ran.out for ran in runs}) == 1
    spread, without = json.loads(runs[-1].out), json.loads(alone.out)
    if tuple(int(part) for part in version("torch").split(".")[:2]) >= (2, 15):
        assert spread == without
    else:  # PyTorch 2.6 rounds a batch by its size, and parts are other batches
        for ours, theirs in zip(spread["scores"], without["scores"], strict=True):
            assert ours == {key: v if isinstance(v, str) else pytest.approx(v, abs=1e-6) for key, v in theirs.items()}
