from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import DataError
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.images import (
    BGR_MEAN,
    Prepared,
    ShortestEdge,
    check_image,
    pad_batch,
    resize_bilinear,
    resize_smooth,
)
from tests.errors import raises

# Anchors that the Caffe code's own documentation lists for base 16, scales 8, 16 and 32.
PUBLISHED = [
    [-84, -40, 99, 55], [-176, -88, 191, 103], [-360, -184, 375, 199],
    [-56, -56, 71, 71], [-120, -120, 135, 135], [-248, -248, 263, 263],
    [-36, -80, 51, 95], [-80, -168, 95, 183], [-168, -344, 183, 359],
]  # fmt: skip


def test_caffe_anchors_are_the_published_ones() -> None:
    assert bx.caffe_anchors(scales=(8, 16, 32)).tolist() == PUBLISHED
    twelve = bx.caffe_anchors()
    assert twelve.shape == (12, 4)
    assert twelve[1].tolist() == PUBLISHED[0]  # ratio-major: scale 8 is the second of each ratio


def test_centred_anchors_and_the_grid_are_those_of_the_original(parity: Path) -> None:
    with np.load(parity / "frcnn" / "hf_lxmert_tiny_frcnn.npz") as archive:
        anchors = bx.centred_anchors()
        assert np.array_equal(anchors, archive["sd__proposal_generator.anchor_generator.cell_anchors.0"])
        assert np.array_equal(bx.grid(anchors, 9, 12, 16), archive["anchors"])


def test_decoding_moves_and_stretches() -> None:
    boxes = torch.tensor([[10.0, 20.0, 29.0, 59.0]])
    deltas = torch.tensor([[0.5, -0.25, np.log(2.0), 0.0]])
    # Inclusive: 20 x 40 around (20, 40); moved to (30, 30), twice as wide.
    assert bx.decode(boxes, deltas, inclusive=True).tolist() == [[10.0, 10.0, 50.0, 50.0]]
    assert bx.decode(boxes, deltas, inclusive=True, last_pixel=True).tolist() == [[10.0, 10.0, 49.0, 49.0]]
    still = bx.decode(boxes, torch.zeros(1, 8))
    assert torch.equal(still, boxes.repeat(1, 2))
    weighted = bx.decode(boxes, deltas * torch.tensor([10.0, 10.0, 5.0, 5.0]), weights=(10, 10, 5, 5))
    assert torch.allclose(weighted, bx.decode(boxes, deltas), atol=1e-4)
    huge = bx.decode(boxes, torch.tensor([[0.0, 0.0, 50.0, 0.0]]))
    assert float(huge[0, 2] - huge[0, 0]) == pytest.approx(19.0 * 1000 / 16, rel=1e-5)


def test_clipping_ends_at_the_edge_or_at_the_last_pixel() -> None:
    boxes = torch.tensor([[-5.0, -1.0, 300.0, 90.0, 10.0, 20.0, 30.0, 500.0]])
    assert bx.clip(boxes, 180, 250).tolist() == [[0, 0, 250, 90, 10, 20, 30, 180]]
    assert bx.clip(boxes, 180, 250, inclusive=True).tolist() == [[0, 0, 249, 90, 10, 20, 30, 179]]


def test_overlaps_count_pixels_or_areas() -> None:
    a, b = torch.tensor([[0.0, 0.0, 9.0, 9.0]]), torch.tensor([[5.0, 0.0, 14.0, 9.0], [50.0, 50.0, 60.0, 60.0]])
    assert bx.iou(a, b, inclusive=True).tolist()[0] == pytest.approx([50 / 150, 0.0])
    assert bx.iou(a, b).tolist()[0] == pytest.approx([36 / 126, 0.0])
    assert bx.iou(torch.zeros(1, 4), torch.zeros(1, 4)).item() == 0.0


