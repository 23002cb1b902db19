"""Own captions in ``capbench score``: repeated flags, images without candidates, standard input, limits."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    captions = {
        name: [f"a {word} dog runs over the grass"]
        for name, word in zip("abcde", ["big", "red", "old", "wet", "new"], strict=True)
    }
    Path("references.json").write_text(json.dumps(captions), encoding="utf-8")
    rows = [{"image": name, "caption": captions[name][0]} for name in "ab"]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def write_all(*more: dict[str, str]) -> None:
    """One caption for each image of the references, and further ones."""
    references = json.loads(Path("references.json").read_text(encoding="utf-8"))
    rows = [*({"image": image, "caption": texts[0]} for image, texts in references.items()), *more]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


OWN = ("score", "-m", "bleu-1", "--references", "references.json", "--candidates")


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-8")), encoding="utf-8"))


def test_a_closed_standard_input_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capbench: Callable[..., Ran]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    ran = capbench(*OWN, "-")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert (ran.failure.code, ran.failure.path) == ("unreadable", "standard input")


@pytest.mark.parametrize("flags", [("--candidates", "b"), ("--out", "a.csv", "-o", "b.csv")])
def test_an_option_with_one_value_is_given_once(flags: tuple[str, ...], capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "-m", "bleu-1", "-m", "cider", "--candidates", "a", *flags)
    assert ran.code == 2
    name = "--candidates" if flags[0] == "--candidates" else "--out"
    assert (ran.failure.code, ran.failure.value) == ("duplicate", name)


def test_images_without_a_candidate_are_told(folder: Path, capbench: Callable[..., Ran]) -> None:
    ran = capbench(*OWN, "own.jsonl")
    assert ran.code == 0, ran.err
    assert "3 of 5 images of references.json have no caption: c, d, e" in ran.err
    assert json.loads(capbench(*OWN, "own.jsonl", "--json").out)["missing_captions"] == 3
    Path("stranger.jsonl").write_text('{"image": "z", "caption": "a dog"}\n', encoding="utf-8")
    refused = capbench(*OWN, "stranger.jsonl")
    assert refused.code == 2
    assert (refused.failure.code, refused.failure.value) == ("missing-references", "z")


def test_standard_input_scores_as_the_file_does(
    folder: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = json.loads(capbench(*OWN, "own.jsonl", "--json").out)["scores"]
    type_in(monkeypatch, Path("own.jsonl").read_text(encoding="utf-8"))
    ran = capbench(*OWN, "-", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["scores"] == scores
    type_in(monkeypatch, '{"image": "a"}\n')
    refused = capbench(*OWN, "-")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    failure = refused.failure
    assert (failure.code, failure.path, failure.row) == ("missing-caption", "standard input", 1)


@pytest.mark.parametrize(
    ("second", "code"),
    [({}, 2), ({"caption": "a big dog runs over the grass"}, 2), ({"id": "a-second"}, 2), ({"system": "other"}, 0)],
)
def test_a_repeated_image_among_images_with_one_caption_is_an_error(
    second: dict[str, str], code: int, folder: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all()
    expected = json.loads(capbench(*OWN, "own.jsonl", "-m", "cider", "--json").out)["scores"]
    write_all({"image": "a", "caption": "a cat"} | second)
    type_in(monkeypatch, Path("own.jsonl").read_text(encoding="utf-8"))
    for name, *flags in (["own.jsonl"], ["own.jsonl", "--fail-under", "bleu-1=0.1"], ["-"]):
        ran = capbench(*OWN, name, *flags)
        assert ran.code == code, ran.err
        if code:
            path = "standard input" if name == "-" else name
            assert (ran.failure.code, ran.failure.value, ran.failure.path) == ("duplicate", "a", path)
    kept = capbench(*OWN, "own.jsonl", "-m", "cider", "--keep-first", "--json")
    assert (json.loads(kept.out)["scores"] == expected, "1 further caption" in kept.err) == (code == 2, code == 2)


@pytest.mark.parametrize(("repeated", "code"), [("abc", 0), ("ab", 2)])
def test_several_captions_of_half_of_the_images_are_scored(
    repeated: str, code: int, folder: Path, capbench: Callable[..., Ran]
) -> None:
    write_all(*({"image": image, "caption": f"a cat {number}"} for image in repeated for number in range(3)))
    for flags in ((), ("--fail-under", "bleu-1=0.1")):
        ran = capbench(*OWN, "own.jsonl", *flags, "--json")
        assert ran.code == code
        assert code or json.loads(ran.out)["n"] == 5 + 3 * len(repeated)


@pytest.mark.parametrize(
    "limits",
    [("--fail-under", "bleu-1=0.5, ROUGE-L=1.5"), ("--fail-under", "BLEU-1=0.5", "--fail-under", "Rouge-L=1.5")],
)
def test_limits_are_listed_and_named_by_title(
    limits: tuple[str, ...], folder: Path, capbench: Callable[..., Ran]
) -> None:
    write_all()
    ran = capbench(*OWN, "own.jsonl", "-m", "rouge-l", "--json", *limits)
    assert ran.code == 3, ran.err
    bars = {name: verdict["bar"] for name, verdict in json.loads(ran.out)["fail_under"].items()}
    assert bars == {"bleu-1": 0.5, "rouge-l": 1.5}


def test_the_verdict_on_limits_is_in_the_json(folder: Path, capbench: Callable[..., Ran]) -> None:
    limits = ("--fail-under", "bleu-1=0.99", "--fail-under", "rouge-l=1.5")
    ran = capbench(*OWN, "own.jsonl", "-m", "rouge-l", "-m", "bleu-2", *limits, "--json")
    assert ran.code == 3
    document = json.loads(ran.out)
    corpus = {row["column"]: row["corpus"] for row in document["scores"]}
    assert document["fail_under"] == {
        "bleu-1": {"bar": 0.99, "value": corpus["bleu-1"], "passed": True},
        "rouge-l": {"bar": 1.5, "value": corpus["rouge-l"], "passed": False},
    }
    assert "fail_under" not in json.loads(capbench(*OWN, "own.jsonl", "--json").out)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"mine": 0.1}, 1),  # nothing is below its limit, but one has no score
        ({"bleu-1": 1.5, "mine": 0.1}, 3),  # below the limit, whatever else is missing
    ],
)
def test_a_score_below_its_limit_outranks_a_missing_one(
    limits: dict[str, float], code: int, folder: Path, capbench: Callable[..., Ran]
) -> None:
    Path("mine.csv").write_text("image,candidate,mine\na,a big dog runs over the grass,0.5\n", encoding="utf-8")
    flags = [part for name, bar in limits.items() for part in ("--fail-under", f"{name}={bar}")]
    ran = capbench(*OWN, "own.jsonl", "--scores", "mine.csv", "--json", *flags)
    assert ran.code == code, ran.err
    document = json.loads(ran.out)
    assert list(document["incomplete"]) == ["mine"]
    (row,) = document["scores"]
    values = {"bleu-1": row["corpus"], "mine": None}
    assert document["fail_under"] == {
        name: {"bar": bar, "value": values[name], "passed": name == "bleu-1" and bar == 0.5}
        for name, bar in limits.items()
    }


@pytest.mark.parametrize(
    ("limits", "code", "value"),
    [
        (["bleu-1"], "wrong-format", "bleu-1"),
        (["bleu-1=nan"], "wrong-format", "bleu-1=nan"),
        (["bleu-1=\u0661"], "wrong-format", "bleu-1=\u0661"),
        (["cider=1"], "unknown-name", "cider"),
        (["bleu=1"], "ambiguous", "bleu"),
        (["bleu-1=1", "BLEU-1=2"], "duplicate", "BLEU-1"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(
    limits: list[str], code: str, value: str, folder: Path, capbench: Callable[..., Ran]
) -> None:
    ran = capbench(*OWN, "own.jsonl", "-m", "bleu-2", *(part for limit in limits for part in ("--fail-under", limit)))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert (ran.failure.code, ran.failure.value) == (code, value)


def test_captions_that_look_like_formulas_are_escaped_when_asked_for(
    folder: Path, capbench: Callable[..., Ran]
) -> None:
    import csv

    captions = ["=1+1 dogs", "+ a dog", "- a dog", "@dog", "a = dog"]
    rows = [json.dumps({"image": name, "caption": text}) for name, text in zip("abcde", captions, strict=True)]
    Path("own.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    written = {}
    for name, flags in (("plain.csv", ()), ("escaped.csv", ("--escape-formulas",))):
        ran = capbench(*OWN, "own.jsonl", "--out", name, *flags)
        assert ran.code == 0, ran.err
        with open(name, encoding="utf-8", newline="") as file:
            written[name] = list(csv.DictReader(file))
    assert [row["candidate"] for row in written["plain.csv"]] == captions
    assert [row["candidate"] for row in written["escaped.csv"]] == [*(f"'{text}" for text in captions[:4]), captions[4]]
    assert [row["value"] for row in written["escaped.csv"]] == [row["value"] for row in written["plain.csv"]]
    refused = capbench(*OWN, "own.jsonl", "--out", "a.jsonl", "--escape-formulas")
    assert (refused.code, refused.failure.code) == (2, "missing-option")
