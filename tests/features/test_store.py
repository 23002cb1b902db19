from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capbench.core.errors import FeatureError, UsageError
from capbench.features.maintenance import merge_stores, verify_store
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter, partial_path
from tests.errors import raises
from tests.features.fakes import PRINT, assert_same, made_up

IMAGES = [f"img_{i:03d}" for i in (5, 1, 9, 30, 2, 17, 100)]


def write(path: Path, images: list[str] = IMAGES, **options: Any) -> FeatureStore:
    with StoreWriter(path, options.pop("fingerprint", PRINT), **options) as writer:
        for image in images:
            writer.add(made_up(image))
        return writer.finish()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("compression", ["none", "gzip", "lzf"])
def test_what_is_written_is_read(tmp_path: Path, compression: str) -> None:
    with write(tmp_path / "a.h5", compression=compression) as store:
        assert len(store) == len(IMAGES)
        assert store.ids == sorted(IMAGES)
        assert "img_005" in store
        assert "img_006" not in store
        for image in IMAGES:
            assert_same(store[image], made_up(image))
        for regions in store:
            assert_same(regions, made_up(regions.image))
        assert [regions.image for regions in store] == store.ids
        assert store.header.compression == compression
    assert not partial_path(tmp_path / "a.h5").exists()
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["a.h5", "a.h5.lock"]


def test_float16_halves_the_features_and_is_named_in_the_signature(tmp_path: Path) -> None:
    full, half = write(tmp_path / "full.h5"), write(tmp_path / "half.h5", dtype="float16")
    for image in IMAGES:
        np.testing.assert_array_equal(half[image].features, made_up(image).features.astype(np.float16))
        np.testing.assert_array_equal(half[image].boxes, full[image].boxes)
    assert full.signature() != half.signature()
    assert half.signature().endswith("+stored:float16")
    assert PRINT.digest in half.signature()


def test_names_are_kept_and_ids_beyond_them_refused(tmp_path: Path) -> None:
    names = ("dog", "grüner Baum", "cat")
    store = write(tmp_path / "a.h5", class_names=names)
    assert store.header.class_names == names
    assert store.header.attribute_names is None
    with (
        StoreWriter(tmp_path / "b.h5", PRINT, class_names=("dog",)) as writer,
        raises(FeatureError, "out-of-range", value="x"),
    ):
        writer.add(made_up("x", regions=1, class_ids=np.array([2], np.int32)))


def test_ids_of_any_characters_and_length_are_found(tmp_path: Path) -> None:
    images = ["a b", " a", "x/y", "x/z.jpg", "é" * 40_000, "\U0001f600", "007", "Ärger", "日本"]
    store = write(tmp_path / "a.h5", images)
    assert set(store.ids) == set(images)
    for image in images:
        assert_same(store[image], made_up(image))
    assert "a" not in store


@pytest.mark.parametrize(
    ("second", "code", "value"),
    [
        (made_up("img_005"), "duplicate", "img_005"),
        (made_up("z", size=17), "mismatch", "z"),
        (made_up("z", fields=False), "mismatch", "z"),
        (dataclasses.replace(made_up("z"), boxes=None), "mismatch", "z"),
        (made_up("z", features=np.full((1, 16), np.nan, np.float32), regions=1), "not-a-number", "z"),
    ],
)
def test_images_that_do_not_go_with_the_others_are_refused(
    tmp_path: Path, second: RegionFeatures, code: str, value: object
) -> None:
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        writer.add(made_up("img_005"))
        with raises(FeatureError, code, value=value):
            writer.add(second)
        assert writer.done == {"img_005"}
        assert writer.finish().ids == ["img_005"]


@pytest.mark.parametrize("stored", ["42", "000000000042", "COCO_val2014_000000000042"])
def test_an_image_is_found_by_any_of_its_coco_names(tmp_path: Path, stored: str) -> None:
    store = write(tmp_path / "a.h5", [stored, "img_7"])
    for name in ("42", "000000000042", "COCO_val2014_000000000042", "COCO_train2014_000000000042"):
        assert name in store
        assert_same(store[name], made_up(stored))
        assert (store.regions(name), store.checksum(name)) == (store.regions(stored), store.checksum(stored))
    for name in ("0042", "43", "img_42"):
        assert name not in store


def test_shards_are_viewed_as_one(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / "s" / f"shard{i}.h5", IMAGES[i::3])
    for store in (open_store(tmp_path / "s"), open_store(sorted((tmp_path / "s").glob("*.h5")))):
        assert len(store) == len(IMAGES)
        assert sorted(store.ids) == sorted(IMAGES)
        for image in IMAGES:
            assert_same(store[image], made_up(image))
        assert sorted(regions.image for regions in store) == sorted(IMAGES)
    write(tmp_path / "s" / "again.h5", IMAGES[:1])
    with raises(FeatureError, "duplicate", path=tmp_path / "s/again.h5", value="img_005"):
        open_store(tmp_path / "s")


