from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.features.pooling import BoxPooling, parse_pooling, pool_regions, pool_store, read_boxes
from tests.features.test_pooling import grid, stored


def write(path: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(2)
    corners = np.sort(rng.random((2, 5, 2, 2)), axis=2).astype(np.float16)
    arrays: dict[str, Any] = {
        "image_names": np.array(["a.jpg", "b.jpg"]),
        "boxes_normalised_xyxy": corners.reshape(2, 5, 4),
        "class_ids": rng.integers(0, 7, (2, 5)).astype(np.uint8),
        "class_scores": rng.random((2, 5)).astype(np.float16),
        "num_boxes": np.array([5, 3], dtype=np.uint8),
    }
    arrays |= changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def counted(
    features: NDArray[Any], rows: int, columns: int, box: NDArray[Any], steps: int = 840
) -> NDArray[np.float64]:
    steps = 840
    middles = (np.arange(steps) + 0.5) / steps
    xs = middles[(middles > box[0]) & (middles < box[2])]
    ys = middles[(middles > box[1]) & (middles < box[3])]
    points = [features[int(y * rows) * columns + int(x * columns)] for y in ys[::4] for x in xs[::4]]
    return np.asarray(np.mean(points, axis=0), dtype=np.float64)


def test_a_boxs_features_are_the_mean_of_the_points_under_it(tmp_path: Path) -> None:
    file = read_boxes(write(tmp_path / "boxes.npz"))
    cells = grid("a", 7, 5, size=3, width=200, height=100)
    pooled = BoxPooling(file).pool(cells, (7, 5))
    boxes = file.images["a"].boxes
    assert boxes is not None
    assert pooled.boxes is not None
    assert len(pooled) == 5
    for box, features in zip(boxes, pooled.features, strict=True):
        if min(box[2] - box[0], box[3] - box[1]) > 0.05:
            np.testing.assert_allclose(features, counted(cells.features, 7, 5, box), atol=0.1)
    np.testing.assert_allclose(pooled.boxes, boxes * [200, 100, 200, 100], rtol=1e-6)


def test_a_box_of_whole_cells_is_the_window_of_these_cells(tmp_path: Path) -> None:
    cells = grid("a", width=70, height=70)
    windows = pool_regions(cells, parse_pooling("pyr30"))
    assert windows.boxes is not None
    boxes = np.stack([windows.boxes / 70] * 2)
    path = write(tmp_path / "b.npz", boxes_normalised_xyxy=boxes, num_boxes=None, class_ids=None, class_scores=None)
    pooled = BoxPooling(read_boxes(path)).pool(cells, (7, 7))
    np.testing.assert_allclose(pooled.features, windows.features, rtol=1e-5, atol=1e-6)
    assert (pooled.class_ids, pooled.class_scores) == (None, None)


def test_the_store_keeps_classes_and_scores_and_as_many_boxes_as_there_are(tmp_path: Path) -> None:
    file = read_boxes(write(tmp_path / "boxes.npz"))
    cells = stored(tmp_path / "cells.h5", [grid("a"), grid("b")])
    made = pool_store(cells, tmp_path / "made.h5", BoxPooling(file))
    assert [made.regions(image) for image in ("a", "b")] == [5, 3]
    np.testing.assert_array_equal(made["b"].class_ids, file.images["b"].class_ids)
    np.testing.assert_array_equal(made["b"].class_scores, file.images["b"].class_scores)
    assert made.fingerprint.mode.endswith(f"boxes boxes.npz {file.sha256[:12]}")
    top = pool_store(cells, tmp_path / "top.h5", BoxPooling(file, top=4))
    assert [top.regions(image) for image in ("a", "b")] == [4, 3]
    assert top.fingerprint.kind != made.fingerprint.kind
