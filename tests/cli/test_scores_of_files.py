"""Items out, scores in: the round trip through another program, and every command that takes ``--scores``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

Capbench = Callable[..., Ran]

EXTERNAL = """
import json, sys
folder = sys.argv[1]
references = {}
for line in open(folder + "/references.jsonl", encoding="utf-8"):
    row = json.loads(line)
    references[row["id"]] = row["references"]
with open(folder + "/scores.csv", "w", encoding="utf-8") as out:
    print("id,overlap,words", file=out)
    for line in open(folder + "/predictions.jsonl", encoding="utf-8"):
        row = json.loads(line)
        words = set(row["caption"].lower().split())
        best = max(len(words & set(r.lower().split())) / len(words) for r in references[row["id"]])
        print(row["id"], best, len(words), sep=",", file=out)
"""
"""A metric that knows nothing of capbench: the largest share of a caption's words that stand in one reference."""


@pytest.fixture
def scores(capbench: Capbench, tmp_path: Path) -> Path:
    written = capbench("data", "items", "flickr8k-expert", "--out", str(tmp_path / "items"), "--json")
    assert json.loads(written.out)["distinct_items"] == 300
    subprocess.run([sys.executable, "-I", "-c", EXTERNAL, str(tmp_path / "items")], check=True)
    return tmp_path / "items" / "scores.csv"


def test_scores_of_another_program_come_back_by_id(capbench: Capbench, scores: Path) -> None:
    answer = json.loads(capbench("correlate", "-d", "flickr8k-expert", "--scores", str(scores), "--json").out)
    assert {cell["column"] for cell in answer["cells"]} == {"overlap", "words"}
    (signature,) = answer["signatures"]["flickr8k-expert/no-own-captions"].values()
    assert signature.startswith("file:scores.csv|sha256:")
    assert signature.endswith("|column:overlap,words|joined:id")


def test_a_built_in_metrics_scores_give_its_numbers_after_a_round_trip(capbench: Capbench, tmp_path: Path) -> None:
    capbench("score", "-m", "bleu-4", "--out", str(tmp_path / "s.csv"))
    answer = json.loads(
        capbench(
            "correlate",
            "-d",
            "flickr8k-expert",
            "-m",
            "bleu-4",
            "-m",
            "s",
            "--scores",
            str(tmp_path / "s.csv"),
            "--json",
        ).out
    )
    values = {cell["column"]: cell["value"] for cell in answer["cells"]}
    assert values["s.bleu-4"] == values["bleu-4"]


