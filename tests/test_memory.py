from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from capbench import memory

# In a process of its own: what is set lasts until its end. Pages that are touched for the first time are counted.
_COUNT = """
import ctypes, resource, sys
from capbench.memory import keep_freed_memory

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


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert memory.keep_freed_memory() is False
