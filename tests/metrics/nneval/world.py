from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from capbench.metrics.nneval.training import NNEvalTraining
from tests.metrics.nneval.stored import WORDS, write_vectors

THINGS, DOINGS = WORDS[:2] + WORDS[7:12], ("runs", "sits")


def make_world(folder: Path, images: int = 14, seed: int = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    people: dict[str, list[str]] = {}
    results, lines = [], {"set_a": [], "set_b": [], "set_human": []}  # type: ignore[var-annotated]
    for number in range(images):
        name = f"im{number:02d}.jpg"
        thing, other = rng.choice(THINGS, 2, replace=False).tolist()
        people[name] = [
            f"a {thing} {DOINGS[place % 2]} on the grass near a {other} {'red ' * (place + 1)}ball"
            for place in range(5)
        ]
        for text in (f"a {thing}", people[name][2], f"a {other} sits"):
            results.append({"image_id": name, "caption": text})
        lines["set_a"].append(f"a {thing} sits on a lake")
        lines["set_b"].append(f"the {other} runs")
        lines["set_human"].append(people[name][4])
    (folder / "people.json").write_text(json.dumps(people))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "imgs_set.txt").write_text("".join(f"{name}\n" for name in people))
    for system, captions in lines.items():
        (folder / system).mkdir()
        (folder / system / "generated_captions.txt").write_text("".join(f"{text}\n" for text in captions))
    write_vectors(folder / "v.bin")
    return folder


def settings(world: Path, **changes: Any) -> NNEvalTraining:
    raw: dict[str, Any] = {
        "schema": 1,
        "name": "tiny",
        "captions": str(world / "people.json"),
        "machine": [str(world / "results.json"), str(world / "imgs_set.txt")],
        "vectors": str(world / "v.bin"),
        "df": str(world / "people.json"),
        "optimiser": {"lr": 0.005},
        "batch": 16,
        "epochs": 4,
        "device": "cpu",
        "threads": 1,
    }
    return NNEvalTraining.model_validate({**raw, **changes})
