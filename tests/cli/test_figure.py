"""``capbench figure``, curves and ``explore examples`` on the embedded sample."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.cli.options import parse_size
from capbench.cli.references import parse_counts
from capbench.core.errors import UsageError
from tests.conftest import Ran

Run = Callable[..., Ran]


def test_references_prints_writes_and_its_json_is_drawn_again(capbench: Run) -> None:
    curves = ("correlate", "--references-curve", "-m", "bleu-1", "-m", "cider", "--counts", "1-2,50", "--draws", "2")
    ran = capbench(*curves, "--group", "MM", "--out", "curves")
    assert ran.code == 0, ran.err
    assert "of 2 random orders of the references, seed 0" in ran.out
    assert "accuracy, MM" in ran.out
    rows = list(csv.DictReader(Path("curves/curves.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 3 * 5  # columns, counts, all and four groups
    assert {row["references"] for row in rows} == {"1", "2", "50"}
    assert all(len(row["values"].split()) == (1 if row["references"] == "50" else 2) for row in rows)
    assert capbench("figure", "curves", "curves/curves.json", "--group", "MM", "-o", "again.svg").code == 0
    assert Path("again.svg").read_bytes() == Path("curves/curves.svg").read_bytes()


def test_counts_and_sizes_are_parsed() -> None:
    assert parse_counts("1,2,5-8, 3") == (1, 2, 3, 5, 6, 7, 8)
    for text in ("", "a", "1,", "5-2", "-3", "1-", "1.5", "1-999999999"):
        with pytest.raises(UsageError, match="--counts"):
            parse_counts(text)
    assert parse_size("6×4 in") == parse_size("6x4") == (6.0, 4.0)
    assert parse_size("25.4x50.8cm") == pytest.approx((10.0, 20.0))
    assert parse_size("254x127mm") == pytest.approx((10.0, 5.0))


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
    for ending in ("md", "html", "json"):
        assert capbench(*arguments, "--out", f"examples.{ending}").code == 0
        text = Path(f"examples.{ending}").read_text(encoding="utf-8")
        assert image.replace("_", "\\_" if ending == "md" else "_") in text
    assert json.loads(text) == answer


def test_a_figures_type_size_and_caption_are_options(capbench: Run) -> None:
    from matplotlib.image import imread

    ran = capbench("figure", "ratings", "cider", "--size", "10x8cm", "--font-size", "6", "--title", "CIDEr by rating")
    assert ran.code == 0, ran.err
    assert imread("ratings.png").shape[:2] == (int(8 / 2.54 * 160), int(10 / 2.54 * 160))
    call = ("figure", "forest", "bleu-4", "rouge-l", "--bootstrap", "100", "--out")
    assert capbench(*call, "with.svg").code == 0
    assert not Path("with.txt").exists()
    assert capbench(*call, "without.svg", "--no-caption", "--title", "Two metrics").code == 0
    text = Path("without.txt").read_text(encoding="utf-8")
    assert text.startswith("Two metrics. Flickr8k Expert, Kendall's τ-c. embedded synthetic sample")
    for fact in ("no-own-captions/unaggregated-tau-c", "100 resamples", "permutation test", "α = 0.05"):
        assert fact in text
