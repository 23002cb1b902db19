from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import MissingFileError, ModelError, UsageError
from capbench.features.detectors.base import detector_of_photographs, load_detector
from capbench.features.detectors.images import TorchvisionPreparation
from capbench.features.detectors.x152_fpn import X152Config, level_proposals
from capbench.weights.registry import Entry, entry
from tests.errors import raises
from tests.features.networks import drawn

SMALL = X152Config(
    blocks=(1, 1, 1, 1), stem=4, groups=2, inner=4, outer=8, pyramid=6, hidden=10, outputs=7, box_outputs=7
)


@pytest.fixture
def image() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 256, (60, 90, 3), dtype=np.uint8)


def test_the_default_is_installed_or_downloaded_or_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path))
    notes: list[str] = []
    steps: list[int] = []

    @contextlib.contextmanager
    def progress(text: str, total: int | None) -> Iterator[Callable[[int], None]]:
        assert total == 167
        yield steps.append

    def download(weights: Entry, *, progress: Any) -> None:
        with progress(weights.file) as report:
            report(3_500_000, None)
            report(167_000_000, None)
        install(weights.name)

    def no_network(*_: object, **__: object) -> None:
        raise MissingFileError("no network", code="download-failed")

    def install(name: str) -> None:
        entry(name).path.parent.mkdir()
        entry(name).path.touch()

    monkeypatch.setattr("capbench.weights.download.download", no_network)
    with raises(ModelError, "missing-weights", value="torchvision-frcnn"):
        detector_of_photographs(notes.append, progress)
    monkeypatch.setattr("capbench.weights.download.download", download)
    assert detector_of_photographs(notes.append, progress) == "torchvision-frcnn"
    assert sum(steps) == 167
    install("bottom-up-d2")
    assert detector_of_photographs(notes.append, progress) == "bottom-up-hf"
    install("bua-caffe-r101")
    assert detector_of_photographs(notes.append, progress) == "bottom-up-caffe"
    assert len(notes) == 2


@pytest.fixture
def x152(tmp_path: Path) -> Path:
    path = tmp_path / "detectron_model.pth"
    torch.save({"model": {f"module.{n}": t for n, t in drawn(SMALL, 0).state_dict().items()}}, path)
    return path


def test_x152_gives_the_best_regions_in_order(x152: Path, image: np.ndarray[Any, Any]) -> None:
    options = {"shorter": 120, "longer": 200, "boxes": 12, "rpn_after": 50}
    detector = load_detector("x152-fpn", weights=x152, options=options)
    prepared = detector.preprocess(image)
    assert prepared.pixels.shape == (3, 120, 180)
    regions = detector.detect([prepared])[0]
    dataclasses.replace(regions, image="a").check()
    assert regions.features.shape == (12, 10)
    assert regions.class_scores is not None
    assert regions.attribute_ids is None
    again = detector.detect([prepared])[0]
    assert np.array_equal(regions.features, again.features)
    fingerprint = detector.fingerprint()
    assert fingerprint.mode == "fc6 nms 0.5 12, rpn 0.7 1000-50"
    assert "pad 32" in fingerprint.preprocessing


def test_level_proposals_join_levels_by_score() -> None:
    outputs = []
    for i, stride in enumerate((4, 8, 16, 32, 64)):
        side = 64 // stride
        logits = torch.full((3, side, side), -10.0)
        logits[1, 0, 0] = float(i)  # the square anchor of the first cell, better on coarser levels
        outputs.append((logits, torch.zeros(12, side, side)))
    proposals = level_proposals(outputs, (64, 64), before=1, after=4)
    # Anchors of 512, 256, 128 and 64 pixels: all cover the picture but the last; inclusive boxes end at 63.
    assert proposals[:3].tolist() == [[0, 0, 63, 63]] * 3
    # 64 pixels around the centre of a cell of 8: from -28 to 35.
    assert proposals[3].tolist() == [0, 0, 35, 35]


