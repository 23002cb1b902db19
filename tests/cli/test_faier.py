"""FAIEr as a user types it: score, references, explain and ensembles, with small random models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.metrics.faier.models import IMAGES, TEXTS, make_files
from tests.metrics.scan.models import Files


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Objects alone, which needs no parser; captions and references in files beside it."""
    monkeypatch.chdir(tmp_path)
    rows = [{"image_id": image, "caption": text} for image in IMAGES for text in TEXTS]
    Path("own.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    Path("references.json").write_text(json.dumps(dict.fromkeys(IMAGES, TEXTS[:3])), encoding="utf-8")
    return make_files(tmp_path, variant="faier-object")


def _given(made: Files) -> list[str]:
    captions = ["--candidates", "own.jsonl", "--references", "references.json"]
    return ["-m", "faier", *captions, "--features", str(made.features)]


def test_captions_are_scored_with_references_and_without(capbench: Callable[..., Ran], made: Files) -> None:
    ran = capbench("score", *_given(made), "--model", made.model, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [row["column"] for row in found["scores"]] == ["faier"]
    assert "|variant:faier-object|" in found["signatures"]["faier"]
    again = capbench("score", *_given(made), "--model", made.model)
    assert "28 scores came from the cache" in again.err.splitlines()
    free = capbench("score", *_given(made), "--model", made.model, "--option", "references=none", "--json")
    assert free.code == 0, free.err
    assert "|refs:none|" in json.loads(free.out)["signatures"]["faier"]
    assert json.loads(free.out)["scores"][0]["mean"] != pytest.approx(found["scores"][0]["mean"], abs=1e-6)


def test_captions_may_lack_references(capbench: Callable[..., Ran], made: Files) -> None:
    alone = ("score", "-m", "faier", "--features", str(made.features), "--model", made.model, "--candidates")
    ran = capbench(*alone, "own.jsonl", "--json")
    assert ran.code == 0, ran.err
    ignoring = capbench("score", *_given(made), "--model", made.model, "--option", "references=none", "--json")
    (row,), (same,) = json.loads(ran.out)["scores"], json.loads(ignoring.out)["scores"]
    assert row["mean"] == pytest.approx(same["mean"], abs=1e-9)
    refused = capbench("score", "-m", "bleu", "-m", "cider", "--candidates", "own.jsonl")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert (refused.failure.code, refused.failure.value) == ("missing-references", "bleu")
    Path("plain.txt").write_text("a dog\n", encoding="utf-8")
    refused = capbench(*alone, "plain.txt")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert (refused.failure.code, refused.failure.path) == ("missing-image", "plain.txt")


def test_a_score_is_explained_as_page_picture_and_json(capbench: Callable[..., Ran], made: Files) -> None:
    flags = ["explore", "explain", "-m", "faier", "-i", "harbour", "-c", TEXTS[0], "-r", TEXTS[1]]
    for name in ("why.html", "why.png"):
        ran = capbench(*flags, "--features", made.features, "--model", made.model, "--out", name)
        assert ran.code == 0, ran.err
        assert Path(name).stat().st_size > 5000
    page = Path("why.html").read_text(encoding="utf-8")
    assert "Best region of each word" in page
    assert "triplet" not in page  # there is no such level
    told = capbench(*flags, "--features", made.features, "--model", made.model, "--json")
    assert "Contribution of each word" in told.out
