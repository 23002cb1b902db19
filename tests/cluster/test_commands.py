"""``--on ray`` from the command line: the same bytes as one process, whatever the workers and what kills them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from capbench.features.store import open_store
from tests.cluster.poisoned import POISONED
from tests.conftest import Ran
from tests.features.fakes import pictures

pytestmark = pytest.mark.cluster

EXTRACT = ("extract-features", "-D", POISONED, "--threads", "1")
ON_RAY = ("--on", "ray", "--worker-memory", "900", "--workers", "2")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    pictures(folder, 70)
    return folder


@pytest.fixture
def alone(photos: Path, tmp_path: Path, capbench: Callable[..., Ran]) -> bytes:
    """The store that one process writes."""
    assert capbench(*EXTRACT, "-i", photos, "-o", tmp_path / "alone.h5").code == 0
    return (tmp_path / "alone.h5").read_bytes()


def test_an_image_that_kills_its_worker_is_reported_and_the_rest_is_done(
    capbench: Callable[..., Ran], photos: Path, alone: bytes, tmp_path: Path
) -> None:
    folder, store = tmp_path / "photos", tmp_path / "store.h5"
    shutil.copytree(photos, folder)
    Image.new("RGB", (13, 16)).save(folder / "p030x.png")  # of 71 images, in the second part of 16
    ran = capbench(*EXTRACT, "-i", folder, "-o", store, *ON_RAY, "--json")
    assert ran.code == 1
    failed = json.loads(ran.out)["failed"]
    assert [entry["image"] for entry in failed] == [f"p{n:03}" for n in range(16, 31)] + ["p030x"]
    assert "a part of 16 images failed: its worker died three times" in failed[0]["reason"]
    with open_store(store) as opened:
        assert len(opened) == 71 - 16
        assert dict(opened.fingerprint.versions)["threads"] == "1"
    # Without the image, one process does what is left.
    (folder / "p030x.png").unlink()
    assert capbench(*EXTRACT, "-i", folder, "-o", store).code == 0
    assert store.read_bytes() == alone


def _extract(folder: Path, store: Path, *more: str) -> subprocess.Popen[bytes]:
    """The extraction in a session of its own, with a pause at each picture."""
    command = [sys.executable, "-m", "capbench", *EXTRACT, "-i", str(folder), "-o", str(store), *more]
    environment = os.environ | {"POISONED_PAUSE": "0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
    null = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, start_new_session=True, stdout=null, stderr=null)


def _begun(photos: Path, store: Path) -> subprocess.Popen[bytes]:
    """An extraction by workers that has stored images."""
    journal = Path(f"{store}.partial")
    enough = 3_000 + (journal.stat().st_size if journal.exists() else 0)
    process, until = _extract(photos, store, *ON_RAY), time.monotonic() + 300
    while not (journal.exists() and journal.stat().st_size > enough):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


def _processes(session: int) -> dict[int, str]:
    """Processes of a session of the system that have not ended, with their command lines."""
    command = ["ps", "-o", "pid=,stat=,args=", "-s", str(session)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (line.split(None, 2) for line in listed.stdout.splitlines())
    return {int(pid): arguments for pid, state, arguments in lines if not state.startswith("Z")}


def _listening(pids: Iterable[int]) -> set[str]:
    """Addresses on which processes accept connections, as the system writes them."""
    sockets = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(str(descriptor.readlink()))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="needs /proc/net")
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 130), pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_local_ray_listens_on_the_loopback_alone_and_a_killed_head_leaves_what_was_done(
    capbench: Callable[..., Ran], photos: Path, alone: bytes, tmp_path: Path, sent: int, code: int
) -> None:
    pytest.importorskip("ray")
    store = tmp_path / "store.h5"
    process = _begun(photos, store)
    # 127.0.0.1 as it is and within IPv6, and ::1, in the byte order of little-endian machines.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    addresses = _listening(_processes(process.pid))
    assert addresses
    assert addresses <= loopback
    process.send_signal(sent)
    assert process.wait(300) == code, "it had ended before it was killed"
    until = time.monotonic() + 60
    while sent != signal.SIGKILL and (left := _processes(process.pid)):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    assert not store.exists()
    resumed = json.loads(capbench(*EXTRACT, "-i", photos, "-o", store, "--json").out)["resumed"]
    assert resumed > 0
    assert store.read_bytes() == alone


@pytest.mark.slow
def test_twenty_kills_of_workers_change_no_byte(tmp_path: Path) -> None:
    folder, store, alone = tmp_path / "photos", tmp_path / "store.h5", tmp_path / "alone.h5"
    pictures(folder, 800)
    assert _extract(folder, alone).wait() == 0
    draw, kills, code = random.Random(7), 0, 1
    while code == 1:  # a part that was hit three times is reported, and the next run does it
        process = _extract(folder, store, *ON_RAY)
        while process.poll() is None:
            time.sleep(draw.uniform(0.5, 3))
            workers = [pid for pid, name in _processes(process.pid).items() if name.startswith("ray::Worker")]
            if workers and kills < 20:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    kills += 1
        code = process.returncode
    assert (code, kills) == (0, 20)
    assert store.read_bytes() == alone.read_bytes()


def test_workers_change_no_score(capbench: Callable[..., Ran], sample_store: Path, tmp_path: Path) -> None:
    command = ["score", "-d", "flickr8k-expert", "--features", str(sample_store), "--no-cache"]
    for metric in ("bleu", "cider", "meteor"):
        command += ["-m", metric]
    for metric in ("tiger", "reo", "faier", "vilbertscore"):
        command += ["-m", metric, "--model", f"{metric}=sample"]
    alone, spread = tmp_path / "alone.csv", tmp_path / "spread.csv"
    assert capbench(*command, "-o", alone).code == 0
    assert capbench(*command, "-o", spread, *ON_RAY).code == 0
    # PyTorch 2.6 rounds a batch by its size, and parts are other batches.
    pd.testing.assert_frame_equal(pd.read_csv(spread), pd.read_csv(alone), rtol=0, atol=1e-6)
