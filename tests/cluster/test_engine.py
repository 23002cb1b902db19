from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.core.workers import Cluster, Engine, PartFailure, parse_engine
from tests.cluster import parts

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def notes() -> list[str]:
    return []


@pytest.fixture(scope="module")
def engine(notes: list[str]) -> Iterator[Engine]:
    with Engine(Cluster(workers=2, memory_mb=300), notes.append) as engine:
        yield engine


def test_every_part_is_done_once_and_each_worker_opens_once(engine: Engine, tmp_path: Path) -> None:
    results = dict(engine.run(partial(parts.opened, tmp_path), range(20), memory_mb=300))
    assert results == {number: number * number for number in range(20)}
    assert len(list((tmp_path / "opened").iterdir())) == 2
    assert all(len(list((tmp_path / f"part{number}").iterdir())) == 1 for number in range(20))


def test_a_part_whose_worker_died_is_done_again(engine: Engine, tmp_path: Path) -> None:
    results = dict(engine.run(partial(parts.opened, tmp_path), [1, parts.DIES_ONCE, 2], memory_mb=300))
    assert results == {0: 1, 1: parts.DIES_ONCE**2, 2: 4}


def test_a_part_that_fails_three_times_is_reported_and_stops_nothing(engine: Engine, tmp_path: Path) -> None:
    work = [1, parts.DIES, 2, parts.RAISES, 3, 4]
    results = dict(engine.run(partial(parts.opened, tmp_path), work, memory_mb=300))
    assert results == {
        0: 1,
        1: PartFailure("its worker died three times, possibly for lack of memory"),
        2: 4,
        3: PartFailure("ValueError: nothing came of it"),
        4: 9,
        5: 16,
    }
    for part in (parts.DIES, parts.RAISES):
        assert len(list((tmp_path / f"part{part}").iterdir())) == 3


def test_what_the_user_can_mend_is_raised_at_once(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"numbers\.txt, line 3: is no number|numbers\.txt.*is no number"):
        list(engine.run(partial(parts.opened, tmp_path), [parts.REFUSES], memory_mb=300))
    assert len(list((tmp_path / f"part{parts.REFUSES}").iterdir())) == 1


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert parse_engine("ray") is None
    assert parse_engine("ray:auto") == "auto"
    assert parse_engine("ray:ray://head:10001") == "ray://head:10001"
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert parse_engine("ray") == "head:6379"


def _listening(pids: Collection[int]) -> dict[str, set[int]]:
    """Addresses on which processes accept connections, as the system writes them, and the processes."""
    owners: dict[str, int] = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                owners[str(descriptor.readlink())] = pid
    addresses: dict[str, set[int]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in owners:
                addresses.setdefault(fields[1].split(":")[0], set()).add(owners[f"socket:[{fields[9]}]"])
    return addresses


def _session(leader: int) -> list[int]:
    """Processes of a session of the system, without those that have ended."""
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(leader)], capture_output=True, text=True, check=False)
    return [int(pid) for pid, state in map(str.split, listed.stdout.splitlines()) if not state.startswith("Z")]


SLOW_WORK = """
import sys
from functools import partial
from pathlib import Path
from capbench.core.workers import Cluster, Engine
from tests.cluster import parts
from tests.errors import raises
with Engine(Cluster(workers=2, memory_mb=300)) as engine:
    list(engine.run(partial(parts.opened_slowly, Path(sys.argv[1])), range(600), memory_mb=300))
"""


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="needs /proc/net")
def test_a_local_ray_listens_on_the_loopback_alone_and_ends_with_sigterm(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_WORK, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until = time.monotonic() + 300
    while len(list(tmp_path.glob("part*"))) < 4:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    addresses = _listening(_session(process.pid))
    # 127.0.0.1 as it is and within IPv6, and ::1, in the byte order of little-endian machines.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert addresses
    assert addresses.keys() <= loopback
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert b"SIGTERM" not in told
    assert b"KeyboardInterrupt" in told
    until = time.monotonic() + 10
    while _session(process.pid):
        assert time.monotonic() < until, _session(process.pid)
        time.sleep(0.1)
