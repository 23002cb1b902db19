"""Callers of :mod:`capbench.api`, Python or the command line: names of arguments in messages, notes and progress."""

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
    from capbench.datasets.base import Dataset

__all__ = ["PYTHON", "Caller", "python_caller", "warn"]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller: Python (:data:`PYTHON`) or the command line.

    Attributes:
        spelled: function from an argument to its spelling for the user (``images``, ``--image-root``).
        unknown_owner: message if a file names an unknown metric, with placeholders ``argument``, ``name`` and ``path``.
        no_metric: hint of the error if no metric is named.
        form: format of an argument with a value in examples.
        note: shows one line of information that is not in the result.
        tell: shows one line that is also in the result's notes.
        caution: shows one warning that is also in the result's notes.
        on_data: called before any work with the data folder, and True if anything is read from it.
        progress: shows progress.
        leave_out: function from labels to the arguments that leave these metrics out.
    """

    spelled: Callable[[str], str] = str
    unknown_owner: str = "{argument} names '{name}', which is not a metric"
    no_metric: str = "Pass metrics=['cider', …], or scores=['file.csv']"
    form: str = "{argument}=…"
    note: Callable[[str], None]
    tell: Callable[[str], None] = lambda line: None
    caution: Callable[[str], None] = lambda line: None
    on_data: Callable[[DataRoot, bool], None] = lambda root, used: None
    progress: ProgressFactory = no_progress
    leave_out: Callable[[Sequence[str]], str] = lambda labels: (
        f"without={list(labels)}, or show progress with progress=True"
    )

    def note_columns(self, dataset: Dataset) -> None:
        """Report how the columns of a user's file were read."""
        if dataset.file_columns:
            from capbench.datasets.user.judgement_files import reading_note

            self.tell(reading_note(dataset.file_columns))


def warn(text: str) -> None:
    """Issue a warning at the line that called capbench, from any function of capbench."""
    package = str(Path(__file__).parents[1])
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, CapbenchWarning, stacklevel=level)


PYTHON = Caller(note=warn)
"""A Python program; notes of the command line are warnings."""


def python_caller(progress: bool | ProgressFactory) -> Caller:
    """A Python program with progress.

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
