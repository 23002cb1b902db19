"""Every error that capbench raises on purpose.

::

    CapbenchError              something that the user can mend; one line, exit code 2
    ├── UsageError             an argument or option that does not fit (unknown metric, bad option value)
    ├── DataError              a file of judgements, captions or results that does not hold what it should
    │   └── MissingFileError   a file that a data set needs is not there
    ├── ProtocolError          an unknown protocol, or one that this data cannot carry
    ├── StudyError             a study file that cannot be run
    ├── MetricError            a metric could not be computed, or gave a value that is no number
    ├── StatisticError         a statistic is not defined on these numbers (constant, NaN, empty)
    ├── FeatureError           region features that are missing, damaged or of another detector
    │   └── MissingFeaturesError   a sound store that lacks images which were asked for
    ├── ModelError             weights that are missing, or are not those that were asked for
    ├── ToolError              Java or another program that could not be started or did not answer
    │   ├── ToolMemoryError    such a program that was killed, or had too little memory
    │   └── SetupError         something that 'capbench setup' must fetch once before it works
    └── UnfinishedError        work of which parts failed; the rest is done and kept; exit code 1

The command line prints ``str(error)`` after ``error:`` and leaves with ``exit_code``. Errors that
are not in this tree are bugs.
"""

from __future__ import annotations

import os
import re
from typing import ClassVar

__all__ = [
    "NEEDS_PYTORCH",
    "PYTORCH",
    "CapbenchError",
    "CapbenchWarning",
    "DataError",
    "FeatureError",
    "MetricError",
    "MissingFeaturesError",
    "MissingFileError",
    "ModelError",
    "ProtocolError",
    "SetupError",
    "StatisticError",
    "StudyError",
    "ToolError",
    "ToolMemoryError",
    "UnfinishedError",
    "UsageError",
    "count",
    "install_command",
    "install_plug_in",
    "install_pytorch",
    "missing_pytorch",
    "suggest",
]


class CapbenchError(Exception):
    """Base of all errors that a user can mend.

    Args:
        message: what is wrong, without a final full stop.
        path: the file it is wrong in.
        row: where in the file: a line number counted from 1, or a few words (``"entry 3"``).
        hint: what to do about it, one imperative sentence without a final full stop.
    """

    exit_code: ClassVar[int] = 2

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        row: int | str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = " ".join(message.split())
        self.path = None if path is None else os.fspath(path)
        self.row = row
        self.hint = None if hint is None else " ".join(hint.split())
        super().__init__(self._line())

    def _line(self) -> str:
        place = "" if self.path is None else self.path
        if self.row is not None:
            where = f"row {self.row}" if isinstance(self.row, int) else self.row
            place = f"{place}, {where}" if place else where
        line = f"{place}: {self.message}" if place else self.message
        return f"{line}. {self.hint}." if self.hint else line

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword arguments do not pickle by themselves, and errors cross process borders.
        return (_rebuild, (type(self), self.message, self.path, self.row, self.hint))


def _rebuild(
    kind: type[CapbenchError], message: str, path: str | None, row: int | str | None, hint: str | None
) -> CapbenchError:
    return kind(message, path=path, row=row, hint=hint)


class UnfinishedError(CapbenchError):
    """Work of which parts failed; the rest is done and kept."""

    exit_code: ClassVar[int] = 1


class UsageError(CapbenchError):
    """An argument or an option that does not fit."""


class DataError(CapbenchError):
    """A file that does not hold what it should."""


class MissingFileError(DataError):
    """A file that a data set needs is not there."""


class ProtocolError(CapbenchError):
    """An unknown protocol, or one that the data at hand cannot carry."""


class StudyError(CapbenchError):
    """A study file that cannot be run."""


class MetricError(CapbenchError):
    """A metric that could not be computed, or whose value is no number."""


class StatisticError(CapbenchError):
    """A statistic that is not defined on the numbers given."""


class FeatureError(CapbenchError):
    """Region features that are missing, damaged or of another detector."""


class MissingFeaturesError(FeatureError):
    """A sound store that lacks images which were asked for."""


class ModelError(CapbenchError):
    """Weights that are missing, or are not those that were asked for."""


class ToolError(CapbenchError):
    """A program beside capbench (Java) that could not be started or did not answer."""


