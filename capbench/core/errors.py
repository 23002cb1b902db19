"""All errors that capbench raises deliberately.

Each error has a short, stable ``code`` (:data:`ERROR_CODES`), which scripts and tests compare; its sentences may
change. The command line prints ``str(error)`` after ``error:`` and exits with ``exit_code``. Errors outside this tree
are bugs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from typing import ClassVar, TypeVar

ERROR_CODES: dict[str, str] = {
    "ambiguous": "a name or row matches several things",
    "changed": "a file changed after it was recorded or while it was read",
    "conflict": "options or settings exclude each other",
    "damaged": "a file is truncated, or its checksum does not match",
    "download-failed": "a file could not be downloaded",
    "duplicate": "an entry occurs twice",
    "exists": "the output already exists",
    "import-failed": "a plug-in or a Python module cannot be imported",
    "in-use": "another process uses the file",
    "invalid": "any other invalid input",
    "mismatch": "two inputs disagree (numbers of rows, ids, texts)",
    "missing-caption": "there are no candidates, or one of them is absent",
    "missing-column": "a table has no such column",
    "missing-data": "a data set is not installed, or CAPBENCH_DATA is not set",
    "missing-features": "images have no features, or no feature file was passed",
    "missing-file": "a file or folder does not exist",
    "missing-image": "an image is not in the folder, features or data set",
    "missing-key": "an entry has no such key or field",
    "missing-option": "an argument or option is required",
    "missing-package": "a Python package is not installed",
    "missing-references": "an image or a caption has no references",
    "missing-scores": "items have no score",
    "missing-value": "a value is empty or absent",
    "missing-weights": "a metric has no weights",
    "not-a-number": "a value is not a finite number",
    "not-converged": "training or a fit did not reach finite values",
    "not-set-up": "a component must be installed with 'capbench doctor --install spice'",
    "out-of-memory": "there is not enough memory",
    "out-of-range": "a number is outside its range",
    "timeout": "another program or process did not respond in time",
    "too-few": "there are fewer values than the computation requires",
    "too-large": "a file or array exceeds a limit",
    "too-many": "there are more values than a limit allows",
    "tool-failed": "another program failed",
    "undefined": "a statistic has no value on these numbers",
    "unfinished": "part of the work is not done",
    "unknown-column": "a table has a column that nothing reads",
    "unknown-item": "a row names an item or image that the data set does not contain",
    "unknown-key": "a file has a key that nothing reads",
    "unknown-name": "no metric, data set, protocol, detector, model, column, statistic ... of that name",
    "unknown-option": "no option of that name",
    "unreadable": "a file cannot be read or decoded",
    "unsafe": "a file could run code or write outside its folder",
    "unsupported": "the requested combination is not available",
    "unwritable": "a file cannot be written",
    "wrong-features": "features come from another detector or have another size",
    "wrong-format": "a file is not in the expected format",
    "wrong-shape": "an array has another shape than required",
    "wrong-type": "a value has another type than required",
    "wrong-value": "a value is not one of those allowed",
    "wrong-version": "a file was written in an unsupported version",
    "wrong-weights": "weights belong to another model or network",
}
"""Code of an error → its meaning. Codes never change; new ones may be added."""


E = TypeVar("E", bound="CapbenchError")


class CapbenchError(Exception):
    """Base class of all errors that a user can fix."""

    exit_code: ClassVar[int] = 2
    default_code: ClassVar[str] = "invalid"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,  # one of :data:`ERROR_CODES`; None for the class's default
        value: object = None,
        path: str | os.PathLike[str] | None = None,
        # the place in the file: a line number counted from 1, or a few words (``"entry 3"``)
        row: int | str | None = None,
        hint: str | None = None,  # the remedy, one imperative sentence without a final full stop
    ) -> None:
        self.code = self.default_code if code is None else code
        self.value = value
        self.message = " ".join(message.split())
        self.path = None if path is None else os.fspath(path)
        self.row = row
        self.hint = None if hint is None else " ".join(hint.split())
        super().__init__(self.message)

    def __str__(self) -> str:
        """Place, message and hint in one line."""
        row = f"row {self.row}" if isinstance(self.row, int) else self.row
        place = ", ".join(part for part in (self.path, row) if part)
        line = f"{place}: {self.message}" if place else self.message
        return f"{line}. {self.hint}." if self.hint else line

    def placed(
        self, kind: type[E], path: str | os.PathLike[str] | None, row: int | str | None = None, hint: str | None = None
    ) -> E:
        """The error, as one of another class, at its place in a file; ``hint`` replaces its own."""
        return kind(self.message, code=self.code, value=self.value, path=path, row=row, hint=hint or self.hint)


class UnfinishedError(CapbenchError):
    """Part of the work failed; the rest is done and kept."""

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "unfinished"


class UsageError(CapbenchError):
    """An argument or option that is not valid."""


class DataError(CapbenchError):
    """A file with invalid content."""


class MissingFileError(DataError):
    """A file that a data set requires does not exist."""

    default_code: ClassVar[str] = "missing-file"


class ProtocolError(CapbenchError):
    """An unknown protocol, or one that the data does not support."""


class StudyError(CapbenchError):
    """A study file that cannot be run."""


class MetricError(CapbenchError):
    """A metric that could not be computed, or whose value is not a finite number."""


class StatisticError(CapbenchError):
    """A statistic that is not defined on these numbers."""

    default_code: ClassVar[str] = "undefined"


class FeatureError(CapbenchError):
    """Region features that are missing, damaged or from another detector."""


class MissingFeaturesError(FeatureError):
    """A valid store without features of some requested images."""

    default_code: ClassVar[str] = "missing-features"


class ModelError(CapbenchError):
    """Weights that are missing, or differ from the requested ones."""


class ToolError(CapbenchError):
    """An external program (Java) that could not be started or did not respond."""

    default_code: ClassVar[str] = "tool-failed"


class ToolMemoryError(ToolError):
    """A program that was killed, as systems do when memory runs out, or that reported too little memory."""

    default_code: ClassVar[str] = "out-of-memory"


class SetupError(ToolError):
    """A component that must be installed once with ``capbench doctor --install spice``."""

    default_code: ClassVar[str] = "not-set-up"


class CapbenchWarning(UserWarning):
    """A message for the user that stops nothing; the command line prints ``warning:`` and its text."""


_BEGINNINGS = 3  # maximum number of suggested choices that begin with the word


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 step``, ``1,200 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def suggest(word: str, choices: list[str]) -> str:
    """A hint: the choices that begin with the word, or else the nearest choice; then all choices.

    >>> suggest("flickr8k", ["hm-flickr8k", "flickr8k-expert", "flickr8k-swaps"])
    "Did you mean 'flickr8k-expert' or 'flickr8k-swaps'? Choices: hm-flickr8k, flickr8k-expert, flickr8k-swaps"
    """
    import difflib

    near = [choice for choice in choices if choice.lower().startswith(f"{word.lower()}-")][:_BEGINNINGS]
    near = near or difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    listed = "' or '".join(near)
    did_you = f"Did you mean '{listed}'? " if near else ""
    return did_you + (f"Choices: {', '.join(choices)}" if choices else "There are no choices")


def check_choice(
    kind: str,
    name: object,
    choices: Collection[object],
    error: type[CapbenchError] = UsageError,
    *,
    code: str = "unknown-name",
    path: str | os.PathLike[str] | None = None,
    row: int | str | None = None,
) -> None:
    """Raise ``error`` with the nearest choices if ``name`` is not one of ``choices``; ``kind`` says what it names."""
    if name not in choices:
        hint = suggest(str(name), [str(choice) for choice in choices])
        raise error(f"unknown {kind} '{name}'", code=code, value=name, path=path, row=row, hint=hint)


def unwritable(error: OSError, path: str | os.PathLike[str], hint: str) -> UsageError:
    """The error for a file or folder that cannot be written."""
    return UsageError(f"cannot be written ({error.strerror or error})", code="unwritable", path=path, hint=hint)


# Packages outside the core are extras of pyproject.toml, which the installed package's metadata repeat.

_MODULES = {"pot": "ot"}  # package → module, where the names differ
_NOT_FEATURES = ("all", "dev", "docs", "test")  # extras that collect others, or that only developers need


def extras() -> dict[str, dict[str, str]]:
    """Extras that a feature requires → packages, by the names of their modules → requirements (``torch>=2.6``)."""
    import importlib.metadata  # imported here to keep the start of the program fast

    declared: dict[str, dict[str, str]] = {}
    try:
        lines = importlib.metadata.requires("capbench") or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if extra is not None and extra[1] not in _NOT_FEATURES:
            package = re.split(r"[^A-Za-z0-9._-]", requirement)[0].replace("-", "_")  # a module's name has no hyphen
            declared.setdefault(extra[1], {})[_MODULES.get(package.lower(), package)] = requirement.strip()
    return declared


def absent_package(*packages: str) -> tuple[str, str, str] | None:
    """The first of these packages that is not installed: its name, text with the extra, and the command for all.

    The extra is the smallest that has all missing packages. None if all are installed; none is imported.
    """
    missing = [package for package in packages if not is_installed(package)]
    if not missing:
        return None
    declared = extras()
    having = [extra for extra, names in declared.items() if names.keys() >= set(missing)]
    extra = min(having, key=lambda name: len(declared[name]), default="")
    bounds = declared.get(extra, dict.fromkeys(missing))
    wanted = [f"'{bound or name}'" for name, bound in bounds.items() if not is_installed(name)]
    origin = f" (extra '{extra}')" if extra else ""
    return missing[0], f"{missing[0]}, which is not installed{origin}", f"pip install {' '.join(wanted)}"


def require(*packages: str, purpose: str) -> None:
    """Check that packages of an extra are installed, and import none; ``purpose``: the feature that requires them."""
    absent = absent_package(*packages)
    if absent is not None:
        package, text, command = absent
        hint = f"Install it with {command}; everything else works without it"
        raise SetupError(f"{purpose} requires {text}", code="missing-package", value=package, hint=hint)


def is_installed(package: str) -> bool:
    """True if a package can be imported; it is not imported."""
    import importlib.util

    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # an import hook, or a module without a specification
        return sys.modules.get(package) is not None


def missing_package(error: BaseException) -> SetupError | None:
    """The error for the user if ``error`` was raised because a package of an extra is not installed, else None."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if any(package in names for names in extras().values()):
        try:
            require(package, purpose="this")
        except SetupError as missing:
            return missing
    return None
