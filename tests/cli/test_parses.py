"""``capbench data parses`` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS


def test_parses_go_from_one_cache_to_another(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, number = tmp_path / "parses.gz", len(CAPTIONS)
    with parsed(CAPTIONS):
        ran = capbench("data", "parses", "export", path)
        assert (ran.code, ran.out) == (0, f"{number} parses in {path}\n")
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "other"))
    ran = capbench("data", "parses", "import", path)
    assert (ran.code, ran.out) == (0, f"{number} parses in {path}, {number} of them new\n")
    ran = capbench("data", "parses", "import", path, "--json")
    assert json.loads(ran.out) == {"file": str(path), "parses": number, "new": 0}
    ran = capbench("data", "parses", "export", path, "--json", "--replace")
    assert json.loads(ran.out) == {"file": str(path), "parses": number}


def test_what_is_wrong_is_one_line(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("data", "parses", "export", tmp_path / "parses.gz")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "there is nothing to export" in ran.err
    (tmp_path / "bad.gz").write_bytes(b"rubbish")
    ran = capbench("data", "parses", "import", tmp_path / "bad.gz")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert (ran.failure.code, ran.failure.path) == ("damaged", str(tmp_path / "bad.gz"))


def test_captions_are_parsed_beforehand_and_once(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    captions, texts = tmp_path / "captions.json", sorted(CAPTIONS)[:2]
    captions.write_text(json.dumps({"a.jpg": texts, "b.jpg": texts[:1]}), encoding="utf-8")
    with parsed({text: CAPTIONS[text] for text in texts}):
        ran = capbench("data", "parses", "make", "--captions", captions, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out) == {"captions": 3, "distinct": 2, "parsed": 0}
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"a.jpg": ["a caption that nobody parsed"]}), encoding="utf-8")
    ran = capbench("data", "parses", "make", "-c", other)
    assert ran.code == 2
    assert "SPICE's parser is not set up" in ran.err


def test_parsing_says_first_how_long_it_takes(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capbench.text.spice import parser

    asked: list[str] = []

    def answer(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return ["[]" for _ in texts]

    monkeypatch.setattr(parser, "parse_tuples", answer)
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps({"a.jpg": ["new one here", "new two here"]}), encoding="utf-8")
    ran = capbench("data", "parses", "make", "-c", captions)
    assert "2 captions to parse, about 1 minute" in ran.err
    assert ran.out.endswith("2 captions, 2 distinct: 2 parsed now, 0 before\n")
    assert capbench("data", "parses", "make", "-c", captions).out.endswith("0 parsed now, 2 before\n")
    assert asked == ["new one here", "new two here"]
