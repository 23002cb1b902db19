"""``capbench data parses``: hand over what SPICE's parser gave, so that a group parses captions once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["app"]

app = typer.Typer(
    name="parses",
    help="Parses of captions, which SPICE needs: export them, and import those of others.\n\n"
    "Example: capbench data parses export parses.gz",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Write all captions' parses that the cache holds into one file.

    It holds tuples and a hash of each caption, a checksum and the parser's version, but not the captions.

    Example: capbench data parses export parses.gz
    """
    from capbench.text.parse_files import export_parses

    number = export_parses(file, replace=replace)
    if json_output:
        common.print_json({"file": str(file), "parses": number})
        return
    print(f"{common.count(number, 'parse')} in {file}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that export has written.", show_default=False)],
    json_output: common.JsonOption = False,
) -> None:
    """Take the parses of a file into the cache, so that these captions need no parser.

    All or none are taken. A file that is damaged, or of another version of the parser, is refused. It can be repeated.

    Example: capbench data parses import parses.gz
    """
    from capbench.text.parse_files import import_parses

    number, new = import_parses(file)
    if json_output:
        common.print_json({"file": str(file), "parses": number, "new": new})
        return
    print(f"{common.count(number, 'parse')} in {file}, {new:,} of them new")
