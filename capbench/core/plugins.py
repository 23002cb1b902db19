"""Registry of metrics, data sets, detectors and trainers: entry points, and ``module:Class`` on the command line.

Built-in and third-party classes are registered in the same way, in ``pyproject.toml`` under the groups
``capbench.metrics``, ``capbench.datasets`` and ``capbench.detectors``. Plug-ins register trainers under
``capbench.trainers``; ``capbench train`` has a command for each.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from capbench.core.errors import CapbenchWarning, UsageError, check_choice, missing_package

Group = Literal["capbench.metrics", "capbench.datasets", "capbench.detectors", "capbench.trainers"]
_KINDS: dict[str, str] = {
    "capbench.metrics": "metric",
    "capbench.datasets": "data set",
    "capbench.detectors": "detector",
    "capbench.trainers": "trainer",
}


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Write on stderr what a plug-in prints, since stdout is for results; a context or a decorator."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@dataclass(frozen=True)
class Plugin:
    """A registered name.

    Attributes:
        name: the name on the command line.
        target: the class, as ``module:Class``.
        package: the installed package that registers it.
    """

    name: str
    target: str
    package: str

    @property
    def is_built_in(self) -> bool:
        """True if it is part of capbench."""
        return self.target.startswith("capbench.")


@cache
def _entry_points(group: Group) -> dict[str, tuple[importlib.metadata.EntryPoint, Plugin]]:
    """Entry points by name; the package names are cached, since finding one parses the package's metadata."""
    points: dict[str, importlib.metadata.EntryPoint] = {}
    for point in _listed(group):
        # No other package can silently replace a built-in name.
        if point.name not in points or point.value.startswith("capbench."):
            points[point.name] = point
    packages: dict[object, str] = {}
    by_name = {}
    for name, point in points.items():
        place = getattr(point.dist, "_path", None) or id(point.dist)
        if point.dist and place not in packages:
            packages[place] = point.dist.name
        by_name[name] = point, Plugin(name, point.value, packages.get(place, ""))
    return by_name


@cache
def _all_listed() -> Any:
    """Entry points of all groups; their type differs between Python versions.

    One package with damaged entry points makes the standard function fail. Each package is then read separately, with
    a warning for those that are skipped.
    """
    with contextlib.suppress(Exception):
        return importlib.metadata.entry_points()
    points: list[importlib.metadata.EntryPoint] = []
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        if (package := _package(distribution)) in seen:  # the first one of a name is the installed one
            continue
        seen.add(package)
        try:
            points += distribution.entry_points
        except Exception as error:
            message = (
                f"the entry points of the package '{package}' are damaged ({type(error).__name__}); "
                "its metrics, data sets, detectors and trainers are skipped. Reinstall or remove the package"
            )
            warnings.warn(message, CapbenchWarning, stacklevel=2)
    return importlib.metadata.EntryPoints(points)


def _package(distribution: importlib.metadata.Distribution) -> str:
    """A package's name; the folder of its metadata if these are damaged, too."""
    name = None
    with contextlib.suppress(Exception):
        name = distribution.metadata["Name"]
    return str(name or getattr(distribution, "_path", None) or "?")


def _listed(group: Group) -> Iterator[importlib.metadata.EntryPoint]:
    yield from _all_listed().select(group=group)


def registered(group: Group) -> list[Plugin]:
    """Registered names of a group, built-in ones first, otherwise in the order of registration.

    Nothing is imported, so that the list includes plug-ins that cannot be imported.
    """
    plugins = (plugin for _, plugin in _entry_points(group).values())
    return sorted(plugins, key=lambda plugin: not plugin.is_built_in)


def names(group: Group) -> list[str]:
    """Registered names of a group, in the order of :func:`registered`."""
    return [plugin.name for plugin in registered(group)]


def load(group: Group, name: str) -> type[Any]:
    """The class behind a registered name or behind ``module:Class``.

    Raises:
        UsageError: there is no such name (the choices are listed), or the class cannot be imported.
        SetupError: the class needs PyTorch, which is not installed.
    """
    target = load_any(group, name)
    if not isinstance(target, type):
        hint = f"Pass a class that implements the {_KINDS[group]} contract"
        raise UsageError(f"'{name}' is not a class", code="wrong-type", value=name, hint=hint)
    return target


@stdout_to_stderr()
def load_any(group: Group, name: str) -> Any:
    """The class or function behind a name. Errors as of :func:`load`."""
    kind = _KINDS[group]
    if ":" in name:
        target = _import(name, kind, names(group))
    else:
        check_choice(kind, name, names(group))
        point, _ = _entry_points(group)[name]
        try:
            target = point.load()
        except (Exception, SystemExit) as error:  # a plug-in may raise anything while it is imported
            missing = missing_package(error)
            if missing is not None:
                raise missing from error
            package = f"the package '{point.dist.name}'" if point.dist else "the package that registers it"
            raise UsageError(
                f"the {kind} '{name}' cannot be imported from {point.value} ({type(error).__name__}: {error})",
                code="import-failed",
                value=name,
                hint=f"Update or remove {package}",
            ) from error
    return target


def _import(name: str, kind: str, known: list[str]) -> Any:
    module, _, attribute = name.partition(":")
    # For a console command the current folder is not on sys.path, but users expect ./my_metric.py to be found.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        missing = missing_package(error)
        if missing is not None:
            raise missing from error
        hint = "Write module:Class, with a module that can be imported from the current folder"
        near = difflib.get_close_matches(module, known, n=1, cutoff=0.6)
        if near and isinstance(error, ModuleNotFoundError):  # names such as grid:resnet50 contain a colon, too
            hint = f"Did you mean '{near[0]}'? {hint}"
        raise UsageError(
            f"the {kind} '{name}' cannot be imported ({type(error).__name__}: {error})",
            code="import-failed",
            value=name,
            hint=hint,
        ) from error
