"""The cache of scores on the command line: what comes from it is said, and what is damaged is computed again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

SCORE = ("score", "--metric", "bleu", "--metric", "cider", "--json")


def test_scores_whose_checksum_is_wrong_are_computed_again(capbench: Callable[..., Ran]) -> None:
    fresh = capbench(*SCORE)
    assert capbench(*SCORE).out == fresh.out
    file = Path("cache/scores.sqlite")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.create_function("flip", 1, lambda blob: bytes([blob[0] ^ 16]) + blob[1:])
    assert connection.execute("UPDATE entries SET value = flip(value)").rowcount == 2 * 300
    connection.close()
    content = file.read_bytes()
    assert capbench(*SCORE, "--no-cache").out == fresh.out
    assert file.read_bytes() == content
    ran = capbench(*SCORE)
    assert (ran.code, ran.out, "from the cache" in ran.err) == (0, fresh.out, False)
    again = capbench(*SCORE)
    assert again.out == fresh.out
    assert "600 scores came from the cache" in again.err.splitlines()


@pytest.mark.parametrize(
    "command",
    [
        "correlate -d flickr8k-expert -m bleu-4",
        "compare bleu-4 rouge-l -d flickr8k-expert --permutations 100",
        "rank bleu-4 rouge-l --permutations 100",
        "figure forest bleu-4 rouge-l --bootstrap 100 --out forest.svg",
        "train combination -m bleu-4 -m rouge-l -d flickr8k-expert",
    ],
)
def test_every_command_says_that_scores_came_from_the_cache(command: str, capbench: Callable[..., Ran]) -> None:
    capbench(*command.split())
    again = capbench(*command.split())
    assert again.code == 0, again.err
    assert sum(line.endswith(" scores came from the cache") for line in again.err.splitlines()) == 1
    assert "from the cache" not in capbench(*command.split(), "--no-cache").err
