"""``capbench compare-systems`` and ``score --bootstrap``: sentences, files and exit codes."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench import compare_systems
from tests.conftest import Ran
from tests.reports.latex import assert_well_formed

_WORDS = ["a", "the", "red", "small", "dog", "cat", "man", "house", "runs", "sits", "on", "near", "with", "two"]
FEW = ("--bootstrap", "100", "--permutations", "100")
BOTH = ("compare-systems", "base.json", "good.json", "--references", "references.json", "-m", "bleu-4", "-m", "cider")
THREE = ("compare-systems", "base.json", "good.json", "bad.json", *BOTH[3:])


@pytest.fixture(autouse=True)
def folder(elsewhere: None) -> None:
    """Captions of a baseline, a clearly better and a clearly worse system of 60 images."""
    generator = random.Random(7)
    references: dict[str, list[str]] = {}
    systems: dict[str, list[dict[str, str]]] = {"base": [], "good": [], "bad": []}
    for number in range(60):
        meant = generator.choices(_WORDS, k=8)

        def said(share: float, meant: list[str] = meant) -> str:
            return " ".join(generator.choice(_WORDS) if generator.random() < share else word for word in meant)

        references[f"i{number}"] = [said(0.1) for _ in range(3)]
        for name, share in (("base", 0.45), ("good", 0.1), ("bad", 0.8)):
            systems[name].append({"image": f"i{number}", "caption": said(share)})
    for name, value in {"references": references, **systems}.items():
        _write(f"{name}.json", value)


def _write(name: str, value: Any) -> None:
    Path(name).write_text(json.dumps(value), encoding="utf-8")


def _read(name: str) -> Any:
    return json.loads(Path(name).read_text(encoding="utf-8"))


def test_all_pairs_are_compared_where_asked_and_systems_have_names(found: Callable[..., Any]) -> None:
    arguments = ("compare-systems", "first=base.json", *THREE[2:])
    tables = [found(*arguments, *more)["table"] for more in ((), ("--all-pairs", "--test", "bootstrap"))]
    named = [list(dict.fromkeys((pair["system"], pair["other"]) for pair in table["pairs"])) for table in tables]
    assert named[0] == [("good", "first"), ("bad", "first")]
    assert named[1] == [*named[0], ("bad", "good")]
    assert [(table["resamples"], table["permutations"]) for table in tables] == [(1000, 10_000), (1000, None)]
    table = found(*BOTH, "--bootstrap", "200", "--permutations", "300")["table"]
    assert (table["resamples"], table["permutations"]) == (200, 300)


def test_the_score_and_its_interval_are_those_of_score_bootstrap(found: Callable[..., Any]) -> None:
    intervals = found(*BOTH, "--seed", "4")["table"]["intervals"]
    flags = ("score", "--candidates", "good.json", "--references", "references.json", "-m", "bleu-4", "-m", "cider")
    rows = found(*flags, "--bootstrap", "--seed", "4")["scores"]
    assert [row["column"] for row in rows] == list(intervals)
    for row in rows:  # products of matrices of other shapes round the last digit otherwise
        theirs = intervals[row["column"]]["good"]
        assert row["interval"] == {
            key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for key, value in theirs.items()
        }
    assert all(row["corpus"] == row["interval"]["value"] for row in rows)
    assert found(*BOTH, "--seed", "5")["table"]["intervals"] != intervals


def test_all_forms_have_the_same_numbers(found: Callable[..., Any]) -> None:
    for ending in ("csv", "json", "md", "tex"):
        document = found(*THREE, *FEW, "--out", f"out.{ending}", "--report", "out.html")
    assert _read("out.json") == document
    systems, metrics = ["base.json", "good.json", "bad.json"], ["bleu-4", "cider"]
    python = compare_systems(systems, "references.json", metrics, resamples=100, permutations=100)
    assert json.loads(json.dumps(python.as_json())) == document
    texts = {name: Path(f"out.{name}").read_text(encoding="utf-8") for name in ("md", "tex", "html")}
    assert (python.to_markdown(), python.to_latex()) == (texts["md"], texts["tex"])
    assert_well_formed(texts["tex"])
    with open("out.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    for row, pair in zip(lines, document["table"]["pairs"], strict=True):
        assert (row["metric"], row["system"], row["other"]) == (pair["score"], pair["system"], pair["other"])
        assert float(row["p_adjusted"]) == pair["p_adjusted"]
        assert float(row["system_value"]) - float(row["other_value"]) == pytest.approx(pair["difference"], abs=1e-12)
        # Holm's correction of four comparisons with 100 permutations: none is below 4/101, .0396.
        assert all(f"{abs(pair['difference']):.4f}" in text and "0.0397" in text for text in texts.values())
    assert all(document["signature"] in text for text in texts.values())


def test_the_verdict_on_three_systems_is_in_the_json(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    ran = capbench(*THREE, *FEW, "--all-pairs", "--fail-if-worse", "--json", "--out", "out.json")
    assert ran.code == 3
    assert "bad scores significantly lower than base in CIDEr" in ran.err.splitlines()
    # Worse than the baseline: 'bad' is also worse than 'good', which is not what is tested.
    worse = [{"system": "bad", "score": "bleu-4"}, {"system": "bad", "score": "cider"}]
    assert json.loads(ran.out)["fail_if_worse"] == {"worse": worse, "passed": False}
    assert _read("out.json") == json.loads(ran.out)
    assert found(*BOTH, *FEW, "--fail-if-worse")["fail_if_worse"] == {"worse": [], "passed": True}
    assert "fail_if_worse" not in found(*THREE, *FEW)
