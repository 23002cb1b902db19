"""Result files are read; other files are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capbench.core.errors import DataError, StatisticError
from capbench.studies.results import RESULT_SCHEMA_VERSION, load_result
from tests.errors import raises

RESULT = {
    "schema_version": RESULT_SCHEMA_VERSION,
    "capbench": "0.1.0",
    "name": "old",
    "title": "Old study",
    "created": "2026-01-01T00:00:00+00:00",
    "sample": True,
    "protocols": [
        {
            "id": "flickr8k-expert/no-own-captions/unaggregated-tau-c",
            "dataset": "flickr8k-expert",
            "dataset_title": "Flickr8k Expert",
            "statistic": "τ-c",
            "kind": "correlation",
            "description": "rules",
            "groups": [],
            "notes": [],
            "n_items": 3,
            "draws": 1,
        }
    ],
    "columns": {"cider": "CIDEr"},
    "signatures": {"flickr8k-expert/no-own-captions": {"cider": "cider|capbench:0.1.0"}},
    "cells": [
        {
            "protocol": "flickr8k-expert/no-own-captions/unaggregated-tau-c",
            "metric": "cider",
            "column": "cider",
            "title": "CIDEr",
            "group": "",
            "value": 0.5,
            "sd": None,
            "n": 9,
            "p_value": 0.1,
            "ties": 0,
            "chance": None,
            "published": None,
            "published_digits": None,
            "published_sd": None,
            "published_note": None,
        }
    ],
    "missing": [
        {"protocol": "", "column": "tiger", "title": "TIGEr", "reason": "weights", "planned": True, "published": {}}
    ],
    "published": None,
    "seconds": {"total": 0.1},
    "cached": {},
}


def _write(folder: Path, value: object) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_cell_without_a_value_is_read_with_its_reason_and_its_text(tmp_path: Path) -> None:
    cell: dict[str, object] = RESULT["cells"][0]  # type: ignore[index]
    without = {"value": None, "p_value": None, "undefined": "too few scores", "placeholder": "scores for 4 of 9"}
    change = {"columns": {"cider": "CIDEr"}, "missing": []}
    result = load_result(_write(tmp_path, RESULT | change | {"cells": [cell | without]}))
    (found,) = result.undefined
    assert (found.value, found.undefined, found.shown_instead) == (None, "too few scores", "scores for 4 of 9")
    with raises(StatisticError, "undefined", value="cider"):
        _ = found.number
    assert "| CIDEr | scores for 4 of 9 |" in result.to_markdown()
    assert "scores for 4 of 9" in result.to_latex()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema_version": RESULT_SCHEMA_VERSION + 1}, "wrong-version"),
        ({"schema_version": RESULT_SCHEMA_VERSION - 1}, "wrong-version"),
        ({"schema_version": "1"}, "wrong-format"),
        ({"cells": [{"value": "high"}]}, "wrong-format"),
        ({"surprise": 1}, "wrong-format"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, object], code: str) -> None:
    path = _write(tmp_path, RESULT | change)
    with raises(DataError, code, path=path):
        load_result(path)


def test_nan_in_a_result_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(RESULT).replace("0.5", "NaN"), encoding="utf-8")
    with raises(DataError, "not-a-number", path=path):
        load_result(path)
