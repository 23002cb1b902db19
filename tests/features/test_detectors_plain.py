from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import HFSelection, load_detector
from capbench.features.detectors.box_selection import caffe_selection, hf_chosen, propose
from capbench.features.detectors.images import Prepared
from tests.features import plain_frcnn as plain
from tests.features.networks import CAFFE, SMALL, drawn


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other take ten times as long on so small sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("caffe", [True, False], ids=["caffe", "hf"])
@pytest.mark.parametrize("kind", ["spread", "all-equal", "ties", "saturated", "outside", "huge", "few"])
def test_proposals_are_those_of_plain_loops(caffe: bool, kind: str) -> None:
    rng = np.random.default_rng(3)
    height, width = 2, 3
    logits = rng.normal(0, 2, (24 if caffe else 12, height, width)).astype(np.float32)
    deltas = rng.normal(0, 0.4, (48, height, width)).astype(np.float32)
    if kind == "all-equal":
        logits[:] = 0.5
    elif kind == "ties":
        logits = logits.round()
    elif kind == "saturated":
        logits *= 50
    elif kind == "outside":
        deltas[::4] -= 1.0
    elif kind == "huge":
        # Far to the left and very wide: at most 62.5 times as wide, only an edge of it is left in the picture.
        deltas[::4, :, 0], deltas[2::4, :, 0] = -31.1, 5.0
    shortest = 29.0 if kind == "ties" else 24.0  # 29: the whole height, whose last pixel is 28
    options = {"before": 9 if kind == "few" else 6000, "after": 20, "min_size": shortest if caffe else 0.0}
    anchors = bx.caffe_anchors() if caffe else bx.centred_anchors()
    size = (400, 700) if kind == "huge" else (29, 47)
    expected = plain.proposals(logits, deltas, anchors.double().numpy(), size, caffe=caffe, **options)  # type: ignore[arg-type]
    maps = (torch.from_numpy(logits), torch.from_numpy(deltas), anchors, size)
    proposals = propose(*maps, "caffe" if caffe else "detectron2", **options)[0]  # type: ignore[arg-type]
    assert proposals.shape == expected.shape
    assert np.abs(proposals.numpy() - expected).max() < 1e-3


@pytest.mark.parametrize(("low", "high"), [(1, 3), (10, 100), (36, 36), (50, 60)])
@pytest.mark.parametrize("kind", ["spread", "all-equal", "ties", "no-area"])
def test_what_is_kept_is_what_plain_loops_keep(kind: str, low: int, high: int) -> None:
    rng = np.random.default_rng(low)
    start = rng.uniform(-10, 150, (40, 2))
    regions = np.hstack([start, start + rng.uniform(0, 90, (40, 2))]).astype(np.float32)
    classes = rng.normal(0, 2, (40, 6)).astype(np.float32)
    deltas = rng.normal(0, 2, (40, 20)).astype(np.float32)
    if kind == "all-equal":
        classes[:] = 0.25
    elif kind == "ties":
        classes = classes.round()
    elif kind == "no-area":
        regions[::2, 2:] = regions[::2, :2]
    r, c, d = (torch.from_numpy(a) for a in (regions, classes, deltas))
    rows, boxes, ids = plain.hf_choice(regions.astype(np.float64), classes, deltas, (140, 170), low, high)
    image = Prepared(np.zeros((3, 140, 170), dtype=np.float32), height=280, width=85, scale=1.0)
    chosen = hf_chosen(image, HFSelection(min_boxes=low, max_boxes=high), r, c, d)
    assert chosen.rows.tolist() == rows
    assert chosen.class_ids.tolist() == ids.tolist()
    assert np.abs(chosen.boxes.numpy() - boxes * [0.5, 2.0, 0.5, 2.0]).max() < 1e-3
    probabilities = c.softmax(dim=1)[:, 1:]
    selected, _ = caffe_selection(r, probabilities, min_boxes=low, max_boxes=high)
    assert selected.tolist() == plain.caffe_choice(regions.astype(np.float64), probabilities.numpy(), low, high)


@pytest.mark.parametrize("size", [(60, 90), (111, 47), (5, 120), (120, 6)], ids=str)
@pytest.mark.parametrize("caffe", [True, False], ids=["caffe", "hf"])
def test_whole_detectors_give_what_plain_loops_give(tmp_path: Path, caffe: bool, size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(size[0])
    state = drawn(CAFFE if caffe else SMALL, size[0]).state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point() and ("norm" in name or name.endswith("bias")):
            tensor += 0.2 * torch.rand(tensor.shape, generator=generator)
    torch.save(state, tmp_path / "w.bin")
    options = {"shorter": 64, "longer": 70, "rpn_after": 16, "min_boxes": 4, "max_boxes": 9, "rpn_min_size": 0}
    name = "bottom-up-caffe" if caffe else "bottom-up-hf"
    detector: Any = load_detector(name, weights=tmp_path / "w.bin", options=options)
    picture = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    prepared = detector.preprocess(picture)
    record = detector.detect([prepared])[0]

    small = prepared.pixels.shape[1:]
    res4 = plain.backbone(prepared.pixels, state)
    anchors = (bx.caffe_anchors() if caffe else bx.centred_anchors()).double().numpy()
    maps = plain.first_stage(res4, state)
    regions = plain.proposals(*maps, anchors, small, caffe=caffe, before=6000, after=16, min_size=0.0)
    outputs = plain.second_stage(plain.pool(res4[0].numpy(), regions), state)
    features, classes, deltas, attributes = outputs
    if caffe:
        boxes = regions / prepared.scale
        probabilities = plain.softmax(classes)[:, 1:]
        rows = plain.caffe_choice(boxes, probabilities, 4, 9)
        boxes, ids = boxes[rows], probabilities[rows].argmax(axis=1)
        said = plain.softmax(attributes)[rows, 1:]
    else:
        rows, boxes, ids = plain.hf_choice(regions, classes, deltas, small, 4, 9)
        boxes = boxes * np.array([prepared.width / small[1], prepared.height / small[0]] * 2)
        said = plain.softmax(attributes[:, :-1])[rows]
    assert record.boxes.shape == boxes.shape
    assert np.abs(record.boxes - boxes).max() < 0.05
    assert np.abs(record.features - features[rows]).max() < 1e-3 * np.abs(features).max()
    assert record.class_ids.tolist() == ids.tolist()
    assert record.attribute_ids.tolist() == said.argmax(axis=1).tolist()
    assert np.abs(record.attribute_scores - said.max(axis=1)).max() < 1e-4
