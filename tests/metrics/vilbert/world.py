from __future__ import annotations

from pathlib import Path
from typing import Any

from capbench.metrics.vilbert.train import VilbertTraining
from tests.training.world import tiny

NETWORK: dict[str, Any] = {
    "positions": 24,
    "types": 1,
    "tasks": 0,
    "text_dim": 8,
    "text_layers": 3,
    "text_heads": 2,
    "text_inner": 12,
    "image_dim": 6,
    "image_layers": 2,
    "image_heads": 2,
    "image_inner": 6,
    "common_dim": 8,
    "common_heads": 2,
    "connections": 2,
    "dropout": 0.1,
}


def settings(world: Path, **changes: Any) -> VilbertTraining:
    own: dict[str, Any] = {
        "network": NETWORK,
        "pieces": {"size": 60, "longest": 20},
        "initial": 0.1,
        "loss": {"negatives": "hard", "contrast": 1.0, "matching": 1.0, "fit": 1.0},
        "evaluation": {"every": 5},
        "batch": 8,
        "ema": 0.9,
    }
    return tiny(VilbertTraining, world, changes, **own)
