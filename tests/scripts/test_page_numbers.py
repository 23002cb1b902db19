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


CASES = (  # name, place, a wrong text, the text with the stored numbers
    ("a", "[stored.json, rows, a]", ".52", ".42"),
    ("n", "[stored.json, rows, n]", "1,000", "8,655"),
    ("b", "[stored.json, rows, b]", ".999 [.111, .222]", ".487 [.461, .505]"),
    ("spread", "[stored.json, rows, a]", "0.999 ± 0.999", "0.420 ± 0.014"),
    ("pair", "[stored.json, pairs, {pair: [b, a]}]", ".0123 [.0001, .0002]", "−.0321 [−.0502, −.0102]"),
    ("share", "[stored.json, cells, {row: y, column: r}, value, {times: 100}]", "99 %", "50 %"),
    ("less", "{minus: [[stored.json, rows, b], [stored.json, rows, a, 0]]}", "+.000", "+.077"),
    ("cell", "[stored.json, cells, {row: x}]", "-0.111", "-0.003"),
    ("each", "[stored.json, seeds, {each: [recall, r1]}]", "99.9 ± 9.9 %", "10.0 ± 0.7 %"),
    ("negative", "[stored.json, pairs, {pair: [a, b]}, {times: -1}]", "-.999 [-.111, -.222]", "-.032 [-.050, -.010]"),
    ("published", "{minus: [[stored.json, published, 1], [stored.json, published, 0]]}", ".999", ".021"),
)


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stored.json").write_text(json.dumps(STORED))
    monkeypatch.setattr(page_numbers, "ROOT", tmp_path)


def test_marked_numbers_are_the_stored_ones_in_the_form_of_the_text() -> None:
    places = "\n".join(f"{name}: {place}" for name, place, _, _ in CASES)
    wrong, right = (
        f"{', '.join(f'{case[side]}<!--{case[0]}-->' for case in CASES)}.\n\n<!-- numbers\n{places}\n-->\n"
        for side in (2, 3)
    )
    assert with_marked_numbers(wrong) == right
    assert with_marked_numbers(right) == right


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("F is .42<!--a-->.", "mark or a place only: a"),
        ("F is .42<!--a-->.\n<!-- numbers\na: [stored.json, rows, other]\n-->", "no 'other'"),
        ("F is .42<!--a-->.\n<!-- numbers\na: [stored.json, cells, {column: r}]\n-->", "2 entries"),
        ("F is .42 [.40, .44]<!--a-->.\n<!-- numbers\na: [stored.json, rows, a]\n-->", "'a' has no high"),
    ],
)
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
