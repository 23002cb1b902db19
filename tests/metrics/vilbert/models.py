from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.vilbert.files import save_vilbert
from capbench.metrics.vilbert.network import Vilbert, VilbertOptions
from capbench.text.word_pieces import WordPieces

SIZE = 20
WORDS = (
    *("a", "the", "dog", "cat", "runs", "sits", "on", "grass", "red", "ball", "two", "man", "woman", "in", "park"),
    *("eat", "##s", "##ing", "##ed", ".", "black"),
)
PIECES = WordPieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS))
OPTIONS = VilbertOptions(
    vocabulary_size=len(PIECES), positions=48, tasks=20, text_dim=24, text_layers=5, text_heads=3, text_inner=40,
    feature_dim=SIZE, image_dim=32, image_layers=3, image_heads=4, image_inner=28, common_dim=16, common_heads=2,
    connections=3, region_outputs=13,
)  # fmt: skip


def write_store(
    path: Path, images: Sequence[str], *, size: int = SIZE, detector: str = "x152-fpn", boxes: bool = True, n: int = 6
) -> None:
    fingerprint = Fingerprint(detector, "random:0", "none", "test")
    writer = StoreWriter(path, fingerprint, dtype="float32", compression="none", restart=True)
    for number, image in enumerate(images):
        rng = np.random.default_rng(number)
        corners = np.sort(rng.random((n, 2, 2)), axis=1) * (100, 80)
        features = rng.normal(size=(n, size)).astype(np.float32)
        places = corners.reshape(n, 4).astype(np.float32) if boxes else None
        writer.add(RegionFeatures(image, 100, 80, places, features))
    writer.finish()
    writer.close()


def write_model(path: Path, seed: int = 0, options: VilbertOptions = OPTIONS) -> None:
    network = Vilbert(options, torch.Generator().manual_seed(seed)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.mul_(12)
    save_vilbert(path, network, PIECES, {})