def test_suppression_agrees_with_torchvision_vectors(parity: Path) -> None:
    with np.load(parity / "frcnn" / "torchvision_ops.npz") as archive:
        z = {name: torch.from_numpy(archive[name]) for name in archive.files}
    for threshold in (0.3, 0.5, 0.6, 0.7):
        rows = bx.nms(z["nms_boxes"], z["nms_scores"], threshold)
        assert torch.equal(rows, z[f"nms_keep_{threshold}"])
    assert torch.allclose(bx.iou(z["nms_boxes"][:20], z["nms_boxes"][20:50]), z["iou"], atol=1e-6)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (37, 53, 3), dtype=np.uint8)


@pytest.mark.parametrize("size", [(74, 106), (20, 29), (113, 31)])
def test_resizing_is_pytorch_s(image: np.ndarray, size: tuple[int, int]) -> None:
    source = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    plain = torch.nn.functional.interpolate(source, size, mode="bilinear", align_corners=False)[0]
    assert np.allclose(resize_bilinear(image, *size), plain.permute(1, 2, 0), atol=2e-3)
    smooth = torch.nn.functional.interpolate(source, size, mode="bilinear", antialias=True)[0]
    assert np.allclose(resize_smooth(image, *size), smooth, atol=2e-3)


def test_caffe_resizing_samples_at_the_exact_scale() -> None:
    ramp = np.repeat(np.arange(10.0)[None, :, None], 10, axis=0).repeat(3, axis=2)
    prepared = ShortestEdge(15, 100, caffe=True).prepare_bgr(ramp + np.array(BGR_MEAN))
    # Pixel 4 of the result lies at (4 + 0.5) / 1.5 - 0.5 = 2.5 of the source.
    assert prepared.pixels.shape == (3, 15, 15)
    assert prepared.pixels[0, 0, 4] == pytest.approx(2.5, abs=1e-4)
    assert prepared.scale == 1.5


@pytest.mark.parametrize(
    ("caffe", "height", "width", "size"),
    [
        (False, 375, 500, (800, 1067)),
        (False, 300, 900, (444, 1333)),
        (False, 101, 101, (800, 800)),
        (True, 375, 500, (600, 800)),
        (True, 300, 900, (333, 1000)),
        (True, 500, 333, (901, 600)),
    ],
)
def test_sizes_are_the_published_ones(caffe: bool, height: int, width: int, size: tuple[int, int]) -> None:
    edge = ShortestEdge(600, 1000, caffe=True) if caffe else ShortestEdge()
    assert edge.size(height, width)[:2] == size


def test_pictures_are_turned_to_bgr_and_centred(image: np.ndarray) -> None:
    prepared = ShortestEdge(37, 1000)(image)
    assert prepared.pixels.dtype == np.float32
    assert prepared.pixels[0, 3, 4] == pytest.approx(float(image[3, 4, 2]) - 102.9801, abs=1e-3)
    assert prepared.pixels[2, 3, 4] == pytest.approx(float(image[3, 4, 0]) - 122.7717, abs=1e-3)
    assert (prepared.height, prepared.width, prepared.scale) == (37, 53, 1.0)


def test_batches_are_padded_right_and_below() -> None:
    wide, two = (Prepared(np.ones((3, h, w), np.float32), h, w, 1.0) for h, w in ((12, 5), (9, 13)))
    batch = pad_batch([wide, two], 4)
    assert batch.shape == (2, 3, 12, 16)
    assert batch[0].sum() == 180
    assert batch[0, :, :12, :5].min() == 1
    assert batch[1, :, 9:].max() == 0
    thin = Prepared(np.ones((3, 1, 20), np.float32), 1, 20, 1.0)
    assert pad_batch([thin]).shape == (1, 3, 1, 20)
    assert pad_batch([thin], minimum=8).shape == (1, 3, 8, 20)


def test_preparing_pictures_in_workers_loads_no_pytorch() -> None:
    program = "import sys, capbench.features.detectors.images; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_what_is_no_picture_is_refused() -> None:
    for bad in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)):
        with raises(DataError, "wrong-shape"):
            check_image(bad)
