"""Names and files of scores become requests: labels, columns, options, needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import pytest

from capbench.core import plugins
from capbench.core.built_in import BUILT_IN
from capbench.core.errors import DataError, FeatureError, UsageError
from capbench.core.records import Item, ScoreColumn
from capbench.metrics.from_file import (
    ScoresEntry,
    chosen_of_files,
    request_of_file,
    requests_of_files,
    with_columns,
)
from capbench.metrics.metric_request import FOR_ALL, MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.registry import columns_by_metric
from capbench.metrics.requests import left_out_of_all, resolve_metrics, without_references
from capbench.metrics.scoring import score
from tests.errors import raises


def test_a_metric_may_stand_twice_under_labels() -> None:
    plain, labelled = resolve_metrics(["cider", "cider-coco=cider"], {"cider-coco": {"df": "images"}})
    assert (plain.label, plain.options) == ("cider", {})
    assert (labelled.label, labelled.options) == ("cider-coco", {"df": "images"})
    assert [row.name for row in (*plain.rows, *labelled.rows)] == ["cider", "cider-coco"]
    assert [row.title for row in labelled.rows] == ["CIDEr (cider-coco)"]
    assert labelled.score_columns == (ScoreColumn("cider-coco", "cider"),)


@pytest.mark.parametrize(
    ("names", "options", "code", "value"),
    [
        (["a b=cider"], {}, "wrong-format", "a b=cider"),
        (["x="], {}, "wrong-format", "x="),
        (["=cider"], {}, "wrong-format", "=cider"),
        (["x=all"], {}, "conflict", "x=all"),
        (["meteor=cider"], {}, "duplicate", "meteor"),
        (["all=cider"], {}, "duplicate", "all"),
        (["x=cider", "x=bleu"], {}, "duplicate", "x"),
        (["cidr"], {}, "unknown-name", "cidr"),
        (["bleu.bleu-9"], {}, "unknown-name", "bleu-9"),
        (["cider"], {FOR_ALL: {"beta": 1}}, "unknown-option", "beta"),
        (["cider"], {"bleu": {"sigma": 1}}, "unknown-name", "bleu"),
    ],
)
def test_an_invalid_name_label_or_owner(
    names: list[str], options: Mapping[str, Mapping[str, object]], code: str, value: str
) -> None:
    with raises(UsageError, code, value=value):
        resolve_metrics(names, options)


def test_the_table_of_built_in_metrics_says_what_their_classes_say() -> None:
    for name in BUILT_IN["capbench.metrics"]:
        assert columns_by_metric()[name] == plugins.load("capbench.metrics", name).columns


def test_looking_up_a_metric_imports_no_other_metric() -> None:
    code = (
        "import sys; from capbench.metrics.requests import resolve_metrics; resolve_metrics(['bleu-4']); "
        "print(*(name for name in sys.modules if name.startswith(('capbench.metrics.', 'torch', 'pydantic'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "capbench.metrics.ngram" in loaded
    assert not loaded & {"capbench.metrics.meteor", "capbench.metrics.tiger", "capbench.metrics.spice"}
    assert not any(name.startswith(("torch", "pydantic")) for name in loaded)


def test_an_option_of_a_label_comes_before_its_metrics_and_that_before_the_one_for_all() -> None:
    names = ["near=cider", "far=cider", "cider", "spider"]
    options: dict[str, dict[str, object]] = {
        FOR_ALL: {"sigma": 2.0, "df": "items"},
        "cider": {"sigma": 3.0},
        "near": {"sigma": 4.0},
        "spider": {"df": "coco-val"},
    }
    for order in (options, dict(reversed(options.items()))):
        requests = {request.label: dict(request.options) for request in resolve_metrics(names, order)}
        assert requests == {
            "near": {"sigma": 4.0, "df": "items"},
            "far": {"sigma": 3.0, "df": "items"},
            "cider": {"sigma": 3.0, "df": "items"},
            "spider": {"sigma": 2.0, "df": "coco-val"},
        }


def test_what_all_leaves_out_is_every_other_metric_with_what_it_requires() -> None:
    pytest.importorskip("torch")
    able = {request.metric.name for request in resolve_metrics(["all"])}
    reasons = left_out_of_all(Resources())
    assert able | set(reasons) == set(BUILT_IN["capbench.metrics"])
    assert not able & set(reasons)
    assert (reasons["tiger"], reasons["wmd"]) == ("features, weights", "word vectors")


def test_without_references_a_metric_keeps_its_reference_free_columns() -> None:
    requests, notes = without_references(resolve_metrics(["clipscore", "vifidel"]), "--references FILE")
    assert [request.columns for request in requests] == [("clipscore",), ("vifidel",)]
    for note, start in zip(notes, ("clipscore: refclipscore ", "vifidel: vifidel-ref "), strict=True):
        assert note.startswith(start)
        assert "(--references FILE)" in note


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"not HDF5", "wrong-format"), (b"\x89HDF\r\n\x1a\n", "damaged"), (99, "wrong-version"), (1, "missing-key")],
)
def test_a_damaged_feature_file_is_not_something_that_items_lack(
    tmp_path: Path, content: bytes | int, code: str
) -> None:
    features = tmp_path / "regions.h5"
    if isinstance(content, bytes):
        features.write_bytes(content)
    else:
        with h5py.File(features, "w") as file:
            file.attrs.update(format="capbench-features", version=content)
    (tiger,) = resolve_metrics(["tiger"])
    with raises(FeatureError, code):
        tiger.unmet_by([Item("dog", "a dog", ("a dog runs",))], Resources(features=str(features)))


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
    assert [r.label for r in resolve_metrics(["cider"], options, of_files=[request])] == ["cider"]
    with raises(UsageError, "unknown-option", value="higher"):
        resolve_metrics(["cider"], options)
    with raises(UsageError, "unknown-name", value="bad"):
        resolve_metrics(["cider"], {"bad": {"higher": "worse"}}, of_files=[request])


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
