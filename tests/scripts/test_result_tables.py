"""The results pages against the numbers behind them, and the command that writes their tables."""

from __future__ import annotations

import pytest

from capbench.core.files import read_json, read_text
from scripts.result_tables import PAGES, ROOT, Page, table, with_numbers, with_tables, written

RESULTS = ROOT / "results"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_of_a_page_holds_the_results_that_are_kept(page: Page) -> None:
    assert written(page) == read_text(page.path)


def test_a_number_that_differs_is_replaced_and_all_else_stays() -> None:
    (page,) = (page for page in PAGES if page.name == "flickr8k-grid.md")
    text = read_text(page.path)
    changed = text.replace("| SPICE | 0.4489 | 0.5958 |", "| SPICE | 0.4498 | 0.5958 |", 1)
    assert changed != text
    ((file, (tables, _)),) = page.results.items()
    assert with_numbers(changed, tables(read_json(RESULTS / file)))[0] == text


def test_a_table_without_a_place_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("dual-encoder-flickr8k.md", {"dual-encoder-flickr8k/results.json": (lambda _: "| a |\n|---|\n", 1)})
    with pytest.raises(ValueError, match="0 of 1 tables"):
        written(page)


def test_a_page_without_the_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="All numbers"):
        with_tables("text", "table")


def test_a_table_is_markdown() -> None:
    assert table({"a": ["1", "2"]}, ("", "x", "y")) == "|  | x | y |\n|---|---|---|\n| a | 1 | 2 |"


@pytest.mark.parametrize("name", ["expert", "composite-8k"])
def test_the_correction_counts_every_column_of_reo(name: str) -> None:
    comparison = read_json(RESULTS / "flickr8k-grid/results.json")[name]["comparison"]
    rows = {metric for pair in comparison["pairs"] for metric in (pair["better"], pair["worse"])}
    assert sum(row.startswith("reo-") for row in rows) == 12
    assert len(comparison["pairs"]) == len(rows) * (len(rows) - 1) // 2 == 253
