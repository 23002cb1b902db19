"""Write docs/cli.md from the commands' own help, so that the two cannot disagree.

Run: python scripts/make_cli_docs.py [--check]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer import Typer
    from typer.models import TyperInfo

os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "100"
os.environ["NO_COLOR"] = "1"

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """\
# Command line

Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 done, but some items failed or some files are
missing (listed); 2 bad input or set-up, said in one line; 130 interrupted.

Written by `scripts/make_cli_docs.py` from the commands' own help.
"""


def commands() -> list[list[str]]:
    """Every command as its words, groups before their commands."""
    from capbench.cli.app import app

    return list(_commands(app, []))


def _commands(app: Typer, before: list[str]) -> Iterator[list[str]]:
    yield before
    yield from ([*before, name] for name in _names(app))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(group.typer_instance, [*before, _name(group)])


def _name(group: TyperInfo) -> str:
    # A group that was added without a name has that of its own app.
    name = group.name or (group.typer_instance and group.typer_instance.info.name)
    assert isinstance(name, str)
    return name


def _names(app: Typer) -> list[str]:
    # A command that was registered without a name has its function's.
    return [
        c.name or getattr(c.callback, "__name__", "").replace("_", "-") for c in app.registered_commands if not c.hidden
    ]


def render() -> str:
    """The text of docs/cli.md."""
    from typer.testing import CliRunner

    from capbench.cli.app import app

    blocks = [HEAD]
    for words in commands():
        result = CliRunner().invoke(app, [*words, "--help"], prog_name="capbench", env={"COLUMNS": "100"})
        if result.exit_code != 0:
            raise SystemExit(f"capbench {' '.join(words)} --help failed: {result.output}")
        text = "\n".join(line.rstrip() for line in result.output.strip("\n").split("\n"))
        blocks.append(f"## `{' '.join(['capbench', *words])}`\n\n```text\n{text}\n```\n")
    return "\n".join(blocks)


def main() -> None:
    """Write the file, or with --check say whether it is up to date."""
    unknown = [argument for argument in sys.argv[1:] if argument != "--check"]
    if unknown:
        raise SystemExit(f"unknown arguments: {' '.join(unknown)}. The only one is --check.")
    text = render()
    if "--check" in sys.argv:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            raise SystemExit("docs/cli.md is out of date: run python scripts/make_cli_docs.py")
        return
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
