from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.features.importers import import_features
from capbench.features.maintenance import EXPORTS, export_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter
from tests.features.fakes import PRINT, assert_same, made_up


def ragged(image: str, regions: int) -> RegionFeatures:
    rng = np.random.default_rng(regions)
    image_regions = made_up(
        image,
        regions=regions,
        attribute_ids=rng.integers(0, 400, regions).astype(np.int32),
        attribute_scores=rng.random(regions).astype(np.float32),
    )
    image_regions.features[...] *= np.float32(10.0) ** rng.integers(-40, 4, image_regions.features.shape)
    image_regions.features.flat[0] = -0.0
    return image_regions


def write(path: Path, images: list[RegionFeatures], dtype: str = "float32") -> FeatureStore:
    with StoreWriter(path, PRINT, dtype=dtype) as writer:
        for image in images:
            writer.add(image)
        return writer.finish()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", EXPORTS)
def test_what_is_exported_is_imported_to_the_bit(tmp_path: Path, kind: str, dtype: str) -> None:
    images = [ragged(name, n) for name, n in (("a", 1), ("ü b", 300), ("v1.2", 7), ("007", 36), ("x" * 900, 2))]
    store = write(tmp_path / "a.h5", images, dtype)
    export_store(store, tmp_path / "out", format=kind)
    back = import_features([tmp_path / "out"], tmp_path / "b.h5", format=kind, dtype=dtype).store
    assert back.ids == store.ids
    for image in images:
        imported, exported = back[image.image], store[image.image]
        assert imported.features.tobytes() == exported.features.tobytes()
        assert exported.features.tobytes() == image.features.astype(dtype).tobytes()
        if kind == "butd-tsv":  # has no classes
            exported = RegionFeatures(
                exported.image, exported.width, exported.height, exported.boxes, exported.features
            )
        assert_same(imported, exported)


def test_an_npz_keeps_ids_with_folders_and_endings_and_sizes_without_boxes(tmp_path: Path) -> None:
    images = [made_up(name, boxes=None) for name in ("x/y", "y", "z.jpg", "tab\there", "back\\slash")]
    store = write(tmp_path / "a.h5", images)
    export_store(store, tmp_path / "out.npz")
    back = import_features([tmp_path / "out.npz"], tmp_path / "b.h5").store
    assert back.ids == store.ids
    for image in images:
        assert_same(back[image.image], image)
