"""``capbench train combination`` prints a combination next to its metrics, and writes files for other commands."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

TWO = ("train", "combination", "-m", "cider", "-m", "rouge-l", "--folds", "5", "--bootstrap", "200")


def test_it_says_how_it_agrees_what_it_is_made_of_and_what_each_metric_adds(capbench: Callable[..., Ran]) -> None:
    ran = capbench(*TWO, "--test", "composite")
    assert ran.code == 0, ran.err
    assert "combination agrees better with human ratings than ROUGE-L: τ-c" in ran.out
    # Pairs of the other metrics are compare's.
    assert "CIDEr agrees better with human ratings than ROUGE-L" not in ran.out
    assert "each caption's score was learned on other images (50 images, 5 folds, 5 inner folds, seed 0)" in ran.out
    assert "drop: loss of τ-c if combination is learned without the metric" in ran.out
    assert "tested on composite/any-candidate-out/correctness-tau-c" in ran.out
    assert "25 of these 70 images were also learned from" in ran.out


def test_what_it_writes_other_commands_read(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    saved, scores = tmp_path / "text.json", tmp_path / "text.csv"
    ran = capbench(*TWO, "--save", saved, "--out", scores, "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["combination"] == json.loads(saved.read_text(encoding="utf-8"))
    own = next(c["value"] for c in told["comparison"]["cells"] if c["column"] == "combination" and not c["group"])
    with scores.open(encoding="utf-8") as stream:
        assert {row["column"] for row in csv.DictReader(stream)} == {"combination"}
    flags = ("-d", "flickr8k-expert", "-m", f"combination:{saved}", "--scores", f"honest={scores}", "--json")
    again = capbench("correlate", *flags)
    assert again.code == 0, again.err
    values = {cell["column"]: cell["value"] for cell in json.loads(again.out)["cells"]}
    assert values["honest"] == pytest.approx(own, abs=1e-12)
    assert set(values) == {"honest", "text"}
    (overlap,) = (one for one in json.loads(again.out)["training"].popitem()[1] if not one["group"])
    assert (overlap["label"], overlap["fitted"], overlap["photographs"], overlap["has_read"]) == ("text", 50, 50, True)


def test_files_of_scores_are_combined_but_not_saved(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    scores = tmp_path / "mine.csv"
    assert capbench("score", "-m", "bleu-1", "-d", "flickr8k-expert", "--out", scores).code == 0
    ran = capbench(*TWO, "--scores", f"mine={scores}")
    assert ran.code == 0, ran.err
    assert "mine" in ran.out
    refused = capbench(*TWO, "--scores", f"mine={scores}", "--save", tmp_path / "no.json")
    assert refused.code == 2
    assert "a combination with mine cannot be saved" in refused.err
    lines = scores.read_text(encoding="utf-8").splitlines(keepends=True)
    scores.write_text("".join(lines[:-3]), encoding="utf-8")
    # A file without all scores is left out of the combination, and named.
    part = capbench(*TWO, "--scores", f"mine={scores}", "--json")
    assert part.code == 1
    found, alone = json.loads(part.out), json.loads(capbench(*TWO, "--json").out)
    assert [missing["title"] for missing in found["comparison"]["missing"]] == ["mine"]
    assert found["parts"] == alone["parts"]
    assert found["comparison"]["comparisons"] == alone["comparison"]["comparisons"]


def test_what_cannot_be_combined_is_refused(capbench: Callable[..., Ran]) -> None:
    for arguments, code in (
        (("train", "combination"), "missing-option"),
        ((*TWO, "--test", "flickr8k-expert"), "conflict"),
        ((*TWO, "--test", "nocaps"), "unsupported"),
        ((*TWO, "--out", "scores.txt"), "wrong-format"),
    ):
        assert capbench(*arguments).failure.code == code, arguments
