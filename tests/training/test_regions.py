from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, MissingFeaturesError
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.training.captions import Pairs, SplitOptions, open_captions
from capbench.training.prepare import open_regions
from tests.errors import raises
from tests.training.world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def test_features_read_batch_by_batch_are_those_in_memory(world: Path) -> None:
    pairs = open_captions(str(world / "world.json"), SplitOptions(), "world.h5", None).pairs("train")
    held = open_regions(pairs, world / "world.h5", None, 10)
    streamed = open_regions(pairs, world / "world.h5", None, 0)
    assert (held.in_memory, streamed.in_memory) == (True, False)
    wanted = np.array([4, 2, 4, 17])
    assert torch.equal(held.take(wanted), streamed.take(wanted))
    assert held.take(wanted).shape == (4, 3, 8)


def test_only_the_first_regions_of_each_image_are_taken(world: Path) -> None:
    pairs = open_captions(str(world / "world.json"), SplitOptions(), "world.h5", None).pairs("dev")
    whole, cut = (open_regions(pairs, world / "world.h5", n, 10) for n in (None, 2))
    assert torch.equal(cut.take([0, 3]), whole.take([0, 3])[:, :2])
    with raises(FeatureError, "too-few", path=world / "world.h5", value="val00"):
        open_regions(pairs, world / "world.h5", 4, 10)


def test_images_with_unequal_numbers_of_regions_are_an_error(tmp_path: Path) -> None:
    store = tmp_path / "s.h5"
    with StoreWriter(store, Fingerprint("drawn", "unknown", "unknown", "unknown")) as writer:
        for name, n in (("a", 2), ("b", 3)):
            writer.add(RegionFeatures(name, 0, 0, None, np.ones((n, 4), dtype=np.float32)))
        writer.finish()
    pairs = Pairs(("a", "b"), ("one", "two"), np.array([0, 1]), tmp_path)
    with raises(FeatureError, "mismatch", path=store) as caught:
        open_regions(pairs, store, None, 10)
    assert "2 to 3 regions" in caught.value.message
    assert "'regions: 2'" in str(caught.value.hint)
    assert open_regions(pairs, store, 2, 10).shape == (2, 2, 4)
    missing = Pairs(("a", "z"), ("one", "two"), np.array([0, 1]), tmp_path)
    with raises(MissingFeaturesError, "missing-features", path=store):
        open_regions(missing, store, 2, 10)
