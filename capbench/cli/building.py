"""How commands are built from what they declare: late, and so that an option with one value is given once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from capbench.errors import UsageError

__all__ = ["LateCommand", "build_late"]


class LateCommand(TyperCommand):
    """A command whose options are read from its function when they are first asked for.

    To build all commands takes as long as to import typer, and a run needs one of them; a list of commands needs none.

    A second value of an option that takes one is refused, since it would silently take the place of the first. Flags
    may be repeated: they say the same.
    """

    def declared(self) -> Callable[..., Any]:
        """The function of this command; a class of its own gives it, for typer makes the object."""
        raise NotImplementedError

    @functools.cached_property
    def _built(self) -> Any:
        builder = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        builder.command(self.name)(self.declared())
        return typer.main.get_command(builder)

    @property
    def params(self) -> Any:
        """The options and arguments."""
        return self._built.params

    @params.setter
    def params(self, _: object) -> None:
        """What typer made of the stand-in, which has no parameters."""

    @property
    def callback(self) -> Any:
        """The function, as typer calls it."""
        return self._built.callback

    @callback.setter
    def callback(self, _: object) -> None:
        """What typer made of the stand-in."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as ever, then look at which options were given more than once.

        Raises:
            UsageError: an option with one value is given twice.
        """
        typed = list(args)
        rest: list[str] = super().parse_args(ctx, args)
        _, _, in_order = self.make_parser(ctx).parse_args(typed)
        for place, parameter in enumerate(in_order):
            many = parameter.multiple or getattr(parameter, "is_flag", False)
            single = parameter.param_type_name == "option" and not many
            if single and parameter in in_order[:place]:
                name = max(parameter.opts, key=len)
                raise UsageError(f"{name} is given twice", hint="It takes one value: give it once")
        return rest


def build_late(app: typer.Typer) -> None:
    """Make every command of an app, and of the apps in it, a :class:`LateCommand`; once, after all are registered."""
    for command in app.registered_commands:
        declared = command.callback
        assert declared is not None
        command.cls = _class_for(declared)
        command.callback = _stand_in(declared)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            build_late(group.typer_instance)


def _class_for(declared: Callable[..., Any]) -> type[LateCommand]:
    return type("LateCommand", (LateCommand,), {"declared": lambda _: declared})


def _stand_in(declared: Callable[..., Any]) -> Callable[..., None]:
    """What typer reads of a command before anyone asks for its options: its name and help."""

    def command() -> None:
        """Never called."""

    command.__name__, command.__doc__ = declared.__name__, declared.__doc__
    return command
