from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import CapbenchError, DataError, UsageError
from capbench.core.records import Item
from capbench.metrics.from_file import (
    FileScoresOptions,
    ScoresEntry,
    chosen_of_files,
    collisions,
    label_of_file,
    request_of_file,
    requests_of_files,
    with_columns,
)
from capbench.metrics.requests import FOR_ALL, MetricRequest, resolve_metrics
from capbench.metrics.scoring import score

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


def test_columns_are_metrics_under_their_own_names(two: Path) -> None:
    request = request_of_file(two)
    assert request.label == "judge"
    assert [(row.name, row.title) for row in request.rows] == [("good", "good"), ("bad", "bad")]
    assert values(request) == {"good": [0.5, 0.25, 0.5], "bad": [3, 4, 3]}


def test_the_signature_says_file_checksum_columns_and_join(two: Path) -> None:
    table = score(ITEMS, [request_of_file(two)], dataset="d")
    digest = __import__("hashlib").sha256(two.read_bytes()).hexdigest()[:16]
    assert table.signatures == {"judge": f"file:judge.csv|sha256:{digest}|column:good,bad|joined:caption"}


def test_nothing_of_a_file_comes_from_the_cache(two: Path) -> None:
    assert values(request_of_file(two))["good"] == [0.5, 0.25, 0.5]
    write(two, "image,caption,good", "a,one,9", "b,two,8")
    table = score(ITEMS, [request_of_file(two)], dataset="d")
    assert table.cached == {"judge": 0}
    assert next(iter(table.values.values())).tolist() == [9, 8, 9]


def test_lower_scores_may_be_better(two: Path) -> None:
    request = request_of_file(two, options={"columns": "bad", "higher": "worse"})
    assert values(request) == {"bad": [-3, -4, -3]}
    assert request.rows[0].title == "bad (lower is better)"
    assert score(ITEMS, [request], dataset="d").signatures["judge"].endswith("|higher:worse")


def test_a_label_names_the_first_column_and_stands_before_the_others(two: Path) -> None:
    request = request_of_file(two, "mine", title="Mine")
    assert [(row.name, row.title) for row in request.rows] == [("mine", "Mine"), ("mine.bad", "Mine, bad")]


def test_a_column_with_the_name_of_a_built_in_metric_is_told_from_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.csv", "image,caption,CIDEr,own", "a,one,1,2", "b,two,3,4")
    assert [row.name for row in request_of_file(path).rows] == ["run.CIDEr", "own"]
    same = write(tmp_path / "cider.csv", "image,caption,cider", "a,one,1", "b,two,3")
    assert [row.name for row in request_of_file(same).rows] == ["file-cider.cider"]
    with pytest.raises(UsageError, match="'cider' is the name of one of capbench's metrics"):
        request_of_file(path, "cider")


