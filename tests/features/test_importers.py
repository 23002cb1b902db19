from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError, FeatureError, UsageError
from capbench.features.importers import import_features
from capbench.features.maintenance import export_store, verify_store
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter, partial_path
from tests.errors import raises
from tests.features.fakes import PRINT, assert_same, made_up
from tests.features.foreign_files import b64, butd_row, lines, make_lmdb, vilbert

IDS = ("132", "573", "578")


@pytest.fixture(scope="module")
def expected(parity: Path) -> Any:
    return np.load(parity / "feature_formats" / "expected.npz")


def assert_expected(store: FeatureStore, expected: Any, name: Callable[[str], str], fields: str) -> None:
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
@pytest.mark.parametrize(
    ("files", "format", "name", "fields"),
    [
        ("butd_6col.tsv", "butd-tsv", "{}", ""),
        ("lxmert_10col.tsv", "lxmert-tsv", "COCO_train2014_{:0>12}", "objects, all"),
        ("milvlg_*.npz", "milvlg", "milvlg_{}", ""),
        ("vilbert_*.npy", "vilbert", "{}", "objects"),
    ],
)
def test_the_published_fixtures(
    parity: Path, expected: Any, tmp_path: Path, files: str, format: str, name: str, fields: str
) -> None:
    made = import_features(sorted((parity / "feature_formats").glob(files)), tmp_path / "a.h5")
    assert made.format == format
    assert_expected(made.store, expected, name.format, fields)


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
    with np.load(real_data / "flickr8k" / "mobilenetv2_grid49_pca256_int8.npz") as published:
        arrays = {name: array[:300] if len(array) == 8091 else array for name, array in published.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    made = import_features([tmp_path / "a.npz"], tmp_path / "a.h5", detector="mobilenetv2-grid49-pca256")
    verified = verify_store(made.store)
    assert (verified.images, verified.bad, verified.regions) == (300, 0, 300 * 49)
    names, boxes = arrays["image_names"], arrays["boxes_normalised_xyxy"]
    for i, features in enumerate(arrays["features_int8"] * arrays["scale"]):
        regions = made.store[str(names[i]).removesuffix(".jpg")]
        np.testing.assert_array_equal(regions.features, features)
        np.testing.assert_array_equal(regions.boxes, boxes)
        assert (regions.width, regions.height) == (1, 1)


def test_tsv_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    images = [made_up(image, fields=False) for image in ("b", "a", "COCO_val2014_000000000042.jpg")]
    made = import_features([lines(tmp_path / "a.tsv", [butd_row(image) for image in images])], tmp_path / "a.h5")
    assert sorted(made.store.ids) == ["COCO_val2014_000000000042", "a", "b"]
    for image in images[:2]:
        assert_same(made.store[image.image], image)


def bad_cells(**changes: Any) -> str:
    cells = dict(zip(("id", "w", "h", "n", "boxes", "features"), butd_row(made_up("bad")).split("\t"), strict=True))
    return "\t".join(str(value) for value in (cells | changes).values())


@pytest.mark.parametrize(
    ("row", "code", "value"),
    [
        (butd_row(made_up("bad")).replace("\t", ","), "wrong-format", 1),
        (bad_cells(w="wide"), "wrong-value", "width"),
        (bad_cells(n="0"), "out-of-range", "num_boxes"),
        (bad_cells(features="a?b="), "wrong-format", "features"),
        (bad_cells(boxes="YWJj"), "wrong-shape", "boxes"),
        (bad_cells(id="good"), "duplicate", "good"),
        (butd_row(made_up("bad", regions=2, features=np.full((2, 16), np.nan, np.float32))), "not-a-number", "bad"),
        (butd_row(made_up("bad", size=12)), "mismatch", "bad"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_left(tmp_path: Path, row: str, code: str, value: object) -> None:
    good = butd_row(made_up("good"))
    lines(tmp_path / "bad.tsv", [good, row, butd_row(made_up("last"))])
    with raises(DataError, code, path=tmp_path / "bad.tsv", row=2, value=value) as refused:
        import_features([tmp_path / "bad.tsv"], tmp_path / "a.h5")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "a.h5").exists()
    assert not partial_path(tmp_path / "a.h5").exists()


CAPTION_FILES = Path(__file__).parents[1] / "fixtures" / "caption_files"


@pytest.mark.parametrize("before", [True, False])
def test_a_damaged_row_is_skipped_if_its_image_has_an_intact_one(tmp_path: Path, before: bool) -> None:
    intact, damaged = butd_row(made_up("a")), butd_row(made_up("a"))[:-30]
    rows = [damaged, butd_row(made_up("b")), intact] if before else [intact, butd_row(made_up("b")), damaged]
    made = import_features([lines(tmp_path / "a.tsv", rows)], tmp_path / "a.h5")
    assert made.damaged == ((1,) if before else (3,))
    np.testing.assert_array_equal(made.store["a"].features, made_up("a").features)
    made = import_features([CAPTION_FILES / "features_damaged_then_whole.tsv"], tmp_path / "b.h5")
    assert (made.damaged, made.store.ids) == ((2,), ["42", "49", "56", "63"])


def test_cells_that_python_3_wrote_as_bytes_are_read(tmp_path: Path) -> None:
    cells = butd_row(made_up("a")).split("\t")
    row = "\t".join(cells[:4] + [f"b'{cell}'" for cell in cells[4:]])
    store = import_features([lines(tmp_path / "a.tsv", [row])], tmp_path / "a.h5").store
    np.testing.assert_array_equal(store["a"].features, made_up("a").features)
    assert len(import_features([CAPTION_FILES / "features_bytes.tsv"], tmp_path / "b.h5").store) == 4


def test_keep_first_counts_what_it_leaves_out(tmp_path: Path) -> None:
    rows = [butd_row(made_up("a")), butd_row(made_up("b")), butd_row(made_up("a", size=16))]
    made = import_features([lines(tmp_path / "a.tsv", rows)], tmp_path / "a.h5", keep_first=True)
    assert made.duplicates == 1
    assert made.store.ids == ["a", "b"]


def test_the_fingerprint_of_unknown_detectors_names_the_files(tmp_path: Path) -> None:
    a, b = (lines(tmp_path / f"{name}.tsv", [butd_row(made_up(name))]) for name in "ab")
    first, second = (import_features([p], p.with_suffix(".h5")).store.fingerprint for p in (a, b))
    assert first.digest != second.digest
    assert first == import_features([a], tmp_path / "again.h5").store.fingerprint
    known = [import_features([p], p.with_suffix(".h5"), detector="x", replace=True).store.fingerprint for p in (a, b)]
    assert known[0] == known[1]
    assert known[0].detector == "x"
    with raises(UsageError, "wrong-value", value="123"):
        import_features([a], tmp_path / "c.h5", weights_sha256="123")


def test_milvlg_with_info_and_with_columns_for_boxes(tmp_path: Path) -> None:
    image = made_up("one.jpg", regions=4)
    info = {"objects_id": image.flat()["class_ids"], "objects_conf": image.flat()["class_scores"]}
    arrays: dict[str, Any] = {"x": image.features.T, "bbox": image.boxes, "num_bbox": 4, "image_h": image.height}
    np.savez(tmp_path / "one.jpg.npz", image_w=image.width, info=np.array(info, dtype=object), **arrays)
    imported = import_features([tmp_path / "one.jpg.npz"], tmp_path / "a.h5").store["one"]
    np.testing.assert_array_equal(imported.features, image.features)
    np.testing.assert_array_equal(imported.class_ids, image.flat()["class_ids"])


def test_scan_needs_ids_that_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "ims.npy", np.ones((3, 2, 4), np.float32))
    (tmp_path / "ids.txt").write_text("a.jpg\nb.jpg\n")
    with raises(UsageError, "missing-option", value="--ids"):
        import_features([tmp_path / "ims.npy"], tmp_path / "a.h5")
    (tmp_path / "ids.txt").write_text("a.jpg\nb.jpg\nc.jpg\n")
    store = import_features([tmp_path / "ims.npy"], tmp_path / "a.h5", ids=tmp_path / "ids.txt").store
    assert store.ids == ["a", "b", "c"]
    (tmp_path / "of-captions.txt").write_text("a.jpg\n" * 5 + "b.jpg\n" * 5 + "c.jpg\n" * 5)
    of_captions = import_features([tmp_path / "ims.npy"], tmp_path / "c.h5", ids=tmp_path / "of-captions.txt").store
    assert of_captions.ids == ["a", "b", "c"]
    (tmp_path / "of-captions.txt").write_text("a.jpg\n" * 5 + "b.jpg\n" * 6 + "c.jpg\n" * 4)
    with raises(DataError, "mismatch", path=tmp_path / "of-captions.txt", value=15):
        import_features([tmp_path / "ims.npy"], tmp_path / "d.h5", ids=tmp_path / "of-captions.txt")


def probabilities(*best: int, columns: int = 6) -> np.ndarray[Any, Any]:
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
    ("changes", "code", "value"),
    [
        ({"cls_prob": probabilities(1, 2) * 2}, "out-of-range", "cls_prob"),
        ({"cls_prob": probabilities(1, 2, 3)}, "wrong-shape", "cls_prob"),
        ({"cls_prob": probabilities(1, 2), "objects": np.array([0, 4])}, "mismatch", "objects"),
        ({"objects": np.array([0, 1, 2, 3])}, "wrong-shape", "objects"),
    ],
)
def test_vilbert_classes_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], code: str, value: object) -> None:
    record = vilbert(made_up("a", regions=2, fields=False), **changes)
    np.save(tmp_path / "a.npy", np.array(record, dtype=object), allow_pickle=True)
    with raises(DataError, code, path=tmp_path / "a.npy", value=value):
        import_features([tmp_path / "a.npy"], tmp_path / "a.h5")


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
SHAPE = ("wrong-shape", "boxes", None)


