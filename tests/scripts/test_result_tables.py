"""The results pages against the numbers behind them, and the command that writes their tables."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from capbench.core.files import read_json, read_text
from scripts.result_tables import PAGES, ROOT, with_numbers, written

RESULTS = ROOT / "results"


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_a_page_has_the_stored_results(page: str) -> None:
    assert written(page) == read_text(ROOT / "docs" / page)


def test_a_number_that_differs_is_replaced_and_all_else_stays() -> None:
    page = "results/flickr8k-grid.md"
    text = read_text(ROOT / "docs" / page)
    changed = text.replace("| SPICE | 0.4489 ", "| SPICE | 0.4498 ", 1)
    assert changed != text
    assert with_numbers(changed, PAGES[page]())[0] == text


def test_the_bounds_that_the_choice_of_a_metric_names_are_those_of_the_results() -> None:
    page, results = read_text(ROOT / "docs" / "which-metric.md"), read_json(RESULTS / "within-source/results.json")
    within, systems = (
        [cell["value"] for cell in results["cells"] if (cell["protocol"], cell["group"]) == (protocol, "")]
        for protocol in ("composite/no-human/correctness-within-image-tau-c", "thumb/no-human/total-system-pearson")
    )
    assert len(within) == len(systems) == 5
    assert f"at most {np.ceil(100 * max(within)) / 100:.2f}".replace("0.", ".") in page
    assert f"r ≥ {np.floor(100 * min(systems)) / 100:.2f}".replace("0.", ".") in page


def test_every_committed_folder_is_in_the_list() -> None:
    listed = set(re.findall(r"`([^`]+\.json)`", read_text(RESULTS / "README.md")))
    folders = re.findall(r"\*\*`([a-z0-9-]+)/`\*\*", read_text(RESULTS / "README.md"))
    committed = re.findall(r"^!results/([a-z0-9-]+)/\*?\.?(?:json)?$", read_text(ROOT / ".gitignore"), re.MULTILINE)
    assert {*folders, *(Path(name).parts[0] for name in listed if "/" in name)} == set(committed)
