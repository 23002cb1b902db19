"""Where a network is trained, and whether it can be."""

from __future__ import annotations

import torch

from capbench.errors import UsageError
from capbench.machine import total_memory

__all__ = ["check_memory", "choose_device"]

_BYTES_A_WEIGHT = 16  # a weight, its gradient and Adam's two means of it, in float32


def choose_device(name: str) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N`` as a device. Raises UsageError if there is no such GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:  # cuda:99999999999999
        raise UsageError(f"there is no device '{name}'", hint="Set 'device' to auto or cpu") from error
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(f"there is no device '{name}'", hint="Set 'device' to auto or cpu")
    return device


def check_memory(weights: int, hint: str) -> None:
    """Refuse a network that cannot be trained here, before it is made.

    Args:
        weights: how many numbers are learned.
        hint: which settings to lower.

    Raises:
        UsageError: weights, gradients and Adam's means are more than all memory.
    """
    available, needed = total_memory(), weights * _BYTES_A_WEIGHT
    if available is not None and needed > available:
        raise UsageError(
            f"a network of {weights:,} weights needs {needed / 1e9:,.1f} GB to be trained, and there are "
            f"{available / 1e9:,.1f} GB of memory",
            hint=hint,
        )
