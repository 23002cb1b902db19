from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, MissingFeaturesError
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.training.data import Pairs, read_pairs
from capbench.training.features import Regions, open_regions
from tests.errors import raises
from tests.training.world import make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def regions_of(world: Path, role: str, **changes: object) -> Regions:
    config = settings(world, **changes)
    return open_regions(config, None, read_pairs(config, None, role)[0], lambda of: (of.features[:, :1] * 2,))[0]


def test_features_read_batch_by_batch_are_those_in_memory(world: Path) -> None:
    held, streamed = (regions_of(world, "train", memory_mb=size) for size in (10, 0))
    assert (held.in_memory, streamed.in_memory) == (True, False)
    wanted = np.array([4, 2, 4, 17])
    for one, other in zip(held.take(wanted), streamed.take(wanted), strict=True):
        assert torch.equal(one, other)
    features, more = held.take(wanted)
    assert features.shape == (4, 3, 8)
    assert torch.equal(features[..., :1] * 2, more)
    np.testing.assert_allclose(held.mean(), held.take(range(18))[0].mean((0, 1)), rtol=1e-5)


def test_only_the_first_regions_of_each_image_are_taken(world: Path) -> None:
    whole, cut = (regions_of(world, "dev", regions=n) for n in (None, 2))
    assert torch.equal(cut.take([0, 3])[0], whole.take([0, 3])[0][:, :2])
    with raises(FeatureError, "too-few", path=world / "world.h5", value="val00"):
        regions_of(world, "dev", regions=4)


def test_images_with_unequal_numbers_of_regions_are_an_error(world: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.h5"
    with StoreWriter(store, Fingerprint("drawn", "unknown", "unknown", "unknown")) as writer:
        for name, n in (("a", 2), ("b", 3)):
            writer.add(RegionFeatures(name, 0, 0, None, np.ones((n, 4), dtype=np.float32)))
        writer.finish()
    config = settings(world, features=str(store))
    pairs = Pairs(("a", "b"), ("one", "two"), np.array([0, 1]), tmp_path)
    with raises(FeatureError, "mismatch", path=store):
        open_regions(config, None, pairs)
    config = settings(world, features=str(store), regions=2)
    assert open_regions(config, None, pairs)[0].shape == (2, 2, 4)
    with raises(MissingFeaturesError, "missing-features", path=store):
        open_regions(config, None, replace(pairs, images=("a", "z")))
