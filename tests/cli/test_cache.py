"""What a user sees when the cache folder is damaged: the numbers of a fresh run, and one line that says why."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capbench.text.java import Jar
from capbench.text.meteor import paraphrases
from tests.conftest import Ran

METRICS = ("--metric", "bleu", "--metric", "cider")


def _flip(cache: Path, column: str) -> int:
    """Flip a bit in a column of every stored score; the number of scores."""
    connection = sqlite3.connect(cache / "scores.sqlite", isolation_level=None)
    connection.create_function("flip", 1, lambda blob: bytes([blob[0] ^ 16]) + blob[1:])
    changed = "checksum + 1" if column == "checksum" else f"flip({column})"
    n_entries = connection.execute(f"UPDATE entries SET {column} = {changed}").rowcount
    connection.close()
    return n_entries


def _warnings(ran: Ran) -> list[str]:
    return [line for line in ran.err.splitlines() if line.startswith("warning:")]


@pytest.mark.parametrize("column", ["space", "key", "value", "checksum"])
def test_flipped_bits_in_the_cache_cost_a_warning_and_no_number(
    column: str, capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    fresh = capbench("score", *METRICS, "--json")
    assert fresh.code == 0, fresh.err
    assert capbench("score", *METRICS, "--json").out == fresh.out
    n_entries = _flip(tmp_path / "cache", column)
    assert n_entries == 2 * 300
    ran = capbench("score", *METRICS, "--json")
    assert (ran.code, ran.out) == (0, fresh.out)
    (warning,) = _warnings(ran)
    assert warning.startswith("warning: 600 of 600 entries of the cache ")
    assert warning.endswith("scores.sqlite have a wrong checksum; they are computed again")
    again = capbench("score", *METRICS, "--json")
    assert (again.out, _warnings(again)) == (fresh.out, [])
    assert "600 scores came from the cache" in again.err.splitlines()


@pytest.mark.parametrize(
    "command",
    [
        "score -d flickr8k-expert -m bleu-4",
        "correlate -d flickr8k-expert -m bleu-4",
        "compare bleu-4 rouge-l -d flickr8k-expert",
        "rank bleu-4 rouge-l",
        "leaderboard bleu-4 -d flickr8k-expert",
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
    _flip(tmp_path / "cache", "value")
    content = (tmp_path / "cache" / "scores.sqlite").read_bytes()
    ran = capbench("score", *METRICS, "--json", "--no-cache")
    assert (ran.out, _warnings(ran)) == (fresh.out, [])
    assert (tmp_path / "cache" / "scores.sqlite").read_bytes() == content


@pytest.fixture
def small_paraphrase_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """METEOR with a paraphrase file of its own, and an empty folder for the table."""
    for read in (paraphrases.function_words, paraphrases.nonbreaking_prefixes, paraphrases.synonyms):
        read()  # from the real jar
    (tmp_path / "cache" / "meteor").unlink()
    (tmp_path / "package" / "data").mkdir(parents=True)
    with gzip.open(tmp_path / "package" / "data" / "paraphrase-en.gz", "wt") as stream:
        for word in ("dog", "man", "woman", "boy", "girl", "ball", "in the", "a"):
            stream.write(f"0.5\n{word}\nthe {word}\n0.5\nthe {word}\n{word}\n")
    monkeypatch.setattr(paraphrases, "meteor_jar", lambda: Jar(tmp_path / "package" / "meteor-1.5.jar", "1.5"))
    paraphrases.paraphrase_table.cache_clear()
    yield tmp_path / "cache" / "meteor"
    paraphrases.paraphrase_table.cache_clear()


@pytest.mark.parametrize("flag", ["--no-cache", "--json"])
def test_zeroed_bytes_in_meteors_table_cost_a_warning_and_no_number(
    flag: str, capbench: Callable[..., Ran], small_paraphrase_table: Path, tmp_path: Path
) -> None:
    fresh = capbench("score", "--metric", "meteor", "--json", flag)
    assert fresh.code == 0, fresh.err
    (table,) = small_paraphrase_table.glob("*.table")
    content = table.read_bytes()
    table.write_bytes(content[:300] + bytes(200) + content[500:])
    paraphrases.paraphrase_table.cache_clear()
    (tmp_path / "cache" / "scores.sqlite").unlink(missing_ok=True)
    ran = capbench("score", "--metric", "meteor", "--json", flag)
    assert (ran.code, ran.out) == (0, fresh.out)
    (warning,) = _warnings(ran)
    assert warning == f"warning: the table {table} is damaged: it has a wrong checksum; it is built again"
    assert table.read_bytes() == content
