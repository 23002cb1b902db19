from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capbench.core.errors import CapbenchError, DataError, MissingFileError, UsageError
from capbench.core.records import references_hash
from capbench.metrics.score_files import read_score_file, to_frame, write_scores
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
    with pytest.raises(DataError, match=r"row 3: 'remark' is no finite number: 'n/a'\. .*--option s\.columns=\S*judge"):
        read_score_file(path, label="s")
    assert list(read_score_file(path, ["judge"]).columns) == ["judge"]
    with pytest.raises(UsageError, match=r"has no column 'jugde'\. Did you mean 'judge'"):
        read_score_file(path, ["jugde"])


def test_a_data_frames_index_is_no_metric(tmp_path: Path) -> None:
    pd.DataFrame(ROWS).to_csv(tmp_path / "s.csv")
    assert list(read_score_file(tmp_path / "s.csv").columns) == ["clipscore", "judge"]


def test_the_label_of_a_caption_of_a_pair_is_no_metric_unless_it_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "s.csv", [{**row, "label": i} for i, row in enumerate(ROWS)])
    file = read_score_file(path)
    assert list(file.columns) == ["clipscore", "judge"]
    assert "label" in file.ignored
    assert read_score_file(path, ["label"]).columns["label"].tolist() == [0, 1]


def test_other_names_of_columns_are_known_and_numbers_may_name_images(tmp_path: Path) -> None:
    path = _write(tmp_path / "s.json", [{"imgid": 391895, "mt": "a man", "polos": 0.5}])
    file = read_score_file(path)
    assert file.names == {"image": ["391895"], "caption": ["a man"]}
    assert list(file.columns) == ["polos"]


