from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_text_files_are_written_without_pandas(tmp_path: Path, ending: str) -> None:
    code = """
import sys
import numpy as np
from capbench.core.records import Item, ScoreColumn, ScoreTable
from capbench.metrics.scoring import write_scores
items = (Item("1", 'says "hi",\\nthen', ("a",), "x"),)
values = {ScoreColumn("bleu", "bleu-1"): np.array([1 / 3])}
write_scores(ScoreTable("mine", items, values, {}, {"bleu": "bleu|1"}), sys.argv[1])
assert not {"pandas", "pyarrow"} & set(sys.modules)
"""
    path = tmp_path / f"scores{ending}"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    if ending == ".csv":
        with path.open(encoding="utf-8", newline="") as stream:
            (row,) = csv.DictReader(stream)
    else:
        row = json.loads(path.read_text(encoding="utf-8"))
    assert row["candidate"] == 'says "hi",\nthen'
    assert float(row["value"]) == 1 / 3


@pytest.mark.parametrize("name", ["scores.xlsx", "scores", "scores.csv.gz"])
def test_an_unknown_ending_is_rejected_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with raises(UsageError, "wrong-format", value=Path(name).suffix):
        write_scores(TABLE, tmp_path / name)
    assert [p for p in tmp_path.iterdir() if p.name != "cache"] == []


def test_formulas_are_escaped_on_request(tmp_path: Path) -> None:
    formula = TABLE.items[0].__class__("i", "=1+1", ("r",))
    table = TABLE.__class__(
        "own", (formula,), {next(iter(TABLE.values)): np.array([1.0])}, {}, {"bleu": "bleu|capbench:1"}
    )
    for escape, cell in ((True, "'=1+1"), (False, "=1+1")):
        write_scores(table, tmp_path / "s.csv", escape_formulas=escape)
        assert pd.read_csv(tmp_path / "s.csv")["candidate"].tolist() == [cell]
