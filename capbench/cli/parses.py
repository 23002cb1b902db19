"""``capbench data parses``: what SPICE's parser gives, made beforehand and handed over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.cluster import SpreadPlace
from capbench.cli.groups import with_groups

__all__ = ["app"]

app = typer.Typer(
    name="parses",
    help="Parses of captions, which SPICE and FAIEr need: make, export, and import those of others.\n\n"
    "Example: capbench data parses export parses.gz",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("make")
@with_groups
def make(
    *,
    captions: Annotated[
        list[str],
        typer.Option(
            "--captions",
            "-c",
            metavar="NAME|FILE",
            help="Captions to parse: a known corpus (flickr8k, flickr30k, coco-val, ...) or a file; repeatable.",
        ),
    ],
    place: SpreadPlace,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Parse captions before they are needed: those of a training, say, which FAIEr's relation level reads.

    Captions that were parsed before are left alone. What was parsed is kept if this is interrupted; the same command
    goes on from there. It needs SPICE's parser ('capbench setup spice').

    Example: capbench data parses make --captions flickr8k

    Example: capbench data parses make --captions coco-val --on ray --workers 8
    """
    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import find_root
    from capbench.text import ptb, scene_graph

    root = find_root(data)
    common.announce_root(root, json_output=json_output)
    texts = [text for name in captions for image in load_captions(name, root).values() for text in image]
    tokens = ptb.tokenize(texts)
    missing = scene_graph.missing(tokens)
    if missing:
        minutes = max(1, round(len(missing) / scene_graph.per_second() / 60))
        common.note(
            f"{common.count(len(missing), 'caption')} to parse, some {common.count(minutes, 'minute')} on this machine "
            "if it does nothing else"
        )
        with place.spread() as spread, common.progress("parsing captions", len(missing)) as step:
            scene_graph.ensure(missing, progress=step, spread=spread)
    distinct, parsed = len(set(tokens)), len(missing)
    if json_output:
        common.print_json({"captions": len(texts), "distinct": distinct, "parsed": parsed})
        return
    print(f"{len(texts):,} captions, {distinct:,} distinct: {parsed:,} parsed now, {distinct - parsed:,} before")


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
