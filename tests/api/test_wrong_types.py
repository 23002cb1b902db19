"""Arguments of ``import capbench`` that are refused: one line that names the argument, no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import capbench as cb
from capbench.core.errors import UsageError
from tests.errors import raises

CANDIDATES, REFERENCES = ["a dog", "a cat sleeps"], [["a dog runs"], ["a cat", "the cat sleeps"]]
EXPERT = "flickr8k-expert"
FRAME = pd.DataFrame({"image": ["a", "b"], "caption": CANDIDATES})
CAPTIONS = [3, b"a dog", "", FRAME, np.array([CANDIDATES]), {"a dog", "a cat"}]
WRONG: dict[str, dict[str, list[Any]]] = {
    "load": {"dataset": [3, "", int, None, [EXPERT]], "protocol": [3], "draw": ["1", 1.0, 0], "data": [b"x", "", "\0"]},
    "score": {
        "candidates": CAPTIONS,
        "references": CAPTIONS,
        "metrics": [3, b"cider", {"cider"}, [None], {"a": 3}, int],
        "scores": [3, [3], {3: "file.csv"}],
        "options": [3, "cider.df", [("cider.df", "items")], {3: 1}],
        "features": [3, "", ["a.h5"], {"tiger": 3}],
        "cache": ["yes", 1, None],
        "version": [3, ["1"], {"length": 3}],
        "columns": ["image=file", {"image": 3}],
        "progress": ["yes", 1],
        "bootstrap": ["1000", 1000.0, True, 99, 10**12],
        "seed": [-1],
    },
    "correlate": {"dataset": [[3]], "alpha": [True, 1.0], "study": [3], "without": [[3]], "compare": ["t-test"]},
    "compare": {"test": [None], "unit": ["word"], "sentinels": ["yes"]},
}
CASES = [
    pytest.param(function, name, value, id=f"{function}-{name}-{type(value).__name__}-{place}")
    for function, arguments in WRONG.items()
    for name, values in arguments.items()
    for place, value in enumerate(values)
]


def length(image: str, candidate: str, references: tuple[str, ...]) -> float:
    return float(len(candidate))


@pytest.mark.parametrize(("function", "name", "value"), CASES)
def test_a_wrong_type_is_one_line_that_names_the_argument(function: str, name: str, value: Any) -> None:
    usual: dict[str, Any] = {"dataset": EXPERT, "metrics": [length, "bleu-1"]}
    usual = {"load": {"dataset": EXPERT}}.get(function, usual)
    if function == "score":
        usual = {"candidates": CANDIDATES, "references": REFERENCES, "metrics": length}
    with pytest.raises(cb.CapbenchError) as caught:
        getattr(cb, function)(**{**usual, name: value})
    line = str(caught.value)
    assert re.search(rf"\b{name}\b", line) or (name == "metrics" and "metric" in line)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("call", "code", "value"),
    [
        (lambda: cb.score(CANDIDATES, REFERENCES, length, dataset=[EXPERT]), "wrong-type", [EXPERT]),  # type: ignore[arg-type]
        (lambda: cb.score(CANDIDATES, REFERENCES, length, bootstrap=5), "out-of-range", 5),
        (lambda: cb.score(CANDIDATES, REFERENCES, length, versions="1"), "unknown-option", "versions"),  # type: ignore[call-arg]
        (lambda: cb.score(CANDIDATES, REFERENCES, length, version="a|b"), "wrong-format", "a|b"),
        (lambda: cb.extract_features("photos", dataset=EXPERT), "conflict", EXPERT),
        (lambda: cb.evaluate_model("scan", "scan-flickr8k-grid", "tset"), "unknown-name", "tset"),
        (lambda: cb.load(), "missing-option", "dataset"),  # type: ignore[call-arg]
        (lambda: cb.score(CANDIDATES, REFERENCES, length)[3], "unknown-name", 3),  # type: ignore[index]
        (lambda: cb.score([cb.Item(3, "a dog", ())], metrics=length), "wrong-type", None),  # type: ignore[arg-type]
        (lambda: cb.score([cb.Item("a", "a dog", ["a"])], metrics=length), "wrong-type", None),  # type: ignore[arg-type]
        (lambda: cb.score(cb.load(EXPERT), REFERENCES, length), "conflict", None),
        (lambda: cb.score(FRAME, FRAME, length), "wrong-type", None),  # type: ignore[arg-type]
        (lambda: cb.score(CANDIDATES, REFERENCES, "cider", version="1"), "conflict", None),
        (lambda: cb.score(CANDIDATES, REFERENCES, {"mine": length}, version={"min": "1"}), "unknown-name", "min"),
        (lambda: cb.score(CANDIDATES, REFERENCES, length, version={"length": ""}), "wrong-format", {"length": ""}),
        (lambda: cb.correlate("flickr8k-expert", ["cidr"]), "unknown-name", "cidr"),
        (lambda: cb.correlate("flickr8k-expert", "cider", alpha=0.1), "missing-option", "alpha"),
        (lambda: cb.correlate("flickr8k-expert", "cider", options={"cider.sgma": 3}), "unknown-option", "sgma"),
        (lambda: cb.correlate("flickr8k-expert", [int]), "wrong-type", "int"),
        (lambda: cb.correlate("flickr8k-expert", {"a b": "cider"}), "wrong-format", "a b"),
        (lambda: cb.correlate("flickr8k-expert", {"a=b": "cider"}), "wrong-format", "a=b"),
        (lambda: cb.compare(EXPERT, "cider"), "too-few", None),
        (lambda: cb.score(["a"]), "missing-option", None),
        (lambda: cb.score(metrics="cider"), "missing-option", None),
        (lambda: cb.score(["a"], metrics="cider"), "missing-references", "cider"),
        (lambda: cb.score(["a"], [["b"]], "cider", dataset="composite"), "conflict", "composite"),
        (lambda: cb.score(["a"], [["b"]], "cider", draw=2), "missing-option", None),
        (lambda: cb.score(["a", "b"], [["b"]], "cider"), "mismatch", 2),
        (lambda: cb.score({"x": "a"}, {"y": ["b"]}, "cider"), "missing-references", "x"),
        (lambda: cb.score({"x": 3}, {"x": ["b"]}, "cider"), "wrong-type", 3),
        (lambda: cb.score([{"image": len, "caption": "a"}], {"x": ["b"]}, "cider"), "wrong-type", len),
        (lambda: cb.score(["a"], [["b"]], "cider", features={"tigr": "x.h5"}), "unknown-name", "tigr"),
    ],
)
def test_the_code_says_what_is_wrong(call: Callable[[], object], code: str, value: Any) -> None:
    with raises(cb.CapbenchError, code, value=value):
        call()


def test_a_series_is_paired_by_position_only_where_its_index_is_that_of_the_other() -> None:
    texts, other = pd.Series(CANDIDATES), pd.Series(["a dog runs", "the cat sleeps"])
    moved = [series.set_axis([7, 3]) for series in (texts, other)]
    for candidates, references in ((texts, other), (texts, REFERENCES), (moved[0], moved[1])):
        assert cb.score(candidates, references, length)["length"].tolist() == [5.0, 12.0]
    for candidates, references in ((texts, moved[1]), (moved[0], moved[1][::-1]), (moved[0], REFERENCES)):
        with raises(UsageError, "mismatch"):
            cb.score(candidates, references, length)


def test_scores_cannot_be_written_to() -> None:
    table = cb.score(CANDIDATES, REFERENCES, length)
    with pytest.raises(ValueError, match="read-only"):
        table["length"][0] = 9.0
    frame = table.to_frame()
    frame.loc[0, "length"] = 9.0
    assert table["length"].tolist() == [5.0, 12.0]
