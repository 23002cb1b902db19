from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capbench.core.errors import FeatureError
from capbench.features.importers import import_features
from capbench.features.maintenance import describe, verify_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter
from tests.errors import raises
from tests.features.fakes import PRINT, assert_same, made_up, shares
from tests.features.foreign_files import vilbert

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
