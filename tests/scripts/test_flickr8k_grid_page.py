"""The results page about Flickr8k's grid features against the numbers behind it."""

from __future__ import annotations

import pytest

from capbench.core.files import read_json, read_text
from scripts.flickr8k_grid_page import PAGE, RESULTS, with_numbers
from scripts.flickr8k_grid_tables import tables


def test_every_table_of_the_page_holds_the_results_that_are_kept() -> None:
    page = read_text(PAGE)
    written, replaced = with_numbers(page, tables(read_json(RESULTS)))
    assert written == page
    assert replaced == 14


def test_a_number_that_differs_is_replaced_and_all_else_stays() -> None:
    page = read_text(PAGE)
    changed = page.replace("| SPICE | 0.4489 | 0.5958 |", "| SPICE | 0.4498 | 0.5958 |", 1)
    assert changed != page
    assert with_numbers(changed, tables(read_json(RESULTS)))[0] == page


@pytest.mark.parametrize("name", ["expert", "composite-8k"])
def test_the_correction_counts_every_column_of_reo(name: str) -> None:
    comparison = read_json(RESULTS)[name]["comparison"]
    rows = {metric for pair in comparison["pairs"] for metric in (pair["better"], pair["worse"])}
    assert sum(row.startswith("reo-") for row in rows) == 12
    assert len(comparison["pairs"]) == len(rows) * (len(rows) - 1) // 2 == 253
