"""The machine: cores, memory, GPUs, out-of-memory errors, and settings of the C library."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from capbench.core.errors import UsageError

_GROUP_CORES = Path("/sys/fs/cgroup/cpu.max")
_GROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")

_core_limit: int | None = None


def keep_freed_memory() -> None:
    """Let this process reuse the memory of freed arrays (glibc only).

    glibc returns arrays of more than 32 MB to the system at once, and the next one of that size gets fresh, zeroed
    pages. This took a quarter of the processor time of bottom-up attention. In return, the process keeps its peak
    memory.
    """
    import ctypes
    import platform

    if platform.libc_ver()[0] == "glibc":
        # M_MMAP_MAX, M_TRIM_THRESHOLD and M_TOP_PAD of malloc.h
        for name, value in ((-4, 0), (-1, 2**31 - 1), (-2, 64 << 20)):
            ctypes.CDLL(None).mallopt(name, value)


def usable_cores() -> int:
    """Cores that this process may use, with a container's share rounded up; all if the system does not report it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _group_limit(_GROUP_CORES)  # processor time per period
    share = math.ceil(quota[0] / quota[1]) if quota else cores
    return min(cores, max(1, share), _core_limit or cores)


def _group_limit(file: Path) -> list[int]:
    """The numbers in a file of the container's control group; none if it has no limit."""
    try:
        return [int(number) for number in file.read_text(encoding="ascii").split()]
    except (OSError, ValueError):  # ``max``
        return []


def limit_cores(count: int) -> None:
    """Limit the result of :func:`usable_cores` in this process to ``count``."""
    global _core_limit
    _core_limit = count


def total_memory() -> int | None:
    """Bytes of memory of this machine or its container; None if the system does not report it."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        return None
    return min([machine, *_group_limit(_GROUP_MEMORY)])


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error reports that the machine or a GPU ran out of memory."""
    # PyTorch has a separate class for GPUs only; on a CPU it raises RuntimeError with this text.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


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
