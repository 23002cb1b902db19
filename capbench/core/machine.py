"""This machine: its cores and memory, whether an error says that memory is used up, and how the C library keeps it."""

from __future__ import annotations

import contextlib
import gc
import math
import os
from collections.abc import Iterator
from pathlib import Path

from capbench.core.errors import UsageError

__all__ = [
    "choose_device",
    "is_out_of_memory",
    "keep_freed_memory",
    "limit_cores",
    "paused_collector",
    "postpone_collector",
    "total_memory",
    "usable_cores",
]


_GROUP_CORES = Path("/sys/fs/cgroup/cpu.max")
_OLD_GROUP_CORES = (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_LARGEST = 2**31 - 1
_TOP_PAD = 64 << 20

# Objects that a short command makes in all: modules, classes, and the embedded sample.
_OF_A_START = 200_000

_core_limit: int | None = None


def keep_freed_memory() -> bool:
    """Let this process keep the memory of freed arrays for the next ones, where the C library is glibc.

    glibc gives arrays of more than 32 MB back to the system at once, and the next one of that size is made of fresh,
    zeroed pages. A network's layers do that again and again on a CPU: a quarter of bottom-up attention's processor time
    went there. The price is that the process holds on to the most memory it ever had, and some more.

    Returns:
        Whether it was done. It lasts until the process ends.
    """
    import ctypes
    import platform

    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _TOP_PAD))
    done = [mallopt(name, value) == 1 for name, value in settings]
    return all(done)


def usable_cores() -> int:
    """Cores that this process may use, a container's share rounded up; all there are where the system does not tell."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _group_cores() or cores, _core_limit or cores)


def _group_cores() -> int | None:
    """Cores that the container may keep busy: processor time in a period, of either version of cgroups."""
    for paths in ((_GROUP_CORES,), _OLD_GROUP_CORES):
        try:
            numbers = [part for path in paths for part in path.read_text(encoding="ascii").split()]
        except (OSError, ValueError):
            continue
        if len(numbers) == 2 and all(number.isdigit() and int(number) for number in numbers):
            return max(1, math.ceil(int(numbers[0]) / int(numbers[1])))
    return None


def limit_cores(count: int) -> None:
    """Let this process use no more than ``count`` cores, where it asks :func:`usable_cores`."""
    global _core_limit
    _core_limit = count


def total_memory() -> int | None:
    """Bytes that this machine has, or that its container may use; None where the system does not tell."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # Windows
        return None
    for limit in _GROUP_LIMITS:
        try:
            text = limit.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, of the machine or of a GPU."""
    # PyTorch has a class of its own for GPUs alone; on a CPU it raises RuntimeError with this text.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def postpone_collector() -> None:
    """Let Python look for unreachable cycles when a start's worth of objects was made, and from then on as always.

    What a start makes stays, and looking through it again and again takes a tenth of a short command's time.
    """
    thresholds = gc.get_threshold()

    def resume(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            gc.callbacks.remove(resume)
            gc.set_threshold(*thresholds)

    gc.callbacks.append(resume)
    gc.set_threshold(_OF_A_START, *thresholds[1:])


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Make many objects without a search for garbage among them, which takes longer the more there are.

    Only for work that makes no cycles; what is in no cycle goes as ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def choose_device(name: str) -> str:
    """``auto`` is a GPU where there is one. Raises UsageError if there is none and one is asked for."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no GPU that PyTorch can use", hint="Leave 'device' out")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"
