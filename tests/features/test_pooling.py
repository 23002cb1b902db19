from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import FeatureError, UsageError
from capbench.features.importers import import_features
from capbench.features.maintenance import describe, verify_store
from capbench.features.pooling import parse_pooling, pool_regions, pool_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter, partial_path
from tests.errors import raises
from tests.features.fakes import PRINT, assert_same, made_up, shares
from tests.features.foreign_files import vilbert


def grid(
    image: str = "a", rows: int = 7, columns: int = 7, size: int = 5, width: int = 140, height: int = 70, **changes: Any
) -> RegionFeatures:
    rng = np.random.default_rng(list(image.encode()))
    x, y = np.linspace(0, width, columns + 1), np.linspace(0, height, rows + 1)
    boxes = [(x[j], y[i], x[j + 1], y[i + 1]) for i in range(rows) for j in range(columns)]
    features = rng.normal(size=(rows * columns, size)).astype(np.float32)
    values: dict[str, Any] = {"boxes": np.array(boxes, np.float32), "features": features}
    return RegionFeatures(image, width, height, **(values | changes))


def plain_mean(cells: RegionFeatures, rows: int, columns: int, window: NDArray[np.int64]) -> NDArray[np.float64]:
    top, left, bottom, right = window.tolist()
    inside = [i * columns + j for i in range(top, bottom + 1) for j in range(left, right + 1)]
    assert max(inside) < rows * columns
    mean: NDArray[np.float64] = np.mean([cells.features[k].astype(np.float64) for k in inside], axis=0)
    return mean


def stored(path: Path, images: list[RegionFeatures]) -> FeatureStore:
    with StoreWriter(path, PRINT) as writer:
        for image in images:
            writer.add(image)
        return writer.finish()


def test_5x5_is_25_windows_of_nine_cells_row_by_row() -> None:
    windows = parse_pooling("5x5").windows(7, 7)
    assert windows.tolist() == [[i, j, i + 2, j + 2] for i in range(5) for j in range(5)]


def test_pyr30_adds_four_corners_and_the_whole() -> None:
    windows = parse_pooling("pyr30").windows(7, 7).tolist()
    assert windows[:25] == parse_pooling("5x5").windows(7, 7).tolist()
    assert windows[25:] == [[0, 0, 4, 4], [0, 2, 4, 6], [2, 0, 6, 4], [2, 2, 6, 6], [0, 0, 6, 6]]


@pytest.mark.parametrize("name", ["5x5", "pyr30", "1x1/1", "2x5/3+7x1/2"])
def test_each_window_is_the_mean_of_its_cells(name: str) -> None:
    cells, pooling = grid(), parse_pooling(name)
    pooled = pool_regions(cells, pooling)
    windows = pooling.windows(7, 7)
    assert pooled.features.dtype == np.float32
    for row, window in zip(pooled.features, windows, strict=True):
        np.testing.assert_allclose(row, plain_mean(cells, 7, 7, window), rtol=1e-6, atol=1e-7)


def test_boxes_hold_just_their_cells() -> None:
    pooled = pool_regions(grid(width=140, height=70), parse_pooling("pyr30"))
    assert pooled.boxes is not None
    assert pooled.boxes[0].tolist() == [0, 0, 60, 30]
    assert pooled.boxes[6].tolist() == [20, 10, 80, 40]
    assert pooled.boxes[26].tolist() == [40, 0, 140, 50]
    assert pooled.boxes[29].tolist() == [0, 0, 140, 70]
    pooled.check()


def test_cells_without_boxes_are_a_square_or_of_the_told_shape() -> None:
    bare = dataclasses.replace(grid(), boxes=None)
    pooled = pool_regions(bare, parse_pooling("5x5"))
    assert pooled.boxes is None
    np.testing.assert_array_equal(pooled.features, pool_regions(grid(), parse_pooling("5x5")).features)
    wide = grid(rows=2, columns=6)
    of_told_shape = pool_regions(dataclasses.replace(wide, boxes=None), parse_pooling("2x2/2"), (2, 6))
    np.testing.assert_array_equal(of_told_shape.features, pool_regions(wide, parse_pooling("2x2/2")).features)
    with raises(FeatureError, "wrong-shape", value="a"):
        pool_regions(dataclasses.replace(wide, boxes=None), parse_pooling("2x2/2"))


