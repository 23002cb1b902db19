"""Fixtures of the tests of commands: each runs in an empty folder, and reads the JSON that a command prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def found(capbench: Callable[..., Ran]) -> Callable[..., Any]:
    """What a command prints with ``--json``; ``code`` is the exit code that it must have."""

    def call(*arguments: str | Path, code: int = 0) -> Any:
        ran = capbench(*arguments, "--json")
        assert ran.code == code, ran.err
        return json.loads(ran.out)

    return call


@pytest.fixture(scope="session")
def score_lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    from capbench.cli.app import app

    folder = tmp_path_factory.mktemp("items")
    app(["data", "items", "flickr8k-expert", "--data", "sample", "--out", str(folder)], standalone_mode=False)
    rows = map(json.loads, (folder / "predictions.jsonl").read_text("utf-8").splitlines())
    return [f"{row['id']},{len(row['caption']) % 7},{len(row['caption'].split())}" for row in rows]


@pytest.fixture
def scores(score_lines: list[str], tmp_path: Path) -> Path:
    """Scores of all captions of the sample's Flickr8k Expert by id: the number of words, and another column."""
    (tmp_path / "scores.csv").write_text("\n".join(["id,overlap,words", *score_lines]) + "\n", "utf-8")
    return tmp_path / "scores.csv"


@pytest.fixture
def part(scores: Path) -> Path:
    """The same file with scores of four captions alone in the column "overlap"."""
    head, *lines = scores.read_text("utf-8").splitlines()
    rows = [line.split(",") for line in lines]
    kept = [",".join(row if place < 4 else [row[0], "", row[2]]) for place, row in enumerate(rows)]
    scores.with_name("part.csv").write_text("\n".join([head, *kept]) + "\n", "utf-8")
    return scores.with_name("part.csv")
