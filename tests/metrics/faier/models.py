from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.cache import Cache
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.faier.network import Faier, FaierModel, FaierOptions
from capbench.metrics.faier.training import FaierTraining
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.parser import SPICE_PARSER_VERSION
from capbench.text.vocabulary import Vocabulary
from capbench.weights.ensembles import write_ensemble
from capbench.weights.files import write_trained
from tests.metrics.scan.models import Files
from tests.training.world import MATCHING, tiny

FINGERPRINT = Fingerprint("invented", "random:1", "none", "1-6 boxes")
COLUMNS = 9
IMAGES = ("harbour", "meadow", "street", "one")
TRIPLETS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "a dog runs on the grass": (("dog", "run on", "grass"),),
    "two dogs play with a red ball": (("dog", "play with", "ball"), ("dog", "chase", "dog")),
    "a man in a blue shirt sits on a bench": (("man", "in", "shirt"), ("man", "sit on", "bench")),
    "the quiet cat": (),
    "a child stands near a house and a tree": (
        ("child", "stand near", "house"),
        ("child", "stand near", "tree"),
        ("house", "near", "tree"),
    ),
    "dog": (),
    "zebras in a canoe": (("zebra", "in", "canoe"),),
}
TEXTS = tuple(TRIPLETS)


def know_triplets(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {}
    for text, triplets in TRIPLETS.items():
        tuples: list[list[str]] = [["dog"], ["dog", "red"]]
        tuples += [[subject, thing, relation] for subject, relation, thing in triplets]
        known[ptb.tokenize([text])[0]] = json.dumps(tuples)
    monkeypatch.setattr(scene_graph, "_known", known)


def vocabulary() -> Vocabulary:
    triplets = [" ".join(triplet) for text in TEXTS[:-1] for triplet in TRIPLETS[text]]
    return Vocabulary.build([*TEXTS[:-1], *triplets, "."], 1)


def write_model(path: Path, seed: int = 1, *, trained_on: str | None = FINGERPRINT.kind, **changes: Any) -> Path:
    words = vocabulary()
    sizes: dict[str, Any] = {"vocabulary_size": len(words), "word_dim": 7, "embed_dim": 8, "image_dim": COLUMNS}
    generator = torch.Generator().manual_seed(seed)
    network = Faier(FaierOptions(**{**sizes, **changes}), generator)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.mul_(2.0 if weight.dim() > 1 else 1.0)
            if "bias" in name:
                weight.add_(torch.randn(weight.shape, generator=generator) / 4)
    write_trained(path, network, words, {} if trained_on is None else {"features": trained_on})
    return path


def write_features(path: Path, images: Sequence[str] = IMAGES, columns: int = COLUMNS, *, boxes: bool = True) -> Path:
    with StoreWriter(path, FINGERPRINT) as writer:
        for image in images:
            rng = np.random.default_rng(list(image.encode()))
            number = 1 if image == "one" else int(rng.integers(2, 7))
            corners = np.sort(rng.uniform(0, 1, (number, 2, 2)), axis=1).reshape(number, 4) * [80, 50, 80, 50]
            values = rng.normal(size=(number, columns)).astype(np.float32)
            places = corners.astype(np.float32) if boxes else None
            writer.add(RegionFeatures(image, 80, 50, places, values))
        writer.finish()
    return path


def make_files(folder: Path, **changes: Any) -> Files:
    return Files(write_model(folder / "faier.safetensors", **changes), write_features(folder / "features.h5"))


def make_ensemble(folder: Path, **changes: Any) -> Files:
    paths = []
    for seed in (1, 2, 3):
        size = 6 if seed == 1 else 8
        paths.append(write_model(folder / f"{seed}.safetensors", seed, embed_dim=size, **changes))
    write_ensemble(folder / "ensemble.json", [FaierModel.load(path) for path in paths])
    return Files(folder / "ensemble.json", write_features(folder / "features.h5"))


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
