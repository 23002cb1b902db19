from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import FeatureError, UsageError
from capbench.features.pooling import NAMED, Pooling, parse_pooling, pool_regions, pool_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter, partial_path
from tests.errors import raises
from tests.features.fakes import PRINT, made_up


def grid(
    image: str = "a", rows: int = 7, columns: int = 7, size: int = 5, width: int = 140, height: int = 70, **changes: Any
) -> RegionFeatures:
    """A grid of equal cells, features decided by the image's id."""
    rng = np.random.default_rng(list(image.encode()))
    x, y = np.linspace(0, width, columns + 1), np.linspace(0, height, rows + 1)
    boxes = [(x[j], y[i], x[j + 1], y[i + 1]) for i in range(rows) for j in range(columns)]
    features = rng.normal(size=(rows * columns, size)).astype(np.float32)
    values: dict[str, Any] = {"boxes": np.array(boxes, np.float32), "features": features}
    return RegionFeatures(image, width, height, **(values | changes))


def plain_mean(cells: RegionFeatures, rows: int, columns: int, window: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of a window's cells, cell by cell."""
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


def test_windows_of_any_shape_stay_in_the_grid() -> None:
    windows = parse_pooling("2x3/2").windows(4, 6)
    assert windows.tolist() == [[0, 0, 1, 2], [0, 2, 1, 4], [2, 0, 3, 2], [2, 2, 3, 4]]


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


def test_a_single_row_and_a_single_column_are_grids() -> None:
    assert len(pool_regions(grid(rows=1, columns=4), parse_pooling("1x2/1"))) == 3
    assert len(pool_regions(grid(rows=4, columns=1), parse_pooling("2x1/1"))) == 3


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


def test_detected_regions_are_refused() -> None:
    with raises(FeatureError, "unsupported", value="a"):
        pool_regions(made_up("a", regions=49), parse_pooling("5x5"))


@pytest.mark.parametrize("text", ["", "pyr", "3x3", "0x3/1", "3x3/0", "3x3/1+", "3x3/1,2x2/1", "9999999x1/1"])
def test_unknown_poolings_are_refused(text: str) -> None:
    with raises(UsageError, "unknown-name", value=text):
        parse_pooling(text)


def test_a_level_twice_is_refused() -> None:
    with raises(UsageError, "duplicate", value="3x3/1+3x3/1"):
        parse_pooling("3x3/1+3x3/1")


def test_names_hold_on_their_grid_only() -> None:
    with raises(UsageError, "mismatch"):
        pool_regions(grid(rows=8, columns=8), parse_pooling("5x5"))
    assert len(pool_regions(grid(rows=8, columns=8), parse_pooling(NAMED["5x5"][0]))) == 36
    with raises(UsageError, "out-of-range", value="9x3/1"):
        pool_regions(grid(), parse_pooling("9x3/1"))


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


def test_the_name_and_its_levels_give_the_same_bytes(tmp_path: Path) -> None:
    source = stored(tmp_path / "cells.h5", [grid("a"), grid("b")])
    pool_store(source, tmp_path / "named.h5", parse_pooling("pyr30"))
    pool_store(tmp_path / "cells.h5", tmp_path / "written.h5", parse_pooling("3x3/1+5x5/2+7x7/1"))
    assert (tmp_path / "named.h5").read_bytes() == (tmp_path / "written.h5").read_bytes()


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


def test_float16_and_compression_are_kept_or_chosen(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "half.h5", PRINT, dtype="float16", compression="lzf") as writer:
        writer.add(grid("a"))
        source = writer.finish()
    unchanged = pool_store(source, tmp_path / "kept.h5", parse_pooling("5x5"))
    assert (unchanged.header.dtype, unchanged.header.compression) == ("float16", "lzf")
    full = pool_store(source, tmp_path / "full.h5", Pooling(parse_pooling("5x5").levels), dtype="float32")
    np.testing.assert_allclose(full["a"].features, unchanged["a"].features, atol=2e-3)


def test_the_command_pools(tmp_path: Path, capbench: Callable[..., Any]) -> None:
    stored(tmp_path / "cells.h5", [grid("a"), grid("b")])
    ran = capbench("features", "pool", tmp_path / "cells.h5", tmp_path / "out.h5", "--windows", "pyr30", "--json")
    assert ran.code == 0
    facts = json.loads(ran.out)
    assert facts["images"] == 2
    assert facts["windows"] == 30
    assert facts["levels"] == "3x3/1+5x5/2+7x7/1"
    assert open_store(tmp_path / "out.h5").signature() == facts["signature"]
    again = capbench("features", "pool", tmp_path / "cells.h5", tmp_path / "out.h5", "-w", "5x5")
    assert again.code == 2
    assert (again.failure.code, again.failure.path) == ("exists", str(tmp_path / "out.h5"))
    bad = capbench("features", "pool", tmp_path / "cells.h5", tmp_path / "new.h5", "--grid", "7by7")
    assert bad.code == 2
    assert "7by7" in bad.err
    assert not (tmp_path / "new.h5").exists()


@pytest.mark.real_data
def test_flickr8k_cells_are_a_grid(real_data: Path) -> None:
    path = real_data / "flickr8k" / "mobilenetv2_grid49_pca256_int8.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    with np.load(path) as arrays:
        features = (arrays["features_int8"][0] * arrays["scale"]).astype(np.float32)
        boxes = arrays["boxes_normalised_xyxy"].astype(np.float32)
    cells = RegionFeatures("first", 1, 1, boxes, features)
    pooled = pool_regions(cells, parse_pooling("pyr30"))
    assert len(pooled) == 30
    np.testing.assert_allclose(pooled.features[-1], features.mean(axis=0), rtol=1e-4, atol=1e-4)