@pytest.mark.parametrize("size", [(60, 90), (90, 60), (31, 200), (224, 224), (75, 75)])
def test_pictures_are_prepared_as_torchvision_does(size: tuple[int, int]) -> None:
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    picture = np.random.default_rng(2).integers(0, 256, (*size, 3), dtype=np.uint8)
    theirs = GeneralizedRCNNTransform(120, 200, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    batch, _ = theirs([torch.from_numpy(picture).permute(2, 0, 1).float() / 255])
    height, width = batch.image_sizes[0]
    ours = TorchvisionPreparation(120, 200)(picture)
    assert ours.pixels.shape == (3, height, width)
    assert np.abs(ours.pixels - batch.tensors[0, :, :height, :width].numpy()).max() < 1e-3


def test_torchvision_features_agree_with_its_own_parts(tmp_path: Path, image: np.ndarray[Any, Any]) -> None:
    from torchvision.models.detection import fasterrcnn_resnet50_fpn_v2

    torch.manual_seed(0)
    network = fasterrcnn_resnet50_fpn_v2(weights=None, weights_backbone=None, min_size=96, max_size=160).eval()
    path = tmp_path / "w.pth"
    torch.save(network.state_dict(), path)
    options = {"shorter": 96, "longer": 160, "min_boxes": 5, "max_boxes": 10}
    detector: Any = load_detector("torchvision-frcnn", weights=path, options=options)
    for rpn in (network.rpn, detector.network.rpn):
        rpn._post_nms_top_n["testing"] = 50  # instead of 1,000 regions, which take seconds
    record = detector.detect([detector.preprocess(image)])[0]
    dataclasses.replace(record, image="a").check()
    assert detector.feature_size == record.features.shape[1] == 1024
    assert detector.class_names is not None
    assert detector.class_names[0] == "person"
    assert len(detector.class_names) == 90
    with torch.inference_mode():
        batch, _ = network.transform([torch.from_numpy(image).permute(2, 0, 1).float() / 255])
        maps = network.backbone(batch.tensors)
        regions, _ = network.rpn(batch, maps)
        features = network.roi_heads.box_head(network.roi_heads.box_roi_pool(maps, regions, batch.image_sizes))
    nearest = torch.cdist(torch.from_numpy(record.features), features).min(dim=1).values
    assert nearest.max() < 1e-2 * features.norm(dim=1).mean()
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ModelError, match="lacks"):
        load_detector("torchvision-frcnn", weights=tmp_path / "other.pth")


@pytest.mark.parametrize(
    ("backbone", "size"),
    [("resnet18", 512), ("mobilenet_v3_small", 576), ("shufflenet_v2_x0_5", 1024), ("regnet_y_400mf", 440)],
)
def test_grid_features_tile_the_picture(backbone: str, size: int, image: np.ndarray[Any, Any]) -> None:
    detector = load_detector(f"grid:{backbone}", weights="random:1")
    regions = detector.detect([detector.preprocess(image)])[0]
    dataclasses.replace(regions, image="a").check()
    assert regions.features.shape == (49, size)
    assert detector.feature_size == size
    assert regions.boxes is not None
    assert regions.boxes[0].tolist() == pytest.approx([0, 0, 90 / 7, 60 / 7])
    assert regions.boxes[8].tolist() == pytest.approx([90 / 7, 60 / 7, 180 / 7, 120 / 7])
    assert ((regions.boxes[:, 2:] - regions.boxes[:, :2]).prod(axis=1).sum()) == pytest.approx(60 * 90, rel=1e-5)
    assert detector.fingerprint().weights_sha256 == "random:1"


def test_the_last_map_is_what_the_backbone_pools(image: np.ndarray[Any, Any], tmp_path: Path) -> None:
    from torchvision import models

    torch.manual_seed(3)
    network = models.resnet18(weights=None).eval()
    torch.save(network.state_dict(), tmp_path / "r.pth")
    detector = load_detector("grid:resnet18", weights=tmp_path / "r.pth")
    prepared = detector.preprocess(image)
    with torch.inference_mode():
        expected = network(torch.from_numpy(prepared.pixels)[None])[0].numpy()
        mean = detector.detect([prepared])[0].features.mean(axis=0)
        logits = network.fc(torch.from_numpy(mean)).numpy()
    assert np.allclose(logits, expected, atol=1e-4)


def test_more_cells_than_the_map_has_are_rejected() -> None:
    with raises(UsageError, "out-of-range", value=36):  # meant as 36 regions
        load_detector("grid:resnet18", weights="random", options={"cells": 36})
    load_detector("grid:resnet18", weights="random", options={"size": 288, "cells": 9})
    load_detector("grid:alexnet", weights="random")  # its map has 6 x 6


def test_cells_are_pooled_and_batches_agree(image: np.ndarray[Any, Any]) -> None:
    whole = load_detector("grid:resnet18", weights="random", options={"size": 96, "cells": 3})
    single_cell = load_detector("grid:resnet18", weights="random", options={"size": 96, "cells": 1, "batch": 2})
    prepared = [whole.preprocess(image), whole.preprocess(np.ascontiguousarray(image[:30]))]
    nine = whole.detect(prepared[:1])[0].features
    pair = single_cell.detect(prepared)
    assert nine.shape == (9, 512)
    assert np.allclose(pair[0].features[0], nine.mean(axis=0), atol=1e-4)
    assert (pair[1].height, pair[1].width) == (30, 90)
