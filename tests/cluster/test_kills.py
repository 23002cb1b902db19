"""Workers that are killed at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.test_commands import ON_RAY, POISONED
from tests.features.fakes import pictures

pytestmark = pytest.mark.cluster


def _workers(session: int) -> list[int]:
    """Processes of Ray's workers that are at a part or wait for one, in a session of the system."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "-s", str(session)], capture_output=True, text=True, check=False)
    lines = (line.split(None, 1) for line in listed.stdout.splitlines())
    return [int(pid) for pid, arguments in lines if arguments.startswith("ray::Worker")]


def _extract(folder: Path, store: Path, *more: str) -> subprocess.Popen[bytes]:
    arguments = ["extract-features", "-i", str(folder), "-D", POISONED, "-o", str(store), "--threads", "1", *more]
    environment = os.environ | {"POISONED_PAUSE": "0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", "capbench", *arguments],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_twenty_kills_of_workers_change_no_byte(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    pictures(folder, 800)
    alone = tmp_path / "alone.h5"
    assert _extract(folder, alone).wait() == 0
    store, draw, kills = tmp_path / "store.h5", random.Random(7), 0
    for _ in range(10):
        process = _extract(folder, store, *ON_RAY, "--workers", "2")
        while process.poll() is None:
            time.sleep(draw.uniform(0.5, 3))
            workers = _workers(process.pid)
            if workers and kills < 20:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    kills += 1
        assert process.returncode in (0, 1)  # a part that was hit three times is reported, and the next run does it
        if process.returncode == 0:
            break
    assert kills >= 20
    assert store.read_bytes() == alone.read_bytes()
