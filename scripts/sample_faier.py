"""The small FAIEr of the embedded sample: its training. Run by ``train_sample_models.py``.

It learns from what the sample's SCAN learns from (``sample_scan.py``): drawn scenes with captions by the sample's own
grammar, and never a held-out picture or a caption of one. It has the object level alone, so that it needs no parser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capbench.core.files import read_json
from capbench.metrics.faier.network import load_faier, save_faier
from capbench.metrics.faier.training import FaierTraining, train_faier
from capbench.training.settings import parse_training
from scripts.sample_scan import DRAWN, Teller, write_card, write_data

SETTINGS: dict[str, Any] = {
    "schema": 1,
    "name": "sample",
    "splits": {"train": "train", "dev": "val"},
    "network": {"variant": "faier-object", "embed_dim": 96, "word_dim": 48, "similarity": "cosine"},
    "references": {"draw": "random", "most": 4},
    "vocabulary": {"min_count": 2, "splits": ["train"]},
    "loss": {"kind": "info-nce", "temperature": 0.1},
    "optimiser": {"lr": 0.002, "warmup": 50},
    "dropout": {"words": 0.1, "regions": 0.1},
    "batch": 100,
    "epochs": 4,
    "ema": 0.995,
    "evaluation": {"references": [0, 4]},
    "seed": 1,
    "threads": 1,
    "device": "cpu",
}


def train(folder: Path, target: Path, drawn: int = DRAWN) -> dict[str, Any]:
    """Train in a folder, write the weights and the card; what was done there before is not repeated.

    Returns:
        The card: what the weights are, how they were made, and recall on drawn scenes.
    """
    store, captions = write_data(folder, drawn)
    config = parse_training(FaierTraining, {**SETTINGS, "captions": str(captions), "features": str(store)})
    result = train_faier(config, folder / "run-faier", watcher=Teller())
    assert result.model is not None
    trained = load_faier(result.model)
    facts = {key: trained.training[key] for key in ("features", "steps", "versions", "dev")}
    save_faier(target, trained.network, trained.vocabulary, facts, precision="float16")
    what = (
        "Small FAIEr, object level alone, for the synthetic scenes of the embedded sample. It knows nothing of "
        "photographs."
    )
    pictures = len(read_json(captions)["images"])
    return write_card(target, what, {"words": len(trained.vocabulary)}, SETTINGS, pictures, result)
