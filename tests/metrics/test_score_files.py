from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from capbench.core.errors import DataError, UsageError
from capbench.core.records import references_hash
from capbench.metrics.score_files import read_score_file
from capbench.metrics.scoring import to_frame, write_scores
from tests.errors import raises
from tests.metrics.score_tables import TABLE

ROWS: list[dict[str, Any]] = [
    {"image": "i1.jpg", "caption": 'a "quoted", caption\nof two lines', "clipscore": 0.25, "judge": 3, "model": "b32"},
    {"image": "i2.jpg", "caption": "ein Café; 猫", "clipscore": 1e-17, "judge": 4, "model": "b32"},
]


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    frame = pd.DataFrame(rows)
    match path.suffix:
        case ".csv" | ".tsv":
            frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        case ".json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        case _:
            pytest.importorskip("pyarrow")
            frame.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_every_column_of_numbers_is_a_metric_in_every_form(tmp_path: Path, ending: str) -> None:
    file = read_score_file(_write(tmp_path / f"s.{ending}", ROWS))
    assert {name: list(values) for name, values in file.columns.items()} == {
        "clipscore": [0.25, 1e-17],
        "judge": [3.0, 4.0],
    }
    assert file.names["image"] == ["i1.jpg", "i2.jpg"]
    assert file.names["caption"] == [row["caption"] for row in ROWS]
    assert file.ignored == ("model",)
    first = {"csv": 2, "tsv": 2, "jsonl": 1, "json": "entry 1", "parquet": 1}[ending]
    assert file.place(0) == first


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    rows = [{**row, "remark": "n/a" if i else "0.5"} for i, row in enumerate(ROWS)]
    path = _write(tmp_path / "s.csv", rows)
    with raises(DataError, "not-a-number", path=path, row=4, value="n/a"):
        read_score_file(path, label="s")
    assert list(read_score_file(path, ["judge"]).columns) == ["judge"]
    with raises(UsageError, "missing-column", value="jugde"):
        read_score_file(path, ["jugde"])


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_what_score_wrote_comes_back_with_its_signatures(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"scores.{ending}"
    write_scores(TABLE, path)
    file = read_score_file(path)
    assert list(file.columns["bleu-1"]) == [1 / 3, 1e-17]
    assert list(file.columns["cider"]) == [2.5, 0.0]
    assert file.names["references_hash"] == [references_hash(("a", "b")), references_hash(("c",))]
    assert file.datasets == ("own",)
    assert file.signatures == {"bleu-1": "bleu|capbench:1", "cider": "cider|capbench:1"}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_long_file_with_two_scores_of_one_caption_is_rejected_with_the_row(tmp_path: Path, ending: str) -> None:
    rows: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in to_frame(TABLE).to_dict("records")]
    path = _write(tmp_path / f"s.{ending}", [*rows, {**rows[0], "value": 0.5}])
    first = 1 if ending == "parquet" or ending == "jsonl" else 2
    with raises(DataError, "duplicate", path=path, row=first + len(rows), value=rows[0]["candidate"]):
        read_score_file(path)
    path = _write(tmp_path / f"t.{ending}", [*rows[:1], {**rows[1], "signature": "bleu|other"}])
    with raises(DataError, "mismatch", path=path, row=first + 1, value="bleu-1"):
        read_score_file(path)


@pytest.mark.parametrize(
    ("name", "content", "code", "row", "value"),
    [
        ("s.csv", "image,caption,x\n", "missing-value", None, None),
        ("s.csv", "image,caption,x\na,b\n", "wrong-format", 2, 2),
        ("s.csv", "image,x,x\na,1,1\n", "duplicate", 1, "x"),
        ("s.csv", 'image,caption,x\na,"b"c,1\n', "wrong-format", 2, None),
        ("s.csv", "caption,x\na,1\n", "missing-column", None, None),
        ("s.csv", "image,caption,x\na,b,c\n", "missing-scores", None, None),
        ("s.csv", "image,caption,x\na,b,1\n,b,2\n", "missing-value", 3, "image"),
        ("s.csv", "id,x\na,1\nb,nan\n", "not-a-number", 3, "nan"),
        ("s.csv", "id,x\na,1\nb,inf\n", "not-a-number", 3, "inf"),
        ("s.csv", 'id,x\na,1\nb,"0,5"\n', "not-a-number", 3, "0,5"),
        ("s.csv", "id,x\na,1\nb,high\n", "not-a-number", 3, "high"),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "x": true}\n', "not-a-number", 2, True),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "x": 1, "x": 2}\n', "wrong-format", 2, None),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"x": 2}\n', "missing-value", 2, "id"),
        ("s.jsonl", '{"id": ["a"], "x": 1}\n', "wrong-type", 1, ["a"]),
        ("s.json", "{}", "missing-value", None, None),
        ("s.json", '{"per_item": {"a": {"x": 1}, "b": {"x": "bad"}}}', "not-a-number", "entry 'b'", "bad"),
        ("s.parquet", "not parquet", "wrong-format", None, None),
    ],
)
def test_invalid_files(
    tmp_path: Path, name: str, content: str, code: str, row: int | str | None, value: object
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with raises(DataError, code, path=path, row=row, value=value):
        read_score_file(path)
