"""How the C library deals with the memory of large arrays."""

from __future__ import annotations

import ctypes
import platform

__all__ = ["keep_freed_memory"]

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_LARGEST = 2**31 - 1
_TOP_PAD = 64 << 20


def keep_freed_memory() -> bool:
    """Let this process keep the memory of freed arrays for the next ones, where the C library is glibc.

    glibc gives arrays of more than 32 MB back to the system at once, and the next one of that size is made of fresh,
    zeroed pages. A network's layers do that again and again on a CPU: a quarter of bottom-up attention's processor time
    went there. The price is that the process holds on to the most memory it ever had, and some more.

    Returns:
        Whether it was done. It lasts until the process ends.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _TOP_PAD))
    done = [mallopt(name, value) == 1 for name, value in settings]
    return all(done)
