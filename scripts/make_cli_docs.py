"""Write docs/cli/ from the commands' own help, so that the two cannot disagree.

Run: python scripts/make_cli_docs.py [--check]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "100"
os.environ["NO_COLOR"] = "1"

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli"
HEAD = """\
# Command line

Results go to stdout, messages to stderr. Exit codes: 0 done; 1 done, but some items failed or some files are missing
(listed); 2 invalid input or set-up, explained in one line; 3 below `--fail-under` or `--fail-if-worse`; 130
interrupted.

"""
NOTE = "Written by `scripts/make_cli_docs.py` from the commands' own help.\n"


def commands() -> list[list[str]]:
    """Every command as its words, groups before their commands."""
    import typer.main

    from capbench.cli.app import app

    return list(_commands(typer.main.get_group(app), []))


def _commands(command: Any, before: list[str]) -> Iterator[list[str]]:
    yield before
    # A group with a table of entries has imported none of its commands; plug-ins are in neither.
    for name in getattr(command, "entries", None) or getattr(command, "commands", {}):
        below = command.get_command(None, name)
        yield from _commands(below, [*before, name])


def render() -> dict[str, str]:
    """The pages: one for ``capbench`` itself, and one for each command or group at the top level; name to text."""
    from typer.testing import CliRunner

    from capbench.cli.app import app

    pages: dict[str, list[str]] = {}
    listed = commands()
    groups = [words[:length] for words in listed for length in range(len(words))]
    for words in listed:
        shown = "--help" if words in groups else "--help-all"
        result = CliRunner().invoke(app, [*words, shown], prog_name="capbench", env={"COLUMNS": "100"})
        if result.exit_code != 0:
            raise SystemExit(f"capbench {' '.join(words)} {shown} failed: {result.output}")
        text = "\n".join(line.rstrip() for line in result.output.strip("\n").split("\n"))
        level = "##" if len(words) > 1 else "#"
        heading = HEAD if not words else f"{level} `{' '.join(['capbench', *words])}`\n\n"
        pages.setdefault(words[0] if words else "index", []).append(f"{heading}```text\n{text}\n```\n")
    links = "".join(f"- [`capbench {name}`]({name}.md)\n" for name in sorted(pages) if name != "index")
    pages["index"] += [links]
    return {f"{name}.md": "\n".join([*blocks, NOTE]) for name, blocks in pages.items()}


def main() -> None:
    """Write the pages, or with --check compare them."""
    unknown = [argument for argument in sys.argv[1:] if argument != "--check"]
    if unknown:
        raise SystemExit(f"unknown arguments: {' '.join(unknown)}. The only one is --check.")
    pages = render()
    written = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.md")}
    if "--check" in sys.argv:
        if written != pages:
            raise SystemExit("docs/cli/ is out of date: run python scripts/make_cli_docs.py")
        return
    TARGET.mkdir(exist_ok=True)
    for name in written.keys() - pages:
        (TARGET / name).unlink()
    for name, text in pages.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"wrote {len(pages)} pages to {TARGET}")


if __name__ == "__main__":
    main()
