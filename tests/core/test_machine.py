from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from capbench.core import machine

# In a process of its own: what is set lasts until its end. Pages that are touched for the first time are counted.
_COUNT = """
import ctypes, resource, sys
from capbench.core.machine import keep_freed_memory

def touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = libc.malloc(100 << 20)
    ctypes.memset(place, 1, 100 << 20)
    libc.free(place)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
if sys.argv[1] == "keep":
    assert keep_freed_memory()
touched()
print(touched())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_the_next_large_array_touches_no_fresh_pages() -> None:
    def count(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", _COUNT, how], capture_output=True, text=True, check=True)
        return int(done.stdout)

    fresh, kept = count("leave"), count("keep")
    assert fresh > 40  # 50 of 2 MB where the system gives huge pages, else 25,600
    assert kept < fresh / 10


@pytest.mark.parametrize(
    ("written", "cores"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_share_of_the_cores_counts(
    written: dict[str, str], cores: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in written.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    monkeypatch.setattr(machine, "_GROUP_CORES", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "_core_limit", None)  # restored in the end
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(8)), raising=False)
    assert machine.usable_cores() == cores
    machine.limit_cores(1)
    assert machine.usable_cores() == 1


def test_the_collector_waits_for_a_starts_worth_of_objects_and_then_works_as_always() -> None:
    source = """
import gc
from capbench.core.machine import postpone_collector
before = gc.get_threshold()
postpone_collector()
assert gc.get_count()[0] < gc.get_threshold()[0] and gc.get_threshold()[0] == 200_000
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
kept = [[] for _ in range(150_000)]
assert not seen
kept += [[] for _ in range(100_000)]
assert seen and gc.get_threshold() == before
assert len(gc.callbacks) == 1
"""
    subprocess.run([sys.executable, "-c", source], check=True)
