"""``capbench score`` as a user types it, on the embedded sample and on captions of one's own."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.api.scoring import TEXT_METRICS
from capbench.core.built_in import BUILT_IN
from capbench.metrics.needs import References
from capbench.metrics.requests import resolve_metrics
from tests.conftest import Ran

pytestmark = pytest.mark.java


def test_the_sample_is_named_in_the_first_line(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "--metric", "bleu-4", "--metric", "cider")
    assert ran.code == 0
    assert "embedded synthetic sample" in ran.out.splitlines()[0]
    assert "bleu-4" in ran.out
    assert "bleu-1" not in ran.out
    assert "cider|capbench:" in ran.out
    assert "flickr8k-expert:1/no-own-captions" in ran.err


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_scores_go_to_a_file_in_the_long_schema(ending: str, capbench: Callable[..., Ran]) -> None:
    import pandas as pd

    out = f"scores.{ending}"
    ran = capbench("score", "--metric", "bleu", "--dataset", "composite", "--out", out)
    assert f"wrote {out}" in ran.err
    if ending == "csv":
        frame = pd.read_csv(out)
    else:
        frame = pd.read_parquet(out) if ending == "parquet" else pd.read_json(out, lines=True)
    columns = "dataset image candidate_id candidate references metric column value signature"
    assert list(frame.columns) == columns.split()
    assert len(frame) == 4 * 210
    assert not frame["image"].str.contains(r"\.png").any()


def test_captions_of_ones_own_are_scored_by_every_metric(capbench: Callable[..., Ran]) -> None:
    candidates = [{"image_id": 1, "caption": "A bird runs."}, {"image_id": 2, "caption": "two cats"}]
    references = {"1": ["The dog runs!", "a running dog"], "2": ["two cats", "a pair of cats"]}
    Path("c.json").write_text(json.dumps(candidates), encoding="utf-8")
    Path("r.json").write_text(json.dumps(references), encoding="utf-8")
    own = ("--candidates", "c.json", "--references", "r.json")
    ran = capbench("score", "--metric", "all", *own, "--out", "scores.csv")
    assert ran.code == 0, ran.err
    assert "sample" not in ran.out
    rows = list(csv.DictReader(Path("scores.csv").read_text(encoding="utf-8").splitlines()))
    by_column = {(row["candidate"], row["column"]): float(row["value"]) for row in rows}
    assert [by_column["two cats", name] for name in ("bleu-1", "rouge-l")] == pytest.approx([1, 1])
    assert by_column["A bird runs.", "bleu-1"] == pytest.approx(2 / 3)
    assert {row["column"] for row in rows} >= {"bleu-4", "rouge-l", "meteor", "cider"}
    Path("c.json").write_text(json.dumps(candidates[:1]), encoding="utf-8")
    Path("r.json").write_text(json.dumps({"1": references["1"]}), encoding="utf-8")
    assert "warning: all CIDEr scores are 0" in capbench("score", "-m", "cider", *own).err


def test_all_leaves_out_and_names_metrics_without_a_sample_model(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "-m", "all", "--model", "sample", "--json")
    assert ran.code == 0, ran.err
    columns = {row["column"] for row in json.loads(ran.out)["scores"]}
    assert "cider" in columns
    assert not any(column.startswith(("bertscore", "bert-tbr")) for column in columns)
    (line,) = [line for line in ran.err.splitlines() if "leaves out" in line]
    assert "bertscore, bert-tbr, nneval" in line
    assert "wmd (word vectors)" in line


def test_without_metrics_those_that_require_only_references_are_scored(
    capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    ran = capbench("score", "--json")
    assert json.loads(ran.out) == found("score", "-m", "bleu,rouge-l,meteor,cider")
    assert sum(line.startswith("metrics: ") for line in ran.err.splitlines()) == 1
    # References are their only requirement, and they start no other program.
    requests = resolve_metrics(list(BUILT_IN["capbench.metrics"]))
    assert tuple(r.label for r in requests if [type(need) for need in r.metric.needs] == [References]) == TEXT_METRICS
