from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import DataError, ModelError, UsageError
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import Detector, HFSelection, load_detector, names
from capbench.features.detectors.box_selection import hf_chosen
from capbench.features.detectors.images import Prepared
from tests.errors import raises
from tests.features.networks import CAFFE, SMALL, drawn

Arrays = dict[str, np.ndarray[Any, Any]]


def arrays(path: Path) -> Arrays:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="session")
def tiny(parity: Path) -> Arrays:
    return arrays(parity / "frcnn" / "hf_lxmert_tiny_frcnn.npz")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "hf.bin"
    torch.save(drawn(SMALL, 0).state_dict(), path)
    return path


@pytest.fixture
def caffe_weights(tmp_path: Path) -> Path:
    path = tmp_path / "caffe.pth"
    torch.save({"model": drawn(CAFFE, 0).state_dict()}, path)
    return path


@pytest.fixture
def image() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 256, (60, 90, 3), dtype=np.uint8)


QUICK = {"shorter": 120, "longer": 200, "rpn_after": 40}


def test_the_detector_gives_the_original_output_from_a_picture(
    tiny: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.bin"
    torch.save({n[4:]: torch.from_numpy(tiny[n]) for n in tiny if n.startswith("sd__")}, path)
    options = {"shorter": 140, "longer": 1333, "rpn_after": 60, "min_boxes": 6, "max_boxes": 12}
    detector = load_detector("bottom-up-hf", weights=path, options=options)
    bgr = tiny["image_bgr_0_255"].transpose(1, 2, 0)
    preparation: Any = detector.preprocessor
    prepared = preparation.prepare_bgr(bgr)
    assert np.abs(prepared.pixels - tiny["input_normalised"][0]).max() < 1e-3
    # The original picture was larger; its size only scales boxes.
    y, x = tiny["scales_yx"][0].tolist()
    _, h, w = prepared.pixels.shape
    regions = detector.detect([dataclasses.replace(prepared, height=round(y * h), width=round(x * w))])[0]
    assert regions.boxes is not None
    assert regions.class_ids is not None
    assert regions.attribute_ids is not None
    assert regions.attribute_scores is not None
    assert np.abs(regions.boxes - tiny["out__boxes"][0]).max() < 0.05
    assert np.abs(regions.features - tiny["out__roi_features"][0]).max() < 1e-3 * np.abs(regions.features).max()
    assert np.array_equal(regions.class_ids, tiny["out__obj_ids"][0])
    assert np.array_equal(regions.attribute_ids, tiny["out__attr_ids"][0])
    assert np.abs(regions.attribute_scores - tiny["out__attr_probs"][0]).max() < 1e-5


def test_thresholds_are_tried_in_turn_as_in_the_original(parity: Path) -> None:
    z = {
        name: torch.from_numpy(value)
        for name, value in arrays(parity / "frcnn" / "hf_roi_outputs_fallback.npz").items()
    }
    cases = json.loads((parity / "frcnn" / "hf_roi_outputs_fallback.json").read_text())
    (h, w), (height, width) = z["size_hw"].tolist(), (z["size_hw"] * z["scale_yx"]).round().int().tolist()
    image = Prepared(np.zeros((3, h, w), dtype=np.float32), height, width, 1.0)
    assert any(isinstance(count, str) for count in cases.values())
    for case, count in cases.items():
        low, high = (int(word[3:]) for word in case.split("_"))
        options = HFSelection(min_boxes=low, max_boxes=high)
        chosen = hf_chosen(image, options, z["proposals"], z["obj_logits"], z["box_deltas"])
        if isinstance(count, str):  # the original crashes: the best are kept instead
            assert len(chosen.rows) == low
            assert (chosen.class_scores.diff() <= 0).all()
            continue
        assert len(chosen.rows) == count
        assert torch.equal(chosen.class_ids, z[f"{case}__classes"])
        assert torch.allclose(chosen.boxes, z[f"{case}__boxes"], atol=0.05)
        assert torch.allclose(chosen.class_scores, z[f"{case}__probs"], atol=1e-6)
        assert torch.equal(z["features"][chosen.rows], z[f"{case}__features"])
        attributes = z["attr_logits"][chosen.rows][:, :-1].softmax(dim=1).max(dim=1)
        assert torch.equal(attributes.indices, z[f"{case}__attrs"])


def test_caffe_mode_reads_the_background_from_the_weights(
    weights: Path, caffe_weights: Path, image: np.ndarray[Any, Any]
) -> None:
    for path in (weights, caffe_weights):
        options = QUICK | {"min_boxes": 5, "max_boxes": 9, "rpn_min_size": 1}
        detector = load_detector("bottom-up-caffe", weights=path, options=options)
        regions = detector.detect([detector.preprocess(image)])[0]
        dataclasses.replace(regions, image="a").check()
        assert 5 <= len(regions) <= 9
        assert regions.features.shape[1] == detector.feature_size == 64
        assert regions.class_ids is not None
        assert regions.attribute_ids is not None
        assert regions.class_ids.max() < 5
        assert regions.attribute_ids.max() < 4
    assert detector.fingerprint().mode.startswith("caffe 0.2 nms 0.3 5-9")


def test_hf_mode_refuses_weights_that_number_the_background_first(caffe_weights: Path) -> None:
    with raises(ModelError, "wrong-weights"):
        load_detector("bottom-up-hf", weights=caffe_weights)


def test_a_detectron2_pickle_gives_the_same_features(
    weights: Path, tmp_path: Path, image: np.ndarray[Any, Any]
) -> None:
    state = {n: t.numpy() for n, t in torch.load(weights).items() if "num_batches" not in n}
    (tmp_path / "d2.pkl").write_bytes(pickle.dumps({"model": state, "__author__": "x"}))
    options = QUICK | {"min_boxes": 4, "max_boxes": 8}
    results = []
    for path in (weights, tmp_path / "d2.pkl"):
        detector = load_detector("bottom-up-hf", weights=path, options=options)
        results.append((detector.detect([detector.preprocess(image)])[0], detector.fingerprint()))
    assert np.array_equal(results[0][0].features, results[1][0].features)
    assert results[0][1] != results[1][1]  # another file, another fingerprint
    assert results[0][1].weights_sha256 != results[1][1].weights_sha256


def test_reference_mode_takes_one_picture_and_a_batch_is_marked(weights: Path, image: np.ndarray[Any, Any]) -> None:
    options = QUICK | {"min_boxes": 4, "max_boxes": 8}
    single = load_detector("bottom-up-hf", weights=weights, options=options)
    prepared = single.preprocess(image)
    with raises(UsageError, "too-many", value=2):
        single.detect([prepared, prepared])
    both = load_detector("bottom-up-hf", weights=weights, options=options | {"batch": 2})
    assert both.batchable
    assert both.fingerprint().batch == "batched:2"
    assert both.fingerprint().digest != single.fingerprint().digest
    records = both.detect([prepared, both.preprocess(np.ascontiguousarray(image[:, :40]))])
    alone = single.detect([prepared])[0]
    # Padding is seen by the network at the picture's edge: near, not the same.
    assert np.allclose(records[0].features[0], alone.features[0], atol=0.02 * np.abs(alone.features).max())
    assert np.array_equal(both.detect([prepared])[0].features, alone.features)


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 2), (1, 3000), (2500, 11)])
def test_tiny_and_thin_pictures_still_give_regions(caffe_weights: Path, size: tuple[int, int]) -> None:
    detector = load_detector("bottom-up-caffe", weights=caffe_weights, options=QUICK)
    regions = detector.detect([detector.preprocess(np.zeros((*size, 3), dtype=np.uint8))])[0]
    dataclasses.replace(regions, image="a").check()


