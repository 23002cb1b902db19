"""An image with boxes, a small grounding model, and captions to explain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench.core.explanations import Subject
from capbench.core.records import Item
from capbench.features.records import RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.reo import Reo
from capbench.metrics.tiger import Tiger
from tests.metrics.scan.models import DIMENSION, FINGERPRINT, Files, make_files

IMAGE = "pond"
REFERENCES = ("a red dog runs", "the dog runs near a house", "a small dog and a ball")
SIZE = (120, 80)


def write_store(path: Path, *, boxes: bool = True, regions: int = 7) -> None:
    """One image of 120 x 80 pixels, its regions with boxes and classes, or with neither."""
    rng = np.random.default_rng(11)
    corners = rng.random((regions, 2, 2)).astype(np.float32) * np.array(SIZE, np.float32)
    features = RegionFeatures(
        IMAGE,
        *SIZE,
        np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1) if boxes else None,
        rng.normal(size=(regions, DIMENSION)).astype(np.float32),
        class_ids=(np.arange(regions) % 3).astype(np.int32) if boxes else None,
    )
    names = ("dog", "house", "ball") if boxes else None
    with StoreWriter(path, FINGERPRINT, class_names=names) as writer:
        writer.add(features)
        writer.finish()


def make_explained(folder: Path, *, boxes: bool = True, regions: int = 7) -> Files:
    """Model and features of :data:`IMAGE`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = make_files(folder, ["other"])
    files.features.unlink()
    write_store(files.features, boxes=boxes, regions=regions)
    return files


def subject(
    *candidates: str, references: tuple[str, ...] = REFERENCES, humans: tuple[float | None, ...] | None = None
) -> Subject:
    """Candidates of :data:`IMAGE`, which nobody rated unless told."""
    items = tuple(Item(IMAGE, candidate, references) for candidate in candidates)
    return Subject(IMAGE, items, humans or (None,) * len(items))


def tiger(files: Files, **options: object) -> Tiger:
    return Tiger(files.resources, **options)


def reo(files: Files, **options: object) -> Reo:
    return Reo(files.resources, covariance="identity", **options)


def picture() -> NDArray[np.uint8]:
    """A made-up photograph of the image's size."""
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (SIZE[1], SIZE[0], 3)).astype(np.uint8)
