"""Options that many commands share: a group is declared once, as a dataclass, and a command takes one object of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Generic, TypeVar, get_type_hints

__all__ = ["OptionGroup", "with_groups"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class OptionGroup:
    """A group of options: a frozen dataclass whose fields are what a command's parameters are to typer.

    A subclass may add options, or declare one anew with another default or help; it keeps its place.
    """


def with_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """A command in whose signature every parameter that is an :class:`OptionGroup` is replaced by the group's options.

    Typer reads that signature, and calls by name. The command gets one object for each group, and so an option that is
    added to a group reaches every command that takes the group::

        @with_groups
        def compare(*, metric: Annotated[list[str], typer.Argument()], given: Given) -> None: ...

    Parameters are given by name (``*``), so that a group may stand anywhere among them: help lists options in this
    order. They are read when somebody asks for them: a run needs those of one command.

    Raises:
        TypeError: two parameters have one name; when they are read.
    """
    return _Grouped(command)


class _Grouped(Generic[Result]):
    """A command that takes groups, as typer reads and calls it: by ``__signature__`` and ``__annotations__``."""

    def __init__(self, command: Callable[..., Result]) -> None:
        self._command = command
        self.__doc__ = command.__doc__
        self.__name__ = command.__name__
        self.__module__ = command.__module__

    @functools.cached_property
    def _declared(self) -> tuple[list[inspect.Parameter], dict[str, tuple[type[OptionGroup], tuple[str, ...]]]]:
        """The parameters, groups taken apart; and each group's class and options, by the name of its parameter."""
        hints = get_type_hints(self._command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[type[OptionGroup], tuple[str, ...]]] = {}
        for name, parameter in inspect.signature(self._command).parameters.items():
            hint = hints[name]
            if not (isinstance(hint, type) and issubclass(hint, OptionGroup)):
                parameters.append(_by_name(name, hint, parameter.default))
                continue
            options = fields(hint)
            of_field = get_type_hints(hint, include_extras=True)
            groups[name] = hint, tuple(option.name for option in options)
            for option in options:
                default = inspect.Parameter.empty if option.default is MISSING else option.default
                parameters.append(_by_name(option.name, of_field[option.name], default))
        names = [parameter.name for parameter in parameters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TypeError(f"{self.__name__}: declared twice: {', '.join(twice)}")
        return parameters, groups

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.Signature(self._declared[0])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        # Resolved, since typer would look their names up in another module.
        return {parameter.name: parameter.annotation for parameter in self._declared[0]}

    def __call__(self, **values: Any) -> Result:
        for name, (group, options) in self._declared[1].items():
            values[name] = group(**{option: values.pop(option) for option in options if option in values})
        return self._command(**values)


def _by_name(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
