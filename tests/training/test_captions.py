from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import DataError, MissingFileError
from capbench.training.captions import CaptionSource, SplitOptions, epoch_order, open_captions
from capbench.training.prepare import open_regions
from tests.errors import raises
from tests.training.world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def _open(captions: Path, features: str = "f.h5", **splits: Any) -> CaptionSource:
    return open_captions(str(captions), SplitOptions(**splits), features, None)


def _scan_folder(
    folder: Path, captions: list[str], ids: list[str] | None, rows: int | None, split: str = "train"
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{split}_caps.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
    if ids is not None:
        (folder / f"{split}_ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    if rows is not None:
        np.save(folder / f"{split}_ims.npy", np.arange(rows * 6, dtype=np.float32).reshape(rows, 2, 3))
    return folder


def test_karpathys_splits_have_their_usual_roles(world: Path) -> None:
    source = _open(world / "world.json")
    train, dev = source.pairs("train"), source.pairs("dev")
    assert (len(train.images), len(dev.images)) == (18, 6)
    assert source.splits("dev") == ("val",)
    assert len(train.captions) == len(train.image_of) == 18 * 2 + 6
    assert dev.images[0] == "val00"
    assert dev.image_of.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]


def test_restval_is_for_training_and_named_splits_are_kept_to(tmp_path: Path) -> None:
    images = [
        {"filename": f"{split}.jpg", "split": split, "sentences": [{"raw": f"a {split} thing"}]}
        for split in ("train", "restval", "val", "test")
    ]
    path = tmp_path / "k.json"
    path.write_text(json.dumps({"images": images}), encoding="utf-8")
    assert _open(path).pairs("train").images == ("train", "restval")
    named = _open(path, train=("train",), dev=("restval",))
    assert named.pairs("train").images == ("train",)
    assert named.pairs("dev").images == ("restval",)
    with raises(DataError, "unknown-name", path=path, value="vall"):
        _open(path, dev=("vall",)).pairs("dev")


def test_flickr8ks_own_files(tmp_path: Path) -> None:
    lines = [f"{name}.jpg#{n}\ta {name} {n} ." for name in ("one", "two", "six", "odd") for n in range(2)]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines), encoding="utf-8")
    for split, names in {"train": ["one", "two"], "dev": ["six"]}.items():
        (tmp_path / f"Flickr_8k.{split}Images.txt").write_text("".join(f"{n}.jpg\n" for n in names), encoding="utf-8")
    source = _open(tmp_path)
    assert source.pairs("train").captions == ("a one 0 .", "a one 1 .", "a two 0 .", "a two 1 .")
    assert source.pairs("dev").images == ("six",)
    with raises(DataError, "missing-option", path=tmp_path, value="test"):
        source.pairs("test")
    (tmp_path / "Flickr_8k.devImages.txt").write_text("two.jpg\n", encoding="utf-8")
    with raises(DataError, "duplicate", path=tmp_path / "Flickr_8k.devImages.txt", row=1, value="two.jpg"):
        _open(tmp_path)
    (tmp_path / "Flickr_8k.devImages.txt").write_text("six.jpg\nten.jpg\n", encoding="utf-8")
    with raises(DataError, "unknown-item", path=tmp_path / "Flickr_8k.devImages.txt", row=2, value="ten.jpg"):
        _open(tmp_path)


