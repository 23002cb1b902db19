"""Finds metrics, data sets and detectors by name: entry points, and ``module:Class`` on the command line.

Built-in ones are registered in ``pyproject.toml`` in the same way as anybody else's, under the groups
``capbench.metrics``, ``capbench.datasets`` and ``capbench.detectors``. ``capbench.trainers`` holds those of plug-ins:
``capbench train`` has a command for each.
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

from capbench.core.errors import CapbenchWarning, UsageError, missing_pytorch, suggest

__all__ = ["Group", "Plugin", "load", "load_any", "names", "registered"]

Group = Literal["capbench.metrics", "capbench.datasets", "capbench.detectors", "capbench.trainers"]
_KINDS: dict[str, str] = {
    "capbench.metrics": "metric",
    "capbench.datasets": "data set",
    "capbench.detectors": "detector",
    "capbench.trainers": "trainer",
}


@dataclass(frozen=True)
class Plugin:
    """A registered name.

    Attributes:
        name: as users write it.
        target: the class, as ``module:Class``.
        package: the installed package that registers it.
    """

    name: str
    target: str
    package: str

    @property
    def is_built_in(self) -> bool:
        """Whether it comes with capbench."""
        return self.target.startswith("capbench.")


@cache
def _entry_points(group: Group) -> dict[str, tuple[importlib.metadata.EntryPoint, Plugin]]:
    """Entry points by name; whose they are is read once, since each package's description is parsed for it."""
    points: dict[str, importlib.metadata.EntryPoint] = {}
    for point in _listed(group):
        # A built-in name cannot be taken over by another package without a word.
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
    """Entry points of all groups, which differ in kind between Pythons; every package's list is read for any group.

    One package with a damaged list breaks the list of all. Each is then read separately, with a warning for those that
    are left out.
    """
    with contextlib.suppress(Exception):
        return importlib.metadata.entry_points()
    points: list[importlib.metadata.EntryPoint] = []
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        if (package := _package(distribution)) in seen:  # the first of a name is the installed one
            continue
        seen.add(package)
        try:
            points += distribution.entry_points
        except Exception as error:
            message = (
                f"the package '{package}' has a damaged list of entry points ({type(error).__name__}); "
                "its metrics, data sets, detectors and trainers are left out. Install it again or remove it"
            )
            warnings.warn(message, CapbenchWarning, stacklevel=2)
    return importlib.metadata.EntryPoints(points)


def _package(distribution: importlib.metadata.Distribution) -> str:
    """A package's name; the folder of its description if that is damaged, too."""
    name = None
    with contextlib.suppress(Exception):
        name = distribution.metadata["Name"]
    return str(name or getattr(distribution, "_path", None) or "?")


def _listed(group: Group) -> Iterator[importlib.metadata.EntryPoint]:
    yield from _all_listed().select(group=group)


def registered(group: Group) -> list[Plugin]:
    """What is registered under a group, built-in ones first, each part in the order of registration.

    Nothing is imported, so that one which cannot be imported stands here as well.
    """
    plugins = (plugin for _, plugin in _entry_points(group).values())
    return sorted(plugins, key=lambda plugin: not plugin.is_built_in)


def names(group: Group) -> list[str]:
    """Registered names of a group, in the order of :func:`registered`."""
    return [plugin.name for plugin in registered(group)]


def load(group: Group, name: str) -> type[Any]:
    """The class behind a registered name or behind ``module:Class``.

    Raises:
        UsageError: no such name (the choices are listed), or the class cannot be imported.
        SetupError: the class needs PyTorch, which is not installed.
    """
    target = load_any(group, name)
    if not isinstance(target, type):
        raise UsageError(f"'{name}' is not a class", hint=f"Give a class that follows the {_KINDS[group]} contract")
    return target


def load_any(group: Group, name: str) -> Any:
    """The object behind a name, which may be a function, too. Errors as of :func:`load`."""
    kind = _KINDS[group]
    if ":" in name:
        target = _import(name, kind, names(group))
    else:
        if name not in _entry_points(group):
            raise UsageError(f"unknown {kind} '{name}'", hint=suggest(name, names(group)))
        point, _ = _entry_points(group)[name]
        try:
            target = point.load()
        except (Exception, SystemExit) as error:  # a plug-in may raise anything while it is imported
            missing = missing_pytorch(error)
            if missing is not None:
                raise missing from error
            package = f"the package '{point.dist.name}'" if point.dist else "the package that registers it"
            raise UsageError(
                f"the {kind} '{name}' cannot be imported from {point.value} ({type(error).__name__}: {error})",
                hint=f"Update or remove {package}",
            ) from error
    return target


def _import(name: str, kind: str, known: list[str]) -> Any:
    module, _, attribute = name.partition(":")
    # A script's own folder is on sys.path, a console command's is not: users expect ./my_metric.py to be found.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        missing = missing_pytorch(error)
        if missing is not None:
            raise missing from error
        hint = "Give it as module:Class, with the module importable from here"
        near = difflib.get_close_matches(module, known, n=1, cutoff=0.6)
        if near and isinstance(error, ModuleNotFoundError):  # a colon also stands in names such as grid:resnet50
            hint = f"Did you mean '{near[0]}'? {hint}"
        raise UsageError(
            f"the {kind} '{name}' cannot be imported ({type(error).__name__}: {error})", hint=hint
        ) from error
