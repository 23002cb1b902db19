"""The cache of scores on the command line: what comes from it is said, and what is damaged is computed again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

METRICS = ("--metric", "bleu", "--metric", "cider")


def _flip(cache: Path) -> int:
    """Flip a bit of every stored score; the number of scores."""
    connection = sqlite3.connect(cache / "scores.sqlite", isolation_level=None)
    connection.create_function("flip", 1, lambda blob: bytes([blob[0] ^ 16]) + blob[1:])
    n_entries = connection.execute("UPDATE entries SET value = flip(value)").rowcount
    connection.close()
    return n_entries


def test_scores_whose_checksum_is_wrong_are_computed_again(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    fresh = capbench("score", *METRICS, "--json")
    assert fresh.code == 0, fresh.err
    assert capbench("score", *METRICS, "--json").out == fresh.out
    assert _flip(tmp_path / "cache") == 2 * 300
    ran = capbench("score", *METRICS, "--json")
    assert (ran.code, ran.out) == (0, fresh.out)
    assert "from the cache" not in ran.err
    again = capbench("score", *METRICS, "--json")
    assert again.out == fresh.out
    assert "600 scores came from the cache" in again.err.splitlines()


@pytest.mark.parametrize(
    "command",
    [
        "correlate -d flickr8k-expert -m bleu-4",
        "compare bleu-4 rouge-l -d flickr8k-expert",
        "rank bleu-4 rouge-l",
        "figure forest bleu-4 rouge-l --out forest.svg",
        "train combination -m bleu-4 -m rouge-l -d flickr8k-expert",
    ],
)
def test_every_command_says_that_scores_came_from_the_cache(
    command: str, capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    capbench(*command.split())
    again = capbench(*command.split())
    assert again.code == 0, again.err
    assert sum(line.endswith(" scores came from the cache") for line in again.err.splitlines()) == 1
    assert "from the cache" not in capbench(*command.split(), "--no-cache").err


def test_without_the_cache_nothing_of_it_is_read_or_written(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    fresh = capbench("score", *METRICS, "--json")
    _flip(tmp_path / "cache")
    content = (tmp_path / "cache" / "scores.sqlite").read_bytes()
    ran = capbench("score", *METRICS, "--json", "--no-cache")
    assert ran.out == fresh.out
    assert (tmp_path / "cache" / "scores.sqlite").read_bytes() == content
