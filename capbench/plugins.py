"""Finds metrics and data sets by name: entry points, and ``module:Class`` on the command line.

Built-in ones are registered in ``pyproject.toml`` in the same way as anybody else's, under the
groups ``capbench.metrics`` and ``capbench.datasets``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from functools import cache
from typing import Any, Literal

from capbench.errors import UsageError, suggest

__all__ = ["load", "names"]

Group = Literal["capbench.metrics", "capbench.datasets"]


@cache
def _entry_points(group: Group) -> dict[str, importlib.metadata.EntryPoint]:
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=group):
        # A built-in name cannot be taken over by another package without a word.
        if point.name not in found or point.value.startswith("capbench."):
            found[point.name] = point
    return found


def names(group: Group) -> list[str]:
    """Registered names of a group, built-in ones first, each part in the order of registration."""
    points = _entry_points(group).values()
    return [p.name for p in sorted(points, key=lambda p: not p.value.startswith("capbench."))]


def load(group: Group, name: str) -> type[Any]:
    """The class behind a registered name or behind ``module:Class``.

    Raises:
        UsageError: no such name (the choices are listed), or the class cannot be imported.
    """
    kind = group.removeprefix("capbench.").removesuffix("s").replace("dataset", "data set")
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        # A script's own folder is on sys.path, a console command's is not: users expect ./my_metric.py to be found.
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())
        try:
            found = getattr(importlib.import_module(module_name), attribute)
        except Exception as error:  # a user's module may raise anything while it is imported
            raise UsageError(
                f"the {kind} '{name}' cannot be imported ({type(error).__name__}: {error})",
                hint="Give it as module:Class, with the module importable from here",
            ) from error
    else:
        point = _entry_points(group).get(name)
        if point is None:
            raise UsageError(f"unknown {kind} '{name}'", hint=suggest(name, names(group)))
        try:
            found = point.load()
        except Exception as error:  # as above: a plug-in may raise anything
            raise UsageError(
                f"the {kind} '{name}' cannot be imported from {point.value} ({type(error).__name__}: {error})",
                hint="Update or remove the package that registers it",
            ) from error
    if not isinstance(found, type):
        raise UsageError(f"'{name}' is not a class", hint=f"Give a class that follows the {kind} contract")
    return found
