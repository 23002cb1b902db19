"""Cards of score files: what they must contain, and checksums of the files next to them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.studies.cards import load_card, read_cards, score_entries, write_sums
from tests.errors import raises

CARD = """schema: 1
name: net
title: A network
kind: network
training_data: Flickr8k
uses_ratings: false
reads_references: false
columns:
  net: {seeds: [1], networks: [abcd]}
  net-mean: {seeds: [1], image: mean, twin_of: net, shown: false}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.yaml").write_text(CARD, "utf-8")
    (tmp_path / "net.csv.gz").write_bytes(gzip.compress(b"id,net,net-mean\na,1,2\n"))
    write_sums(tmp_path)
    return tmp_path


def test_cards_become_score_files(folder: Path) -> None:
    cards = read_cards(folder)
    assert [(path.name, card.name) for path, card in cards.items()] == [("net.csv.gz", "net")]
    shown = score_entries(cards)
    assert [(entry.label, entry.title, entry.options) for entry in shown] == [
        ("net", "A network", {"columns": "net", "references": "ignored"})
    ]
    assert [entry.label for entry in score_entries(cards, shown=False)] == ["net", "net-mean"]


def test_a_column_may_read_no_references_where_the_card_does_and_so_do_its_twins(folder: Path) -> None:
    text = CARD.replace("reads_references: false", "reads_references: true")
    (folder / "net.yaml").write_text(
        f"{text.replace('net: {', 'net: {reads_references: false, ', 1)}  other: {{}}\n", "utf-8"
    )
    write_sums(folder)
    found = {
        entry.label: (entry.reads_references, entry.options["references"])
        for entry in score_entries(read_cards(folder), shown=False)
    }
    assert found == {"net": (False, "ignored"), "net-mean": (False, "ignored"), "other": (True, "checked")}


@pytest.mark.parametrize("name", ["net.yaml", "net.csv.gz"])
def test_a_changed_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    with pytest.raises(DataError) as raised:
        read_cards(folder)
    assert (raised.value.code, Path(str(raised.value.path)).name) == ("damaged", name)


@pytest.mark.parametrize("change", ["missing", "added"])
def test_files_and_checksums_must_be_the_same(folder: Path, change: str) -> None:
    if change == "missing":
        (folder / "net.csv.gz").unlink()
    else:
        (folder / "other.yaml").write_text(CARD, "utf-8")
    with pytest.raises(DataError) as raised:
        read_cards(folder)
    assert raised.value.code == "mismatch"


def test_a_wrong_card_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(CARD.replace("twin_of: net,", "twin_of: other,", 1), "utf-8")
    with raises(DataError, "invalid"):
        load_card(path)
