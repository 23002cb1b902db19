from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capbench.core.records import FloatArray, Item
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.needs import Resources
from capbench.text.vocabulary import Vocabulary

FINGERPRINT = Fingerprint("invented", "random:1", "none", "10-12 regions")
DIMENSION = 12
_TEXT = "a the red blue small dog cat ball man woman house runs sits on under near with two and not"
_WORDS = _TEXT.split()


@dataclass(frozen=True)
class Files:
    model: Path
    features: Path

    @property
    def resources(self) -> Resources:
        return Resources(features=str(self.features), model=str(self.model))


def make_files(folder: Path, images: Sequence[str], *, trained_on: str | None = FINGERPRINT.kind) -> Files:
    import torch

    from capbench.metrics.scan.network import Scan, ScanOptions
    from capbench.weights.files import write_trained

    torch.set_num_threads(1)
    files = Files(folder / "scan.safetensors", folder / "features.h5")
    write_features(files.features, images)
    words = Vocabulary.build([" ".join(_WORDS)] * 4)
    options = ScanOptions(vocabulary_size=len(words), word_dim=10, embed_dim=16, image_dim=DIMENSION)
    network = Scan(options, torch.Generator().manual_seed(5))
    write_trained(files.model, network, words, {} if trained_on is None else {"features": trained_on})
    return files


def write_features(path: Path, images: Sequence[str], columns: int = DIMENSION) -> None:
    with StoreWriter(path, FINGERPRINT) as writer:
        for image in dict.fromkeys(images):
            generator = np.random.default_rng(list(image.encode()))
            regions = 6 + len(image) % 3
            values = generator.normal(size=(regions, columns)).astype(np.float32)
            writer.add(RegionFeatures(image, 0, 0, None, values))
        writer.finish()


def make_items(number: int = 60, images: int = 9, seed: int = 2) -> tuple[Item, ...]:
    generator = np.random.default_rng(seed)

    def caption() -> str:
        return " ".join(generator.choice(_WORDS, size=generator.integers(1, 12)))

    references = [tuple(caption() for _ in range(generator.integers(1, 5))) for _ in range(images)]
    found = []
    for i in range(number):
        image = int(generator.integers(images))
        text = references[int(generator.integers(images))][0] if i % 5 == 0 else caption()
        found.append(Item(f"image{'x' * (image % 3)}{image}", text, references[image], f"c{i}"))
    return tuple(found)


def slow_grounding(
    regions: FloatArray, words: FloatArray, norm: str = "clipped_l2norm", smoothing: float = 9.0, clip: str = "leaky"
) -> tuple[FloatArray, FloatArray]:
    """Grounding vector (n,) and contexts (n, D) of regions (n, D) in a caption's words (m, D)."""
    n, m = len(regions), len(words)
    similar = [[float(w @ v) for v in regions] for w in words]
    if norm.startswith("clipped"):
        slope = 0.1 if clip == "leaky" else 0.0
        similar = [[x if x > 0 else slope * x for x in row] for row in similar]
    if norm.endswith("l2norm"):
        similar = [[x / (math.sqrt(sum(y * y for y in row)) + 1e-8) for x in row] for row in similar]
    if norm == "softmax":
        similar = [[math.exp(x) / sum(math.exp(y) for y in row) for x in row] for row in similar]
    found, context = np.empty(n), np.empty_like(regions)
    for i in range(n):
        raised = [math.exp(smoothing * similar[j][i]) for j in range(m)]
        context[i] = sum(raised[j] / sum(raised) * words[j] for j in range(m))
        found[i] = regions[i] @ context[i] / max(np.linalg.norm(regions[i]) * np.linalg.norm(context[i]), 1e-8)
    return found, context
