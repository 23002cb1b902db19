from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from capbench.core.errors import ModelError
from capbench.features.detectors import sample as module
from capbench.features.detectors.base import load_detector
from tests.errors import raises


@dataclass(frozen=True)
class Picture:
    pixels: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    labels: list[tuple[str, str]]


@pytest.fixture(scope="module")
def held_out(sample: Path) -> list[Picture]:
    pictures = []
    for entry in json.loads((sample / "scenes.json").read_text())["images"]:
        if entry["split"] == "held-out":
            with Image.open(sample / entry["file"]) as image:
                pixels = np.asarray(image.convert("RGB"))
            objects = entry["objects"]
            boxes = np.array([o["box"] for o in objects], dtype=np.float64)
            pictures.append(Picture(pixels, boxes, [(o["colour"], o["class"]) for o in objects]))
    return pictures


def test_the_card_names_the_weights_and_what_they_know(sample: Path) -> None:
    card = module.sample_card()
    assert card["sha256"] == load_detector("sample").fingerprint().weights_sha256
    assert module.sample_weights().stat().st_size == card["bytes"] < 4_000_000
    objects = [o for entry in json.loads((sample / "scenes.json").read_text())["images"] for o in entry["objects"]]
    assert {o["class"] for o in objects} == set(card["classes"])
    assert {o["colour"] for o in objects} <= set(card["colours"])
    assert card["held_out"]["mean_average_precision"] > 0.9


def test_objects_and_colours_of_held_out_pictures_are_found(held_out: list[Picture]) -> None:
    detector = load_detector("sample", options={"min_boxes": 6, "max_boxes": 20})
    assert detector.class_names is not None
    assert detector.attribute_names is not None
    found = []
    for picture in held_out[::6]:
        regions = detector.detect([detector.preprocess(picture.pixels)])[0]
        dataclasses.replace(regions, image="a").check()
        assert regions.features.shape[1] == detector.feature_size == 128
        assert 6 <= len(regions) <= 20
        assert regions.boxes is not None
        assert regions.class_ids is not None
        assert regions.attribute_ids is not None
        for box, label in zip(picture.boxes, picture.labels, strict=True):
            best = np.abs(regions.boxes - box).max(axis=1).argmin()  # the box with the smallest largest difference
            names = detector.attribute_names[regions.attribute_ids[best]], detector.class_names[regions.class_ids[best]]
            found.append(np.abs(regions.boxes[best] - box).max() < 8 and names == label)
    assert np.mean(found) > 0.95


def test_damaged_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(module.sample_weights().read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / "sample_detector.safetensors"
    damaged.write_bytes(content)
    damaged.with_suffix(".json").write_bytes(module.sample_weights().with_suffix(".json").read_bytes())
    monkeypatch.setattr(module, "sample_weights", lambda: damaged)
    with raises(ModelError, "damaged", path=damaged):
        load_detector("sample")
