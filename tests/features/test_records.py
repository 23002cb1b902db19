from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import FeatureError
from capbench.features.records import Fingerprint, RegionFeatures
from tests.errors import raises

PRINT = Fingerprint("bottom-up-caffe", "ab" * 32, "bgr 600/1000", "caffe 0.2 10-100", versions=(("torch", "2.4"),))


def regions(**changes: Any) -> RegionFeatures:
    boxes = np.array([[0, 0, 10, 10], [5, 5, 40, 20]], dtype=np.float32)
    good = RegionFeatures("a", 40, 20, boxes, np.ones((2, 3), np.float32))
    return dataclasses.replace(good, **changes)


def test_good_regions_pass() -> None:
    regions().check()
    regions(features=np.ones((2, 3), np.float16)).check()
    regions(boxes=None, width=0, height=0).check()
    regions(boxes=np.array([[0, 0, 1, 1], [0.2, 0.2, 0.5, 0.5]], np.float32), width=1, height=1).check()
    regions(boxes=np.array([[0, 0, 40.4, 20], [1, 1, 1, 1]], np.float32)).check()


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"image": "a\nb"}, "wrong-value", "a\nb"),
        ({"features": np.ones((2, 3), np.float64)}, "wrong-type", "a"),
        ({"features": np.ones(3, np.float32)}, "wrong-shape", "a"),
        ({"features": np.array([[1, 2], [3, np.nan]], np.float32)}, "not-a-number", "a"),
        ({"features": np.ones((0, 3), np.float32), "boxes": np.ones((0, 4), np.float32)}, "missing-value", "a"),
        ({"boxes": np.ones((3, 4), np.float32)}, "wrong-shape", "a"),
        ({"boxes": np.full((2, 4), np.nan, np.float32)}, "not-a-number", "a"),
        ({"class_probabilities": np.ones((2, 4), np.float32)}, "out-of-range", "a"),
        ({"class_probabilities": np.ones((3, 4), np.float32)}, "wrong-shape", "a"),
        ({"boxes": np.array([[0, 0, 1, 1], [0, 0, 42, 1]], np.float32)}, "out-of-range", "a"),
        ({"boxes": np.array([[-2, 0, 1, 1], [0, 0, 4, 1]], np.float32)}, "out-of-range", "a"),
        ({"boxes": np.array([[3, 0, 1, 1], [0, 0, 4, 1]], np.float32)}, "wrong-value", "a"),
        ({"width": 0}, "out-of-range", "a"),
        ({"width": 0, "height": 0}, "missing-value", "a"),
        ({"class_ids": np.array([1, -2], np.int32)}, "out-of-range", "a"),
        ({"class_scores": np.array([0.5, 1.5], np.float32)}, "out-of-range", "a"),
        ({"attribute_scores": np.array([0.5], np.float32)}, "wrong-shape", "a"),
    ],
)
def test_bad_regions_are_refused_with_the_image(changes: dict[str, Any], code: str, value: object) -> None:
    with raises(FeatureError, code, value=value):
        regions(**changes).check()
