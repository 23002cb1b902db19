"""``capbench setup``: install components that are too large for the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["app"]

app = typer.Typer(
    help="Install components that are not in the package.\n\nExample: capbench setup spice",
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
    """Install SPICE's parser (Java, 390 MB).

    Downloads Stanford CoreNLP 3.6.0, its English models and Rhino into the cache folder, and checks their SHA-256.
    Valid files are not downloaded again; repeat an interrupted run.

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
    print(f"SPICE's parser is ready in {state.folder}" + ("" if added else " (no file was missing)"))
