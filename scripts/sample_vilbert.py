"""The small ViLBERT of the embedded sample: its training. Run by ``train_sample_models.py``.

It learns from what the sample's SCAN learns from (``sample_scan.py``): drawn scenes with captions by the sample's own
grammar, and never a held-out picture or a caption of one. Its word pieces are learned from the same captions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capbench.core.files import read_json
from capbench.metrics.vilbertscore.files import load_vilbert, save_vilbert
from capbench.metrics.vilbertscore.training import train_vilbert
from capbench.metrics.vilbertscore.training_data import VilbertTraining
from capbench.training.settings import parse_training
from scripts.sample_scan import DRAWN, Teller, write_card, write_data

SETTINGS: dict[str, Any] = {
    "schema": 1,
    "name": "sample",
    "splits": {"train": "train", "dev": "val"},
    "network": {
        "positions": 40,
        "types": 1,
        "tasks": 0,
        "text_dim": 32,
        "text_layers": 2,
        "text_heads": 4,
        "text_inner": 64,
        "image_dim": 32,
        "image_layers": 2,
        "image_heads": 4,
        "image_inner": 32,
        "common_dim": 32,
        "common_heads": 4,
        "connections": 2,
        "dropout": 0.0,
    },
    "pieces": {"size": 400, "splits": ["train"]},
    "initial": 0.05,
    # As in the training file vilbert-flickr8k: word states part captions that fit from captions that do not.
    "loss": {
        "words": 0.5,
        "regions": 0.5,
        "alignment": 1.0,
        "negatives": "hard",
        "contrast": 1.0,
        "fit": 1.0,
        "matching": 1.0,
    },
    "optimiser": {"lr": 0.003, "warmup": 50},
    "batch": 64,
    "epochs": 2,
    "ema": 0.99,
    "ema_warmup": "unbiased",
    "select": "last",
    "seed": 1,
    "threads": 1,
    "device": "cpu",
}


def train(folder: Path, target: Path, drawn: int = DRAWN) -> dict[str, Any]:
    """Train in a folder, write the weights and the card; what was done there before is not repeated.

    Returns:
        The card: what the weights are, how they were made, and accuracies on drawn scenes.
    """
    store, captions = write_data(folder, drawn)
    config = parse_training(VilbertTraining, {**SETTINGS, "captions": str(captions), "features": str(store)})
    result = train_vilbert(config, folder / "run-vilbert", watcher=Teller())
    assert result.model is not None
    trained = load_vilbert(result.model)
    facts = {key: trained.training[key] for key in ("features", "steps", "versions", "dev")}
    save_vilbert(target, trained.network, trained.pieces, facts)
    what = "Small ViLBERT for the synthetic scenes of the embedded sample. It knows nothing of photographs."
    pictures = len(read_json(captions)["images"])
    return write_card(target, what, {"pieces": len(trained.pieces)}, SETTINGS, pictures, result)
