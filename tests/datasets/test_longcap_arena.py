"""LongCap-Arena: one file for each aspect of each test set."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import MissingFileError
from capbench.core.records import Judgements
from capbench.datasets.longcap_arena import LongCapArena
from tests.datasets.native_files import root, write
from tests.errors import raises


def row(image: str, cand: str, score: float, refs: tuple[str, ...] = ("A long text. It ends.",)) -> dict[str, Any]:
    return {"file_name": f"{image}.jpg", "cand": cand, "refs": list(refs), "score": score}


DESC = [row("sa_1", "One. Two.", 0.25), row("sa_2", "Three. Four.", 1.0), row("sa_2", "Five.", 0.5)]
REL = [row("sa_2", "Five.", 0.75), row("sa_1", "One. Two.", 0.0), row("sa_3", "Six.", 1.0), row("sa_3", "Six.", 0.5)]


def table(rows: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def load(folder: Path, items: str = "test-a") -> Judgements:
    (judged,) = LongCapArena(root(folder)).load(LongCapArena.selections[items])
    return judged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "longcap-arena/desc_dci_val.csv", table(DESC))
    write(tmp_path / "longcap-arena/rel_dci_val.csv", table(REL))
    return tmp_path


def test_a_missing_file_is_named_when_its_aspect_is_read(folder: Path) -> None:
    judged = load(folder)
    assert "fluency" not in judged.ratings
    with raises(MissingFileError, "missing-file", path=folder / "longcap-arena/flu_dci_val.csv", value="fluency"):
        judged.ratings["fluency"]
    with raises(MissingFileError, "missing-file", path=folder / "longcap-arena/desc_dci_test.csv"):
        load(folder, "test-b")


def test_the_parts_of_a_published_file_are_read_in_order(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    expected = load(folder)
    (folder / "longcap-arena/desc_dci_val.csv").unlink()
    for number, rows in enumerate((DESC[:2], DESC[2:])):
        shown = [{**one, "image": {"bytes": b"x", "path": None}} for one in rows]
        path = folder / f"longcap-arena/dci_val.desc-0000{number}-of-00002.parquet"
        pq.write_table(pa.Table.from_pylist(shown), path)
    judged = load(folder)
    assert judged.items == expected.items
    assert judged.ratings["descriptiveness"].value.tolist() == [0.25, 1.0, 0.5]
