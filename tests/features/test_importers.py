from __future__ import annotations

import base64
import os
import pickle
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.errors import CapbenchError, DataError, MissingFileError, ToolError, UsageError
from capbench.features.importers import import_features
from capbench.features.importers.importing import detect_format
from capbench.features.maintenance import verify_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore
from capbench.features.writing import partial_path
from tests.features.fakes import assert_same, made_up

IDS = ("132", "573", "578")


def b64(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def butd_row(regions: RegionFeatures) -> str:
    cells = (regions.image, regions.width, regions.height, len(regions), b64(regions.boxes), b64(regions.features))
    return "\t".join(map(str, cells))


def lxmert_row(regions: RegionFeatures) -> str:
    flat = regions.flat()
    arrays = [
        b64(flat["class_ids"].astype(np.int64)),
        b64(flat["class_scores"]),
        b64(flat["class_ids"].astype(np.int64) + 1),
        b64(flat["class_scores"] / 2),
    ]
    cells = (
        regions.image,
        regions.height,
        regions.width,
        *arrays,
        len(regions),
        b64(regions.boxes),
        b64(regions.features),
    )
    return "\t".join(map(str, cells))


def lines(path: Path, rows: list[str]) -> Path:
    path.write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    return path


# -- the published formats, from fixtures whose arrays are known ------------------------------------------------------


@pytest.fixture(scope="module")
def expected(parity: Path) -> Any:
    return np.load(parity / "feature_formats" / "expected.npz")


def assert_expected(store: FeatureStore, expected: Any, name: Callable[[str], str] = str, fields: str = "") -> None:
    assert sorted(store.ids) == sorted(name(image) for image in IDS)
    for image in IDS:
        regions = store[name(image)]
        np.testing.assert_array_equal(regions.boxes, expected[f"{image}__boxes"])
        np.testing.assert_array_equal(regions.features, expected[f"{image}__features"])
        assert [regions.width, regions.height] == expected[f"{image}__wh"].tolist()
        if "objects" in fields:
            np.testing.assert_array_equal(regions.class_ids, expected[f"{image}__objects_id"])
        if "all" in fields:
            np.testing.assert_array_equal(regions.class_scores, expected[f"{image}__objects_conf"])
            np.testing.assert_array_equal(regions.attribute_ids, expected[f"{image}__attrs_id"])
            np.testing.assert_array_equal(regions.attribute_scores, expected[f"{image}__attrs_conf"])
    assert verify_store(store).bad == 0


@pytest.mark.real_data
def test_the_six_column_fixture(parity: Path, expected: Any, tmp_path: Path) -> None:
    made = import_features([parity / "feature_formats" / "butd_6col.tsv"], tmp_path / "a.h5")
    assert made.format == "butd-tsv"
    assert_expected(made.store, expected)


@pytest.mark.real_data
def test_the_ten_column_fixture(parity: Path, expected: Any, tmp_path: Path) -> None:
    made = import_features([parity / "feature_formats" / "lxmert_10col.tsv"], tmp_path / "a.h5")
    assert made.format == "lxmert-tsv"
    assert_expected(made.store, expected, lambda image: f"COCO_train2014_{int(image):012d}", "objects, all")


@pytest.mark.real_data
def test_the_milvlg_fixtures(parity: Path, expected: Any, tmp_path: Path) -> None:
    made = import_features(sorted((parity / "feature_formats").glob("milvlg_*.npz")), tmp_path / "a.h5")
    assert made.format == "milvlg"
    assert_expected(made.store, expected, lambda image: f"milvlg_{image}")


@pytest.mark.real_data
def test_the_vilbert_fixtures(parity: Path, expected: Any, tmp_path: Path) -> None:
    made = import_features(sorted((parity / "feature_formats").glob("vilbert_*.npy")), tmp_path / "a.h5")
    assert made.format == "vilbert"
    assert_expected(made.store, expected, fields="objects")


@pytest.mark.real_data
def test_the_scan_fixture(parity: Path, expected: Any, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("".join(f"{image}\n" for image in IDS))
    source = parity / "feature_formats" / "scan_test_ims.npy"
    made = import_features([source], tmp_path / "a.h5", ids=tmp_path / "ids.txt")
    assert made.format == "scan"
    for image in IDS:
        regions = made.store[image]
        np.testing.assert_array_equal(regions.features, expected[f"{image}__features"][:3])
        assert regions.boxes is None
        assert (regions.width, regions.height) == (0, 0)


@pytest.mark.real_data
def test_the_published_grid_features_are_imported_and_verified(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "flickr8k" / "mobilenetv2_grid49_pca256_int8.npz"
    made = import_features([source], tmp_path / "a.h5", detector="mobilenetv2-grid49-pca256")
    verified = verify_store(made.store)
    assert (verified.images, verified.bad, verified.regions) == (8091, 0, 8091 * 49)
    with np.load(source) as arrays:
        names = arrays["image_names"]
        expected = arrays["features_int8"][[0, 4000, 8090]] * arrays["scale"]
        boxes = arrays["boxes_normalised_xyxy"]
    for i, features in zip((0, 4000, 8090), expected, strict=True):
        regions = made.store[str(names[i]).removesuffix(".jpg")]
        np.testing.assert_array_equal(regions.features, features)
        np.testing.assert_array_equal(regions.boxes, boxes)
        assert (regions.width, regions.height) == (1, 1)


# -- tab-separated files ----------------------------------------------------------------------------------------------


def test_tsv_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    images = [made_up(image, fields=False) for image in ("b", "a", "COCO_val2014_000000000042.jpg")]
    made = import_features([lines(tmp_path / "a.tsv", [butd_row(image) for image in images])], tmp_path / "a.h5")
    assert sorted(made.store.ids) == ["COCO_val2014_000000000042", "a", "b"]
    for image in images[:2]:
        assert_same(made.store[image.image], image)


def test_lxmert_has_the_height_first_and_all_fields(tmp_path: Path) -> None:
    image = made_up("a")
    store = import_features([lines(tmp_path / "a.tsv", [lxmert_row(image)])], tmp_path / "a.h5").store
    regions = store["a"]
    assert (regions.width, regions.height) == (image.width, image.height)
    np.testing.assert_array_equal(regions.class_ids, image.flat()["class_ids"])
    np.testing.assert_array_equal(regions.attribute_ids, image.flat()["class_ids"] + 1)
    assert regions.flat()["attribute_ids"].dtype == np.int32


def test_several_files_become_one_store(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i, name in enumerate("ab"):
        lines(tmp_path / "in" / f"{name}.tsv", [butd_row(made_up(f"x{i}"))])
    assert import_features([tmp_path / "in"], tmp_path / "a.h5").store.ids == ["x0", "x1"]


def test_a_long_file_needs_the_memory_of_one_image(tmp_path: Path) -> None:
    with open(tmp_path / "long.tsv", "w") as stream:
        for i in range(200):  # 200 images of 0.36 MB
            stream.write(butd_row(made_up(f"i{i}", regions=36, size=2560, fields=False)) + "\r\n")
    size = (tmp_path / "long.tsv").stat().st_size
    import h5py  # noqa: F401  not counted below

    tracemalloc.start()
    store = import_features([tmp_path / "long.tsv"], tmp_path / "a.h5").store
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(store) == 200
    assert peak < size / 2
    assert peak < 45e6  # blocks of 8 MB while the file is built, in a few copies


def bad_cells(**changes: Any) -> str:
    cells = dict(zip(("id", "w", "h", "n", "boxes", "features"), butd_row(made_up("bad")).split("\t"), strict=True))
    return "\t".join(str(value) for value in (cells | changes).values())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (butd_row(made_up("bad")).replace("\t", ","), "row 2: has 1 column, not 6"),
        (butd_row(made_up("bad")) + "\tx", "row 2: has 7 columns, not 6"),
        (bad_cells(w="wide"), "row 2: the width is 'wide', not a whole number"),
        (bad_cells(n="0"), "row 2: there are 0 boxes"),
        (bad_cells(n="7"), "row 2: boxes has .* numbers where 7 boxes need"),
        (bad_cells(features="a?b="), "row 2: features is not base64"),
        (bad_cells(boxes="YWJj"), "row 2: boxes has 3 bytes, no multiple of 4"),
        (bad_cells(id="good"), "row 2: the image 'good' stands twice.*--keep-first"),
        (bad_cells(w="2", h="2"), "row 2: image 'bad': box 0 .* leaves the image of 2 x 2"),
        (bad_cells(id=""), "row 2: the image id '' is empty"),
        (butd_row(made_up("bad", regions=2, features=np.full((2, 16), np.nan, np.float32))), "row 2: .*NaN"),
        (butd_row(made_up("bad", size=12)), "row 2: .*features of 12 columns, not 16"),
        ("", "row 2: has 1 column"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_left(tmp_path: Path, row: str, message: str) -> None:
    good = butd_row(made_up("good"))
    lines(tmp_path / "bad.tsv", [good, row, butd_row(made_up("last"))])
    with pytest.raises(DataError, match=message) as refused:
        import_features([tmp_path / "bad.tsv"], tmp_path / "a.h5")
    assert "bad.tsv" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "a.h5").exists()
    assert not partial_path(tmp_path / "a.h5").exists()


def test_a_header_is_said_to_be_one(tmp_path: Path) -> None:
    header = "image_id\timage_w\timage_h\tnum_boxes\tboxes\tfeatures"
    with pytest.raises(DataError, match="row 1: is a header"):
        import_features([lines(tmp_path / "a.tsv", [header, butd_row(made_up("a"))])], tmp_path / "a.h5")


def test_a_file_that_is_cut_off_is_said_to_be(tmp_path: Path) -> None:
    text = butd_row(made_up("a")) + "\r\n" + butd_row(made_up("b"))[:-30]
    (tmp_path / "cut.tsv").write_text(text)
    with pytest.raises(DataError, match=r"row 2: .*The file is cut off"):
        import_features([tmp_path / "cut.tsv"], tmp_path / "a.h5")


def test_keep_first_counts_what_it_leaves_out(tmp_path: Path) -> None:
    rows = [butd_row(made_up("a")), butd_row(made_up("b")), butd_row(made_up("a", size=16))]
    made = import_features([lines(tmp_path / "a.tsv", rows)], tmp_path / "a.h5", keep_first=True)
    assert made.duplicates == 1
    assert made.store.ids == ["a", "b"]


# -- NumPy files ------------------------------------------------------------------------------------------------------


def test_milvlg_with_info_and_with_columns_for_boxes(tmp_path: Path) -> None:
    image = made_up("one.jpg", regions=4)
    info = {"objects_id": image.flat()["class_ids"], "objects_conf": image.flat()["class_scores"]}
    arrays: dict[str, Any] = {"x": image.features.T, "bbox": image.boxes, "num_bbox": 4, "image_h": image.height}
    np.savez(tmp_path / "one.jpg.npz", image_w=image.width, info=np.array(info, dtype=object), **arrays)
    imported = import_features([tmp_path / "one.jpg.npz"], tmp_path / "a.h5").store["one"]
    np.testing.assert_array_equal(imported.features, image.features)
    np.testing.assert_array_equal(imported.class_ids, image.flat()["class_ids"])


class Bomb:
    def __reduce__(self) -> Any:
        return (os.system, ("touch fallen",))


def test_pickle_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("bomb.npy", np.array({"features": Bomb()}, dtype=object), allow_pickle=True)
    image = made_up("one")
    arrays: dict[str, Any] = {"x": image.features, "bbox": image.boxes, "image_h": 9, "image_w": 9}
    np.savez("bomb.npz", info=np.array(Bomb(), dtype=object), **arrays)
    for name in ("bomb.npy", "bomb.npz"):
        with pytest.raises(DataError, match=rf"{name}.*'posix\.system', which is refused"):
            import_features([name], "a.h5")
    assert not Path("fallen").exists()


def test_scan_needs_ids_that_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "ims.npy", np.ones((3, 2, 4), np.float32))
    (tmp_path / "ids.txt").write_text("a.jpg\nb.jpg\n")
    with pytest.raises(UsageError, match="scan needs --ids"):
        import_features([tmp_path / "ims.npy"], tmp_path / "a.h5")
    with pytest.raises(DataError, match=r"ids\.txt: holds 2 ids for 3 images"):
        import_features([tmp_path / "ims.npy"], tmp_path / "a.h5", ids=tmp_path / "ids.txt")
    (tmp_path / "ids.txt").write_text("a.jpg\nb.jpg\nc.jpg\n")
    store = import_features([tmp_path / "ims.npy"], tmp_path / "a.h5", ids=tmp_path / "ids.txt").store
    assert store.ids == ["a", "b", "c"]
    np.save(tmp_path / "flat.npy", np.ones((3, 8), np.float32))
    with pytest.raises(DataError, match=r"flat\.npy: has shape \(3, 8\)"):
        import_features([tmp_path / "flat.npy"], tmp_path / "b.h5", ids=tmp_path / "ids.txt")


def vilbert(regions: RegionFeatures, **changes: Any) -> dict[str, Any]:
    return {
        "image_id": regions.image,
        "bbox": regions.boxes,
        "features": regions.features,
        "num_boxes": len(regions),
        "image_width": regions.width,
        "image_height": regions.height,
    } | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "features is of object"),
        ({"num_boxes": 9}, "9 boxes need"),
        ({"image_width": "broad"}, "image_width is 'broad'"),
        ({"bbox": np.ones((2, 5), np.float32)}, "boxes has"),
    ],
)
def test_vilbert_dictionaries_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    np.save(tmp_path / "a.npy", np.array(vilbert(made_up("a"), **changes), dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=rf"a\.npy: .*{message}"):
        import_features([tmp_path / "a.npy"], tmp_path / "a.h5")


def probabilities(*best: int, columns: int = 6) -> np.ndarray[Any, Any]:
    """A softmax over background and classes; ``best`` are the highest columns, 0 the background."""
    logits = np.random.default_rng(3).normal(size=(len(best), columns))
    logits[np.arange(len(best)), best] += 6
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    result: np.ndarray[Any, Any] = shares.astype(np.float32)
    return result


@pytest.mark.parametrize(
    ("objects", "ids"),
    [
        (None, [2, 4, 0]),  # ViLBERT's LMDB files have none
        ([2, 4, 0], [2, 4, 0]),  # counted from the first class
        ([3, 5, 1], [2, 4, 0]),  # columns, the background among them
        ([5, 1], [2, 4, 0]),  # the script lost the first region's
    ],
)
@pytest.mark.parametrize("coded", [True, False])
def test_vilbert_confidences_are_those_of_the_best_class_but_the_background(
    tmp_path: Path, objects: list[int] | None, ids: list[int], coded: bool
) -> None:
    image, class_shares = made_up("a", regions=3, fields=False), probabilities(3, 5, 1)
    changes: dict[str, Any] = {"cls_prob": base64.b64encode(class_shares.tobytes()) if coded else class_shares}
    if objects is not None:
        raw = np.array(objects, dtype=np.int64)
        changes["objects"] = b64(raw) if coded else raw
    np.save(tmp_path / "a.npy", np.array(vilbert(image, **changes), dtype=object), allow_pickle=True)
    regions = import_features([tmp_path / "a.npy"], tmp_path / "a.h5").store["a"]
    assert regions.flat()["class_ids"].tolist() == ids
    np.testing.assert_array_equal(regions.flat()["class_scores"], class_shares[:, 1:].max(axis=1))


def test_a_region_that_is_mostly_background_has_its_best_class(tmp_path: Path) -> None:
    class_shares = probabilities(3, 0)
    columns = class_shares.argmax(axis=1)  # as the script's --background writes objects
    record = vilbert(made_up("a", regions=2, fields=False), cls_prob=class_shares, objects=columns)
    np.save(tmp_path / "a.npy", np.array(record, dtype=object), allow_pickle=True)
    regions = import_features([tmp_path / "a.npy"], tmp_path / "a.h5").store["a"]
    assert regions.flat()["class_ids"].tolist() == [2, int(class_shares[1, 1:].argmax())]
    np.testing.assert_array_equal(regions.flat()["class_scores"], class_shares[:, 1:].max(axis=1))


def test_vilbert_without_probabilities_has_classes_and_no_confidences(tmp_path: Path) -> None:
    record = vilbert(made_up("a", regions=2, fields=False), cls_prob=np.zeros((2, 6)), objects=np.array([1599, 4]))
    np.save(tmp_path / "a.npy", np.array(record, dtype=object), allow_pickle=True)
    regions = import_features([tmp_path / "a.npy"], tmp_path / "a.h5").store["a"]
    assert set(regions.flat()) == {"class_ids"}
    assert regions.flat()["class_ids"].tolist() == [1599, 4]


def test_regions_that_vilbert_does_not_count_are_kept_as_its_reader_does(tmp_path: Path) -> None:
    image = made_up("a", regions=5, fields=False)
    np.save(tmp_path / "a.npy", np.array(vilbert(image, num_boxes=3), dtype=object), allow_pickle=True)
    assert_same(import_features([tmp_path / "a.npy"], tmp_path / "a.h5").store["a"], image)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cls_prob": probabilities(1, 2) * 2}, r"cls_prob of region 0 is no distribution .*\(sum 2\)"),
        ({"cls_prob": probabilities(1, 2) - 1}, "cls_prob of region 0 is no distribution"),
        ({"cls_prob": np.full((2, 6), np.nan, np.float32)}, r"cls_prob of region 0 is no distribution .*\(sum nan\)"),
        (
            {"cls_prob": np.ones((2, 1), np.float32)},
            "cls_prob of region 0 is no distribution over background and classes",
        ),
        ({"cls_prob": probabilities(1, 2, 3)}, "cls_prob has 18 numbers where 2 boxes need|cls_prob has shape"),
        (
            {"cls_prob": probabilities(1, 2), "objects": np.array([0, 4])},
            "objects of region 1 is 4, and class 1 is the most",
        ),
        (
            {"cls_prob": probabilities(1, 2), "objects": np.array([0, 9])},
            "objects of region 1 is 9, and class 1 is the most",
        ),
        ({"objects": np.array([0, 1, 2, 3])}, "objects has 4 values for 2 boxes"),
    ],
)
def test_vilbert_classes_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    record = vilbert(made_up("a", regions=2, fields=False), **changes)
    np.save(tmp_path / "a.npy", np.array(record, dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=rf"a\.npy: {message}"):
        import_features([tmp_path / "a.npy"], tmp_path / "a.h5")


def make_lmdb(path: Path, records: dict[bytes, bytes], *, subdir: bool = True) -> Path:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), subdir=subdir, map_size=1 << 24) as base, base.begin(write=True) as transaction:
        for key, value in records.items():
            transaction.put(key, value)
    return path


