from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from capbench.errors import CapbenchError, DataError, FeatureError, MissingFileError
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.training.config_file import parse_training
from capbench.training.prefetch import prefetch
from capbench.training.scan.batches import Regions, batches, epoch_order, open_regions, pad
from capbench.training.scan.config import ScanTraining
from capbench.training.scan.data import Pairs, open_captions
from tests.training.scan.world import make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def _config(captions: Path, **more: object):  # type: ignore[no-untyped-def]
    return parse_training(
        ScanTraining, {"schema": 1, "name": "a", "captions": str(captions), "features": "f.h5", **more}
    )


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
    source = open_captions(settings(world), None)
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
    assert open_captions(_config(path), None).pairs("train").images == ("train", "restval")
    named = open_captions(_config(path, splits={"train": "train", "dev": ["restval"]}), None)
    assert named.pairs("train").images == ("train",)
    assert named.pairs("dev").images == ("restval",)
    with pytest.raises(DataError, match=r"no split 'vall'. Did you mean 'val'"):
        open_captions(_config(path, splits={"dev": "vall"}), None).pairs("dev")


def test_flickr8ks_own_files(tmp_path: Path) -> None:
    lines = [f"{name}.jpg#{n}\ta {name} {n} ." for name in ("one", "two", "six", "odd") for n in range(2)]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines), encoding="utf-8")
    for split, names in {"train": ["one", "two"], "dev": ["six"]}.items():
        (tmp_path / f"Flickr_8k.{split}Images.txt").write_text("".join(f"{n}.jpg\n" for n in names), encoding="utf-8")
    source = open_captions(_config(tmp_path), None)
    assert source.pairs("train").captions == ("a one 0 .", "a one 1 .", "a two 0 .", "a two 1 .")
    assert source.pairs("dev").images == ("six",)
    with pytest.raises(DataError, match=r"for test \(there are: dev, train\)"):
        source.pairs("test")
    (tmp_path / "Flickr_8k.devImages.txt").write_text("two.jpg\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 1: the image 'two.jpg' is listed already"):
        open_captions(_config(tmp_path), None)
    (tmp_path / "Flickr_8k.devImages.txt").write_text("six.jpg\nten.jpg\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2: the image 'ten.jpg' has no captions"):
        open_captions(_config(tmp_path), None)


