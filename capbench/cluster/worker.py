"""What runs in a worker: it opens what it needs once, then does part after part."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from capbench.errors import CapbenchError

__all__ = ["Done", "Surroundings", "Worker", "surroundings"]


@dataclass(frozen=True)
class Surroundings:
    """What a worker takes over from the first process.

    Attributes:
        folder: the working directory, in which relative paths are meant.
        paths: where modules are looked for, so that a user's own metric is found.
        variables: capbench's environment variables.
        threads: cores that the worker may use.
    """

    folder: str
    paths: tuple[str, ...]
    variables: Mapping[str, str]
    threads: int

    def take_over(self) -> None:
        """Set them in this process. Raises OSError if the folder is not there: it must be on a shared file system."""
        from capbench.machine import limit_cores

        os.chdir(self.folder)
        sys.path[:] = dict.fromkeys([*sys.path, *self.paths])
        for name in [name for name in os.environ if name.startswith("CAPBENCH_")]:
            del os.environ[name]
        os.environ.update(self.variables)
        limit_cores(self.threads)


def surroundings(threads: int) -> Surroundings:
    """Those of this process."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("CAPBENCH_")}
    return Surroundings(os.getcwd(), tuple(sys.path), variables, threads)


@dataclass(frozen=True)
class Done:
    """What a worker made of a part.

    Attributes:
        result: what the part gave.
        error: what it raised, if no second attempt would mend that.
        warnings: what was warned of meanwhile.
    """

    result: Any = None
    error: CapbenchError | None = None
    warnings: tuple[Warning, ...] = ()


class Worker:
    """The engine's actor.

    Args:
        taken_over: the first process's surroundings.
        opener: gives the function that does a part; called at the first part, so that what it raises has a receiver.
    """

    def __init__(self, taken_over: Surroundings, opener: Callable[[], Callable[[Any], Any]]) -> None:
        taken_over.take_over()
        self._opener = opener
        self._work: Callable[[Any], Any] | None = None

    def do(self, part: Any) -> Done:
        """Do a part. Any exception but a CapbenchError is the engine's matter: it lets the part be done again."""
        with warnings.catch_warnings(record=True) as caught:
            try:
                if self._work is None:
                    self._work = self._opener()
                result, error = self._work(part), None
            except CapbenchError as raised:
                result, error = None, raised
        return Done(result, error, tuple(w.message for w in caught if isinstance(w.message, Warning)))