def test_five_captions_an_image_where_counts_differ(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", [f"caption {i}" for i in range(10)], ["7", "9"], 2)
    for features in ("ims", "f.h5"):
        pairs = _open(folder, features=features).pairs("train")
        assert pairs.images == ("7", "9")
        assert pairs.image_of.tolist() == [0] * 5 + [1] * 5


def test_one_row_a_caption_is_one_image_for_equal_rows(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", [f"caption {i}" for i in range(4)], None, None)
    rows = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    rows[1] = rows[0]
    np.save(folder / "train_ims.npy", rows)
    pairs = _open(folder, features="ims").pairs("train")
    assert pairs.images == ("train-0", "train-2", "train-3")
    assert pairs.image_of.tolist() == [0, 0, 1, 2]
    regions = open_regions(pairs, None, None, 10)
    assert torch.equal(regions.take([1, 0]), torch.from_numpy(rows[[2, 0]]))


def test_one_id_a_caption_joins_captions_of_an_image(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", ["one", "two", "three"], ["b.jpg", "a.jpg", "b.jpg"], None)
    pairs = _open(folder).pairs("train")
    assert pairs.images == ("b", "a")
    assert pairs.captions == ("one", "three", "two")
    assert pairs.image_of.tolist() == [0, 0, 1]


def test_counts_that_do_not_match_are_an_error(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", [f"caption {i}" for i in range(9)], ["1", "2"], 2)
    with raises(DataError, "mismatch", path=folder / "train_ids.txt", value=2):
        _open(folder).pairs("train")
    with raises(DataError, "mismatch", path=folder / "train_ims.npy", value=2):
        _open(folder, features="ims").pairs("train")
    (folder / "train_caps.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    with raises(DataError, "missing-caption", path=folder / "train_caps.txt", row=2):
        _open(folder).pairs("train")


def test_captions_that_are_nowhere_or_in_no_split_are_an_error(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path="nowhere.json", value="nowhere.json"):
        _open(Path("nowhere.json"))
    token = tmp_path / "x.token"
    token.write_text("a.jpg#0\ta thing\n", encoding="utf-8")
    with raises(DataError, "missing-value", path=token, value="a"):
        _open(token)
    (tmp_path / "empty").mkdir()
    with raises(DataError, "wrong-format", path=tmp_path / "empty"):
        _open(tmp_path / "empty")


def test_a_sample_keeps_images_with_their_captions(world: Path) -> None:
    whole = _open(world / "world.json").pairs("train")
    part = whole.sample(5, 1, seed=3)
    assert len(part.images) == len(part.captions) == 5
    assert part.image_of.tolist() == [0, 1, 2, 3, 4]
    first = {image: whole.captions[whole.image_of.tolist().index(i)] for i, image in enumerate(whole.images)}
    assert [first[image] for image in part.images] == list(part.captions)
    assert part.images == whole.sample(5, 1, seed=3).images != whole.sample(5, 1, seed=4).images
    assert whole.sample(None, None, seed=1).captions == whole.captions


def test_smaller_training_samples_are_contained_in_larger_ones(world: Path) -> None:
    def images(number: int | None) -> tuple[str, ...]:
        return _open(world / "world.json", images=number).pairs("train").images

    whole = images(None)
    assert [len(images(n)) for n in (1, 4, 9, len(whole))] == [1, 4, 9, len(whole)]
    assert set(images(1)) < set(images(4)) < set(images(9)) < set(whole)
    assert _open(world / "world.json").pairs("dev").images  # only the training images are sampled
    with raises(DataError, "too-few", path=world / "world.json", value=len(whole) + 1):
        images(len(whole) + 1)


@pytest.mark.parametrize("order", ["captions", "rounds"])
def test_an_epoch_has_every_caption_once_in_an_order_of_its_own(world: Path, order: str) -> None:
    pairs = _open(world / "world.json").pairs("train")
    first = epoch_order(pairs, 5, order, seed=1, epoch=0)
    assert sorted(np.concatenate(first).tolist()) == list(range(len(pairs.captions)))
    assert all(len(batch) <= 5 for batch in first)
    again = epoch_order(pairs, 5, order, seed=1, epoch=0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for other in (epoch_order(pairs, 5, order, 1, 1), epoch_order(pairs, 5, order, 2, 0)):
        assert np.concatenate(other).tolist() != np.concatenate(first).tolist()


def test_a_batch_of_rounds_has_no_image_twice(world: Path) -> None:
    pairs = _open(world / "world.json").pairs("train")
    for epoch in range(5):
        for batch in epoch_order(pairs, 9, "rounds", seed=1, epoch=epoch):
            assert len(set(pairs.image_of[batch].tolist())) == len(batch)
