"""The results page about ViLBERTScore on Flickr8k against the numbers behind it."""

from __future__ import annotations

import pytest

from capbench.core.files import read_json, read_text
from scripts.flickr8k_grid_tables import spread
from scripts.result_tables import ROOT

PAGE = ROOT / "docs" / "results" / "vilbert-flickr8k.md"
FOLDER = ROOT / "results" / "vilbert-flickr8k"


SEEN, BLANK = "vilbertscore-f-2", "vilbertscore-f-2, blank"


@pytest.mark.parametrize(
    ("which", "pairs"),
    [
        (
            "long",
            {
                ("expert", BLANK, SEEN): ".0482 [.0388, .0577]",
                ("expert", SEEN, "METEOR"): ".0328 [.0169, .0486]",
                ("composite-8k", SEEN, BLANK): ".0571 [.0483, .0660]",
            },
        ),
        (
            "ranked",
            {
                ("expert", BLANK, SEEN): ".0130 [.0058, .0195]",
                ("expert", SEEN, "SPICE"): ".0254 [.0117, .0400]",
                ("composite-8k", BLANK, SEEN): ".0240 [.0188, .0295]",
            },
        ),
    ],
)
def test_the_numbers_of_other_trainings_are_those_that_are_kept(
    which: str, pairs: dict[tuple[str, str, str], str]
) -> None:
    page = read_text(PAGE)
    other, short = (read_json(FOLDER / f"results{name}.json") for name in (f"-{which}", ""))
    assert other["seeds"] == short["seeds"] == [1, 2, 3]
    columns = [column for column in short["expert"]["agreement"] if column.startswith("vilbertscore")]
    assert len(columns) == 24
    for column in columns:
        cells = [
            spread(results[name]["agreement"][column]["tau-c"])
            for name in ("expert", "composite-8k")
            for results in (other, short)
        ]
        assert f"| {' | '.join([column, *cells])} |" in page
    for (name, better, worse), shown in pairs.items():
        compared = other[name]["comparison"]["pairs"]
        (pair,) = (pair for pair in compared if (pair["better"], pair["worse"]) == (better, worse))
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
