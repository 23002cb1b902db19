"""What workers do in the engine's tests: in a module of its own, since workers import it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from capbench.core.errors import DataError

DIES, RAISES, REFUSES, DIES_ONCE = -1, -2, -3, -4


def note(folder: Path, name: str) -> int:
    """Note that something happened; gives how often it had happened before."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    before = len(list((folder / name).iterdir()))
    (folder / name / f"{os.getpid()}-{before}").touch()
    return before


def opened(folder: Path) -> Callable[[int], int]:
    """An opener: the function squares a number, or does what a negative one says."""
    note(folder, "opened")

    def work(part: int) -> int:
        note(folder, f"part{part}")
        if part == DIES or (part == DIES_ONCE and note(folder, "died") == 0):
            os._exit(1)
        if part == RAISES:
            raise ValueError("nothing\ncame of it")
        if part == REFUSES:
            raise DataError("is no number", path="numbers.txt", row=3)
        return part * part

    return work