class ToolMemoryError(ToolError):
    """A program that was killed, as systems do that run out of memory, or that reported too little memory."""


class SetupError(ToolError):
    """Something that must be fetched once, with ``capbench setup``, before it works."""


class CapbenchWarning(UserWarning):
    """Something that the user should know but that stops nothing; the command line prints ``warning:`` and its text."""


_BEGINNINGS = 3
"""Choices beginning with a word that are suggested at most."""


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 step``, ``1,200 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def suggest(word: str, choices: list[str]) -> str:
    """One hint line: choices that begin with the word, or the nearest choice if there is one; and all choices.

    For a name of a plug-in that lies beside capbench, the command that installs it (:func:`install_plug_in`).

    >>> suggest("cidr", ["bleu", "cider"])
    "Did you mean 'cider'? Choices: bleu, cider"
    >>> suggest("flickr8k", ["hm-flickr8k", "flickr8k-expert", "flickr8k-swaps"])
    "Did you mean 'flickr8k-expert' or 'flickr8k-swaps'? Choices: hm-flickr8k, flickr8k-expert, flickr8k-swaps"
    """
    import difflib

    plug_in = install_plug_in(word.lower().partition(".")[0])
    if plug_in is not None:
        return plug_in
    near = [choice for choice in choices if choice.lower().startswith(f"{word.lower()}-")][:_BEGINNINGS]
    near = near or difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    listed = " or ".join(f"'{choice}'" for choice in near)
    did_you = f"Did you mean {listed}? " if near else ""
    return f"{did_you}Choices: {', '.join(choices)}" if choices else f"{did_you}There are no choices"


# Commands that install a package which is not here, with the bounds that capbench declares for it.

_PLUG_INS = dict.fromkeys(("dual-encoder", "ref-dual-encoder", "train clip"), "dual-encoder")
"""Names of metrics, columns and commands that plug-ins in capbench's ``examples/`` register → the folder there."""


def install_plug_in(name: str) -> str | None:
    """A hint that installs the plug-in in capbench's ``examples/`` which registers a name; None if none does.

    >>> install_plug_in("ref-dual-encoder")
    "Install its plug-in in capbench's source folder: pip install ./examples/dual-encoder"
    """
    folder = _PLUG_INS.get(name)
    return folder and f"Install its plug-in in capbench's source folder: pip install ./examples/{folder}"


def install_command(*packages: str) -> str:
    """The one line that adds packages, also where capbench itself was not installed from an index.

    >>> install_command("a-package-that-capbench-does-not-name")
    "pip install 'a-package-that-capbench-does-not-name'"
    """
    import importlib.metadata  # here, for every start of the program would pay for it

    try:
        declared = importlib.metadata.requires("capbench") or []
    except importlib.metadata.PackageNotFoundError:  # run from a folder, not installed
        declared = []
    bounds: dict[str, str] = {}
    for line in declared:
        requirement = line.partition(";")[0].strip()
        bounds.setdefault(re.split(r"[^A-Za-z0-9._-]", requirement)[0], requirement)
    return "pip install " + " ".join(f"'{bounds.get(name, name)}'" for name in packages)


# What to say where PyTorch is not installed: networks need it, everything else works without.

PYTORCH = ("torch", "torchvision")
"""What an installation with ``requirements/text.txt`` lacks."""
NEEDS_PYTORCH = "this needs PyTorch, which is not installed"
"""How the error of :func:`missing_pytorch` begins."""


def install_pytorch() -> str:
    """The one line that adds PyTorch, with the bounds that capbench declares."""
    return install_command(*PYTORCH)


def missing_pytorch(error: BaseException) -> SetupError | None:
    """The error for the user if ``error`` says that PyTorch cannot be imported since it is not there, else None.

    >>> str(missing_pytorch(ModuleNotFoundError("No module named 'torch'", name="torch"))).split(" (")[0]
    'this needs PyTorch, which is not installed'
    >>> missing_pytorch(ModuleNotFoundError("No module named 'toch'", name="toch"))
    """
    if not isinstance(error, ModuleNotFoundError) or (error.name or "").partition(".")[0] not in PYTORCH:
        return None
    return SetupError(
        f"{NEEDS_PYTORCH} (there is no module '{error.name}')",
        hint=f"Add it with {install_pytorch()}; all else works without",
    )
