from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capbench.metrics.leic.training import LeicTraining
from tests.training import world as scan_world


def make_world(folder: Path) -> Path:
    scan_world.make_world(folder)
    images = json.loads((folder / "world.json").read_text())["images"]
    for system in ("one", "two"):
        captions = [
            {"image_id": image["filename"], "caption": f"{system} thing of image {number % 4}"}
            for number, image in enumerate(images)
        ]
        (folder / f"{system}.json").write_text(json.dumps(captions), encoding="utf-8")
    return folder


def system_files(world: Path) -> list[str]:
    return [str(world / "one.json"), str(world / "two.json")]


def settings(world: Path, **changes: Any) -> LeicTraining:
    network = {"word_dim": 6, "state_dim": 8, "hidden_dim": 10, "steps": 7}
    return scan_world.tiny(LeicTraining, world, changes, network=network, min_count=1, dropout=0.1, batch=8)
