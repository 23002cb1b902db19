"""Every argument of ``import capbench`` with values of wrong types: one line that names the argument, no traceback."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest

import capbench as cb
from capbench.core.errors import UsageError
from tests.errors import raises

CANDIDATES, REFERENCES = ["a dog", "a cat sleeps"], [["a dog runs"], ["a cat", "the cat sleeps"]]
EXPERT = "flickr8k-expert"
FRAME = pd.DataFrame({"image": ["a", "b"], "caption": CANDIDATES})
THING = object()

NAMES = [3, b"name", THING]
PATHS = [3, b"here", ""]
FLAGS = ["yes", 1, None]
NUMBERS = ["1000", 1000.0, True]
RESAMPLES = [*NUMBERS, 99, 10**12]
SEEDS = ["1", True, -1]
FILES = [3, "", ["a.h5"], {3: "a.h5"}, {"tiger": 3}]
DATASETS = [3, b"flickr8k-expert", "", int, {EXPERT}]

Wrong = dict[str, list[Any]]
SHARED: Wrong = {
    "metrics": [3, b"cider", {"cider"}, [None], {"a": 3}, int],
    "scores": [3, b"file.csv", "", [3], {"a": 3}, {3: "file.csv"}],
    "allow_missing": FLAGS,
    "options": [3, "cider.df", [("cider.df", "items")], {3: 1}],
    "features": FILES,
    "model": FILES,
    "images": PATHS,
    "data": PATHS,
    "cache": FLAGS,
    "version": [3, "", b"1", ["1"], {3: "1"}, {"length": 3}],
    "columns": [3, "image=file", {3: "file"}, {"image": 3}],
    "progress": FLAGS[:2],
}
CAPTIONS = [3, b"a dog", "", FRAME, np.array([CANDIDATES]), {"a dog", "a cat"}]
TESTS: Wrong = {"correction": [3, "bonferroni"], "unit": [3, "word"], "seed": SEEDS, "sentinels": FLAGS}
WRONG: dict[str, Wrong] = {
    "load": {
        "dataset": [*DATASETS, None, [EXPERT]],
        "protocol": [*NAMES, ["tau-c"]],
        "draw": ["1", 1.0, 0, None],
        "data": PATHS,
    },
    "score": {
        "candidates": CAPTIONS,
        "references": CAPTIONS,
        "dataset": DATASETS,
        "draw": [0],
        "bootstrap": RESAMPLES,
        "seed": SEEDS,
        "keep_first": FLAGS,
        "split": NAMES,
        "restrict": FLAGS,
        "categories": FLAGS,
        **SHARED,
    },
    "correlate": {
        "dataset": [*DATASETS, [3]],
        "protocol": [*NAMES, [3]],
        "bootstrap": RESAMPLES,
        "interval": [3, "normal"],
        "compare": [3, "t-test"],
        "alpha": ["0.05", THING, True, 1.0],
        "permutations": RESAMPLES,
        "study": PATHS,
        "without": [3, [3], b"cider"],
        **TESTS,
        **SHARED,
    },
    "compare": {
        "dataset": [*DATASETS, None, [EXPERT]],
        "protocol": [*NAMES, ["tau-c"]],
        "test": [3, None],
        "resamples": RESAMPLES,
        **TESTS,
        **SHARED,
    },
}
CASES = [
    pytest.param(function, name, value, id=f"{function}-{name}-{type(value).__name__}-{place}")
    for function, arguments in WRONG.items()
    for name, values in arguments.items()
    for place, value in enumerate(values)
]


def length(image: str, candidate: str, references: tuple[str, ...]) -> float:
    return float(len(candidate))


def usual(function: str) -> dict[str, Any]:
    if function == "load":
        return {"dataset": EXPERT}
    if function == "score":
        return {"candidates": CANDIDATES, "references": REFERENCES, "metrics": length}
    metrics = [length, "bleu-1"]
    return {"dataset": EXPERT, "metrics": metrics}


def test_every_argument_has_wrong_values() -> None:
    for function, arguments in WRONG.items():
        names = set()
        for name, parameter in inspect.signature(getattr(cb, function)).parameters.items():
            hint = get_type_hints(getattr(cb, function).__wrapped__, include_extras=True)[name]
            is_group = parameter.kind is parameter.VAR_KEYWORD
            names |= set(get_type_hints(get_args(hint)[0])) if is_group else {name}
        assert names - set(arguments) <= {"protocol"}, function


@pytest.mark.parametrize(("function", "name", "value"), CASES)
def test_a_wrong_type_is_one_line_that_names_the_argument(function: str, name: str, value: Any) -> None:
    with pytest.raises(cb.CapbenchError) as caught:
        getattr(cb, function)(**{**usual(function), name: value})
    line = str(caught.value)
    assert re.search(rf"\b{name}\b", line) or (name == "metrics" and "metric" in line)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        ({"dataset": [EXPERT]}, "wrong-type", [EXPERT]),
        ({"bootstrap": 5}, "out-of-range", 5),
        ({"versions": "1"}, "unknown-option", "versions"),
        ({"version": "a|b"}, "wrong-format", "a|b"),
    ],
)
def test_the_code_says_what_is_wrong(arguments: dict[str, Any], code: str, value: Any) -> None:
    with raises(UsageError, code, value=value):
        cb.score(CANDIDATES, REFERENCES, length, **arguments)
    with raises(UsageError, "missing-option", value="dataset"):
        cb.load()  # type: ignore[call-arg]


RESULTS: list[tuple[str, Callable[[], object]]] = [
    ("column", lambda: cb.score(CANDIDATES, REFERENCES, length)[3]),  # type: ignore[index]
    ("column", lambda: cb.score(CANDIDATES, REFERENCES, length).corpus_score(None)),  # type: ignore[arg-type]
    ("candidates", lambda: cb.score([cb.Item(3, "a dog", ())], metrics=length)),  # type: ignore[arg-type]
    ("candidates", lambda: cb.score([cb.Item("a", "a dog", ["a"])], metrics=length)),  # type: ignore[arg-type]
    ("references", lambda: cb.score(cb.load(EXPERT), REFERENCES, length)),
    ("data", lambda: cb.load(EXPERT, data="a\0b")),
]


@pytest.mark.parametrize(("name", "call"), RESULTS)
def test_wrong_types_of_results_and_items_are_named(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(cb.CapbenchError) as caught:
        call()
    line = str(caught.value)
    assert name in line
    assert "\n" not in line


def test_a_table_of_captions_is_refused_and_says_what_is_accepted() -> None:
    with raises(UsageError, "wrong-type") as caught:
        cb.score(FRAME, FRAME, length)  # type: ignore[arg-type]
    assert "candidates" in caught.value.message
    assert "to_dict('records')" in str(caught.value.hint)
    rows: Any = FRAME.to_dict("records")
    table = cb.score(rows, {"a": ["a dog"], "b": ["a cat"]}, length)
    assert table["length"].tolist() == [5.0, 12.0]


def test_a_series_is_paired_by_position_only_where_its_index_is_that_of_the_other() -> None:
    texts, other = pd.Series(CANDIDATES), pd.Series(["a dog runs", "the cat sleeps"])
    assert cb.score(texts, other, length)["length"].tolist() == [5.0, 12.0]
    assert cb.score(texts, REFERENCES, length)["length"].tolist() == [5.0, 12.0]
    moved = [series.set_axis([7, 3]) for series in (texts, other)]
    assert cb.score(moved[0], moved[1], length)["length"].tolist() == [5.0, 12.0]
    for candidates, references, name in (
        (texts, moved[1], "candidates"),
        (moved[0], other, "candidates"),
        (moved[0], moved[1][::-1], "candidates"),
        (moved[0], REFERENCES, "candidates"),
        (CANDIDATES, moved[1], "references"),
    ):
        with raises(UsageError, "mismatch") as caught:
            cb.score(candidates, references, length)
        assert f"{name}.tolist()" in str(caught.value.hint)


def test_scores_cannot_be_written_to() -> None:
    table = cb.score(CANDIDATES, REFERENCES, length)
    with pytest.raises(ValueError, match="read-only"):
        table["length"][0] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        next(iter(table.values.values()))[0] = 9.0
    frame = table.to_frame()
    frame.loc[0, "length"] = 9.0
    assert table["length"].tolist() == [5.0, 12.0]
