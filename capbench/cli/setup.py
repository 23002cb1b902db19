"""``capbench setup``: fetch what is too large to come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["app"]

app = typer.Typer(
    help="Fetch what is too large to come with the package, once, into the cache folder.\n\n"
    "Example: capbench setup spice",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _root() -> None:
    pass


@app.command("spice")
def spice(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Copy the files from this folder instead of downloading them.",
            show_default=False,
        ),
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """Set up SPICE's parser: Stanford CoreNLP 3.6.0, its English models, and Rhino (390 MB in all).

    The files are fetched from where they are published, checked against their SHA-256 and kept. Those that are
    there and right are not fetched again, so an interrupted run is simply repeated.

    Example: capbench setup spice

    Example: capbench setup spice --from /media/usb/jars
    """
    from capbench.text.spice.parser import install_spice, spice_state

    added = install_spice(source, common.progress)
    state = spice_state()
    if json_output:
        common.print_json({"folder": str(state.folder), "added": [p.name for p in added], "ready": state.ready})
        return
    for path in added:
        print(f"added {path.name}")
    print(f"SPICE's parser is ready in {state.folder}" + ("" if added else " (nothing was missing)"))
