"""Callers of :mod:`capbench.api`, Python or the command line: names of arguments in messages, notes and progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capbench.core.arguments import Expected
from capbench.core.errors import CapbenchWarning
from capbench.datasets.root import DataRoot
from capbench.studies.scoring import ProgressFactory, no_progress

if TYPE_CHECKING:
    from capbench.core.workers import Engine
    from capbench.datasets.base import Dataset
    from capbench.metrics.metric_request import Row
    from capbench.studies.run import SlowPart


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller: Python (:data:`PYTHON`) or the command line."""

    spelled: Callable[[str], str] = str  # an argument as the user spells it (``images``, ``--image-root``)
    no_metric: str = "Pass metrics=['cider', …], or scores=['file.csv']"
    note: Callable[[str], None]  # shows one line of information that is not in the result
    tell: Callable[[str], None] = lambda line: None  # shows one line that is also in the result's notes
    caution: Callable[[str], None] = lambda line: None  # shows one warning that is also in the result's notes
    # Reports a number that the result lacks, with the reason; a command prints it with the result.
    lack: Callable[[str], None] = lambda line: None
    # Called before any work with the data folder, and True if anything is read from it.
    on_data: Callable[[DataRoot, bool], None] = lambda root, used: None
    # Called with the rows of a table of scores before anything is scored.
    on_rows: Callable[[Sequence[Row]], None] = lambda rows: None
    spread: Callable[[], AbstractContextManager[Engine | None]] = nullcontext  # opens other workers than this process
    progress: ProgressFactory = no_progress
    # From labels to the arguments that leave these metrics out.
    leave_out: Callable[[Sequence[str]], str] = lambda labels: (
        f"without={list(labels)}, or show progress with progress=True"
    )

    def note_columns(self, dataset: Dataset) -> None:
        """Report how the columns of a user's file were read."""
        if dataset.file_columns:
            from capbench.datasets.user.judgement_files import reading_note

            self.tell(reading_note(dataset.file_columns))

    def announce(self, slow: SlowPart) -> None:
        """Note work that takes more than half a minute, and how to avoid it; progress shows the time left."""
        self.note(f"{slow.in_words()}; leave it out with {self.leave_out(slow.labels)}")


def warn(text: str) -> None:
    """Issue a warning at the line that called capbench, from any function of capbench."""
    package = str(Path(__file__).parents[1])
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, CapbenchWarning, stacklevel=level)


PYTHON: Caller = Caller(note=warn, lack=warn)
"""A Python program; notes of the command line are warnings."""


ProgressGiven = Annotated[
    bool | ProgressFactory | Caller,
    Expected(
        "True, False or a function",
        "Pass True to show progress, or a function that shows it",
        lambda value: isinstance(value, bool | Caller) or callable(value),
    ),
]
"""True to show progress on stderr, False for none, or a function that shows it: it takes a description and the number
of steps, and returns a context manager that yields a function of the steps done. The command line passes itself."""


def python_caller(progress: ProgressGiven) -> Caller:
    """A Python program with progress."""
    if isinstance(progress, Caller):
        return progress
    if progress is True:
        from capbench.core.progress import progress as bars

        return replace(PYTHON, progress=bars)
    return PYTHON if progress is False else replace(PYTHON, progress=progress)
