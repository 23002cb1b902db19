"""Where a network computes scores."""

from __future__ import annotations

from capbench.errors import UsageError

__all__ = ["choose_device"]


def choose_device(name: str) -> str:
    """``auto`` is a GPU where there is one. Raises UsageError if there is none and one is asked for."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no GPU that PyTorch can use", hint="Leave 'device' out")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"
