"""The results page about ViLBERTScore on Flickr8k against the numbers behind it."""

from __future__ import annotations

import statistics

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


def test_the_longer_trainings_numbers_are_those_that_are_kept() -> None:
    page = read_text(PAGE)
    longer, short = (read_json(FOLDER / f"results{which}.json") for which in ("-long", ""))
    assert longer["seeds"] == [1]
    columns = [column for column in longer["expert"]["agreement"] if column.startswith("vilbertscore")]
    assert len(columns) == 12
    for column in columns:
        cells = []
        for name in ("expert", "composite-8k"):
            (value,) = longer[name]["agreement"][column]["tau-c"]
            cells += [f"{value:.4f}", f"{statistics.mean(short[name]['agreement'][column]['tau-c']):.4f}"]
        assert f"| {' | '.join([column, *cells])} |" in page
    for name, shown in (("expert", ".0101 [-.0004, .0197]"), ("composite-8k", ".0713 [.0605, .0820]")):
        (pair,) = (
            pair
            for pair in longer[name]["comparison"]["pairs"]
            if {pair["better"], pair["worse"]} == {"vilbertscore-f-2", "vilbertscore-f-2, blank"}
        )
        assert shown == "{difference:.4f} [{low:.4f}, {high:.4f}]".format(**pair).replace("0.", ".")
        assert shown in page


def test_the_diagnosis_is_the_one_that_is_kept() -> None:
    page, kept = read_text(PAGE), read_json(FOLDER / "diagnosis-long.json")
    for name, value in kept["tau-c"].items():
        assert f"| {name} | {value:.4f} |" in page
    for name, value in kept["tau-c of sums"].items():
        if name.startswith("F, layer 2") and " 0.4 " in name:
            assert f"| {name} | {value:.4f} |" in page


def test_bfloat16_is_as_far_off_as_was_measured() -> None:
    page = read_text(ROOT / "docs" / "vilbertscore.md")
    for column, row in read_json(FOLDER / "bfloat16.json")["columns"].items():
        assert f"| {column} | {row['greatest']:.4f} | {row['mean']:.5f} |" in page


def test_every_look_on_dev_stands_on_the_page() -> None:
    page = read_text(PAGE)
    for run in read_json(FOLDER / "dev.json")["runs"]:
        assert f"| {run['order']}, {run['run']} | {run['what']} |" in page
