"""``capbench figure report``, and ``--report`` of other commands, as a user types them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import Ran
from tests.reports.page.test_page import data_of

QUICK = ("correlate", "-d", "composite", "-m", "bleu-1", "-m", "bleu-4")


def page(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def test_a_run_writes_its_page_with_captions_and_pictures(found: Callable[..., Any]) -> None:
    result = found(*QUICK, "--report", "page.html")
    data = data_of(page("page.html"))
    assert all(re.search(rf">{100 * cell['value']:.1f}[†‡]*<", page("page.html")) for cell in result["cells"])
    (panel,) = data["panels"]
    assert panel["all"] == len(panel["caption"]) == 210
    assert set(data["pictures"]) <= set(panel["images"])
    assert data["pictures"]
    assert "these numbers say nothing about metrics" in page("page.html")


def test_results_with_their_items_give_the_page_of_the_run_itself(capbench: Callable[..., Ran]) -> None:
    assert capbench(*QUICK, "--report", "run.html", "--out", "out", "--items").code == 0
    assert capbench("figure", "report", "out", "--out", "again.html").code == 0
    assert data_of(page("run.html")) == data_of(page("again.html"))
    # Without --items, those of the earlier run would belong to other numbers.
    Path("composite.json.gz").write_bytes(Path("out/items.json.gz").read_bytes())
    assert capbench(*QUICK[:-2], "--out", "out").code == 0
    assert not Path("out/items.json.gz").exists()
    assert capbench("figure", "report", "out", "out/results.json", "--out", "bare.html", "--title", "A & b").code == 0
    assert data_of(page("bare.html"))["panels"] == []
    assert "--out out --items" in page("bare.html")
    assert "<title>A &amp; b</title>" in page("bare.html")
    # Items of another study are refused.
    assert capbench("correlate", "-d", "flickr8k-expert", "-m", "bleu-1", "--out", "b").code == 0
    Path("composite.json.gz").rename("b/items.json.gz")
    assert "has items of composite/" in capbench("figure", "report", "b", "--out", "page.html").failure.message
