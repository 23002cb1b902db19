"""All commands of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main


def commands(*, groups: bool = False) -> Iterator[tuple[str, Any]]:
    """Every command, and every group if wanted, with its words (``features info``)."""
    from capbench.cli.app import app

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        is_group = hasattr(command, "list_commands")
        if words and (groups or not is_group):
            yield " ".join(words), command
        for name in command.list_commands(None) if is_group else ():
            yield from below(command.get_command(None, name), (*words, name))

    yield from below(typer.main.get_group(app), ())
