"""``capbench score`` as a user types it, on the embedded sample and on captions of one's own."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.api.scoring import TEXT_METRICS
from capbench.core.built_in import BUILT_IN
from capbench.datasets.composite import Composite
from capbench.datasets.root import find_root
from capbench.metrics.needs import References
from capbench.metrics.requests import resolve_metrics
from tests.conftest import Ran
from tests.metrics.scan.models import write_features

pytestmark = pytest.mark.java


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        (("--features", "gone.h5"), "gone.h5"),
        (("--model", "gone.pt"), "gone.pt"),
        (("--model", "faier=gone.pt"), "gone.pt"),
    ],
)
@pytest.mark.parametrize("command", [("score", "-m"), ("explore", "retrieve", "-m"), ("train", "combination", "-m")])
def test_a_file_that_is_not_there_is_refused_where_no_metric_needs_it(
    capbench: Callable[..., Ran], command: tuple[str, ...], flags: tuple[str, str], path: str
) -> None:
    ran = capbench(*command, "bleu-1", *flags)
    assert (ran.code, ran.failure.code, ran.failure.path) == (2, "missing-file", path)


def test_the_sample_is_named_in_the_first_line(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "--metric", "bleu-4", "--metric", "cider")
    assert ran.code == 0
    assert "embedded synthetic sample" in ran.out.splitlines()[0]
    assert "bleu-4" in ran.out
    assert "bleu-1" not in ran.out
    assert "cider|capbench:" in ran.out
    assert "flickr8k-expert:1/no-own-captions" in ran.err


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_scores_go_to_a_file_in_the_long_schema(ending: str, capbench: Callable[..., Ran], tmp_path: Path) -> None:
    import pandas as pd

    out = tmp_path / f"scores.{ending}"
    ran = capbench("score", "--metric", "bleu", "--dataset", "composite", "--out", out)
    assert ran.code == 0
    assert f"wrote {out}" in ran.err
    if ending == "csv":
        frame = pd.read_csv(out)
    else:
        frame = pd.read_parquet(out) if ending == "parquet" else pd.read_json(out, lines=True)
    columns = ["dataset", "image", "candidate_id", "candidate", "references", "metric", "column", "value", "signature"]
    assert list(frame.columns) == columns
    assert len(frame) == 4 * 210
    assert set(frame["dataset"]) == {"composite"}
    assert not frame["image"].str.contains(r"\.png").any()


def test_another_selection_of_items_gives_other_scores(capbench: Callable[..., Ran]) -> None:
    arguments = ("score", "--metric", "bleu-1", "--dataset", "composite", "--json")
    without = json.loads(capbench(*arguments).out)["scores"][0]["mean"]
    kept = json.loads(capbench(*arguments, "--protocol", "all-references").out)["scores"][0]["mean"]
    assert kept > without
    full = json.loads(capbench(*arguments, "--protocol", "composite/all-references/correctness-tau-b").out)
    assert full["scores"][0]["mean"] == kept


def test_captions_of_ones_own_are_scored_by_every_metric(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    candidates = [{"image_id": 1, "caption": "A bird runs."}, {"image_id": 2, "caption": "two cats"}]
    references = {"1": ["The dog runs!", "a running dog"], "2": ["two cats", "a pair of cats"]}
    (tmp_path / "c.json").write_text(json.dumps(candidates), encoding="utf-8")
    (tmp_path / "r.json").write_text(json.dumps(references), encoding="utf-8")
    out = tmp_path / "scores.csv"
    ran = capbench(
        *("score", "--metric", "all", "--candidates", tmp_path / "c.json", "--references", tmp_path / "r.json"),
        *("--out", out),
    )
    assert ran.code == 0, ran.err
    assert "sample" not in ran.out
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    by_column = {(row["candidate"], row["column"]): float(row["value"]) for row in rows}
    assert by_column["two cats", "bleu-1"] == pytest.approx(1.0)
    assert by_column["two cats", "rouge-l"] == pytest.approx(1.0)
    assert by_column["A bird runs.", "bleu-1"] == pytest.approx(2 / 3)
    assert {row["column"] for row in rows} >= {"bleu-4", "rouge-l", "meteor", "cider"}


def test_a_single_image_warns_why_cider_is_zero(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('[{"image_id": 1, "caption": "a dog"}]', encoding="utf-8")
    (tmp_path / "r.json").write_text('{"1": ["a dog"]}', encoding="utf-8")
    ran = capbench("score", "-m", "cider", "--candidates", tmp_path / "c.json", "--references", tmp_path / "r.json")
    assert ran.code == 0
    assert "warning: all CIDEr scores are 0" in ran.err


def test_images_without_features_are_refused_with_the_groups_that_have_them(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    dataset = Composite(find_root("sample"))
    (judgements,) = dataset.load(dataset.protocol().items)
    images = sorted({item.image for item in judgements.items if item.group == "8k"})
    write_features(tmp_path / "third.h5", images, 4)
    flags = ("-m", "tests.studies.test_scoring:Brightness", "--features", tmp_path / "third.h5")
    refused = capbench("score", "-d", "composite", *flags)
    assert refused.code == 2
    assert "group 8k lacks nothing: request composite@8k" in refused.err
    assert capbench("score", "-d", "composite@8k", *flags).code == 0


def test_all_leaves_out_and_names_metrics_without_a_sample_model(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "-m", "all", "--model", "sample", "--json")
    assert ran.code == 0, ran.err
    columns = {row["column"] for row in json.loads(ran.out)["scores"]}
    assert "cider" in columns
    assert not any(column.startswith(("bertscore", "bert-tbr")) for column in columns)
    (line,) = [line for line in ran.err.splitlines() if "leaves out" in line]
    assert "bertscore, bert-tbr, nneval" in line
    assert "wmd (word vectors)" in line
    assert "--model NAME=FILE" in line


def test_without_metrics_those_that_require_only_references_are_scored(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "--json")
    assert ran.code == 0, ran.err
    named = capbench("score", "-m", "bleu,rouge-l,meteor,cider", "--json")
    assert json.loads(ran.out) == json.loads(named.out)
    (line,) = [line for line in ran.err.splitlines() if line.startswith("metrics: ")]
    assert [name for name in BUILT_IN["capbench.metrics"] if re.search(rf"\b{name}\b", line)] == list(TEXT_METRICS)
    assert "metrics: " not in named.err
    # References are their only requirement, and they start no other program.
    requests = resolve_metrics(list(BUILT_IN["capbench.metrics"]))
    assert tuple(r.label for r in requests if [type(need) for need in r.metric.needs] == [References]) == TEXT_METRICS