def test_json_by_item_is_read(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text(
        '{"metrics": ["a"], "per_item": {"x:1": {"a": 1, "b": null}, "x:2": {"a": 2, "b": 0.5}}}'
    )
    file = read_score_file(tmp_path / "k.json")
    assert file.names == {"id": ["x:1", "x:2"]}
    assert list(file.columns["a"]) == [1.0, 2.0]
    np.testing.assert_array_equal(file.columns["b"], [np.nan, 0.5])
    assert file.place(1) == "item 'x:2'"


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
def test_a_long_file_with_two_scores_of_one_caption_is_refused_with_the_row(tmp_path: Path, ending: str) -> None:
    rows: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in to_frame(TABLE).to_dict("records")]
    path = _write(tmp_path / f"s.{ending}", [*rows, {**rows[0], "value": 0.5}])
    with pytest.raises(DataError, match=r"row [56]: a second score of bleu-1 for the same caption"):
        read_score_file(path)
    path = _write(tmp_path / f"t.{ending}", [*rows[:1], {**rows[1], "signature": "bleu|other"}])
    with pytest.raises(DataError, match=r"row [23]: the signature of 'bleu-1' changes"):
        read_score_file(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.txt", "a", r"no file of scores by its ending '\.txt'. Scores are read from"),
        ("s.csv", "", "is empty"),
        ("s.csv", "image,caption,x\n", "holds no scores"),
        ("s.csv", "image,caption,x\na,b\n", "row 2: has 2 fields instead of 3"),
        ("s.csv", "image,caption,x\na,b,c,d\n", "row 2: has 4 fields instead of 3"),
        ("s.csv", "image,x,x\na,1,1\n", "row 1: the column 'x' is there twice"),
        ("s.csv", 'image,caption,x\na,"b"c,1\n', "is no CSV"),
        ("s.csv", "image;caption;x\na;b;1\n", "cells are separated by semicolons"),
        (
            "s.csv",
            "caption,x\na,1\n",
            "its scores are of: it has the columns 'caption', 'x'",
        ),
        ("s.csv", "image,x\na,1\n", "Give 'id'"),
        ("s.csv", "image,caption\na,b\n", "holds no column of numbers"),
        ("s.csv", "image,caption,x\na,b,c\n", "holds no column of numbers.*these columns are taken for none: x"),
        ("s.csv", "image,caption,x\na,b,1\n,b,2\n", "row 3: 'image' is empty"),
        ("s.csv", "image,caption,x\na,b,1\na,  ,2\n", "row 3: 'caption' is empty"),
        ("s.csv", "id,x\n,1\n", "row 2: 'id' is empty"),
        ("s.csv", "id,x\na,1\nb,nan\n", "row 3: 'x' is no finite number: 'nan'"),
        ("s.csv", "id,x\na,1\nb,inf\n", "row 3: 'x' is no finite number: 'inf'"),
        ("s.csv", "id,x\na,1\nb,-Infinity\n", "row 3: 'x' is no finite number"),
        ("s.csv", 'id,x\na,1\nb,"0,5"\n', "row 3: 'x' is no finite number: '0,5'"),
        ("s.csv", "id,x\na,1\nb,1_000\n", "row 3: 'x' is no finite number: '1_000'"),
        ("s.csv", "id,x\na,1\nb,high\n", "row 3: 'x' is no finite number: 'high'"),
        ("s.csv", "id,x\na,1e999\n", "holds no column of numbers"),
        ("s.csv", "id,x\na,1e151\nb,1\n", "row 2: 'x' is no finite number: '1e151'. Give a finite number of at most"),
        ("s.csv", "id,x\na,1e308\n", "row 2: 'x' is no finite number: '1e308'"),
        ("s.csv", "id,x\na,\nb,\n", "holds no column of numbers"),
        ("s.jsonl", "", "is empty"),
        ("s.jsonl", "{\n", "row 1: is no JSON"),
        ("s.jsonl", "[1]\n", "row 1: is no object"),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "x": NaN}\n', "row 2: 'x' is no finite number: nan"),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "x": true}\n', "row 2: 'x' is no finite number: True"),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "x": [2]}\n', r"row 2: 'x' is no finite number: \[2\]"),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "x": 1, "x": 2}\n', "row 2: 'x' stands twice"),
        ("s.jsonl", '{"id": "a", "x": 1}\n{"x": 2}\n', "row 2: 'id' is empty"),
        ("s.jsonl", '{"id": ["a"], "x": 1}\n', r"row 1: 'id' is no text \(\['a'\]\)"),
        ("s.jsonl", '{"id": 0.5, "x": 1}\n', r"row 1: 'id' is no text \(0.5\)"),
        (
            "s.jsonl",
            '{"id": "a", "x": "0.5"}\n{"id": "b", "x": 1' + "0" * 400 + "}\n",
            "row 2: 'x' is no finite number",
        ),
        ("s.json", "{}", "is neither a list of objects nor an object with 'per_item'"),
        ("s.json", "[]", "holds no scores"),
        ("s.json", '{"per_item": {}}', "holds no scores"),
        ("s.json", '{"per_item": {"a": {"id": 1}}}', "item 'a': has a metric called 'id'"),
        ("s.json", '{"per_item": {"a": {"x": 1}, "a": {"x": 2}}}', "twice"),
        ("s.json", '{"per_item": {"a": {"x": 1}, "b": {"x": "bad"}}}', "item 'b': 'x' is no finite number"),
        ("s.parquet", "not parquet", "is no Parquet file"),
    ],
)
def test_bad_files_are_refused_with_what_to_do(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CapbenchError, match=message) as caught:
        read_score_file(path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_bytes(b"id,x\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="UTF-8"):
        read_score_file(tmp_path / "s.csv")


def test_a_nan_of_a_parquet_file_is_no_number(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": ["a", "b"], "x": [1.0, float("nan")]}), tmp_path / "s.parquet")
    with pytest.raises(DataError, match="row 2: 'x' is no finite number: nan"):
        read_score_file(tmp_path / "s.parquet")


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "decimal128", "Int64", "Float64", "NaN"])
def test_an_empty_cell_of_a_parquet_file_is_a_missing_score(tmp_path: Path, kind: str) -> None:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "s.parquet"
    if kind in ("Int64", "Float64"):
        frame = pd.DataFrame({"id": ["a", "b"], "x": [2, None]})
        frame.astype({"x": kind}).to_parquet(path)
    elif kind == "NaN":  # which pandas writes as an empty cell
        pd.DataFrame({"id": ["a", "b"], "x": [2.0, float("nan")]}).to_parquet(path)
    else:
        made = pa.decimal128(12, 2) if kind == "decimal128" else getattr(pa, kind)()
        pq.write_table(pa.table({"id": ["a", "b"], "x": pa.array([2, None], type=pa.int32()).cast(made)}), path)
    np.testing.assert_array_equal(read_score_file(path).columns["x"], [2.0, np.nan])


def test_the_index_of_a_data_frame_names_rows_or_is_no_score(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]})
    frame.set_index("id").to_parquet(tmp_path / "named.parquet")
    assert list(read_score_file(tmp_path / "named.parquet").names["id"]) == ["a", "b"]
    frame.iloc[::-1].to_parquet(tmp_path / "unnamed.parquet")
    assert list(read_score_file(tmp_path / "unnamed.parquet").columns) == ["x"]