@pytest.mark.parametrize("subdir", [True, False])
@pytest.mark.parametrize("coded", [True, False])
def test_lmdb_with_arrays_or_base64(tmp_path: Path, subdir: bool, coded: bool) -> None:
    images = [made_up(image, fields=False) for image in ("7", "8")]
    records = {b"keys": pickle.dumps([b"7", b"8"])}
    for image in images:
        record = vilbert(image)
        if coded:
            record = {
                "img_id": image.image,
                "image_h": str(image.height),
                "image_w": str(image.width),
                "num_boxes": str(len(image)),
                "boxes": base64.b64encode(image.boxes.tobytes()),  # type: ignore[union-attr]
                "features": b64(image.features),
            }
        records[image.image.encode()] = pickle.dumps(record)
    path = make_lmdb(tmp_path / ("base" if subdir else "base.lmdb"), records, subdir=subdir)
    made = import_features([path], tmp_path / "a.h5")
    assert made.format == "lmdb"
    for image in images:
        assert_same(made.store[image.image], image)


def test_lmdb_damage_and_bombs_are_named(tmp_path: Path) -> None:
    bomb = make_lmdb(tmp_path / "bomb", {b"5": pickle.dumps(Bomb())})
    with pytest.raises(DataError, match=r"bomb, key '5': the pickle asks for 'posix\.system'"):
        import_features([bomb], tmp_path / "a.h5")
    bad = make_lmdb(tmp_path / "bad", {b"5": pickle.dumps([1])})
    with pytest.raises(DataError, match=r"bad, key '5': holds a list, not a dictionary"):
        import_features([bad], tmp_path / "a.h5")
    (tmp_path / "text.lmdb").write_text("hello")
    with pytest.raises(DataError, match=r"text\.lmdb: is no LMDB database"):
        import_features([tmp_path / "text.lmdb"], tmp_path / "a.h5")


