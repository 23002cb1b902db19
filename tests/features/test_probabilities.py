"""A detector's probabilities of background and classes, from ViLBERT's files into stores and out again."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capbench.core.errors import DataError, FeatureError
from capbench.features.importers import import_features
from capbench.features.maintenance import describe, export_store, merge_stores, verify_store
from capbench.features.pooling import parse_pooling, pool_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter
from tests.conftest import Ran
from tests.errors import raises
from tests.features.fakes import PRINT, assert_same, made_up, shares
from tests.features.foreign_files import make_lmdb, vilbert

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


def test_they_are_stored_in_the_type_of_the_features(tmp_path: Path) -> None:
    with write(tmp_path / "a.h5", dtype="float16") as store:
        kept = store["a"].class_probabilities
    assert kept is not None
    assert kept.dtype == np.float16
    np.testing.assert_array_equal(kept, with_shares("a").class_probabilities.astype(np.float16))  # type: ignore[union-attr]


def test_only_files_that_hold_them_need_a_newer_capbench(tmp_path: Path) -> None:
    write(tmp_path / "with.h5").close()
    with StoreWriter(tmp_path / "without.h5", PRINT) as writer:
        writer.add(made_up("a"))
        writer.finish().close()
    versions = []
    for name in ("with", "without"):
        with h5py.File(tmp_path / f"{name}.h5") as file:
            versions.append(int(file.attrs["version"]))
    assert versions == [2, 1]


def test_images_with_and_without_them_do_not_mix(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        writer.add(with_shares("a"))
        for other in (made_up("b"), with_shares("b", 4)):
            with raises(FeatureError, "mismatch", value="b"):
                writer.add(other)


def test_stores_with_them_are_merged(tmp_path: Path) -> None:
    write(tmp_path / "one.h5", ("a",)).close()
    write(tmp_path / "two.h5", ("b", "c")).close()
    merge_stores(tmp_path / "both.h5", [tmp_path / "one.h5", tmp_path / "two.h5"]).close()
    write(tmp_path / "whole.h5").close()
    assert (tmp_path / "both.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_changed_probability_is_damage(tmp_path: Path) -> None:
    write(tmp_path / "a.h5").close()
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["class_probabilities"][0, 0] += np.float32(1e-3)
    with open_store(tmp_path / "a.h5") as store, raises(FeatureError, "damaged", path=tmp_path / "a.h5", value="a"):
        store["a"]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (shares(4) * 2, "out-of-range"),
        (shares(4) - 1, "out-of-range"),
        (np.full((4, 3), np.nan, np.float32), "out-of-range"),
        (np.ones((4, 1), np.float32), "wrong-shape"),
        (shares(3), "wrong-shape"),
        (shares(4).astype(np.float64), "wrong-type"),
    ],
)
def test_what_is_no_distribution_is_refused(values: Any, code: str) -> None:
    with raises(FeatureError, code, value="a"):
        dataclasses.replace(made_up("a", regions=4), class_probabilities=values).check()


@pytest.mark.parametrize("coded", [True, False])
def test_vilberts_cls_prob_is_kept_whole_if_asked_for(tmp_path: Path, coded: bool) -> None:
    image, given = made_up("a", regions=3, fields=False), shares(3)
    path = npy(tmp_path, image, cls_prob=base64.b64encode(given.tobytes()) if coded else given)
    kept = import_features([path], tmp_path / "kept.h5", class_probabilities=True).store["a"]
    np.testing.assert_array_equal(kept.class_probabilities, given)
    assert kept.class_ids is not None
    assert kept.class_ids.tolist() == given[:, 1:].argmax(axis=1).tolist()
    assert import_features([path], tmp_path / "without.h5").store["a"].class_probabilities is None


@pytest.mark.parametrize("changes", [{}, {"cls_prob": np.zeros((3, 6))}])
def test_files_without_them_are_refused_where_they_shall_be_kept(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = npy(tmp_path, made_up("a", regions=3, fields=False), **changes)
    with raises(DataError, "missing-value", path=tmp_path / "a.npy", value="cls_prob"):
        import_features([path], tmp_path / "a.h5", class_probabilities=True)
    assert not (tmp_path / "a.h5").exists()


def test_an_export_to_npz_can_be_imported_again(tmp_path: Path) -> None:
    with write(tmp_path / "a.h5") as store:
        export_store(store, tmp_path / "a.npz")
        with raises(FeatureError, "unsupported", path=tmp_path / "a.h5", value="butd-tsv"):
            export_store(store, tmp_path / "a.tsv")
    again = import_features([tmp_path / "a.npz"], tmp_path / "b.h5").store
    for image in IMAGES:
        assert_same(again[image], with_shares(image))


def test_an_npz_whose_probabilities_do_not_fit_is_refused(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"image_names": ["a"], "features": np.ones((1, 2, 3), np.float32)}
    for values in (np.ones((1, 3, 4), np.float32), np.ones((1, 2, 4), int)):
        np.savez(tmp_path / "a.npz", class_probabilities=values, allow_pickle=False, **arrays)
        with raises(DataError, "wrong-shape", path=tmp_path / "a.npz", value="class_probabilities"):
            import_features([tmp_path / "a.npz"], tmp_path / "a.h5")


def test_cells_with_them_are_not_pooled(tmp_path: Path) -> None:
    cells = made_up("a", regions=4, fields=False, boxes=None)
    with StoreWriter(tmp_path / "a.h5", PRINT) as writer:
        writer.add(dataclasses.replace(cells, class_probabilities=shares(4)))
        writer.finish().close()
    with raises(FeatureError, "unsupported", path=tmp_path / "a.h5", value="a"):
        pool_store(tmp_path / "a.h5", tmp_path / "b.h5", parse_pooling("1x1/1"))


def test_the_command_line_keeps_and_shows_them(tmp_path: Path, capbench: Callable[..., Ran]) -> None:
    path = npy(tmp_path, made_up("a", regions=3, fields=False), cls_prob=shares(3))
    ran = capbench("features", "import", path, "--class-probabilities", "--out", tmp_path / "a.h5")
    assert ran.code == 0, ran.err
    assert "class_probabilities" in capbench("features", "info", tmp_path / "a.h5").out
    assert capbench("features", "info", "--verify", tmp_path / "a.h5").code == 0
    refused = capbench("features", "import", npy(tmp_path, made_up("b", fields=False)), "--class-probabilities")
    assert refused.code == 2
    assert len(refused.err.strip().splitlines()) <= 2


def hints(ran: Ran) -> list[str]:
    return [line for line in ran.err.splitlines() if "--class-probabilities" in line]


def test_one_line_says_that_probabilities_were_not_kept(tmp_path: Path, capbench: Callable[..., Ran]) -> None:
    paths = [npy(tmp_path, made_up(name, regions=3, fields=False), cls_prob=shares(3)) for name in ("a", "b")]
    ran = capbench("features", "import", *paths, "--out", tmp_path / "a.h5", "--detector", "d", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["images"] == 2
    (line,) = hints(ran)
    assert line.startswith("2 images: ")


def test_lmdb_files_have_them_too(tmp_path: Path, capbench: Callable[..., Ran]) -> None:
    images = [made_up(name, regions=2, fields=False) for name in ("7", "8")]
    records = {i.image.encode(): pickle.dumps(vilbert(i, cls_prob=shares(2, seed=int(i.image)))) for i in images}
    path = make_lmdb(tmp_path / "base", {b"keys": pickle.dumps([b"7", b"8"]), **records})
    (line,) = hints(capbench("features", "import", path, "--out", tmp_path / "a.h5", "--detector", "d"))
    assert line.startswith("2 images: ")
    store = import_features([path], tmp_path / "b.h5", class_probabilities=True).store
    np.testing.assert_array_equal(store["8"].class_probabilities, shares(2, seed=8))


@pytest.mark.parametrize(
    ("changes", "flags"),
    [({"cls_prob": shares(3)}, ["--class-probabilities"]), ({}, []), ({"cls_prob": np.zeros((3, 6))}, [])],
)
def test_nothing_is_said_where_they_are_kept_or_there_are_none(
    tmp_path: Path, capbench: Callable[..., Ran], changes: dict[str, Any], flags: list[str]
) -> None:
    path = npy(tmp_path, made_up("a", regions=3, fields=False), **changes)
    ran = capbench("features", "import", path, *flags, "--out", tmp_path / "a.h5", "--detector", "d")
    assert ran.code == 0, ran.err
    assert not hints(ran)
