"""Checks of scripts before any work: numbers out of range, and places that cannot be written to."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from capbench.core.errors import UsageError

__all__ = ["at_least", "require_file", "require_writable"]


def at_least(low: int) -> Callable[[str], int]:
    """A type for argparse: a whole number of ``low`` or more."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is too few: give {low} or more")
        return value

    return number


def require_file(path: Path) -> None:
    """Raise UsageError if there is no such file."""
    if not path.is_file():
        raise UsageError("there is no such file", path=path, hint="Correct the path")


def require_writable(folder: Path) -> None:
    """Make a folder if it is not there, and try to write into it. Raises UsageError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot be written to ({reason})", path=folder, hint="Give another folder") from error