def test_a_column_called_score_is_called_by_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "my judge.v2.csv", "image,caption,score", "a,one,1", "b,two,3")
    assert [row.name for row in request_of_file(path).rows] == ["my-judge-v2"]
    assert label_of_file(path) == "my-judge-v2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"higher": "lower"}, r"judge\.higher=lower"),
        ({"columns": "goood"}, r"has no column 'goood'\. Did you mean 'good'"),
        ({"column": "good"}, "column"),
        ({"repeats": "last"}, r"judge\.repeats=last"),
    ],
)
def test_options_that_do_not_fit_are_refused(two: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        request_of_file(two, options=options)


def test_items_without_a_score_are_refused(two: Path) -> None:
    with pytest.raises(
        DataError, match="1 of the 3 items of these captions lack a score, the first 'three' of image 'c'"
    ):
        values(request_of_file(two), (*ITEMS, Item("c", "three", ("t",))))


def test_options_of_files_are_taken_by_label_and_problems_are_all_told(two: Path, tmp_path: Path) -> None:
    options: dict[str, dict[str, Any]] = {"judge": {"higher": "worse"}, "cider": {"sigma": 5}}
    entries = [ScoresEntry(str(two)), ScoresEntry(str(tmp_path / "gone.csv")), ScoresEntry("x.txt")]
    requests, problems = requests_of_files(entries, options)
    assert options == {"cider": {"sigma": 5}}
    assert [FileScoresOptions.read("judge", request.options).higher for request in requests] == ["worse"]
    assert ["there is no such file" in str(problem) or "ending" in str(problem) for problem in problems] == [True, True]


def test_names_choose_columns_of_files(two: Path) -> None:
    stored = [request_of_file(two), request_of_file(two, "mine")]

    def chosen(*names: str) -> tuple[object, list[str]]:
        left, requests = chosen_of_files(names, stored)
        return left, [row.name for request in requests for row in request.rows]

    assert chosen("cider") == (["cider"], ["good", "bad", "mine", "mine.bad"])
    assert chosen("cider", "bad") == (["cider"], ["bad"])
    assert chosen("judge") == ([], ["good", "bad"])
    assert chosen("mine.bad", "good") == ([], ["good", "mine.bad"])
    assert chosen("mine") == ([], ["mine"])


def test_rows_of_one_name_are_refused(two: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.csv", "image,caption,good", "a,one,1")
    problems = collisions([request_of_file(two), request_of_file(other)])
    assert problems == [f"two rows are called 'good'. Name one of the files: --scores NAME={other}"]
    assert collisions([request_of_file(two), request_of_file(other, "second"), *resolve_metrics(["cider"])]) == []
    twice = collisions([request_of_file(two, "a"), request_of_file(other, "a")])
    assert any("two metrics are called 'a'" in problem for problem in twice)


def test_references_may_be_ignored(tmp_path: Path) -> None:
    from capbench.metrics.score_joining import item_id

    others = [Item("a", "one", ("q",)), Item("b", "two", ("q",))]
    path = write(tmp_path / "f.csv", "id,x", *(f"{item_id(item)},{place}" for place, item in enumerate(others)))
    with pytest.raises(CapbenchError, match="row 2: 2 scores were computed with other references than those of"):
        values(request_of_file(path))
    assert values(request_of_file(path, options={"references": "ignored"}))["x"] == [0, 1, 0]


def test_two_scores_of_one_caption_may_be_averaged(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "image,caption,x", "a,one,1", "a,one,2", "b,two,3")
    with pytest.raises(DataError, match="row 3: a second 'x' of 'one'"):
        values(request_of_file(path))
    np.testing.assert_array_equal(values(request_of_file(path, options={"repeats": "mean"}))["x"], [1.5, 3, 1.5])


def test_an_option_without_a_name_is_for_files_too(two: Path) -> None:
    options: dict[str, dict[str, Any]] = {FOR_ALL: {"higher": "worse"}}
    (request,), problems = requests_of_files([ScoresEntry(str(two))], options)
    assert problems == []
    assert values(request)["good"] == [-0.5, -0.25, -0.5]
    assert [r.label for r in resolve_metrics(["cider"], options, beside=[request])] == ["cider"]
    with pytest.raises(UsageError, match="none of the metrics has an option 'higher'"):
        resolve_metrics(["cider"], options)
    with pytest.raises(UsageError, match=r"given for 'bad', a column of a file of scores\. .*judge\.higher"):
        resolve_metrics(["cider"], {"bad": {"higher": "worse"}}, beside=[request])


def test_columns_that_are_not_asked_for_play_no_part(tmp_path: Path) -> None:
    path = write(tmp_path / "judge.csv", "image,caption,good,bad", "a,one,0.5,", "b,two,0.25,4")
    for label in ("", "mine"):
        request = request_of_file(path, label)
        with pytest.raises(DataError, match="1 of the 2 items"):
            values(request)
        chosen = with_columns(request, ["good"])
        assert [row.name for row in chosen.rows] == ["mine" if label else "good"]
        assert values(chosen) == {"good": [0.5, 0.25, 0.5]}
        (signature,) = score(ITEMS, [chosen], dataset="d").signatures.values()
        assert "|column:good|" in signature
    with pytest.raises(DataError, match="1 of the 2 items"):
        values(with_columns(request_of_file(path), ["bad"]))
    # A label's rows are named by its first column, whichever are asked for.
    last = with_columns(
        request_of_file(write(path, "image,caption,good,bad", "a,one,1,3", "b,two,2,4"), "mine"), ["bad"]
    )
    assert [row.name for row in last.rows] == ["mine.bad"]
    assert values(last) == {"bad": [3, 4, 3]}
    assert "|column:bad|" in score(ITEMS, [last], dataset="d").signatures["mine"]
