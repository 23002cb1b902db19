from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from capbench.core.errors import CapbenchWarning, DataError
from capbench.datasets.catalog import Catalog, Count, FileEntry, Sha256, catalog
from capbench.datasets.inventory import FileReport, HashRecord, count_rows, verify_file, verify_files
from capbench.datasets.root import DataRoot, find_root
from tests.errors import raises


def spec(how: Any, **more: Any) -> Count:
    return Count(of="things", how=how, **({"expected": 1} | more))


def entry(*counts: Count, sha256: str | None = None) -> FileEntry:
    known = Sha256(value=sha256, status="observed", seen_in="someone/something") if sha256 else None
    return FileEntry(what="a file", source="s", counts=counts, sha256=known)


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    folder = tmp_path / "data"
    folder.mkdir()
    return DataRoot(folder, False, "test")


def test_lines_counts_lines_that_are_not_blank(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffone\r\ntwo\n\nthree".encode())
    assert count_rows(file, spec("lines")) == 3


def test_lines_reads_gzip_whatever_the_name(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert count_rows(file, spec("lines")) == 2


def test_rows_leaves_the_header_out_and_respects_quotes(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('x;y\n"a;\nb";1\nc;2\n')
    assert count_rows(file, spec("rows", delimiter=";")) == 2


def test_rows_of_a_tsv_takes_quotes_as_text(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text('x\ty\na "dog\t1\nb" cat\t2\n')
    assert count_rows(file, spec("rows", delimiter="\t")) == 2


def test_json_counts_at_a_key_and_in_all_lists(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"images": [1, 2], "more": [3]}))
    assert count_rows(file, spec("json")) == 2
    assert count_rows(file, spec("json", at="images")) == 2
    assert count_rows(file, spec("json-lists")) == 3
    file.write_text(json.dumps([{"caption": ["a", "b"]}, {"caption": ["c"]}]))
    assert count_rows(file, spec("json-lists", at="caption")) == 3


def test_mat_counts_the_variable_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "a.mat"
    scipy.io.savemat(file, {"train_sent_final": np.zeros((1, 7)), "other": np.zeros((2, 2))})
    assert count_rows(file, spec("mat", variable=["refs", "train_sent_final"])) == 7
    scipy.io.savemat(file, {"triplets": np.zeros((96, 4))})
    assert count_rows(file, Count(of="triplets", how="mat", variable="triplets", expected=1)) == 96


def test_folder_counts_images_only(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.JPG", "c.png", "readme.txt"):
        (tmp_path / name).touch()
    assert count_rows(tmp_path, spec("folder")) == 3


@pytest.mark.parametrize(
    ("content", "how", "more", "code", "row", "value"),
    [
        (b"\x1f\x8b\x08\x00cut", "lines", {}, "damaged", None, None),
        (b'{"images": [1', "json", {}, "wrong-format", 1, None),
        (b'{"pictures": []}', "json", {"at": "images"}, "missing-key", None, "images"),
        (b'{"a": 1}', "json-lists", {}, "missing-key", None, None),
        (b"no matlab", "mat", {"variable": "refs"}, "wrong-format", None, None),
    ],
)
def test_a_file_of_another_form_is_an_error(
    tmp_path: Path, content: bytes, how: str, more: dict[str, Any], code: str, row: int | None, value: object
) -> None:
    file = tmp_path / "a"
    file.write_bytes(content)
    with raises(DataError, code, path=tmp_path / "a", row=row, value=value):
        count_rows(file, spec(how, **more))


def test_another_variable_than_expected_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.mat"
    scipy.io.savemat(file, {"x": np.zeros(2)})
    with raises(DataError, "missing-key", path=file, value="refs"):
        count_rows(file, spec("mat", variable="refs"))


def test_right_count_and_hash_are_ok(root: DataRoot) -> None:
    (root.path / "a.txt").write_text("one\ntwo\n")
    digest = hashlib.sha256(b"one\ntwo\n").hexdigest()
    report = verify_file(root, "a.txt", entry(spec("lines", expected=2), sha256=digest), None)
    assert (report.state, report.sha256, report.hash_status) == ("ok", digest, "observed")
    assert report.detail == "2 things; SHA-256 as observed"


def test_wrong_count_is_wrong_even_where_the_hash_is_new(root: DataRoot) -> None:
    (root.path / "a.txt").write_text("one\n")
    report = verify_file(root, "a.txt", entry(spec("lines", expected=2)), None)
    assert report.state == "wrong"
    assert "1 things, expected 2" in report.detail


def test_a_copy_with_right_counts_and_another_hash_differs(root: DataRoot) -> None:
    (root.path / "a.txt").write_text("one\ntwo\n")
    report = verify_file(root, "a.txt", entry(spec("lines", expected=2), sha256="0" * 64), None)
    assert report.state == "differs"
    assert "someone/something" in report.detail


def test_a_missing_file_and_an_unreadable_one_are_told(root: DataRoot) -> None:
    assert verify_file(root, "a.txt", entry(), None).state == "missing"
    (root.path / "a.txt").mkdir()
    assert verify_file(root, "a.txt", entry(spec("lines")), None).state == "wrong"


def check(root: DataRoot, known: Catalog, record: HashRecord) -> list[FileReport]:
    return verify_files(root, known, list(known.files), record, lambda _done: None)


@pytest.fixture
def known() -> Catalog:
    source = {"title": "t", "terms": "t", "manual": "m"}
    return Catalog.model_validate(
        {"schema": 1, "sources": {"s": source}, "datasets": {}, "files": {"a.txt": {"what": "a", "source": "s"}}}
    )


def test_an_unknown_hash_is_recorded_and_a_later_change_differs(root: DataRoot, known: Catalog) -> None:
    record = HashRecord()
    (root.path / "a.txt").write_text("first")
    assert [r.state for r in check(root, known, record)] == ["recorded"]
    assert [r.state for r in check(root, known, record)] == ["ok"]
    (root.path / "a.txt").write_text("second")
    assert [r.state for r in check(root, known, record)] == ["differs"]
    assert record.read().get(str(root.path.resolve()), {}).get("a.txt") == hashlib.sha256(b"first").hexdigest()


def test_records_of_two_folders_do_not_mix(root: DataRoot, known: Catalog, tmp_path: Path) -> None:
    other = DataRoot(tmp_path / "other", False, "test")
    other.path.mkdir()
    (root.path / "a.txt").write_text("first")
    (other.path / "a.txt").write_text("second")
    assert [r.state for r in check(root, known, HashRecord())] == ["recorded"]
    assert [r.state for r in check(other, known, HashRecord())] == ["recorded"]


def test_a_damaged_record_is_an_error_and_not_a_new_start(root: DataRoot, known: Catalog) -> None:
    record = HashRecord(root.path / "hashes.json")
    assert record.path is not None
    record.path.write_text('{"folder": ["a"]}')
    with raises(DataError, "wrong-format"):
        check(root, known, record)


def test_without_a_cache_folder_files_are_verified_and_nothing_is_called_recorded(
    root: DataRoot, known: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.path / "not-a-folder").write_text("")
    monkeypatch.setenv("CAPBENCH_CACHE", str(root.path / "not-a-folder" / "cache"))
    (root.path / "a.txt").write_text("first")
    with pytest.warns(CapbenchWarning, match="hashes cannot be recorded: .*not-a-folder"):
        (report,) = check(root, known, HashRecord())
    assert (report.state, report.hash_status) == ("ok", "")
    assert report.detail == "no known hash, and none could be recorded"
    assert report.sha256 == hashlib.sha256(b"first").hexdigest()


def test_the_sample_is_read_without_published_counts(sample: Path) -> None:
    root = DataRoot(sample, True, "test")
    paths = [path for path in catalog().files if (sample / path).exists()]
    reports = verify_files(root, catalog(), paths, HashRecord(), lambda _done: None)
    assert len(reports) > 20
    assert {report.path: report.detail for report in reports if report.state != "ok"} == {}
    assert not HashRecord().read()


@pytest.mark.real_data
def test_published_files_have_the_counts_and_hashes_that_the_catalog_says(real_data: Path) -> None:
    root = find_root(real_data)
    paths = [path for path in catalog().files if (real_data / path).exists()]
    reports = verify_files(root, catalog(), paths, HashRecord(), lambda _done: None)
    # The grid features have no public copy, and so no known checksum.
    not_ok = {report.path: report.state for report in reports if report.state != "ok"}
    assert not_ok == {"flickr8k/mobilenetv2_grid49_pca256_int8.npz": "recorded"}
    assert len(reports) >= 90


@pytest.mark.real_data
def test_a_published_file_cut_short_is_wrong(real_data: Path, root: DataRoot) -> None:
    name = "flickr8k/ExpertAnnotations.txt"
    lines = (real_data / name).read_text().splitlines(keepends=True)
    (root.path / "flickr8k").mkdir()
    (root.path / name).write_text("".join(lines[:-5]))
    report = verify_file(root, name, catalog().files[name], None)
    assert report.state == "wrong"
    assert report.detail.startswith("5,817 pairs, expected 5,822; SHA-256 ")
