"""``capbench parse``: show the scene graphs of captions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from rich.tree import Tree

    from capbench.text.spice.scene_graph import SceneGraph

__all__ = ["parse"]


def parse(
    captions: Annotated[list[str], typer.Argument(metavar="CAPTION...", help="Captions, each in quotes.")],
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do not read or write the cache.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Show the scene graphs of captions, as SPICE reads them.

    A scene graph has objects, their attributes and relations. Graphs of captions in the cache are read from it; other
    captions require SPICE's parser ('capbench setup spice').

    Example: capbench parse "a brown dog chases two red balls"
    """
    from capbench.text.spice import scene_graph

    for caption in captions:
        if not caption.strip():
            raise UsageError("a caption is empty", code="missing-value", value=caption, hint="Quote the caption")
    graphs = scene_graph.parse(captions, cache=not no_cache)
    if json_output:
        common.print_json([_as_data(caption, graph) for caption, graph in zip(captions, graphs, strict=True)])
        return
    console = common.out()
    for caption, graph in zip(captions, graphs, strict=True):
        console.print(_as_tree(caption, graph))


def _as_data(caption: str, graph: SceneGraph) -> dict[str, Any]:
    return {
        "caption": caption,
        "objects": list(graph.objects),
        "attributes": {name: list(values) for name, values in graph.attributes.items()},
        "triplets": [list(triplet) for triplet in graph.triplets],
    }


def _as_tree(caption: str, graph: SceneGraph) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(caption, style="bold"))
    for name in graph.objects:
        branch = tree.add(Text(name))
        for attribute in graph.attributes.get(name, ()):
            branch.add(Text(attribute, style="italic"))
        for subject, relation, target in graph.triplets:
            if subject == name:
                branch.add(Text.assemble((relation, "cyan"), " → ", target))
    if not graph.objects:
        tree.add(Text("no objects", style="dim"))
    return tree
