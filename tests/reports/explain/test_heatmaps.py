"""Weights of regions as heat over a picture."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from capbench.reports.explain.drawing import GLOW_RGB, data_uri, glow, heat, label_places, make_scene, weight_map
from tests.reports.explain import explained


def test_a_pixel_gets_its_box_and_a_small_box_shows_inside_of_a_large_one() -> None:
    boxes = np.array([[0, 0, 4, 2], [1, 0, 2, 1]], dtype=np.float64)
    weights = weight_map(boxes, np.array([1.0, 0.0]), 3, 5)
    assert weights[0, 0] == 1
    assert weights[0, 1] == pytest.approx((1 / 8) / (1 / 8 + 1))  # counted by 1 / area
    assert np.isnan(weights[2]).all()
    assert np.isnan(weights[:, 4]).all()


def test_a_grids_cells_keep_their_weights() -> None:
    boxes = np.array([[x, y, x + 1 / 3, y + 1 / 3] for y in (0, 1 / 3, 2 / 3) for x in (0, 1 / 3, 2 / 3)]) * 90
    weights = weight_map(boxes, np.arange(9.0), 90, 90)
    np.testing.assert_allclose(weights[15::30, 15::30].ravel(), np.arange(9))
    assert np.isfinite(weights).all()


def test_a_box_without_size_still_shows() -> None:
    weights = weight_map(np.array([[5.0, 5.0, 5.0, 5.0]]), np.array([2.0]), 5, 5)
    assert np.isfinite(weights).sum() == 1


def test_heat_is_transparent_where_no_box_is() -> None:
    scene = make_scene(None, np.array([[0, 0, 5, 10]], dtype=np.float32), (10, 10), longest=20)
    layer = heat(scene, np.array([0.5]), 0.0, 1.0)
    assert layer.shape == (20, 20, 4)
    assert (layer[:, :10, 3] > 0).all()
    assert (layer[:, 10:, 3] == 0).all()
    shining = glow(scene, np.array([0.5]), 0.5, 1.0)
    assert tuple(shining[0, 0, :3]) == GLOW_RGB
    assert (shining[..., 3] == 0).all()  # an equal share leaves the picture bare
    assert (glow(scene, np.array([0.9]), 0.5, 1.0)[:, :10, 3] > 0).all()


def test_a_scene_has_the_pictures_shape_and_the_boxes_follow() -> None:
    scene = make_scene(explained.picture(), np.array([[60, 0, 120, 80]], np.float32), explained.SIZE, longest=60)
    assert (scene.width, scene.height, scene.pictured) == (60, 40, True)
    assert scene.boxes is not None
    assert scene.boxes.tolist() == [[30, 0, 60, 40]]
    assert (scene.pixels[..., 0] == scene.pixels[..., 2]).all()
    assert not (scene.colour[..., 0] == scene.colour[..., 2]).all()
    fractions = make_scene(None, np.array([[0, 0, 0.5, 1]], np.float32), (1, 1), longest=40)
    assert (fractions.width, fractions.height, fractions.pictured) == (40, 30, False)
    assert make_scene(None, None).boxes is None


def test_numbers_of_boxes_with_one_corner_do_not_cover_each_other() -> None:
    boxes = np.array([[0, 0, 50, 50], [0, 0, 90, 90], [95, 95, 100, 100]], np.float32)
    scene = make_scene(None, boxes, (100, 100), longest=100)
    first, second, third = label_places(scene, [0, 1, 2], 12)
    assert first[0] == second[0]
    assert second[1] - first[1] >= 12
    assert third[0] <= 100 - 1.6 * 12
    assert third[1] <= 100 - 12


def test_a_data_address_holds_the_picture() -> None:
    pixels = explained.picture()
    head, _, body = data_uri(pixels).partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)
