from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capbench.core.cache import Cache
from capbench.metrics.faier.training import FaierTraining
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.parser import SPICE_PARSER_VERSION
from tests.training.world import MATCHING, tiny


def put_parses(world: Path) -> None:
    images = json.loads((world / "world.json").read_text(encoding="utf-8"))["images"]
    texts = sorted({sentence["raw"] for image in images for sentence in image["sentences"]})
    parses = []
    for caption in ptb.tokenize([*texts]):
        words = caption.split()
        tuples = [[words[-1]]]
        if "and" in words:
            tuples = [[words[2]], [words[2], words[-1], "stand by"]]
        parses.append((scene_graph.key(caption), json.dumps(tuples).encode()))
    scene_graph.forget()
    with Cache("scene-graphs") as store:
        store.put(SPICE_PARSER_VERSION, parses)


def settings(world: Path, **changes: Any) -> FaierTraining:
    network = {"embed_dim": 8, "word_dim": 6, "similarity": "cosine"}
    evaluation = {"every": 5, "references": [0, 1]}
    return tiny(FaierTraining, world, changes, **MATCHING, network=network, evaluation=evaluation, batch=6)