def test_five_captions_an_image_where_counts_differ(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", [f"caption {i}" for i in range(10)], ["7", "9"], 2)
    for features in ("ims", "f.h5"):
        pairs = open_captions(_config(folder, features=features), None).pairs("train")
        assert pairs.images == ("7", "9")
        assert pairs.image_of.tolist() == [0] * 5 + [1] * 5


def test_one_row_a_caption_is_one_image_for_equal_rows(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", [f"caption {i}" for i in range(4)], None, None)
    rows = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    rows[1] = rows[0]
    np.save(folder / "train_ims.npy", rows)
    pairs = open_captions(_config(folder, features="ims"), None).pairs("train")
    assert pairs.images == ("train-0", "train-2", "train-3")
    assert pairs.image_of.tolist() == [0, 0, 1, 2]
    regions = open_regions(pairs, None, None, 10)
    assert torch.equal(regions.take([1, 0]), torch.from_numpy(rows[[2, 0]]))


def test_one_id_a_caption_joins_captions_of_an_image(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", ["one", "two", "three"], ["b.jpg", "a.jpg", "b.jpg"], None)
    pairs = open_captions(_config(folder), None).pairs("train")
    assert pairs.images == ("b", "a")
    assert pairs.captions == ("one", "three", "two")
    assert pairs.image_of.tolist() == [0, 0, 1]


def test_counts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = _scan_folder(tmp_path / "s", [f"caption {i}" for i in range(9)], ["1", "2"], 2)
    with pytest.raises(DataError, match=r"train_ids.txt: holds 2 ids for 9 captions"):
        open_captions(_config(folder), None).pairs("train")
    with pytest.raises(DataError, match=r"train_ims.npy: holds 2 images for 9 captions"):
        open_captions(_config(folder, features="ims"), None).pairs("train")
    (folder / "train_caps.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train_caps.txt, row 2: the caption is empty"):
        open_captions(_config(folder), None).pairs("train")


def test_captions_that_are_nowhere_or_in_no_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file or folder of captions"):
        open_captions(_config(Path("nowhere.json")), None)
    token = tmp_path / "x.token"
    token.write_text("a.jpg#0\ta thing\n", encoding="utf-8")
    with pytest.raises(DataError, match="does not say which split 'a' is in"):
        open_captions(_config(token), None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no captions in a known format"):
        open_captions(_config(tmp_path / "empty"), None)


def test_a_sample_keeps_images_with_their_captions(world: Path) -> None:
    whole = open_captions(settings(world), None).pairs("train")
    part = whole.sample(5, 1, seed=3)
    assert len(part.images) == len(part.captions) == 5
    assert part.image_of.tolist() == [0, 1, 2, 3, 4]
    first = {image: whole.captions[whole.image_of.tolist().index(i)] for i, image in enumerate(whole.images)}
    assert [first[image] for image in part.images] == list(part.captions)
    assert part.images == whole.sample(5, 1, seed=3).images != whole.sample(5, 1, seed=4).images
    assert whole.sample(None, None, seed=1).captions == whole.captions


@pytest.mark.parametrize("order", ["captions", "rounds"])
def test_an_epoch_has_every_caption_once_in_an_order_of_its_own(world: Path, order: str) -> None:
    pairs = open_captions(settings(world), None).pairs("train")
    first = epoch_order(pairs, 5, order, seed=1, epoch=0)
    assert sorted(np.concatenate(first).tolist()) == list(range(len(pairs.captions)))
    assert all(len(batch) <= 5 for batch in first)
    again = epoch_order(pairs, 5, order, seed=1, epoch=0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for other in (epoch_order(pairs, 5, order, 1, 1), epoch_order(pairs, 5, order, 2, 0)):
        assert np.concatenate(other).tolist() != np.concatenate(first).tolist()


def test_a_batch_of_rounds_has_no_image_twice(world: Path) -> None:
    pairs = open_captions(settings(world), None).pairs("train")
    for epoch in range(5):
        for batch in epoch_order(pairs, 9, "rounds", seed=1, epoch=epoch):
            assert len(set(pairs.image_of[batch].tolist())) == len(batch)


def test_features_read_batch_by_batch_are_those_in_memory(world: Path) -> None:
    pairs = open_captions(settings(world), None).pairs("train")
    held = open_regions(pairs, world / "world.h5", None, 10)
    streamed = open_regions(pairs, world / "world.h5", None, 0)
    assert (held.in_memory, streamed.in_memory) == (True, False)
    wanted = np.array([4, 2, 4, 17])
    assert torch.equal(held.take(wanted), streamed.take(wanted))
    assert held.take(wanted).shape == (4, 3, 8)


def test_only_the_first_regions_of_each_image_are_taken(world: Path) -> None:
    pairs = open_captions(settings(world), None).pairs("dev")
    whole, cut = (open_regions(pairs, world / "world.h5", n, 10) for n in (None, 2))
    assert torch.equal(cut.take([0, 3]), whole.take([0, 3])[:, :2])
    with pytest.raises(FeatureError, match=r"'val00' has 3 regions, fewer than 'regions' asks for \(4\)"):
        open_regions(pairs, world / "world.h5", 4, 10)


def test_images_with_unequal_numbers_of_regions_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "s.h5"
    with StoreWriter(store, Fingerprint("drawn", "unknown", "unknown", "unknown")) as writer:
        for name, n in (("a", 2), ("b", 3)):
            writer.add(RegionFeatures(name, 0, 0, None, np.ones((n, 4), dtype=np.float32)))
        writer.finish()
    pairs = Pairs(("a", "b"), ("one", "two"), np.array([0, 1]), tmp_path)
    with pytest.raises(FeatureError, match=r"2 to 3 regions.*'regions: 2'"):
        open_regions(pairs, store, None, 10)
    assert open_regions(pairs, store, 2, 10).shape == (2, 2, 4)
    missing = Pairs(("a", "z"), ("one", "two"), np.array([0, 1]), tmp_path)
    with pytest.raises(FeatureError, match="lacks 1 of 2 images: 'z'"):
        open_regions(missing, store, 2, 10)


def _regions(n: int) -> Regions:
    class Source:
        shape = (n, 1, 2)
        dtype = np.dtype(np.float32)

        def read(self, images: object, into: NDArray[Any]) -> None:
            into[:] = 1

    return Regions(Source(), 1)


def test_dropped_words_are_unknown_and_ends_are_never_dropped() -> None:
    captions = [[1, 10, 11, 12, 13, 2], [1, 14, 2]] * 50
    pairs = Pairs(("a",), ("x",) * 100, np.zeros(100, dtype=np.int64), Path())

    def made(rate: float, step: int) -> torch.Tensor:
        (batch,) = batches(
            [np.arange(100)], pairs, captions, _regions(1), word_dropout=rate, seed=1, first_step=step, pin=False
        )
        return batch.ids

    whole, dropped = made(0.0, 4), made(0.5, 4)
    assert torch.equal(whole, pad(captions)[0])
    changed = dropped != whole
    assert set(dropped[changed].tolist()) == {3}
    assert not changed[whole <= 2].any()  # <pad>, <start>, <end>
    assert 0.35 < changed.sum() / (whole > 2).sum() < 0.65
    assert torch.equal(dropped, made(0.5, 4))
    assert not torch.equal(dropped, made(0.5, 5))


def test_padding_stands_behind() -> None:
    ids, lengths = pad([[1, 5, 2], [1, 2]])
    assert ids.tolist() == [[1, 5, 2], [1, 2, 0]]
    assert lengths.tolist() == [3, 2]


def test_prefetching_changes_nothing_and_hands_errors_on() -> None:
    assert list(prefetch(iter(range(50)), depth=3)) == list(range(50))

    def broken() -> Iterator[int]:
        yield 1
        raise DataError("the disk is gone")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(CapbenchError, match="the disk is gone"):
        next(items)


def test_a_prefetching_thread_ends_with_its_reader() -> None:
    items = prefetch(iter(range(10**9)))
    assert next(items) == 0
    assert isinstance(items, Generator)
    items.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]
