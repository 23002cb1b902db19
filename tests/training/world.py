from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.scan.train import ScanTraining
from capbench.training.settings import Training
from capbench.training.trainer import Watcher

T = TypeVar("T", bound=Training)

THINGS = ("kite", "lamp", "boat", "drum", "fern", "sofa")
COLOURS = ("red", "blue", "green")
SPLITS = {"train": 18, "val": 6, "test": 6}


def make_world(folder: Path, regions: int = 3, seed: int = 5, *, boxes: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    looks = {word: rng.normal(size=8) for word in (*THINGS, *COLOURS)}
    images = []
    print_ = Fingerprint("drawn", "unknown", "unknown", "unknown")
    store = folder / "world.h5"
    edges = np.linspace(0, 100, regions + 1)
    placed = np.array([(x1, 0, x2, 50) for x1, x2 in itertools.pairwise(edges)], dtype=np.float32)
    with StoreWriter(store, print_, class_names=THINGS if boxes else None) as writer:
        for split, count in SPLITS.items():
            for number in range(count):
                seen = [(COLOURS[rng.integers(3)], THINGS[rng.integers(6)]) for _ in range(2)]
                name = f"{split}{number:02d}"
                rows = [looks[c] + looks[t] + 0.1 * rng.normal(size=8) for c, t in (seen * regions)[:regions]]
                features = np.array(rows, dtype=np.float32)
                if boxes:
                    classes = np.array([THINGS.index(t) for _, t in (seen * regions)[:regions]], dtype=np.int32)
                    scores = np.linspace(0.5, 1.0, regions, dtype=np.float32)
                    writer.add(RegionFeatures(name, 100, 50, placed, features, classes, scores))
                else:
                    writer.add(RegionFeatures(name, 0, 0, None, features))
                (c1, t1), (c2, t2) = seen
                texts = [f"a {c1} {t1} and a {c2} {t2}", f"there is a {c2} {t2} beside a {t1}"]
                if number % 3 == 0:
                    texts.append(f"the {t1} is {c1}")
                sentences = [{"raw": text} for text in texts]
                images.append({"filename": f"{name}.jpg", "split": split, "sentences": sentences})
        writer.finish()
    (folder / "world.json").write_text(json.dumps({"images": images}), encoding="utf-8")
    return folder


def tiny(kind: type[T], world: Path, changes: Mapping[str, Any], **own: Any) -> T:
    raw = {"schema": 1, "name": "tiny", "captions": str(world / "world.json"), "features": str(world / "world.h5")}
    raw |= {"optimiser": {"lr": 0.01}, "epochs": 4, "threads": 1, "device": "cpu", "log_every": 2}
    return kind.model_validate({**raw, **own, **changes})


MATCHING: dict[str, Any] = {
    "vocabulary": {"min_count": 1},
    "loss": {"kind": "info-nce", "temperature": 0.1},
    "dropout": {"regions": 0.1, "words": 0.1, "embedding": 0.1},
    "ema": 0.9,
}


def settings(world: Path, **changes: Any) -> ScanTraining:
    network = {"embed_dim": 8, "word_dim": 6}
    return tiny(ScanTraining, world, changes, **MATCHING, network=network, evaluation={"every": 5}, batch=8)


def log_of(run: Path, *, times: bool = False) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return lines if times else [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


class StopAfter(Watcher):
    def __init__(self, steps: int = 10**9) -> None:
        super().__init__()
        self.left = steps + 1  # the beginning is reported, too
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def step(self, steps: int, done: int) -> None:
        self.left -= 1

    def stopped(self) -> bool:
        return self.left <= 0
