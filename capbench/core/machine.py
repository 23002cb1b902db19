"""The machine: cores, memory, GPUs, out-of-memory errors, and settings of the C library and the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import math
import os
from collections.abc import Iterator
from pathlib import Path

from capbench.core.errors import UsageError

_GROUP_CORES = Path("/sys/fs/cgroup/cpu.max")
_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_LARGEST = 2**31 - 1
_TOP_PAD = 64 << 20

# Number of objects that a short command creates: modules, classes, and the embedded sample.
_STARTUP_OBJECTS = 200_000

_core_limit: int | None = None


def keep_freed_memory() -> bool:
    """Let this process reuse the memory of freed arrays (glibc only). Returns True if the setting was made.

    glibc returns arrays of more than 32 MB to the system at once, and the next one of that size gets fresh, zeroed
    pages. This took a quarter of the processor time of bottom-up attention. In return, the process keeps its peak
    memory.
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
    """Cores that this process may use, with a container's share rounded up; all if the system does not report it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _group_cores() or cores, _core_limit or cores)


def _group_cores() -> int | None:
    """Cores of the container: processor time per period."""
    try:
        numbers = _GROUP_CORES.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    is_limited = len(numbers) == 2 and all(number.isdigit() and int(number) for number in numbers)
    return max(1, math.ceil(int(numbers[0]) / int(numbers[1]))) if is_limited else None


def limit_cores(count: int) -> None:
    """Limit the result of :func:`usable_cores` in this process to ``count``."""
    global _core_limit
    _core_limit = count


def total_memory() -> int | None:
    """Bytes of memory of this machine or its container; None if the system does not report it."""
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
    """True if an error reports that the machine or a GPU ran out of memory."""
    # PyTorch has a separate class for GPUs only; on a CPU it raises RuntimeError with this text.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def postpone_collector() -> None:
    """Delay Python's first search for unreachable cycles until the objects of a start are created."""
    thresholds = gc.get_threshold()

    def resume(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            gc.callbacks.remove(resume)
            gc.set_threshold(*thresholds)

    gc.callbacks.append(resume)
    gc.set_threshold(_STARTUP_OBJECTS, *thresholds[1:])


def choose_device(name: str) -> str:
    """``cpu``, ``cuda`` or ``cuda:N``; ``auto`` selects a GPU if there is one."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if gpus else "cpu"
    with contextlib.suppress(RuntimeError):  # another word, or cuda:99999999999999
        device = torch.device(name)
        if device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < gpus):
            return name
    hint = "Choices: auto, cpu" + (f", cuda:0 to cuda:{gpus - 1}" if gpus else "; PyTorch finds no GPU")
    raise UsageError(f"there is no device '{name}'", code="unsupported", value=name, hint=hint)


@contextlib.contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """A context, or decorator, in which attention in half precision does not use cuDNN.

    cuDNN's (9.15, on GPUs of compute capability 9.0 and 10.0) builds a plan for every new shape of a batch, which takes
    longer than a batch of captions.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        yield
