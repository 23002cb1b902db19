from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError, UsageError
from capbench.core.records import Item
from capbench.metrics.from_file import (
    ScoresEntry,
    chosen_of_files,
    request_of_file,
    requests_of_files,
    with_columns,
)
from capbench.metrics.metric_request import FOR_ALL, MetricRequest
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from tests.errors import raises

ITEMS = (Item("a", "one", ("r",)), Item("b", "two", ("s",)), Item("a", "one", ("r",)))


def write(path: Path, heads: str, *rows: str) -> Path:
    path.write_text("\n".join([heads, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return write(tmp_path / "judge.csv", "image,caption,good,bad", "a,one,0.5,3", "b,two,0.25,4")


def values(request: MetricRequest, items: Sequence[Item] = ITEMS) -> dict[str, list[float]]:
    table = score(items, [request], dataset="d")
    return {key.column: scores.tolist() for key, scores in table.values.items()}


def test_a_column_with_the_name_of_a_built_in_metric_is_told_from_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.csv", "image,caption,CIDEr,own", "a,one,1,2", "b,two,3,4")
    assert [row.name for row in request_of_file(ScoresEntry(str(path))).rows] == ["run.CIDEr", "own"]
    same = write(tmp_path / "cider.csv", "image,caption,cider", "a,one,1", "b,two,3")
    assert [row.name for row in request_of_file(ScoresEntry(str(same))).rows] == ["file-cider.cider"]
    for name in ("cider", "all"):
        with raises(UsageError, "duplicate", value=name):
            request_of_file(ScoresEntry(str(path), name))


def test_names_choose_columns_of_files(two: Path) -> None:
    stored = [request_of_file(ScoresEntry(str(two))), request_of_file(ScoresEntry(str(two), "mine"))]

    def chosen(*names: str) -> tuple[object, list[str]]:
        others, requests = chosen_of_files(names, stored)
        return others, [row.name for request in requests for row in request.rows]

    assert chosen("cider") == (["cider"], ["good", "bad", "mine", "mine.bad"])
    assert chosen("cider", "bad") == (["cider"], ["bad"])
    assert chosen("judge") == ([], ["good", "bad"])
    assert chosen("mine.bad", "good") == ([], ["good", "mine.bad"])
    assert chosen("mine") == ([], ["mine"])


def test_an_option_without_a_name_is_for_files_too(two: Path) -> None:
    options: dict[str, dict[str, Any]] = {FOR_ALL: {"higher": "worse"}}
    (request,), problems = requests_of_files([ScoresEntry(str(two))], options)
    assert problems == []
    assert values(request)["good"] == [-0.5, -0.25, -0.5]
    assert [r.label for r in resolve_metrics(["cider"], options, beside=[request])] == ["cider"]
    with raises(UsageError, "unknown-option", value="higher"):
        resolve_metrics(["cider"], options)
    with raises(UsageError, "unknown-name", value="bad"):
        resolve_metrics(["cider"], {"bad": {"higher": "worse"}}, beside=[request])


def test_columns_that_are_not_requested_have_no_effect(tmp_path: Path) -> None:
    path = write(tmp_path / "judge.csv", "image,caption,good,bad", "a,one,0.5,", "b,two,0.25,4")
    for label in ("", "mine"):
        request = request_of_file(ScoresEntry(str(path), label))
        with raises(DataError, "missing-scores", path=path, row=2):
            values(request)
        chosen = with_columns(request, ["good"])
        assert [row.name for row in chosen.rows] == ["mine" if label else "good"]
        assert values(chosen) == {"good": [0.5, 0.25, 0.5]}
        (signature,) = score(ITEMS, [chosen], dataset="d").signatures.values()
        assert "|column:good|" in signature
    with raises(DataError, "missing-scores", path=path, row=2):
        values(with_columns(request_of_file(ScoresEntry(str(path))), ["bad"]))
    # The first column names the rows of a label, whichever columns are requested.
    last = with_columns(
        request_of_file(ScoresEntry(str(write(path, "image,caption,good,bad", "a,one,1,3", "b,two,2,4")), "mine")),
        ["bad"],
    )
    assert [row.name for row in last.rows] == ["mine.bad"]
    assert values(last) == {"bad": [3, 4, 3]}
    assert "|column:bad|" in score(ITEMS, [last], dataset="d").signatures["mine"]
