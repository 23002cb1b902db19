from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from capbench.core.errors import DataError
from capbench.datasets.catalog import Count, FileEntry, Sha256, catalog
from capbench.datasets.inventory import count_rows, verify_file
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


ROWS = json.dumps({"images": [1, 2], "more": [3]}).encode()
LISTS = json.dumps([{"caption": ["a", "b"]}, {"caption": ["c"]}]).encode()


@pytest.mark.parametrize(
    ("content", "how", "more", "number"),
    [
        ("\ufeffone\r\ntwo\n\nthree".encode(), "lines", {}, 3),
        (gzip.compress(b"one\ntwo\n", mtime=0), "lines", {}, 2),
        (b'x;y\n"a;\nb";1\n;\nc;2\n', "rows", {}, 3),
        (b'x\ty\na "dog\t1\nb" cat\t2\n', "rows", {}, 2),
        (ROWS, "json", {}, 2),
        (ROWS, "json", {"at": "images"}, 2),
        (ROWS, "json-lists", {}, 3),
        (LISTS, "json-lists", {"at": "caption"}, 3),
    ],
)
def test_entries_are_counted(tmp_path: Path, content: bytes, how: str, more: dict[str, Any], number: int) -> None:
    file = tmp_path / ("a.csv" if b";" in content else "a.gz" if content[:2] == b"\x1f\x8b" else "a")
    file.write_bytes(content)
    assert count_rows(file, spec(how, **more)) == number


def test_mat_counts_the_variable_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "a.mat"
    scipy.io.savemat(file, {"train_sent_final": np.zeros((1, 7)), "other": np.zeros((2, 2))})
    assert count_rows(file, spec("mat", variable=["refs", "train_sent_final"])) == 7
    scipy.io.savemat(file, {"triplets": np.zeros((96, 4))})
    assert count_rows(file, Count(of="triplets", how="mat", variable="triplets", expected=1)) == 96


@pytest.mark.parametrize(
    ("content", "how", "more", "code", "row", "value"),
    [
        (b"\x1f\x8b\x08\x00cut", "lines", {}, "damaged", None, None),
        (b'{"images": [1', "json", {}, "wrong-format", 1, None),
        (b'{"pictures": []}', "json", {"at": "images"}, "missing-key", None, "images"),
        (b'{"a": 1}', "json-lists", {}, "missing-key", None, None),
        (b"5", "json-lists", {}, "missing-key", None, None),
        (b"no matlab", "mat", {"variable": "refs"}, "wrong-format", None, None),
    ],
)
def test_a_file_of_another_form_is_an_error(
    tmp_path: Path, content: bytes, how: str, more: dict[str, Any], code: str, row: int | None, value: object
) -> None:
    file = tmp_path / ("a.gz" if content[:2] == b"\x1f\x8b" else "a")
    file.write_bytes(content)
    with raises(DataError, code, path=file, row=row, value=value):
        count_rows(file, spec(how, **more))


@pytest.mark.parametrize(
    ("content", "expected", "sha256", "state", "detail"),
    [
        ("one\ntwo\n", 2, hashlib.sha256(b"one\ntwo\n").hexdigest(), "ok", "2 things; SHA-256 as observed"),
        ("one\ntwo\n", 2, None, "ok", "2 things; no known SHA-256"),
        ("one\n", 2, None, "wrong", "1 things, expected 2"),
        ("one\ntwo\n", 2, "0" * 64, "differs", "someone/something"),
        (None, 2, None, "missing", "not here"),
    ],
)
def test_counts_and_hashes_are_compared(
    root: DataRoot, content: str | None, expected: int, sha256: str | None, state: str, detail: str
) -> None:
    if content is not None:
        (root.path / "a.txt").write_text(content)
    report = verify_file(root, "a.txt", entry(spec("lines", expected=expected), sha256=sha256))
    assert report.state == state
    assert detail in report.detail


def test_the_sample_is_read_without_published_counts(sample: Path) -> None:
    root = DataRoot(sample, True, "test")
    paths = [path for path in catalog().files if (sample / path).exists()]
    reports = [verify_file(root, path, catalog().files[path]) for path in paths]
    assert len(reports) > 20
    assert {report.path: report.detail for report in reports if report.state != "ok"} == {}


@pytest.mark.real_data
def test_published_files_have_the_counts_and_hashes_that_the_catalog_says(real_data: Path) -> None:
    root = find_root(real_data)
    paths = [path for path in catalog().files if (real_data / path).exists()]
    reports = [verify_file(root, path, catalog().files[path]) for path in paths]
    assert {report.path: report.state for report in reports if report.state != "ok"} == {}
    assert len(reports) >= 90