OTHER = dataclasses.replace(PRINT, mode="other", weights_sha256="cd" * 32)


def test_fingerprints_are_never_mixed(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", IMAGES[:2])
    write(tmp_path / "b.h5", IMAGES[2:], fingerprint=OTHER)
    with raises(FeatureError, "wrong-features", path=tmp_path / "b.h5"):
        open_store([tmp_path / "a.h5", tmp_path / "b.h5"])
    with raises(FeatureError, "wrong-features", path=tmp_path / "b.h5"):
        merge_stores(tmp_path / "c.h5", [tmp_path / "a.h5", tmp_path / "b.h5"])
    with raises(FeatureError, "wrong-features", path=tmp_path / "a.h5"):
        StoreWriter(tmp_path / "a.h5", OTHER)
    with raises(FeatureError, "wrong-features", path=tmp_path / "a.h5"):
        StoreWriter(tmp_path / "a.h5", PRINT, dtype="float16")
    with raises(FeatureError, "wrong-features", path=tmp_path / "a.h5"):
        StoreWriter(tmp_path / "a.h5", PRINT, class_names=("dog",))
    assert open_store(tmp_path / "a.h5").ids == sorted(IMAGES[:2])
    assert not (tmp_path / "c.h5").exists()


def test_a_journal_cut_at_any_byte_keeps_whole_records_only(tmp_path: Path) -> None:
    write(tmp_path / "whole.h5", IMAGES[:3])
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        for image in IMAGES[:3]:
            writer.add(made_up(image))
    journal = partial_path(tmp_path / "a.h5").read_bytes()
    seen = set()
    for cut in range(0, len(journal), 29):
        path = tmp_path / f"cut{cut}.h5"
        partial_path(path).write_bytes(journal[:cut])
        with StoreWriter(path, PRINT) as writer:
            seen.add(writer.resumed)
            assert writer.done == set(IMAGES[: writer.resumed])
            for image in IMAGES[:3]:
                if image not in writer:
                    writer.add(made_up(image))
            writer.finish()
        assert digest(path) == digest(tmp_path / "whole.h5")
    assert seen == {0, 1, 2}


def test_a_flipped_bit_in_a_journal_loses_no_more_than_what_follows(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        for image in IMAGES[:3]:
            writer.add(made_up(image))
        second = writer._journal.index[IMAGES[1]][0]
    path = partial_path(tmp_path / "a.h5")
    raw = bytearray(path.read_bytes())
    raw[second + 100] ^= 1
    path.write_bytes(raw)
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        assert writer.done == {IMAGES[0]}


def test_a_run_killed_between_renaming_and_removing_the_journal_is_taken_up(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        for image in IMAGES:
            writer.add(made_up(image))
    journal = partial_path(tmp_path / "a.h5").read_bytes()
    write(tmp_path / "a.h5", [])
    before = digest(tmp_path / "a.h5")
    partial_path(tmp_path / "a.h5").write_bytes(journal)
    (tmp_path / ".a.h5.finishing").write_bytes(b"half of a file")
    store = write(tmp_path / "a.h5", ["img_new"])
    assert len(store) == len(IMAGES) + 1
    assert not partial_path(tmp_path / "a.h5").exists()
    assert not (tmp_path / ".a.h5.finishing").exists()
    assert digest(tmp_path / "a.h5") != before


def test_restart_replaces_the_file_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", IMAGES[:2])
    old = digest(tmp_path / "a.h5")
    with StoreWriter(tmp_path / "a.h5", OTHER, restart=True) as writer:
        writer.add(made_up("x"))
    with raises(FeatureError, "wrong-features", path=tmp_path / "a.h5.partial"):
        StoreWriter(tmp_path / "a.h5", PRINT)
    assert digest(tmp_path / "a.h5") == old
    with StoreWriter(tmp_path / "a.h5", OTHER) as writer:  # takes up the restarted run
        assert writer.done == {"x"}
        writer.add(made_up("y"))
        assert writer.finish().ids == ["x", "y"]


def test_two_writers_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.features.writing._LOCK_S", 0.05)
    with StoreWriter(tmp_path / "a.h5", PRINT), raises(UsageError, "in-use", path=tmp_path / "a.h5.lock"):
        StoreWriter(tmp_path / "a.h5", PRINT)


def _change(name: str, change: Callable[[Any], Any]) -> Callable[[h5py.File], None]:
    def do(file: h5py.File) -> None:
        values = change(file[name][()])
        del file[name]
        file[name] = values

    return do


def _nan(values: Any) -> Any:
    values[3, 2] = np.nan
    return values


@pytest.mark.parametrize(
    ("damage", "code", "value"),
    [
        (lambda f: f.attrs.__setitem__("format", "else"), "wrong-format", None),
        (lambda f: f.attrs.__setitem__("version", 99), "wrong-version", "99"),
        (lambda f: f.attrs.__setitem__("fingerprint_id", "0" * 16), "changed", None),
        (lambda f: f.__delitem__("offsets"), "missing-key", "offsets"),
        (_change("features", lambda x: x.astype(np.float64)), "wrong-shape", "features"),
        (_change("features", lambda x: x[:-1]), "wrong-shape", "boxes"),
        (_change("class_ids", lambda x: x[:-1]), "wrong-shape", "class_ids"),
        (_change("offsets", lambda x: x[::-1].copy()), "damaged", None),
        (_change("image_ids", lambda x: x[::-1].copy()), "damaged", None),
        (_change("features", _nan), "damaged", "img_002"),
        (_change("boxes", lambda x: x + 1000), "damaged", "img_001"),
        (_change("checksums", lambda x: x ^ 1), "damaged", "img_001"),
    ],
)
def test_damage_is_found_when_a_file_is_opened_or_read(
    tmp_path: Path, damage: Callable[[h5py.File], None], code: str, value: object
) -> None:
    write(tmp_path / "a.h5").close()
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        damage(file)
    with raises(FeatureError, code, path=tmp_path / "a.h5", value=value):
        list(open_store(tmp_path / "a.h5"))


def test_verify_names_what_is_wrong(tmp_path: Path) -> None:
    good = verify_store(write(tmp_path / "a.h5"))
    assert (good.images, good.bad, good.problems) == (len(IMAGES), 0, ())
    assert good.regions == sum(len(made_up(image)) for image in IMAGES)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["features"][0, 0] += 1
    verified = verify_store(open_store(tmp_path / "a.h5"))
    assert verified.bad == 1
    assert "'img_001'" in verified.problems[0]


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.h5").close()
    whole = (tmp_path / "a.h5").read_bytes()
    for cut in range(0, len(whole), max(1, len(whole) // 40)):
        (tmp_path / "cut.h5").write_bytes(whole[:cut])
        with pytest.raises(FeatureError) as cut_off:
            open_store(tmp_path / "cut.h5")
        assert cut_off.value.code in ("damaged", "wrong-format")
        assert cut_off.value.path == str(tmp_path / "cut.h5")


CAFFE = Fingerprint("bottom-up-caffe", "ab" * 32, "bgr 600/1000", "caffe 0.2 10-100", versions=(("torch", "2.4"),))


def regions(**changes: Any) -> RegionFeatures:
    boxes = np.array([[0, 0, 10, 10], [5, 5, 40, 20]], dtype=np.float32)
    good = RegionFeatures("a", 40, 20, boxes, np.ones((2, 3), np.float32))
    return dataclasses.replace(good, **changes)


def test_good_regions_pass() -> None:
    regions().check()
    regions(features=np.ones((2, 3), np.float16)).check()
    regions(boxes=None, width=0, height=0).check()
    regions(boxes=np.array([[0, 0, 1, 1], [0.2, 0.2, 0.5, 0.5]], np.float32), width=1, height=1).check()
    regions(boxes=np.array([[0, 0, 40.4, 20], [1, 1, 1, 1]], np.float32)).check()


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"image": "a\nb"}, "wrong-value", "a\nb"),
        ({"features": np.ones((2, 3), np.float64)}, "wrong-type", "a"),
        ({"features": np.ones(3, np.float32)}, "wrong-shape", "a"),
        ({"features": np.array([[1, 2], [3, np.nan]], np.float32)}, "not-a-number", "a"),
        ({"features": np.ones((0, 3), np.float32), "boxes": np.ones((0, 4), np.float32)}, "missing-value", "a"),
        ({"boxes": np.ones((3, 4), np.float32)}, "wrong-shape", "a"),
        ({"boxes": np.full((2, 4), np.nan, np.float32)}, "not-a-number", "a"),
        ({"class_probabilities": np.ones((2, 4), np.float32)}, "out-of-range", "a"),
        ({"class_probabilities": np.ones((3, 4), np.float32)}, "wrong-shape", "a"),
        ({"boxes": np.array([[0, 0, 1, 1], [0, 0, 42, 1]], np.float32)}, "out-of-range", "a"),
        ({"boxes": np.array([[-2, 0, 1, 1], [0, 0, 4, 1]], np.float32)}, "out-of-range", "a"),
        ({"boxes": np.array([[3, 0, 1, 1], [0, 0, 4, 1]], np.float32)}, "wrong-value", "a"),
        ({"width": 0}, "out-of-range", "a"),
        ({"width": 0, "height": 0}, "missing-value", "a"),
        ({"class_ids": np.array([1, -2], np.int32)}, "out-of-range", "a"),
        ({"class_scores": np.array([0.5, 1.5], np.float32)}, "out-of-range", "a"),
        ({"attribute_scores": np.array([0.5], np.float32)}, "wrong-shape", "a"),
    ],
)
def test_bad_regions_are_refused_with_the_image(changes: dict[str, Any], code: str, value: object) -> None:
    with raises(FeatureError, code, value=value):
        regions(**changes).check()
