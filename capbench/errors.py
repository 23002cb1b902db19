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
    │   └── SetupError         something that 'capbench setup' must fetch once before it works
    └── UnfinishedError        work of which parts failed; the rest is done and kept; exit code 1

The command line prints ``str(error)`` after ``error:`` and leaves with ``exit_code``. Errors that
are not in this tree are bugs.
"""

from __future__ import annotations

import os
from typing import ClassVar

__all__ = [
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
    "UnfinishedError",
    "UsageError",
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


class SetupError(ToolError):
    """Something that must be fetched once, with ``capbench setup``, before it works."""


class CapbenchWarning(UserWarning):
    """Something that the user should know but that stops nothing; the command line prints ``warning:`` and its text."""


def suggest(word: str, choices: list[str]) -> str:
    """One hint line: the nearest choice if there is one, and all choices.

    >>> suggest("cidr", ["bleu", "cider"])
    "Did you mean 'cider'? Choices: bleu, cider"
    """
    import difflib

    near = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    did_you = f"Did you mean '{near[0]}'? " if near else ""
    return f"{did_you}Choices: {', '.join(choices)}" if choices else f"{did_you}There are no choices"
