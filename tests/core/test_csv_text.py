"""CSV text, and escaping of spreadsheet formulas."""

from __future__ import annotations

import csv
import io

from capbench.core.files import csv_text

ROWS = [
    {"title": "=1+1", "value": -0.25, "note": None},
    {"title": "-BLEU", "value": 1.5},
    {"title": 'a "dog", running', "value": 0.1 + 0.2, "note": "\tx"},
]


def _read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_texts_are_written_as_they_are_unless_asked_otherwise() -> None:
    text = csv_text(["title", "value", "note"], ROWS)
    assert _read(text) == [
        ["title", "value", "note"],
        ["=1+1", "-0.25", ""],
        ["-BLEU", "1.5", ""],
        ['a "dog", running', "0.30000000000000004", "\tx"],
    ]
    assert "\r" not in text


def test_escaping_changes_texts_that_begin_like_formulas_and_no_number() -> None:
    cells = _read(csv_text(["title", "value", "note"], ROWS, escape_formulas=True))[1:]
    assert cells == [
        ["'=1+1", "-0.25", ""],
        ["'-BLEU", "1.5", ""],
        ['a "dog", running', "0.30000000000000004", "'\tx"],
    ]
