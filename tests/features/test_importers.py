from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError, UsageError
from capbench.features.importers import import_features
from capbench.features.maintenance import verify_store
from capbench.features.store import FeatureStore
from capbench.features.writing import partial_path
from tests.errors import raises
from tests.features.fakes import assert_same, made_up
from tests.features.foreign_files import butd_row, lines

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
