"""Own captions in ``capbench score``: repeated captions, images without candidates, limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran

OWN = ("score", "-m", "bleu-1", "--references", "references.json", "--candidates")


@pytest.fixture(autouse=True)
def folder(elsewhere: None) -> None:
    words = zip("abcde", ["big", "red", "old", "wet", "new"], strict=True)
    captions = {name: [f"a {word} dog runs over the grass"] for name, word in words}
    Path("references.json").write_text(json.dumps(captions), encoding="utf-8")
    write({"image": name, "caption": captions[name][0]} for name in "ab")


def write(rows: Any) -> None:
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_all(*more: dict[str, str]) -> None:
    """One caption for each image of the references, and further ones."""
    references = json.loads(Path("references.json").read_text(encoding="utf-8"))
    write([*({"image": image, "caption": texts[0]} for image, texts in references.items()), *more])


@pytest.mark.parametrize(
    ("second", "code"),
    [({}, 2), ({"caption": "a big dog runs over the grass"}, 2), ({"id": "a-second"}, 2), ({"system": "other"}, 0)],
)
def test_a_repeated_image_among_images_with_one_caption_is_an_error(
    second: dict[str, str], code: int, capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    write_all()
    expected = found(*OWN, "own.jsonl", "-m", "cider")["scores"]
    write_all({"image": "a", "caption": "a cat"} | second)
    ran = capbench(*OWN, "own.jsonl")
    assert ran.code == code, ran.err
    if code:
        assert (ran.failure.code, ran.failure.value, ran.failure.path) == ("duplicate", "a", "own.jsonl")
    kept = capbench(*OWN, "own.jsonl", "-m", "cider", "--keep-first", "--json")
    assert (json.loads(kept.out)["scores"] == expected, "1 further caption" in kept.err) == (code == 2, code == 2)


def test_the_verdict_on_limits_is_in_the_json(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    assert "3 of 5 images of references.json have no caption: c, d, e" in capbench(*OWN, "own.jsonl").err
    flags = ("--fail-under", "bleu-1=0.99", "--fail-under", "rouge-l=1.5")
    document = found(*OWN, "own.jsonl", "-m", "rouge-l", "-m", "bleu-2", *flags, code=3)
    assert document["missing_captions"] == 3
    corpus = {row["column"]: row["corpus"] for row in document["scores"]}
    assert document["fail_under"] == {
        "bleu-1": {"bar": 0.99, "value": corpus["bleu-1"], "passed": True},
        "rouge-l": {"bar": 1.5, "value": corpus["rouge-l"], "passed": False},
    }
    assert "fail_under" not in found(*OWN, "own.jsonl")


# Nothing is below its limit, but one has no score; below the limit, whatever else is missing.
@pytest.mark.parametrize(("limits", "code"), [({"mine": 0.1}, 1), ({"bleu-1": 1.5, "mine": 0.1}, 3)])
def test_a_score_below_its_limit_outranks_a_missing_one(
    limits: dict[str, float], code: int, found: Callable[..., Any]
) -> None:
    Path("mine.csv").write_text("image,candidate,mine\na,a big dog runs over the grass,0.5\n", encoding="utf-8")
    flags = [part for name, bar in limits.items() for part in ("--fail-under", f"{name}={bar}")]
    document = found(*OWN, "own.jsonl", "--scores", "mine.csv", *flags, code=code)
    assert list(document["incomplete"]) == ["mine"]
    (row,) = document["scores"]
    values = {"bleu-1": row["corpus"], "mine": None}
    assert document["fail_under"] == {
        name: {"bar": bar, "value": values[name], "passed": False} for name, bar in limits.items()
    }
