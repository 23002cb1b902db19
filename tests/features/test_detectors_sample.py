"""The detector that comes with capbench, and the script that trains it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.features.detectors import sample
from capbench.features.detectors.base import load_detector
from scripts import train_sample_models as training
from scripts.average_precision import mean_average_precision
from scripts.sample.scenes import COLOURS, KINDS
from tests.errors import raises


@pytest.fixture(scope="module")
def held_out() -> list[training.Picture]:
    return training.read_split("held-out")


def test_the_card_names_the_weights_and_what_they_know() -> None:
    card = sample.sample_card()
    assert card["sha256"] == load_detector("sample").fingerprint().weights_sha256
    assert sample.sample_weights().stat().st_size == card["bytes"] < 4_000_000
    assert card["classes"] == list(KINDS)
    assert card["colours"] == list(COLOURS)
    assert card["held_out"]["mean_average_precision"] > 0.9


def test_objects_and_colours_of_held_out_pictures_are_found(held_out: list[training.Picture]) -> None:
    detector = load_detector("sample", options=training.BOXES)
    pictures = held_out[::6]
    detections, truth = [], []
    for picture in pictures:
        regions = detector.detect([detector.preprocess(picture.pixels)])[0]
        dataclasses.replace(regions, image="a").check()
        assert regions.features.shape[1] == detector.feature_size == 128
        assert 6 <= len(regions) <= 20
        assert regions.boxes is not None
        assert regions.class_ids is not None
        assert regions.class_scores is not None
        detections.append((regions.boxes, regions.class_ids, regions.class_scores))
        truth.append((picture.boxes.numpy(), picture.classes.numpy()))
    mean, _ = mean_average_precision(detections, truth)
    assert mean > 0.95
    quality = training.evaluate(detector, pictures)  # type: ignore[arg-type]
    assert quality["mean_average_precision"] == round(mean, 4)
    assert quality["colours_right"] > 0.97


def test_every_picture_has_twelve_regions_by_default(held_out: list[training.Picture]) -> None:
    detector = load_detector("sample")
    assert {len(detector.detect([detector.preprocess(p.pixels)])[0]) for p in held_out[::9]} == {12}


def test_labels_can_be_read(held_out: list[training.Picture]) -> None:
    detector = load_detector("sample")
    picture = held_out[0]
    regions = detector.detect([detector.preprocess(picture.pixels)])[0]
    assert detector.class_names is not None
    assert detector.attribute_names is not None
    assert regions.class_ids is not None
    assert regions.attribute_ids is not None
    best = (detector.attribute_names[regions.attribute_ids[0]], detector.class_names[regions.class_ids[0]])
    labels = {
        (training.COLOUR_NAMES[c], training.CLASSES[k]) for c, k in zip(picture.colours, picture.classes, strict=True)
    }
    assert best in labels


def test_larger_pictures_and_batches_give_boxes_in_their_own_pixels(held_out: list[training.Picture]) -> None:
    picture = held_out[1].pixels
    single = load_detector("sample")
    double = np.repeat(np.repeat(picture, 2, axis=0), 2, axis=1)
    small, large = (single.detect([single.preprocess(p)])[0] for p in (picture, double))
    assert small.boxes is not None
    assert large.boxes is not None
    assert np.abs(large.boxes[0] / 2 - small.boxes[0]).max() < 3
    many = load_detector("sample", options={"batch": 4})
    batch = many.detect([many.preprocess(p.pixels) for p in held_out[:4]])
    alone = single.detect([single.preprocess(held_out[2].pixels)])[0]
    assert np.allclose(batch[2].features, alone.features, atol=1e-3)
    assert many.fingerprint().batch == "batched:4"


@pytest.mark.parametrize("size", [(1, 1), (5, 400), (160, 20)])
def test_any_picture_gives_regions(size: tuple[int, int]) -> None:
    detector = load_detector("sample")
    regions = detector.detect([detector.preprocess(np.full((*size, 3), 255, dtype=np.uint8))])[0]
    dataclasses.replace(regions, image="a").check()


def test_changed_weights_are_refused_with_both_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sample_detector.safetensors"
    data = bytearray(sample.sample_weights().read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    path.with_suffix(".json").write_text(sample.sample_weights().with_suffix(".json").read_text())
    monkeypatch.setattr(sample, "sample_weights", lambda: path)
    with raises(
        ModelError,
        "wrong-weights",
        path=tmp_path / "sample_detector.safetensors",
        value="8f995727cd617f73534548c6005e481934484099b038bf96f7678ee591957f94",
    ):
        load_detector("sample")
    assert load_detector("sample", weights=path).fingerprint().weights_sha256 != sample.sample_card(path)["sha256"]


# -- training ---------------------------------------------------------------------------------------------------------


def test_training_never_sees_a_held_out_picture(held_out: list[training.Picture]) -> None:
    layouts = {json.dumps(p.boxes.tolist()) for p in held_out}
    pixels = {p.pixels.tobytes() for p in held_out}
    for picture in [*training.read_split("train"), *training.draw(40)]:
        assert json.dumps(picture.boxes.tolist()) not in layouts
        assert picture.pixels.tobytes() not in pixels


def test_encoding_is_undone_by_decoding() -> None:
    from capbench.features.detectors.boxes import decode

    rng = np.random.default_rng(0)
    start = rng.uniform(0, 100, (2, 20, 2))
    boxes, targets = torch.from_numpy(np.concatenate([start, start + rng.uniform(5, 50, (2, 20, 2))], axis=2)).float()
    deltas = training.encode(boxes, targets, (10.0, 10.0, 5.0, 5.0))
    assert torch.allclose(decode(boxes, deltas, weights=(10, 10, 5, 5)), targets, atol=1e-3)


def test_training_gives_the_same_bytes_twice() -> None:
    pictures = training.read_split("train")[:24]
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(training.THREADS)
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (training.safetensors_bytes(training.train(pictures, 3).state_dict()) for _ in range(2))
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
    assert first == second


def test_the_script_tells_the_precision_of_what_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, held_out: list[training.Picture]
) -> None:
    monkeypatch.setattr(training, "read_split", lambda _split: held_out[:10])
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        assert training.main(["--check"]) == 0
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
    quality: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert quality["pictures"] == 10
    assert quality["mean_average_precision"] > 0.9
