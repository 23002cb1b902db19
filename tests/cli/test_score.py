"""``capbench score`` as a user types it, on the embedded sample and on captions of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from capbench.api.scoring import TEXT_METRICS
from capbench.core.built_in import BUILT_IN
from capbench.metrics.needs import References
from capbench.metrics.requests import resolve_metrics
from tests.conftest import Ran

pytestmark = pytest.mark.java


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


def test_all_leaves_out_and_names_metrics_without_a_sample_model(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "-m", "all", "--model", "sample", "--json")
    assert ran.code == 0, ran.err
    columns = {row["column"] for row in json.loads(ran.out)["scores"]}
    assert "cider" in columns
    assert not any(column.startswith(("bertscore", "bert-tbr")) for column in columns)
    (line,) = [line for line in ran.err.splitlines() if "leaves out" in line]
    assert "bertscore, bert-tbr, nneval" in line
    assert "wmd (word vectors" in line


def test_without_metrics_those_that_require_only_references_are_scored(
    capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    ran = capbench("score", "--json")
    assert json.loads(ran.out) == found("score", "-m", "bleu,rouge-l,meteor,cider")
    assert sum(line.startswith("metrics: ") for line in ran.err.splitlines()) == 1
    # References are their only requirement, and they start no other program.
    requests = resolve_metrics(list(BUILT_IN["capbench.metrics"]))
    assert tuple(r.label for r in requests if [type(need) for need in r.metric.needs] == [References]) == TEXT_METRICS