@pytest.mark.parametrize("order", ["columns first", "shuffled", "one cell less"])
def test_boxes_that_are_no_grid_are_refused(order: str) -> None:
    cells = grid()
    assert cells.boxes is not None
    index = {
        "columns first": np.arange(49).reshape(7, 7).T.ravel(),
        "shuffled": np.random.default_rng(0).permutation(49),
        "one cell less": np.arange(48),
    }[order]
    mixed = dataclasses.replace(cells, boxes=cells.boxes[index], features=cells.features[index])
    with raises(FeatureError, "wrong-shape", value="a"):
        pool_regions(mixed, parse_pooling("3x3/1"))


def test_a_store_is_pooled_and_says_so(tmp_path: Path) -> None:
    images = [grid(name) for name in ("b", "a", "c")]
    source = stored(tmp_path / "cells.h5", images)
    done: list[int] = []
    pooled = pool_store(source, tmp_path / "pooled.h5", parse_pooling("pyr30"), progress=done.append)
    assert sum(done) == 3
    assert pooled.ids == ["a", "b", "c"]
    for image in images:
        expected = pool_regions(image, parse_pooling("pyr30"))
        np.testing.assert_array_equal(pooled[image.image].features, expected.features)
        np.testing.assert_array_equal(pooled[image.image].boxes, expected.boxes)
    assert pooled.fingerprint.mode == "none windows 3x3/1+5x5/2+7x7/1"
    assert pooled.fingerprint.digest != source.fingerprint.digest
    assert pool_store(source, tmp_path / "other.h5", parse_pooling("5x5")).fingerprint.digest not in (
        pooled.fingerprint.digest,
        source.fingerprint.digest,
    )


def test_a_failed_pooling_leaves_what_was_there(tmp_path: Path) -> None:
    good = stored(tmp_path / "good.h5", [grid("a")])
    target = tmp_path / "pooled.h5"
    pool_store(good, target, parse_pooling("5x5"))
    before = target.read_bytes()
    bad = stored(tmp_path / "bad.h5", [grid("a"), dataclasses.replace(grid("b"), boxes=grid("b").boxes[::-1].copy())])  # type: ignore[index]
    with raises(FeatureError, "wrong-shape", path=tmp_path / "bad.h5", value="b"):
        pool_store(bad, target, parse_pooling("3x3/1"), replace=True)
    assert target.read_bytes() == before
    assert not partial_path(target).exists()
    with raises(UsageError, "exists", path=tmp_path / "pooled.h5"):
        pool_store(good, target, parse_pooling("3x3/1"))
    with raises(UsageError, "conflict", path=tmp_path / "good.h5"):
        pool_store(good, tmp_path / "good.h5", parse_pooling("3x3/1"), replace=True)


IMAGES = ("c", "a", "b")


def with_shares(image: str, columns: int = 6) -> RegionFeatures:
    regions = made_up(image)
    return dataclasses.replace(regions, class_probabilities=shares(len(regions), columns, ord(image)))


def write(path: Path, images: tuple[str, ...] = IMAGES, **options: Any) -> FeatureStore:
    with StoreWriter(path, PRINT, **options) as writer:
        for image in images:
            writer.add(with_shares(image))
        return writer.finish()


def npy(folder: Path, regions: RegionFeatures, **changes: Any) -> Path:
    path = folder / f"{regions.image}.npy"
    np.save(path, np.array(vilbert(regions, **changes), dtype=object), allow_pickle=True)
    return path


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_is_written_is_read(tmp_path: Path, compression: str) -> None:
    with write(tmp_path / "a.h5", compression=compression) as store:
        for image in IMAGES:
            assert_same(store[image], with_shares(image))
        assert [regions.probability_columns for regions in store] == [6, 6, 6]
        assert describe(store)["fields"] == ["class_ids", "class_scores", "class_probabilities"]
        assert verify_store(store).bad == 0


def test_a_changed_probability_is_damage(tmp_path: Path) -> None:
    write(tmp_path / "a.h5").close()
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["class_probabilities"][0, 0] += np.float32(1e-3)
    with open_store(tmp_path / "a.h5") as store, raises(FeatureError, "damaged", path=tmp_path / "a.h5", value="a"):
        store["a"]


@pytest.mark.parametrize("coded", [True, False])
def test_vilberts_cls_prob_is_kept_whole_if_asked_for(tmp_path: Path, coded: bool) -> None:
    image, given = made_up("a", regions=3, fields=False), shares(3)
    path = npy(tmp_path, image, cls_prob=base64.b64encode(given.tobytes()) if coded else given)
    kept = import_features([path], tmp_path / "kept.h5", class_probabilities=True).store["a"]
    np.testing.assert_array_equal(kept.class_probabilities, given)
    assert kept.class_ids is not None
    assert kept.class_ids.tolist() == given[:, 1:].argmax(axis=1).tolist()
    assert import_features([path], tmp_path / "without.h5").store["a"].class_probabilities is None