def test_anchors_of_the_weights_are_used_where_there_are_any(weights: Path, tmp_path: Path) -> None:
    state = torch.load(weights)
    anchors = torch.arange(48.0).reshape(12, 4)
    state["proposal_generator.anchor_generator.cell_anchors.0"] = anchors
    torch.save(state, tmp_path / "own.bin")
    with_anchors: Any = load_detector("bottom-up-hf", weights=tmp_path / "own.bin")
    without: Any = load_detector("bottom-up-hf", weights=weights)
    assert torch.equal(with_anchors.anchors, anchors)
    assert torch.equal(without.anchors, bx.centred_anchors())
    assert "anchors of the weights" in with_anchors.fingerprint().mode
    assert "anchors of the weights" not in without.fingerprint().mode


def test_names_of_classes_come_from_a_vocabulary(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "objects.txt").write_text("yolk,egg yolk\ngoal\nbathroom\nmacaroni\numpire\n")
    detector = load_detector("bottom-up-hf", weights=weights, options={"classes": str(tmp_path / "objects.txt")})
    assert detector.class_names == ("yolk", "goal", "bathroom", "macaroni", "umpire")
    assert detector.attribute_names is None
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    with raises(DataError, "mismatch", path=tmp_path / "short.txt", value=2):
        load_detector("bottom-up-hf", weights=weights, options={"attributes": str(tmp_path / "short.txt")})


def test_unknown_names_devices_and_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    with raises(UsageError, "unknown-name", value="bottom-up"):
        load_detector("bottom-up")
    with pytest.raises(ModelError, match="capbench models download frcnn-vg-finetuned"):
        load_detector("bottom-up-hf")
    with raises(UsageError, "conflict", value=40):
        load_detector("bottom-up-hf", weights="random", options={"min_boxes": 40, "max_boxes": 10})
    assert set(names()) == {"bottom-up-caffe", "bottom-up-hf", "x152-fpn", "torchvision-frcnn", "grid", "sample"}


def test_mixed_precision_is_marked_and_stays_near(weights: Path, image: np.ndarray[Any, Any]) -> None:
    means = []
    for precision in ("float32", "amp-bfloat16"):
        options = QUICK | {"min_boxes": 3, "max_boxes": 20, "precision": precision}
        detector = load_detector("bottom-up-hf", weights=weights, options=options)
        assert detector.fingerprint().precision == precision
        regions = detector.detect([detector.preprocess(image)])[0]
        dataclasses.replace(regions, image="a").check()
        means.append(regions.features.mean(axis=0))
    assert not np.array_equal(means[0], means[1])
    assert np.abs(means[0] - means[1]).max() < 0.5 * np.abs(means[0]).max()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_nearly_the_same_regions(weights: Path, image: np.ndarray[Any, Any]) -> None:
    options = QUICK | {"min_boxes": 4, "max_boxes": 8}
    records = []
    for device in ("cpu", "cuda"):
        detector: Detector = load_detector("bottom-up-hf", weights=weights, device=device, options=options)
        records.append(detector.detect([detector.preprocess(image)])[0])
    assert np.abs(records[0].features - records[1].features).max() < 1e-3 * np.abs(records[0].features).max()