def test_lmdb_without_its_package_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    (tmp_path / "a.lmdb").write_text("x")
    with pytest.raises(ToolError, match=r"pip install 'capbench\[lmdb\]'"):
        import_features([tmp_path / "a.lmdb"], tmp_path / "a.h5")


# -- the plain .npz ---------------------------------------------------------------------------------------------------

NAMES = np.array(["a.jpg", "b.jpg"])
HALVES = [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("arrays", "size", "boxes"),
    [
        ({}, (0, 0), None),
        ({"boxes_normalised_xyxy": np.array(HALVES)}, (1, 1), HALVES),
        (
            {"boxes_normalised_xyxy": np.array([[0, 0, 0.5, 1]] * 2), "image_sizes": np.array([[10, 20], [1, 1]])},
            (10, 20),
            [[0, 0, 5, 20]] * 2,
        ),
        (
            {"boxes": np.tile([[1, 2, 3, 4]], (2, 2, 1)), "image_sizes": np.array([[10, 20], [10, 20]])},
            (10, 20),
            [[1, 2, 3, 4]] * 2,
        ),
    ],
)  # fmt: skip
def test_plain_npz(tmp_path: Path, arrays: dict[str, Any], size: tuple[int, int], boxes: Any) -> None:
    features = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.savez(tmp_path / "a.npz", image_names=NAMES, features=features, **arrays)
    regions = import_features([tmp_path / "a.npz"], tmp_path / "a.h5").store["a"]
    np.testing.assert_array_equal(regions.features, features[0])
    assert (regions.width, regions.height) == size
    assert (regions.boxes is None) == (boxes is None)
    if boxes is not None:
        np.testing.assert_allclose(regions.boxes, boxes)  # type: ignore[arg-type]