@pytest.mark.parametrize(
    ("mark", "ending", "said"), [(";", "csv", "semicolons"), ("\t", "csv", "tabs"), (",", "tsv", "commas")]
)
def test_cells_that_are_separated_otherwise_are_told_of(tmp_path: Path, mark: str, ending: str, said: str) -> None:
    path = tmp_path / f"s.{ending}"
    path.write_text(f"id{mark}x\na{mark}0,5\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"row 1: has one column, .* its cells are separated by {said}"):
        read_score_file(path)


def test_spaces_around_names_of_columns_are_not_part_of_them(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id, clipscore\na, 0.5\n", encoding="utf-8")
    assert read_score_file(tmp_path / "s.csv", ["clipscore"]).columns["clipscore"].tolist() == [0.5]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_missing_file_is_said_so(tmp_path: Path, ending: str) -> None:
    with pytest.raises(MissingFileError, match="there is no such file"):
        read_score_file(tmp_path / f"gone.{ending}")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["csv", "jsonl", "json", "parquet"]), st.data())
def test_a_damaged_file_is_refused_or_can_be_read(tmp_path: Path, ending: str, data: st.DataObject) -> None:
    whole = _write(tmp_path / f"scores.{ending}", ROWS).read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    place, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    flipped = whole[:place] + bytes([byte]) + whole[place + 1 :]
    for content in (whole[:cut], flipped):
        damaged = tmp_path / f"damaged.{ending}"
        damaged.write_bytes(content)
        with contextlib.suppress(CapbenchError):
            assert len(read_score_file(damaged)) <= len(ROWS)


@pytest.mark.parametrize("encoding", ["", "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_a_parquet_file_has_the_same_cells_however_it_is_stored(tmp_path: Path, encoding: str, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_rows = 5000
    captions = [f"a caption {row % 700} 猫" for row in range(n_rows)]
    table = pa.table(
        {
            "image": pa.array([f"i{row}" for row in range(n_rows)], kind),
            "caption": pa.array(captions, kind),
            "x": pa.array([None if row % 9 == 0 else row / 7 for row in range(n_rows)]),
            "y": pa.array([Decimal(row) / 4 for row in range(n_rows)], pa.decimal128(9, 2)),
            "z": pa.array([None if row % 5 == 0 else str(row) for row in range(n_rows)], kind),
            "words": pa.array([["a", "b"]] * n_rows),
        }
    )
    how: dict[str, Any] = {}
    if encoding:
        how = {"use_dictionary": False, "column_encoding": dict.fromkeys(("image", "caption", "z"), encoding)}
    pq.write_table(table, tmp_path / "s.parquet", row_group_size=1234, **how)
    file = read_score_file(tmp_path / "s.parquet")
    assert file.names == {"image": [f"i{row}" for row in range(n_rows)], "caption": captions}
    rows = np.arange(n_rows, dtype=np.float64)
    np.testing.assert_array_equal(file.columns["x"], np.where(rows % 9 == 0, np.nan, rows / 7))
    np.testing.assert_array_equal(file.columns["y"], rows / 4)
    np.testing.assert_array_equal(file.columns["z"], np.where(rows % 5 == 0, np.nan, rows))
    assert file.ignored == ("words",)
