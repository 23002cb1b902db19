"""New scenes for training the sample's models, none of which lies as one of the sample's held-out pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from capbench.core.files import read_json
from capbench.datasets.root import sample_dir
from scripts.sample.chance import stream
from scripts.sample.scenes import KINDS, Scene, lay_out, new_plan

__all__ = ["new_scenes", "sample_scenes"]


def sample_scenes() -> list[dict[str, Any]]:
    """The entry of each of the sample's pictures in ``scenes.json``."""
    scenes: list[dict[str, Any]] = read_json(sample_dir() / "scenes.json")["images"]
    return scenes


def new_scenes(prefix: str, count: int, rare: float) -> Iterator[tuple[int, Scene]]:
    """The scenes ``PREFIX-0``, ``PREFIX-1``, … of these that are new, each with its number.

    Args:
        prefix: of their names, from which they are drawn.
        count: how many are looked at.
        rare: how often a group is of any class, rare ones among them.
    """
    held_out = [[o["box"] for o in entry["objects"]] for entry in sample_scenes() if entry["split"] == "held-out"]
    for i in range(count):
        name = f"{prefix}-{i}"
        scene = lay_out(name, new_plan(stream("plan", name), tuple(KINDS), rare=rare))
        if [list(thing.box) for thing in scene.things] not in held_out:
            yield i, scene
