from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import DataError, FeatureError, MissingFeaturesError, MissingFileError
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.text.vocabulary import pad_rows
from capbench.training.data import CaptionTraining, Pairs, Regions, read_pairs
from capbench.training.matching import DropoutOptions, LossOptions, hinge_loss, info_nce
from tests.errors import raises
from tests.training.world import make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def config_of(captions: Path, **splits: Any) -> CaptionTraining:
    raw = {"schema": 1, "name": "a", "captions": str(captions), "features": "f.h5", "splits": splits}
    return CaptionTraining.model_validate(raw)


def read(captions: Path, role: str, **splits: Any) -> Pairs:
    return read_pairs(config_of(captions, **splits), None, role)[0]


def test_karpathys_splits_have_their_usual_roles(world: Path, tmp_path: Path) -> None:
    train, dev = read_pairs(config_of(world / "world.json"), None, "train", "dev")
    assert (len(train.images), len(dev.images)) == (18, 6)
    assert len(train.captions) == len(train.image_of) == 18 * 2 + 6
    assert dev.images[0] == "val00"
    assert dev.image_of.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]
    images = [
        {"filename": f"{split}.jpg", "split": split, "sentences": [{"raw": f"a {split} thing"}]}
        for split in ("train", "restval", "val", "test")
    ]
    path = tmp_path / "k.json"
    path.write_text(json.dumps({"images": images}), encoding="utf-8")
    assert read(path, "train").images == ("train", "restval")
    assert read(path, "train", train="train").images == ("train",)
    assert read(path, "dev", dev=["restval", "val"]).images == ("restval", "val")
    with raises(DataError, "unknown-name", path=path, value="vall"):
        read(path, "dev", dev="vall")


def test_invalid_captions_are_named(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path="nowhere.json", value="nowhere.json"):
        read(Path("nowhere.json"), "train")
    token = tmp_path / "x.token"
    token.write_text("a.jpg#0\ta thing\n", encoding="utf-8")
    with raises(DataError, "missing-option", path=token, value="train"):
        read(token, "train")


def test_a_sample_keeps_images_with_their_captions(world: Path) -> None:
    whole = read(world / "world.json", "train")
    part = whole.sample(5, 1)
    assert len(part.images) == len(part.captions) == 5
    assert part.image_of.tolist() == [0, 1, 2, 3, 4]
    first = dict(zip(whole.images, whole.of_images(whole.captions), strict=True))
    assert [first[image][0] for image in part.images] == list(part.captions)
    two = whole.sample(None, 2)
    assert [texts[:2] for texts in first.values()] == two.of_images(two.captions)
    assert whole.sample(None).fingerprint() == whole.fingerprint() != part.fingerprint()


@pytest.mark.parametrize("order", ["captions", "rounds"])
def test_an_epoch_has_every_caption_once_in_an_order_of_its_own(world: Path, order: str) -> None:
    pairs = read(world / "world.json", "train")
    first = pairs.batches(5, order, seed=1, epoch=0)
    assert sorted(np.concatenate(first).tolist()) == list(range(len(pairs.captions)))
    assert all(len(batch) <= 5 for batch in first)
    for seed, epoch in ((1, 0), (1, 1), (2, 0)):
        same = np.concatenate(pairs.batches(5, order, seed, epoch)).tolist() == np.concatenate(first).tolist()
        assert same is ((seed, epoch) == (1, 0))
    if order == "rounds":
        for batch in pairs.batches(9, order, seed=1, epoch=3):
            assert len(set(pairs.image_of[batch].tolist())) == len(batch)


def test_dropped_words_are_unknown_and_special_ones_are_never_dropped() -> None:
    ids, lengths = pad_rows([[1, 10, 11, 12, 13, 2], [1, 14, 2]] * 50)
    assert (ids[1].tolist(), lengths[:2].tolist()) == ([1, 14, 2, 0, 0, 0], [6, 3])
    dropped = DropoutOptions(words=0.5).drop_words(ids, np.random.default_rng(4))
    changed = dropped != ids
    assert set(dropped[changed].tolist()) == {3}
    assert not changed[ids <= 2].any()  # <pad>, <start>, <end>
    assert 0.35 < changed.sum() / (ids > 2).sum() < 0.65
    assert DropoutOptions().drop_words(ids, np.random.default_rng(4)) is ids


def regions_of(world: Path, role: str, **changes: object) -> Regions:
    config = settings(world, **changes)
    return Regions(config, None, read_pairs(config, None, role)[0], lambda of: (of.features[:, :1] * 2,))


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
    with raises(FeatureError, "too-few", path=store, value="a"):
        Regions(config, None, pairs)
    config = settings(world, features=str(store), regions=2)
    assert Regions(config, None, pairs).shape == (2, 2, 4)
    with raises(MissingFeaturesError, "missing-features", path=store):
        Regions(config, None, replace(pairs, images=("a", "z")))


SCORES = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.5, 0.6], [0.2, 0.7, 0.4]], dtype=torch.float64)


def test_all_negatives_within_the_margin_are_summed_or_the_hardest_of_each_row_and_column() -> None:
    # Rows: .1; 0 and .3; 0 and .5. Columns: 0 and 0; .5 and .4; 0 and .4.
    assert hinge_loss(SCORES, 0.2, hardest=False).item() == pytest.approx(0.9 + 1.3)
    assert hinge_loss(SCORES, 0.2, hardest=True).item() == pytest.approx(0.9 + 0.5 + 0.4)


def test_info_nce_is_the_mean_of_both_directions() -> None:
    logits = (SCORES / 0.1).tolist()
    rows = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(logits)]
    turned = [list(column) for column in zip(*logits, strict=True)]
    columns = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(turned)]
    assert info_nce(SCORES, 0.1).item() == pytest.approx((sum(rows) + sum(columns)) / 6)


@pytest.mark.parametrize("step", [1, 2])
def test_the_settings_select_the_loss_of_a_step(step: int) -> None:
    options = LossOptions(margin=0.3, hardest=True, hardest_after=2)
    assert options(SCORES, step) == hinge_loss(SCORES, 0.3, step >= 2)
    assert LossOptions(kind="info-nce", temperature=0.2)(SCORES, step) == info_nce(SCORES, 0.2)
