"""``capbench models``: which weights are known, where to get them, and taking them in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from capbench.cli import common

__all__ = ["app"]

app = typer.Typer(
    name="models",
    help="Weights of detectors and metrics: what is known and here, where to get the rest, and taking a file in.\n\n"
    "Example: capbench models list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A name of 'capbench models list', or grid:BACKBONE.", show_default=False)
]


def _told(name: str) -> dict[str, Any]:
    from capbench.models.registry import entry, status

    known = entry(name).model_dump(exclude_none=True)
    known["for"] = list(known.pop("used_by"))
    there = dataclasses.asdict(status(name))
    return known | {key: there[key] for key in ("state", "path", "expected", "official")} | {"found": there["sha256"]}


@app.command("list")
def list_(json_output: common.JsonOption = False) -> None:
    """List the weights that are known, and which of them are here.

    Weights that are here are read and compared with their SHA-256. Exit code 1 if a file is not the right one.

    Example: capbench models list
    """
    from capbench.models.registry import entries, models_dir

    found = [_told(name) for name in entries()]
    if json_output:
        common.print_json({"folder": str(models_dir()), "models": found})
    else:
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("model", "state", "for"):
            table.add_column(column, no_wrap=True)
        table.add_column("what", overflow="fold")
        for entry in found:
            table.add_row(entry["name"], entry["state"], ", ".join(entry["for"]), entry["title"])
        common.out().print(table)
        print("and grid:BACKBONE for every classification backbone of torchvision (grid:resnet50)")
        print("'sample', a detector and a grounding model of the embedded sample's scenes, comes with capbench")
        common.note("Where to get one: capbench models info NAME")
    if any(entry["state"] == "wrong" for entry in found):
        raise typer.Exit(1)


@app.command()
def info(name: _Name, json_output: common.JsonOption = False) -> None:
    """Tell where weights come from, under which terms, their SHA-256, and where they lie or should lie.

    Exit code 1 if the file that is here is not the right one.

    Example: capbench models info torchvision-frcnn
    """
    found = _told(name)
    if json_output:
        common.print_json(found)
    else:
        expected = found["expected"]
        if expected is None:
            digest = "not stated by the publisher; recorded when the file is added"
        elif found["official"]:
            digest = expected if len(expected) == 64 else f"begins with {expected} (in the official file's name)"
        else:
            digest = f"{expected} (recorded when the file was added)"
        lines = {
            "for": ", ".join(found["for"]),
            "page": found["page"],
            "file": found["file"] + (f", {found['megabytes']} MB" if "megabytes" in found else ""),
            "address": found.get("url", "none; see the page"),
            "SHA-256": digest,
            "terms": found["terms"],
            "note": found.get("note"),
            "state": found["state"],
            "path": found["path"],
            "found": found["found"],
        }
        print(f"{found['name']}: {found['title']}")
        for label, value in lines.items():
            if value:
                print(f"  {label + ':':<9}{value}")
        if found["state"] != "here":
            print(f"{found['manual']}, then: capbench models add {name} FILE")
    if found["state"] == "wrong":
        raise typer.Exit(1)


@app.command()
def add(
    name: _Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The downloaded file.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace other weights that are there.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Check a downloaded file of weights and copy it to where capbench finds it.

    A file whose SHA-256 is not the official one is refused. Where no official one is known, the file's own is recorded,
    and a file that differs later is refused. The folder is $CAPBENCH_MODELS, else the user's data folder.

    Example: capbench models add torchvision-frcnn ~/Downloads/fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth
    """
    from capbench.models import registry

    done = registry.add(name, file, replace=replace)
    if json_output:
        common.print_json(dataclasses.asdict(done))
        return
    word = "official" if done.official else "no official one is known; recorded"
    print(f"{name}: kept in {done.path}")
    print(f"SHA-256 {done.sha256} ({word})")
