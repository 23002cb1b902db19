"""The results page about ViLBERTScore on Flickr8k against the numbers behind it."""

from __future__ import annotations

import pytest

from capbench.files import read_json, read_text

pytest.importorskip("torch")

from scripts.flickr8k_grid_page import ROOT, with_numbers
from scripts.reproduce_vilbert_flickr8k import tables

PAGE = ROOT / "docs" / "results" / "vilbert-flickr8k.md"
FOLDER = ROOT / "results" / "vilbert-flickr8k"


def test_the_tables_hold_the_results_that_are_kept() -> None:
    page = read_text(PAGE)
    written, replaced = with_numbers(page, tables(read_json(FOLDER / "results.json")))
    assert written == page
    assert replaced == 7


def test_every_look_on_dev_stands_on_the_page() -> None:
    page = read_text(PAGE)
    for run in read_json(FOLDER / "dev.json")["runs"]:
        assert f"| {run['order']}, {run['run']} | {run['what']} |" in page