@pytest.mark.parametrize(
    ("arrays", "code", "value", "row"),
    [
        ({"features": ONES}, "missing-key", "image_names", None),
        ({"image_names": NAMES}, "missing-key", "features", None),
        ({"image_names": NAMES, "features_int8": ONES.astype(np.int8)}, "missing-key", "scale", None),
        ({"image_names": NAMES, "features": ONES.astype(int)}, "wrong-type", "features", None),
        ({"image_names": NAMES[:1], "features": ONES}, "wrong-shape", "features", None),
        ({"image_names": NAMES, "features": ONES[0], "offsets": np.array([0, 2, 3])}, "mismatch", "offsets", None),
        ({"image_names": NAMES, "features": ONES, "boxes": np.ones((2, 4))}, "missing-key", "image_sizes", None),
        ({"image_names": NAMES, "features": ONES, "boxes_normalised_xyxy": np.ones((2, 5))}, *SHAPE),
        ({"image_names": NAMES, "features": ONES * np.nan}, "not-a-number", "a", "image 0"),
        ({"image_names": np.array(["a", "a"]), "features": ONES}, "duplicate", "a", "image 1"),
        ({"image_names": NAMES, "features": ONES, "class_ids": np.arange(3)}, "wrong-shape", "class_ids", None),
    ],
)
def test_plain_npz_that_does_not_fit(
    tmp_path: Path, arrays: dict[str, Any], code: str, value: object, row: object
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with raises(DataError, code, path=tmp_path / "a.npz", row=row, value=value):
        import_features([tmp_path / "a.npz"], tmp_path / "a.h5")


def test_a_cut_off_lmdb_is_refused_before_it_is_mapped(tmp_path: Path) -> None:
    records = {str(i).encode(): pickle.dumps(vilbert(made_up(str(i), size=64))) for i in range(40)}
    whole = make_lmdb(tmp_path / "whole.lmdb", records, subdir=False)
    assert len(import_features([whole], tmp_path / "a.h5").store) == 40
    data = whole.read_bytes()
    for size in (0, 100, 5000, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.lmdb").write_bytes(data[:size])
        with raises(DataError, "damaged", path=tmp_path / "cut.lmdb"):
            import_features([tmp_path / "cut.lmdb"], tmp_path / "b.h5")


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
@pytest.mark.parametrize("name", ["out.npz", "out.tsv"])
def test_what_is_exported_is_imported_to_the_bit(tmp_path: Path, name: str, dtype: str) -> None:
    images = [ragged(image, n) for image, n in (("a", 1), ("ü b", 300), ("v1.2", 7), ("007", 36), ("x" * 900, 2))]
    store = write(tmp_path / "a.h5", images, dtype)
    kind = export_store(store, tmp_path / name)
    back = import_features([tmp_path / name], tmp_path / "b.h5", format=kind, dtype=dtype).store
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
    with raises(FeatureError, "unsupported", path=store.paths[0], value=".tsv"):
        export_store(store, tmp_path / "out.tsv")
