from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, FeatureError
from capbench.features.detectors.base import Detector
from capbench.features.images import ImageFile
from capbench.features.records import Fingerprint, RegionFeatures

PRINT = Fingerprint("fake", "ab" * 32, "none", "none", versions=(("numpy", "1"),))


def made_up(
    image: str, *, regions: int | None = None, size: int = 16, fields: bool = True, **changes: Any
) -> RegionFeatures:
    rng = np.random.default_rng(list(image.encode()))
    n = int(rng.integers(1, 6)) if regions is None else regions
    width, height = (int(x) for x in rng.integers(50, 200, 2))
    corners = rng.random((n, 2, 2)).astype(np.float32) * np.array([width, height], np.float32)
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    values: dict[str, Any] = {"boxes": boxes, "features": rng.normal(size=(n, size)).astype(np.float32)}
    if fields:
        values["class_ids"] = rng.integers(0, 3, n).astype(np.int32)
        values["class_scores"] = rng.random(n).astype(np.float32)
    return RegionFeatures(image, width, height, **(values | changes))


def shares(regions: int, columns: int = 6, seed: int = 3) -> NDArray[np.float32]:
    weights = np.random.default_rng(seed).random((regions, columns))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def assert_same(actual: RegionFeatures, expected: RegionFeatures) -> None:
    assert (actual.image, actual.width, actual.height) == (expected.image, expected.width, expected.height)
    assert actual.flat().keys() == expected.flat().keys()
    assert (actual.boxes is None) == (expected.boxes is None)
    assert actual.probability_columns == expected.probability_columns
    pairs = [
        (actual.features, expected.features),
        (actual.boxes, expected.boxes),
        (actual.class_probabilities, expected.class_probabilities),
    ]
    for ours, theirs in [*pairs, *((actual.flat()[name], expected.flat()[name]) for name in actual.flat())]:
        if ours is not None and theirs is not None:
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def thumbnail(image: NDArray[np.uint8]) -> dict[str, Any]:
    if image.shape[0] == 13:
        raise DataError("is 13 pixels high, which brings bad luck")
    return {"pixels": image.astype(np.float32), "size": image.shape[:2]}


class FakeDetector(Detector):
    name = "fake"
    feature_size = 16
    class_names = ("dark", "bright")
    preprocessor = staticmethod(thumbnail)

    def __init__(self, batch: int = 1, *, pause_s: float = 0.0, mode: str = "none") -> None:
        self.batch = batch
        self.batchable = batch > 1
        self.pause_s = pause_s
        self.mode = mode
        self.seen: list[int] = []

    def fingerprint(self) -> Fingerprint:
        return dataclasses.replace(PRINT, mode=self.mode, batch=f"batched:{self.batch}" if self.batchable else "single")

    def detect(self, prepared: Sequence[Any]) -> list[RegionFeatures]:
        time.sleep(self.pause_s)
        self.seen.append(len(prepared))
        together = float(sum(entry["pixels"].sum() for entry in prepared)) % 1000
        records = []
        for entry in prepared:
            height, width = entry["size"]
            mean = entry["pixels"].mean(axis=(0, 1))
            if mean[0] > 250:
                raise FeatureError("the network gave NaN or infinity")
            n = 1 + int(mean.sum()) % 4
            boxes = np.tile(np.array([0, 0, width / 2, height], np.float32), (n, 1))
            features = np.outer(np.arange(1, n + 1), np.resize(mean, 16)).astype(np.float32) + np.float32(together)
            bright = np.full(n, int(mean.sum() > 384), np.int32)
            scores = np.linspace(0.9, 0.1, n, dtype=np.float32)
            records.append(RegionFeatures("", width, height, boxes, features, bright, scores))
        return records


def pictures(folder: Path, count: int) -> list[ImageFile]:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    made = []
    for i in range(count):
        path = folder / f"p{i:03d}.png"
        pixels = rng.integers(0, 240, (20 + i % 7, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path)
        made.append(ImageFile(path.stem, path))
    return made
