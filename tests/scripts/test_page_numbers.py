"""Numbers in the sentences of the results pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capbench.core.files import read_text
from scripts import page_numbers
from scripts.page_numbers import unmarked_numbers, with_marked_numbers

ROOT = Path(__file__).resolve().parents[2]
STORED = {
    "rows": {"a": [0.41, 0.43], "b": {"value": 0.4871, "low": 0.4612, "high": 0.5049}, "n": 8655},
    "pairs": [{"better": "a", "worse": "b", "difference": 0.0321, "low": 0.0102, "high": 0.0502, "p_adjusted": 0.03}],
    "cells": [{"row": "x", "column": "r", "value": -0.0026}, {"row": "y", "column": "r", "value": 0.5}],
    "published": ["0.697", "0.718"],
    "seeds": {"1": {"recall": {"r1": 10.5}}, "2": {"recall": {"r1": 9.5}}},
}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "stored.json").write_text(json.dumps(STORED))
    monkeypatch.setattr(page_numbers, "ROOT", tmp_path)
    return (
        "F is {a}<!--a-->, its networks have {spread}<!--a-->; the difference is {pair}<!--pair-->, of {n}<!--n-->"
        " captions {share}<!--share-->; less: {less}<!--less-->, {cell}<!--cell-->, {b}<!--b-->, {each}<!--each-->,"
        " {published}<!--published-->, {negative}<!--negative-->.\n\n"
        "<!-- numbers\n"
        "a: [stored.json, rows, a]\n"
        "b: [stored.json, rows, b]\n"
        "n: [stored.json, rows, n]\n"
        "pair: [stored.json, pairs, {pair: [b, a]}]\n"
        "share: [stored.json, cells, {row: y, column: r}, value, {times: 100}]\n"
        "less: {minus: [[stored.json, rows, b], [stored.json, rows, a, 0]]}\n"
        "cell: [stored.json, cells, {row: x}]\n"
        "each: [stored.json, seeds, {each: [recall, r1]}]\n"
        "negative: [stored.json, pairs, {pair: [a, b]}, {times: -1}]\n"
        "published: {minus: [[stored.json, published, 1], [stored.json, published, 0]]}\n"
        "-->\n"
    )


RIGHT = {
    "a": ".42",
    "spread": "0.420 ± 0.014",
    "pair": "−.0321 [−.0502, −.0102]",
    "n": "8,655",
    "share": "50 %",
    "less": "+.077",
    "cell": "-0.003",
    "b": ".487 [.461, .505]",
    "each": "10.0 ± 0.7 %",
    "published": ".021",
    "negative": "-.032 [-.050, -.010]",
}
WRONG = {
    "a": ".52",
    "spread": "0.999 ± 0.999",
    "pair": ".0123 [.0001, .0002]",
    "n": "1,000",
    "share": "99 %",
    "less": "+.000",
    "cell": "-0.111",
    "b": ".999 [.111, .222]",
    "each": "99.9 ± 9.9 %",
    "published": ".999",
    "negative": "-.999 [-.111, -.222]",
}


def test_marked_numbers_are_the_stored_ones_in_the_form_of_the_text(page: str) -> None:
    right = page.replace("{times", "{{times")
    for name, text in RIGHT.items():
        right = right.replace(f"{{{name}}}", text)
    wrong = page.replace("{times", "{{times")
    for name, text in WRONG.items():
        wrong = wrong.replace(f"{{{name}}}", text)
    right, wrong = right.replace("{{times", "{times"), wrong.replace("{{times", "{times")
    assert with_marked_numbers(wrong) == right
    assert with_marked_numbers(right) == right


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("F is .42<!--a-->.", "mark or a place only: a"),
        ("<!-- numbers\na: [stored.json, rows, a]\n-->", "mark or a place only: a"),
        ("F is .42<!--a-->.\n<!-- numbers\na: [stored.json, rows, other]\n-->", "no 'other'"),
        ("F is .42<!--a-->.\n<!-- numbers\na: [stored.json, cells, {column: r}]\n-->", "2 entries"),
        ("F is .42 [.40, .44]<!--a-->.\n<!-- numbers\na: [stored.json, rows, a]\n-->", "'a' has no high"),
    ],
    ids=["no place", "no mark", "no such key", "two entries", "no interval"],
)
@pytest.mark.usefixtures("page")
def test_marks_without_a_number_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        with_marked_numbers(text)


def test_unmarked_numbers_are_found_in_sentences_only() -> None:
    page = (
        "F is .42<!--a--> or .43, 12 % and 1.5.\n\n| .44 |\n\n    .45\n\n`.46` and 95 % intervals ([.47](x.0.48.md)).\n"
        "\n<!-- numbers\na: [0.49]\n-->\n"
    )
    assert unmarked_numbers(page) == [".43", "12 %", "1.5", ".47"]


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs" / "results").glob("*.md")))
def test_numbers_in_sentences_of_results_pages_are_written_from_stored_results(name: str) -> None:
    assert unmarked_numbers(read_text(ROOT / "docs" / "results" / name)) == []


def test_numbers_in_readmes_results_are_written_from_stored_results() -> None:
    section = read_text(ROOT / "README.md").partition("\n## Results so far\n")[2].partition("\n## ")[0]
    assert "<!--vilbertscore-gain-->" in section
    assert unmarked_numbers(section) == []
