"""Result files of every version stay readable; what is none is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capbench.core.errors import DataError, StatisticError
from capbench.reports.markup import to_csv, to_latex, to_markdown
from capbench.reports.tables import tables
from capbench.studies.results import RESULT_SCHEMA_VERSION, load_result
from tests.errors import raises

# A file as schema version 1 wrote it. Never change it: it stands for the files that users keep.
VERSION_1 = {
    "schema_version": 1,
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


def test_version_1_is_read(tmp_path: Path) -> None:
    result = load_result(_write(tmp_path, VERSION_1))
    cell = result.cell("flickr8k-expert/no-own-captions/unaggregated-tau-c", "cider")
    assert cell is not None
    assert cell.value == 0.5
    assert result.missing[0].planned


def test_a_file_that_version_1_wrote_is_read_whole() -> None:
    path = Path(__file__).with_name("results_v1.json")
    raw = json.loads(path.read_text(encoding="utf-8"))
    result = load_result(path)
    assert raw["schema_version"] == result.schema_version == 1
    assert len(result.cells) == len(raw["cells"]) > 0
    for cell, before in zip(result.cells, raw["cells"], strict=True):
        assert {key: value for key, value in cell.model_dump().items() if key in before} == before
        assert cell.low is None
        assert cell.high is None
    assert result.comparisons == ()
    assert result.ceilings == ()
    for table in tables(result):
        assert table.ceiling is None
        assert table.ranks == ()
    assert to_markdown(result)
    assert to_latex(result)


def test_a_file_that_version_2_wrote_shows_its_published_numbers_as_before() -> None:
    path = Path(__file__).with_name("results_v2.json")
    raw = json.loads(path.read_text(encoding="utf-8"))
    result = load_result(path)
    assert raw["schema_version"] == result.schema_version == 2
    for cell, before in zip(result.cells, raw["cells"], strict=True):
        assert {key: value for key, value in cell.model_dump().items() if key in before} == before
        assert (cell.label, cell.published_printed, cell.unexplained) == ("", None, False)
    assert result.published_table is None
    (table,) = tables(result)
    bleu, cider, tiger = (row.entries[0] for row in table.rows)
    assert (bleu.published, bleu.difference) == ("0.138*", "+0.1698")
    assert (cider.published, cider.difference) == ("0.439", "-0.0001")
    assert (tiger.ours, tiger.published) == ("", "0.493")
    assert table.published_only == ()
    assert any(note.startswith("published: Jiang, Huang") for note in table.notes)
    assert "* BLEU-4 on Flickr8k Expert, τ-c: likely a misprint" in "\n".join(table.notes)
    assert "| TIGEr | missing | 0.493 |" in to_markdown(result)
    assert to_latex(result)
    assert "published_column" in to_csv(result).splitlines()[0]


def test_a_row_that_version_3_wrote_as_undefined_stays_undefined_in_tables(tmp_path: Path) -> None:
    reason = "undefined under mine/as-given/tau-b: all 3 values of TIGEr are equal to 1"
    missing = {"protocol": "mine/as-given/tau-b", "column": "tiger", "title": "TIGEr", "reason": reason}
    columns = {"cider": "CIDEr", "tiger": "TIGEr"}
    result = load_result(_write(tmp_path, VERSION_1 | {"schema_version": 3, "missing": [missing], "columns": columns}))
    assert result.undefined == ()
    assert [row.missing for table in tables(result) for row in table.rows] == ["", reason]
    assert "| TIGEr | undefined |" in to_markdown(result)


def test_a_cell_without_a_value_is_read_with_its_reason_and_its_text(tmp_path: Path) -> None:
    cell: dict[str, object] = VERSION_1["cells"][0]  # type: ignore[index]
    without = {"value": None, "p_value": None, "undefined": "too few scores", "placeholder": "scores for 4 of 9"}
    change = {"columns": {"cider": "CIDEr"}, "missing": [], "schema_version": RESULT_SCHEMA_VERSION}
    result = load_result(_write(tmp_path, VERSION_1 | change | {"cells": [cell | without]}))
    (found,) = result.undefined
    assert (found.value, found.undefined, found.shown_instead) == (None, "too few scores", "scores for 4 of 9")
    with raises(StatisticError, "undefined", value="CIDEr"):
        _ = found.number
    assert "| CIDEr | scores for 4 of 9 |" in to_markdown(result)
    assert "scores for 4 of 9" in to_latex(result)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema_version": RESULT_SCHEMA_VERSION + 1}, "wrong-version"),
        ({"schema_version": "1"}, "wrong-format"),
        ({"cells": [{"value": "high"}]}, "wrong-format"),
        ({"cells": [VERSION_1["cells"][0] | {"value": None}]}, "wrong-format"),  # type: ignore[index]
        ({"surprise": 1}, "wrong-format"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, object], code: str) -> None:
    path = _write(tmp_path, VERSION_1 | change)
    with raises(DataError, code, path=path):
        load_result(path)


def test_nan_in_a_result_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(VERSION_1).replace("0.5", "NaN"), encoding="utf-8")
    with raises(DataError, "not-a-number", path=path):
        load_result(path)
