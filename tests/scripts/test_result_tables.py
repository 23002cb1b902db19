"""The results pages against the numbers behind them, and the command that writes their tables."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from capbench.core.files import read_json, read_text
from scripts.result_tables import PAGES, ROOT, Page, table, with_numbers, written

RESULTS = ROOT / "results"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_of_a_page_has_the_stored_results(page: Page) -> None:
    assert written(page) == read_text(page.path)


def test_a_number_that_differs_is_replaced_and_all_else_stays() -> None:
    (page,) = (page for page in PAGES if page.name == "flickr8k-grid.md")
    text = read_text(page.path)
    changed = text.replace("| SPICE | 0.4489 ", "| SPICE | 0.4498 ", 1)
    assert changed != text
    assert with_numbers(changed, page.tables())[0] == text


def test_a_table_without_a_place_is_reported() -> None:
    page = Page("dual-encoder-flickr8k.md", lambda: ["| a |\n|---|\n"])
    with pytest.raises(ValueError, match="0 of 1 tables"):
        written(page)


def test_a_table_is_markdown() -> None:
    assert table({"a": ["1", "2"]}, ("", "x", "y")) == "|  | x | y |\n|---|---|---|\n| a | 1 | 2 |"


@pytest.mark.parametrize("name", ["expert", "composite-8k"])
def test_the_correction_counts_every_column_of_reo(name: str) -> None:
    comparison = read_json(RESULTS / "flickr8k-grid/results.json")[name]["comparison"]
    rows = {metric for pair in comparison["pairs"] for metric in (pair["better"], pair["worse"])}
    assert sum(row.startswith("reo-") for row in rows) == 12
    assert len(comparison["pairs"]) == len(rows) * (len(rows) - 1) // 2 == 253


COMPOSITE, PASCAL = "composite/{}/correctness-{}tau-c", "pascal-50s/json-5-refs/direct-strict"
WITHIN_SOURCE = [
    (COMPOSITE.format("same-text-out", ""), "", "cider", "meteor", False),
    (COMPOSITE.format("no-human", ""), "", "cider", "meteor", True),
    (COMPOSITE.format("same-text-out", "within-source-"), "", "cider", "meteor", True),
    (COMPOSITE.format("same-text-out", "within-image-"), "", "meteor", "cider", True),
    (COMPOSITE.format("no-human", "within-image-"), "", "cider", "meteor", True),
    (COMPOSITE.format("same-text-out", ""), "", "rouge-l", "bleu-4", True),
    (COMPOSITE.format("no-human", "within-image-"), "", "bleu-4", "rouge-l", True),
    ("thumb/all-systems/total-within-source-pearson", "", "cider", "meteor", True),
    (PASCAL, "HM", "bleu-1", "bleu-4", True),
    (PASCAL, "MM", "bleu-4", "bleu-1", True),
    (PASCAL, "HM", "meteor", "cider", True),
]


@pytest.mark.parametrize(("protocol", "group", "better", "worse", "significant"), WITHIN_SOURCE)
def test_differences_with_and_without_human_captions_are_as_significant_as_the_page_says(
    protocol: str, group: str, better: str, worse: str, significant: bool
) -> None:
    results = read_json(RESULTS / "within-source/results.json")
    (tests,) = (one for one in results["comparisons"] if (one["protocol"], one["group"]) == (protocol, group))
    names = {name: name.removeprefix("bleu.") for name in results["columns"]}
    (pair,) = (one for one in tests["pairs"] if (names[one["better"]], names[one["worse"]]) == (better, worse))
    assert pair["significant"] == significant


def test_the_bounds_that_the_choice_of_a_metric_names_are_those_of_the_results() -> None:
    page, results = read_text(ROOT / "docs" / "which-metric.md"), read_json(RESULTS / "within-source/results.json")
    within, systems = (
        [cell["value"] for cell in results["cells"] if (cell["protocol"], cell["group"]) == (protocol, "")]
        for protocol in (COMPOSITE.format("no-human", "within-image-"), "thumb/no-human/total-system-pearson")
    )
    assert len(within) == len(systems) == 5
    assert f"at most {np.ceil(100 * max(within)) / 100:.2f}".replace("0.", ".") in page
    assert f"r ≥ {np.floor(100 * min(systems)) / 100:.2f}".replace("0.", ".") in page


def test_every_committed_folder_is_in_the_list() -> None:
    listed = set(re.findall(r"`([^`]+\.json)`", read_text(RESULTS / "README.md")))
    folders = re.findall(r"\*\*`([a-z0-9-]+)/`\*\*", read_text(RESULTS / "README.md"))
    committed = re.findall(r"^!results/([a-z0-9-]+)/\*?\.?(?:json)?$", read_text(ROOT / ".gitignore"), re.MULTILINE)
    assert {*folders, *(Path(name).parts[0] for name in listed if "/" in name)} == set(committed)
