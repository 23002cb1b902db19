"""``capbench train combination`` prints a combination next to its metrics, and writes files for other commands."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran

TWO = ("train", "combination", "-m", "cider", "-m", "rouge-l", "--folds", "5", "--bootstrap", "200")


def test_what_it_writes_other_commands_read(found: Callable[..., Any]) -> None:
    told = found(*TWO, "--save", "text.json", "--out", "text.csv")
    assert told["combination"] == json.loads(Path("text.json").read_text(encoding="utf-8"))
    own = next(c["value"] for c in told["comparison"]["cells"] if c["column"] == "combination" and not c["group"])
    with Path("text.csv").open(encoding="utf-8") as stream:
        assert {row["column"] for row in csv.DictReader(stream)} == {"combination"}
    again = found("correlate", "-d", "flickr8k-expert", "-m", "combination:text.json", "--scores", "honest=text.csv")
    values = {cell["column"]: cell["value"] for cell in again["cells"]}
    assert values["honest"] == pytest.approx(own, abs=1e-12)
    assert set(values) == {"honest", "text"}
    (overlap,) = (one for one in again["training"].popitem()[1] if not one["group"])
    assert (overlap["label"], overlap["fitted"], overlap["photographs"], overlap["has_read"]) == ("text", 50, 50, True)


def test_files_of_scores_are_combined_but_not_saved(
    capbench: Callable[..., Ran], found: Callable[..., Any], scores: Path, part: Path
) -> None:
    assert "overlap" in capbench(*TWO, "--scores", scores).out
    refused = capbench(*TWO, "--scores", scores, "--save", "no.json")
    assert (refused.code, "a combination with scores cannot be saved" in refused.err) == (2, True)
    # A column without all scores is left out of the combination, and named.
    only = ("--scores", part, "--option", "part.columns=overlap")
    answer, alone = found(*TWO, *only, code=1), found(*TWO)
    assert [missing["title"] for missing in answer["comparison"]["missing"]] == ["overlap"]
    assert answer["parts"] == alone["parts"]
    assert answer["comparison"]["comparisons"] == alone["comparison"]["comparisons"]
