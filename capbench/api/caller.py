"""The side that calls a function of :mod:`capbench.api`: its words in messages, and where notes and progress go."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core.errors import CapbenchWarning
from capbench.datasets.root import DataRoot
from capbench.studies.judged import ProgressFactory, no_progress

if TYPE_CHECKING:
    from capbench.studies.results import StudyResult

__all__ = ["PYTHON", "Caller", "python_caller", "warn"]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The side that calls: Python (:data:`PYTHON`) or the command line.

    Attributes:
        spelled: how the user writes an argument (``images``, ``--image-root``).
        unknown_owner: message where a file is given to an unknown metric; ``argument``, ``name`` and ``path`` are
            filled in.
        no_metric: what to do where no metric is named.
        form: an argument with a value, as examples in messages name it.
        note: shows one line of information that no result holds.
        tell: shows one line that the result holds in its notes, too.
        caution: shows one warning that the result holds in its notes, too.
        on_data: is told, before any work, the data folder, and whether anything is read from it.
        progress: shows progress.
        leave_out: how the user leaves out some metrics, by label.
        preview: shows numbers that are known before slow work begins.
    """

    spelled: Callable[[str], str] = str
    unknown_owner: str = "{argument} names '{name}', which is no metric"
    no_metric: str = "Give metrics=['cider', …], or scores=['file.csv']"
    form: str = "{argument}=…"
    note: Callable[[str], None]
    tell: Callable[[str], None] = lambda line: None
    caution: Callable[[str], None] = lambda line: None
    on_data: Callable[[DataRoot, bool], None] = lambda root, used: None
    progress: ProgressFactory = no_progress
    leave_out: Callable[[Sequence[str]], str] = lambda labels: (
        f"without={list(labels)}, or see how far it is with progress=True"
    )
    preview: Callable[[StudyResult], None] | None = None


def warn(text: str) -> None:
    """Warn the code that called capbench, whatever function of capbench notices."""
    package = str(Path(__file__).parents[1])
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, CapbenchWarning, stacklevel=level)


PYTHON = Caller(note=warn)
"""A Python program, which is warned of what a command notes."""


def python_caller(progress: bool | ProgressFactory) -> Caller:
    """A Python program that calls.

    Args:
        progress: True to show progress on stderr, False for none, or a function that shows it: it takes a description
            and the number of steps, and returns a context manager that yields a function of the steps done.
    """
    if progress is False:
        return PYTHON
    if progress is True:
        from capbench.core.progress import progress as bars

        return replace(PYTHON, progress=bars)
    return replace(PYTHON, progress=progress)