def test_quantised_features_are_scaled(tmp_path: Path) -> None:
    quantised = np.array([[[-128, 127]], [[3, -4]]], dtype=np.int8)
    np.savez(tmp_path / "a.npz", image_names=NAMES, features_int8=quantised, scale=np.array([0.5, 2], np.float32))
    store = import_features([tmp_path / "a.npz"], tmp_path / "a.h5").store
    assert store["a"].features.tolist() == [[-64.0, 254.0]]
    assert store["b"].features.tolist() == [[1.5, -8.0]]


def test_ragged_npz(tmp_path: Path) -> None:
    features = np.arange(10, dtype=np.float16).reshape(5, 2)
    np.savez(tmp_path / "a.npz", image_names=NAMES, features=features, offsets=np.array([0, 2, 5]),
             class_ids=np.arange(5))  # fmt: skip
    store = import_features([tmp_path / "a.npz"], tmp_path / "a.h5", dtype="float16").store
    np.testing.assert_array_equal(store["b"].features, features[2:])
    assert store["b"].flat()["class_ids"].tolist() == [2, 3, 4]


ONES = np.ones((2, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": ONES}, "lacks 'image_names'"),
        ({"image_names": NAMES}, "lacks 'features'"),
        ({"image_names": NAMES, "features_int8": ONES.astype(np.int8)}, "lacks 'scale'"),
        ({"image_names": NAMES, "features": ONES.astype(int)}, "features are of int64"),
        ({"image_names": NAMES[:1], "features": ONES}, r"shape \(2, 2, 3\) for 1 image names"),
        ({"image_names": NAMES, "features": ONES[0], "offsets": np.array([0, 2, 3])}, "offsets do not fit"),
        ({"image_names": NAMES, "features": ONES, "boxes": np.ones((2, 4))}, "boxes in pixels but no image_sizes"),
        ({"image_names": NAMES, "features": ONES, "boxes_normalised_xyxy": np.ones((3, 4))}, "for 4 regions"),
        ({"image_names": NAMES, "features": ONES, "boxes_normalised_xyxy": np.ones((2, 5))}, r"\(2, 5\)"),
        ({"image_names": NAMES, "features": ONES * np.nan}, "image 0: image 'a': region 0 .*NaN"),
        ({"image_names": np.array(["a", "a"]), "features": ONES}, "stands twice"),
        ({"image_names": NAMES, "features": ONES, "class_ids": np.arange(3)}, "class_ids has"),
    ],
)
def test_plain_npz_that_does_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        import_features([tmp_path / "a.npz"], tmp_path / "a.h5")


