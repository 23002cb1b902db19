"""Registry of metrics, data sets, detectors and trainers: built-in ones, entry points, and ``module:Class``.

Built-in classes are registered in :mod:`capbench.core.built_in`, those of other packages by entry points.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from capbench.core.built_in import BUILT_IN
from capbench.core.errors import UsageError, check_choice, missing_package

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
    """A registered name."""

    name: str  # the name on the command line
    target: str  # the class, as ``module:Class``
    # the entry point of a plug-in; None for built-in classes
    point: importlib.metadata.EntryPoint | None = field(default=None, repr=False)

    @property
    def package(self) -> str:
        """The installed package that registers it; reads the package's metadata."""
        return self.point.dist.name if self.point is not None and self.point.dist else "capbench"


@cache
def registered(group: Group) -> Mapping[str, Plugin]:
    """The names of a group in the order of registration; no package can silently replace a built-in one."""
    by_name = {name: Plugin(name, target) for name, target in BUILT_IN.get(group, {}).items()}
    for point in _all_listed().select(group=group):
        if not point.value.startswith("capbench."):
            by_name.setdefault(point.name, Plugin(point.name, point.value, point))
    return by_name


_all_listed = cache(importlib.metadata.entry_points)


def names(group: Group) -> list[str]:
    """Registered names of a group, in the order of :func:`registered`."""
    return list(registered(group))


def load(group: Group, name: str) -> type[Any]:
    """The class behind a registered name or behind ``module:Class``."""
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
        plugin = Plugin(name, name)
        # For a console command the current folder is not on sys.path, but users expect ./my_metric.py to be found.
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())
    else:
        check_choice(kind, name, names(group))
        plugin = registered(group)[name]
    module, _, attribute = plugin.target.partition(":")
    try:
        return plugin.point.load() if plugin.point else getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        hint = f"Update or remove the package '{plugin.package}'"
        if ":" in name:
            hint = "Write module:Class, with a module that can be imported from the current folder"
        raise missing_package(error) or UsageError(
            f"the {kind} '{name}' cannot be imported from {plugin.target} ({type(error).__name__}: {error})",
            code="import-failed",
            value=name,
            hint=hint,
        ) from error
