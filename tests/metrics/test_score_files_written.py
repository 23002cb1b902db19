from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from capbench.core.errors import UsageError
from capbench.core.records import references_hash
from capbench.metrics.score_files import COLUMNS
from capbench.metrics.scoring import to_frame, write_scores
from tests.errors import raises
from tests.metrics.score_tables import TABLE


def test_frame_is_long_and_has_repeated_items_once() -> None:
    frame = to_frame(TABLE)
    assert tuple(frame.columns) == COLUMNS
    assert frame["column"].tolist() == ["bleu-1", "bleu-1", "cider", "cider"]
    assert frame["value"].tolist() == [1 / 3, 1e-17, 2.5, 0.0]
    assert frame["candidate_id"].tolist() == ["c1", "", "c1", ""]
    assert frame["references"][0] == references_hash(("a", "b"))
    assert frame["signature"][3] == "cider|capbench:1"


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "CSV"])
def test_files_hold_every_digit(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"scores.{ending}"
    write_scores(TABLE, path)
    if ending == "parquet":
        pd.testing.assert_frame_equal(pd.read_parquet(path), to_frame(TABLE), check_dtype=False)
    elif ending == "jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert rows == to_frame(TABLE).to_dict("records")
    else:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = [{**row, "value": float(row["value"])} for row in csv.DictReader(stream)]
        assert rows == to_frame(TABLE).to_dict("records")
    assert [p for p in tmp_path.iterdir() if p.name != "cache"] == [path]


@pytest.mark.parametrize("name", ["scores.xlsx", "scores", "scores.csv.gz"])
def test_an_unknown_ending_is_rejected_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with raises(UsageError, "wrong-format", value=Path(name).suffix):
        write_scores(TABLE, tmp_path / name)
    assert [p for p in tmp_path.iterdir() if p.name != "cache"] == []