# -- around them ------------------------------------------------------------------------------------------------------


def test_the_fingerprint_of_unknown_detectors_names_the_files(tmp_path: Path) -> None:
    a, b = (lines(tmp_path / f"{name}.tsv", [butd_row(made_up(name))]) for name in "ab")
    first, second = (import_features([p], p.with_suffix(".h5")).store.fingerprint for p in (a, b))
    assert first.digest != second.digest
    assert first == import_features([a], tmp_path / "again.h5").store.fingerprint
    known = [import_features([p], p.with_suffix(".h5"), detector="x", replace=True).store.fingerprint for p in (a, b)]
    assert known[0] == known[1]
    assert known[0].detector == "x"
    with pytest.raises(UsageError, match="is no SHA-256"):
        import_features([a], tmp_path / "c.h5", weights_sha256="123")


def test_what_is_there_is_kept_unless_asked(tmp_path: Path) -> None:
    source = lines(tmp_path / "a.tsv", [butd_row(made_up("a"))])
    import_features([source], tmp_path / "a.h5")
    before = (tmp_path / "a.h5").read_bytes()
    with pytest.raises(UsageError, match=r"a\.h5: is there already.*--replace"):
        import_features([source], tmp_path / "a.h5")
    with pytest.raises(DataError):
        import_features([lines(tmp_path / "b.tsv", [bad_cells(w="x")])], tmp_path / "a.h5", replace=True)
    assert (tmp_path / "a.h5").read_bytes() == before


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file"):
        import_features([tmp_path / "no.tsv"], tmp_path / "a.h5")
    (tmp_path / "in").mkdir()
    with pytest.raises(DataError, match="holds no"):
        import_features([tmp_path / "in"], tmp_path / "a.h5")
    (tmp_path / "in" / "a.npz").touch()
    (tmp_path / "in" / "b.npy").touch()
    with pytest.raises(DataError, match=r"several kinds: \.npy, \.npz"):
        import_features([tmp_path / "in"], tmp_path / "a.h5")
    with pytest.raises(DataError, match="is empty"):
        import_features([tmp_path / "in" / "a.npz"], tmp_path / "a.h5")
    with pytest.raises(UsageError, match="unknown format 'tsv'"):
        import_features([tmp_path / "in" / "a.npz"], tmp_path / "a.h5", format="tsv")


@pytest.mark.parametrize("data", [b"a,b,c\n", b"\x00\x01\x02", b"PK\x03\x04nonsense", b"\x93NUMPY\x01\x00"])
def test_unknown_files_give_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.bin").write_bytes(data)
    with pytest.raises(CapbenchError) as refused:
        import_features([tmp_path / "x.bin"], tmp_path / "a.h5", ids=None)
    assert "\n" not in str(refused.value)
    if data.startswith(b"a"):
        assert "Known formats: butd-tsv" in str(refused.value)
    assert not (tmp_path / "a.h5").exists()


def test_formats_are_seen_from_content_not_from_names(tmp_path: Path) -> None:
    assert detect_format(lines(tmp_path / "features.csv", [butd_row(made_up("a"))])) == "butd-tsv"
    assert detect_format(lines(tmp_path / "features.txt", [lxmert_row(made_up("a"))])) == "lxmert-tsv"
