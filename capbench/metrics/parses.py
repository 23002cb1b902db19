"""Scene graphs for metrics: the captions that still have to be parsed, as slow work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from capbench.progress import SlowWork
from capbench.text import scene_graph

__all__ = ["parser_version", "parsing"]


def parsing(tokens: Sequence[str], *, cache: bool) -> SlowWork | None:
    """The parses that are lacking; None if there are none.

    Args:
        tokens: captions as :func:`capbench.text.ptb.tokenize` gives them.
        cache: whether the cache on disk is used.
    """
    captions = scene_graph.missing(tokens, cache=cache)
    if not captions:
        return None
    run = partial(scene_graph.ensure, captions, cache=cache)
    return SlowWork(
        "SPICE parses",
        "captions",
        frozenset(captions),
        scene_graph.per_second(),
        lambda progress: run(progress=progress),
        lambda spread, progress: run(progress=progress, spread=spread),
    )


def parser_version() -> str:
    """What can change a scene graph, for signatures."""
    from capbench.java.spice.parser import SPICE_PARSER_VERSION

    return SPICE_PARSER_VERSION
