"""All commands of the command line, and the options of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main


def commands(*, groups: bool = False) -> Iterator[tuple[str, Any]]:
    """Every command with its words (``features info``).

    Args:
        groups: include groups.
    """
    from capbench.cli.app import app

    return _below(typer.main.get_group(app), (), groups)


def _below(command: Any, words: tuple[str, ...], groups: bool) -> Iterator[tuple[str, Any]]:
    is_group = hasattr(command, "list_commands")
    if words and (groups or not is_group):
        yield " ".join(words), command
    for name in command.list_commands(None) if is_group else ():
        below = command.get_command(None, name)
        yield from _below(below, (*words, name), groups)
