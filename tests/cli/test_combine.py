"""``capbench train combination``, and scores of other programs in every command that takes them."""

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
    stated = next(c["value"] for c in told["comparison"]["cells"] if c["column"] == "combination" and not c["group"])
    with Path("text.csv").open(encoding="utf-8") as stream:
        assert {row["column"] for row in csv.DictReader(stream)} == {"combination"}
    again = found("correlate", "-d", "flickr8k-expert", "-m", "combination:text.json", "--scores", "honest=text.csv")
    values = {cell["column"]: cell["value"] for cell in again["cells"]}
    assert values["honest"] == pytest.approx(stated, abs=1e-12)
    assert set(values) == {"honest", "text"}
    (overlap,) = (entry for entry in again["training"].popitem()[1] if not entry["group"])
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
    cells = {cell["column"]: cell["placeholder"] for cell in answer["comparison"]["cells"]}
    assert cells == {"cider": "", "rouge-l": "", "combination": "", "overlap": "scores for 4 of 300"}
    assert answer["parts"] == alone["parts"]
    assert answer["comparison"]["comparisons"] == alone["comparison"]["comparisons"]


EXPERT = ("correlate", "-d", "flickr8k-expert")


def test_scores_of_other_programs_come_back(
    capbench: Callable[..., Ran], found: Callable[..., Any], scores: Path
) -> None:
    assert capbench("score", "-m", "bleu-4", "--out", "own.csv").code == 0
    with scores.open(encoding="utf-8", newline="") as stream:
        per_item = {row["id"]: {"kit": float(row["overlap"])} for row in csv.DictReader(stream)}
    Path("kit.json").write_text(json.dumps({"metric": "kit", "per_item": per_item}))  # as CapEvalKit writes it
    files = ("--scores", scores, "--scores", "own.csv", "--scores", "kit.json")
    answer = found(*EXPERT, "-m", "bleu-4", "-m", "own", "-m", "scores", "-m", "kit", *files)
    values = {cell["column"]: cell["value"] for cell in answer["cells"]}
    assert values["own.bleu-4"] == values["bleu-4"]
    assert values["kit"] == values["overlap"]
    signature = answer["signatures"]["flickr8k-expert/no-own-captions"]["scores"]
    assert signature.startswith("file:scores.csv|sha256:")
    assert signature.endswith("|column:overlap,words|joined:id")


@pytest.mark.parametrize(
    "line",
    [
        "correlate -d flickr8k-expert -m cider -m overlap --compare permutation --permutations 100 --report r.html",
        "correlate --all-protocols -d flickr8k-expert -m cider -m overlap",
        "compare cider overlap words --bootstrap 100 --permutations 100 --report r.html",
        "train combination -m cider -m overlap -m words --folds 3 --inner-folds 2 --bootstrap 100",
        "explore examples -n 1 --option part.columns=overlap,words",
        "figure ratings overlap cider --out r.svg",
        "figure significance overlap cider words --out s.svg --bootstrap 100",
        "score -m overlap -m cider -d flickr8k-expert",
    ],
)
def test_a_column_without_all_scores_says_so_in_its_own_place_in_every_command(
    capbench: Callable[..., Ran], part: Path, line: str
) -> None:
    ran = capbench(*line.split(), "--scores", part)
    assert ran.code == 1, ran.err
    said = ran.out + ran.err
    assert "scores for 4 of 300" in said or "296 of the 300 items" in said
    assert "overlap" in said
    if "--report" in line:
        assert "scores for 4 of 300" in Path("r.html").read_text(encoding="utf-8")


@pytest.mark.real_data
def test_fleurs_scores_give_the_published_number(found: Callable[..., Any], real_data: Path) -> None:
    path = real_data / "external_scores" / "fleur_flickr8k_expert.csv"
    answer = found(*EXPERT, "--data", real_data, "--scores", path)
    values = {cell["column"]: cell["value"] for cell in answer["cells"]}
    assert round(values["fleur"], 4) == 0.5303  # 53.0 in the paper
    assert round(values["fleur_raw"], 3) == 0.349
    (info,) = answer["protocols"]
    assert any("fleur_raw has 10 distinct scores" in line for line in info["notes"])
