"""``capbench figure``, reports, curves and ``explore examples`` on the embedded sample."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.cli.options import parse_size
from capbench.core.errors import UsageError
from capbench.studies.study import CurveSettings
from tests.conftest import Ran
from tests.errors import raises
from tests.reports.page.test_page import data_of

Run = Callable[..., Ran]


def test_references_prints_writes_and_its_json_is_drawn_again(capbench: Run) -> None:
    curves = ("correlate", "--references-curve", "-d", "pascal-50s", "-m", "bleu-1,cider", "--draws", "2")
    ran = capbench(*curves, "--counts", "1-2,50", "--out", "curves")
    assert ran.code == 0, ran.err
    assert "of 2 random orders of the references, seed 0" in ran.out
    assert "PASCAL-50S, accuracy, MM" in capbench(*curves, "--counts", "1", "--by-source").out
    rows = list(csv.DictReader(Path("curves/curves.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 3 * 5  # columns, counts, all and four groups
    assert {row["at"] for row in rows} == {"1", "2", "50"}
    assert all(len(row["values"].split()) == (1 if row["at"] == "50" else 2) for row in rows)
    assert capbench("figure", "curves", "curves/results.json", "--group", "MM", "-o", "group.png").code == 0
    assert capbench("figure", "curves", "curves/results.json", "-o", "again.svg").code == 0
    assert Path("again.svg").read_bytes() == Path("curves/curves.svg").read_bytes()
    assert capbench("correlate", "-d", "pascal-50s", "-m", "bleu-1", "--out", "curves").code == 0
    assert not any(Path("curves").glob("curves.*"))  # those of the earlier run


def test_counts_and_sizes_are_parsed() -> None:
    assert CurveSettings.read("curves", {"counts": "1,2,5-8, 3"}).counts == (1, 2, 3, 5, 6, 7, 8)
    for text in ("", "a", "1,", "5-2", "-3", "1-", "1.5", "1-999999999"):
        with raises(UsageError, "wrong-value", value=text):
            CurveSettings.read("curves", {"counts": text})
    assert parse_size("6x4.5") == (6.0, 4.5)


def test_forest_and_significance_from_metrics_and_from_saved_json(capbench: Run) -> None:
    metrics = ("bleu-4", "rouge-l", "cider", "--bootstrap", "200")
    Path("compare.json").write_text(capbench("compare", *metrics, "--json").out, encoding="utf-8")
    for kind in ("forest", "significance"):
        assert capbench("figure", kind, *metrics, "-o", "direct.svg").code == 0
        assert Path("direct.svg").read_bytes().startswith(b"<?xml")
        assert capbench("figure", kind, "--from", "compare.json", "-o", "again.png").code == 0
        assert Path("again.png").read_bytes().startswith(b"\x89PNG")


def test_score_groups_prints_shares_that_add_up(capbench: Run, found: Callable[..., Any]) -> None:
    answer = found("figure", "score-groups", "cider", "rouge-l")
    assert answer["differences"] == [-3, -2, -1, 0, 1, 2, 3]
    for shares in (*answer["shares"].values(), answer["chance"]):
        assert sum(shares) == pytest.approx(1)
    assert answer["shares"]["CIDEr"][3] > answer["chance"][3]
    assert "mean distance" in capbench("figure", "score-groups", "cider").out


def test_examples_in_every_form(capbench: Run, found: Callable[..., Any]) -> None:
    arguments = ("explore", "examples", "-m", "rouge-l", "--number", "1")
    ran = capbench(*arguments)
    for part in ("ROUGE-L higher than human ratings", "human ratings higher than ROUGE-L", "equal:", "by their median"):
        assert part in ran.out
    answer = found(*arguments)
    assert [e["kind"] for e in answer["examples"]] == ["metric-higher", "human-higher", "equal"]
    assert answer["n"] == sum(answer["counts"].values()) == 300
    image = answer["examples"][0]["image"]
    for ending in ("md", "json"):
        assert capbench(*arguments, "--out", f"examples.{ending}").code == 0
        text = Path(f"examples.{ending}").read_text(encoding="utf-8")
        assert image.replace("_", "\\_" if ending == "md" else "_") in text
    assert json.loads(text) == answer


def test_a_figures_type_size_and_caption_are_options(capbench: Run) -> None:
    from matplotlib.image import imread

    ran = capbench("figure", "ratings", "cider", "--size", "4x3.2", "--font-size", "6", "--title", "CIDEr by rating")
    assert ran.code == 0, ran.err
    assert imread("ratings.png").shape[:2] == (512, 640)
    call = ("figure", "forest", "bleu-4", "rouge-l", "--bootstrap", "100", "--out")
    assert capbench(*call, "with.svg").code == 0
    assert not Path("with.txt").exists()
    assert capbench(*call, "without.svg", "--no-caption", "--title", "Two metrics").code == 0
    text = Path("without.txt").read_text(encoding="utf-8")
    assert text.startswith("Two metrics. Flickr8k Expert, Kendall's τ-c. embedded synthetic sample")
    for fact in ("no-own-captions/unaggregated-tau-c", "100 resamples", "permutation test", "α = 0.05"):
        assert fact in text


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
