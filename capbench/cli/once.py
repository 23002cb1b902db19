"""Options with one value are given once: a second ``--candidates`` would silently take the place of the first."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from capbench.errors import UsageError

__all__ = ["OnceCommand", "give_options_once"]


class OnceCommand(TyperCommand):
    """A command that refuses a second value of an option that takes one. Flags may be repeated: they say the same."""

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


def give_options_once(app: typer.Typer) -> None:
    """Make every command of an app, and of the apps in it, a :class:`OnceCommand`."""
    for command in app.registered_commands:
        command.cls = OnceCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            give_options_once(group.typer_instance)