@pytest.mark.parametrize(
    "line",
    [
        "compare cider overlap --bootstrap 100 --permutations 100 --json",
        "explore examples -m overlap -n 1 --json",
        "figure ratings overlap --out r.svg --json",
        "figure forest overlap cider --out f.svg --bootstrap 100",
        "score -m overlap -d flickr8k-expert --json",
        "correlate -d flickr8k-expert -m overlap -m cider --bootstrap 100 --compare bootstrap --permutations 100",
    ],
)
def test_every_command_over_judgements_takes_scores(
    capbench: Capbench, scores: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench(*line.split(), "--scores", str(scores))
    assert ran.code == 0, ran.err
    assert "overlap" in ran.out + "".join(path.read_text() for path in tmp_path.glob("*.svg"))


@pytest.fixture
def part(scores: Path) -> Path:
    """The same file with four of the scores in the column "overlap" alone."""
    lines = scores.read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines]
    for row in rows[5:]:
        row[-2] = ""
    path = scores.with_name("part.csv")
    path.write_text("".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
    return path


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
    capbench: Capbench, part: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench(*line.split(), "--scores", str(part))
    assert ran.code == 1, ran.err
    said = ran.out + ran.err
    assert "scores for 4 of 300" in said or "296 of the 300 items" in said
    assert "overlap" in said
    if "--report" in line:
        assert "scores for 4 of 300" in Path("r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "correlate -d flickr8k-expert -m overlap",
        "compare overlap cider --bootstrap 100 --permutations 100",
        "compare --power overlap cider --bootstrap 100",
        "train combination -m overlap",
        "figure ratings overlap",
        "figure forest overlap cider --bootstrap 100",
        "explore examples -m overlap",
        "score -m overlap -d flickr8k-expert",
    ],
)
def test_where_no_number_is_left_a_column_without_all_scores_is_an_error(
    capbench: Capbench, part: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench(*line.split(), "--scores", str(part))
    assert ran.code == 2
    (error,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert "296 of the 300 items" in error


def test_capevalkits_json_is_taken_as_it_is(capbench: Capbench, scores: Path, tmp_path: Path) -> None:
    with scores.open(encoding="utf-8", newline="") as stream:
        per_item = {row["id"]: {"overlap": float(row["overlap"])} for row in csv.DictReader(stream)}
    (tmp_path / "kit.json").write_text(json.dumps({"metric": "overlap", "per_item": per_item}))
    both = [
        json.loads(capbench("correlate", "-d", "flickr8k-expert", "-m", "overlap", "--scores", str(path), "--json").out)
        for path in (scores, tmp_path / "kit.json")
    ]
    assert both[0]["cells"][0]["value"] == both[1]["cells"][0]["value"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("correlate -d flickr8k-expert --scores gone.csv", "gone.csv"),
        (
            "correlate -d flickr8k-expert --scores FILE --scores FILE",
            "both have a metric 'overlap'; put the rows of all",
        ),
        ("correlate -d flickr8k-expert --scores cider=FILE", "'cider'"),
        ("correlate -d flickr8k-expert --scores a:b=FILE", "NAME=FILE"),
        (
            "correlate -d composite --scores FILE",
            "none of its 300 rows matches an item of composite/",
        ),
        ("correlate -d flickr8k-expert --scores FILE --option scores.columns=wrds", "'words'"),
        ("correlate -d flickr8k-expert --scores FILE --option scores.higher=up", "scores.higher=up"),
        ("correlate -d flickr8k-expert -m overlapp --scores FILE", "'overlapp'"),
        ("compare cider", "two"),
    ],
)
def test_what_does_not_fit_gets_one_line(capbench: Capbench, scores: Path, line: str, named: str) -> None:
    ran = capbench(*(word.replace("FILE", str(scores)) for word in line.split()))
    assert ran.code == 2
    assert named in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.real_data
def test_fleurs_scores_give_the_published_number(capbench: Capbench, real_data: Path) -> None:
    path = real_data / "external_scores" / "fleur_flickr8k_expert.csv"
    arguments = ["correlate", "-d", "flickr8k-expert", "--data", str(real_data), "--scores", str(path), "--json"]
    answer = json.loads(capbench(*arguments).out)
    values = {cell["column"]: cell["value"] for cell in answer["cells"]}
    assert round(values["fleur"], 4) == 0.5303  # 53.0 in the paper
    assert round(values["fleur_raw"], 3) == 0.349
    (info,) = answer["protocols"]
    assert any("fleur_raw has 10 distinct scores" in line and "τ-b is 0.5608" in line for line in info["notes"])


def test_scores_of_pairs_with_a_label_are_measured_and_another_column_of_that_kind_is_named(
    capbench: Capbench, tmp_path: Path
) -> None:
    capbench("data", "items", "foil", "--out", str(tmp_path / "items"))
    written = (tmp_path / "items" / "predictions.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in written.splitlines()]
    names = ["image", "caption", "label", "which", "words"]
    with (tmp_path / "pairs.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        for row in rows:
            # A caption that stands in two pairs has a row in each, of which one says that it is the wrong one.
            for label in (0, 1):
                writer.writerow([row["image"], row["caption"], label, label, len(row["caption"].split())])
    asked = ("correlate", "-d", "foil", "--scores", str(tmp_path / "pairs.csv"), "--json")
    refused = capbench(*asked)
    assert (refused.code, refused.err.count("\n")) == (2, 2)
    option = "--option pairs.columns=words"
    assert "a second 'which'" in refused.err
    assert option in refused.err
    answer = json.loads(capbench(*asked, *option.split()).out)
    assert {cell["column"] for cell in answer["cells"]} == {"words"}


def test_rows_that_a_text_key_does_not_decide_are_listed_and_not_joined(capbench: Capbench, tmp_path: Path) -> None:
    texts = ["the rapist", "therapist", "一只狗", "一只猫", "a dog"]
    judged = [f"{image},{text},a reference,{len(text) % 4}" for image in "ab" for text in texts]
    (tmp_path / "j.csv").write_text("image,candidate,reference_1,rating\n" + "\n".join(judged), encoding="utf-8")
    rows = ["a,The rapist.,9", *(f"a,{text},{place}" for place, text in enumerate(texts[2:]))]
    rows += [f"b,{text},{place + 5}" for place, text in enumerate(texts)]
    (tmp_path / "s.csv").write_text("image,caption,mine\n" + "\n".join(rows), encoding="utf-8")
    ran = capbench(
        *("correlate", "-d", str(tmp_path / "j.csv"), "--scores", str(tmp_path / "s.csv")),
        *("--allow-missing", "--json"),
    )
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert {cell["n"] for cell in result["cells"]} == {8}
    (note,) = (note for note in result["protocols"][0]["notes"] if note.startswith("s.csv"))
    assert "row 2 'The rapist.' for 'the rapist' or 'therapist' of image 'a'" in note
