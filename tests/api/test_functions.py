"""A plain function as a metric: what it is given, how it is signed and cached, and what is said when it fails."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import capbench as cb
from capbench.api import parses
from capbench.api.caller import PYTHON
from capbench.core.errors import MetricError, UsageError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.from_function import metric_of_function
from capbench.metrics.score_cache import may_be_cached
from capbench.text import ptb
from tests.errors import raises

MODULE = '''
CALLS = []


def words(image, candidate, references):
    """How many words."""
    CALLS.append(image)
    return len(candidate.split())


shortest = lambda image, candidate, references: min(map(len, references))  # noqa: E731


def made(factor):
    def scaled(image, candidate, references):
        return factor * len(candidate)

    return scaled


class Judge:
    def method(self, image, candidate, references):
        return 1.0

    def __call__(self, image, candidate, references):
        return 2.0
'''
CANDIDATES, REFERENCES = ["a dog", "a cat sleeps"], [["a dog runs"], ["a cat", "the cat sleeps"]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "own_metrics.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield importlib.import_module("own_metrics")
    del sys.modules["own_metrics"]


@pytest.mark.parametrize(
    "value",
    ["0.5", None, np.array([1.0, 2.0]), 1j, float("nan")],
)
def test_a_value_that_is_not_a_finite_number_is_an_error_with_the_item(value: Any) -> None:
    def odd(image: str, candidate: str, references: tuple[str, ...]) -> Any:
        return 1.0 if candidate == "a dog" else value

    with raises(MetricError, "not-a-number") as caught:
        cb.score(CANDIDATES, REFERENCES, odd)
    assert "the function odd" in str(caught.value)
    assert "'line-2' of image 'line-2' ('a cat sleeps')" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_it_raises_is_told_with_the_item() -> None:
    def broken(image: str, candidate: str, references: tuple[str, ...]) -> float:
        return {"a dog": 1.0}[candidate]

    with raises(cb.CapbenchError, "tool-failed", value="broken") as caught:
        cb.score(CANDIDATES, REFERENCES, broken)
    assert "KeyError: 'a cat sleeps'" in caught.value.message
    assert "'line-2'" in caught.value.message
    assert isinstance(caught.value.__cause__, KeyError)


def _form(parameters: str, value: str = "1.0") -> Any:
    namespace: dict[str, Any] = {}
    exec(f"def made({parameters}):\n    return {value}\n", namespace)
    return namespace["made"]


@pytest.mark.parametrize(
    ("parameters", "value", "expected"),
    [
        ("references, candidate", "len(references) + len(candidate) / 100", [2.1, 1.12]),
        ("image, candidate", "len(image.id) + 10 * (image.path is None)", None),
        ("image, candidate, *, references", "len(references)", [2.0, 1.0]),
        ("candidates, references", "[len(r) + len(c) / 100 for c, r in zip(candidates, references)]", [2.1, 1.12]),
        ("images, candidates, batch_size=1", "[len(images)] * len(candidates)", [1.0, 1.0]),
        ("items, device=None", "[device == 'cpu' or device == 'cuda'] * len(items)", [1.0, 1.0]),
    ],
)
def test_names_of_parameters_decide_the_call(parameters: str, value: str, expected: list[float] | None) -> None:
    candidates, references = {"a": "a dog runs", "b": "two men talk"}, {"a": ["x", "y"], "b": ["z"]}
    scores = cb.score(candidates, references, {"made": _form(parameters, value)})["made"].tolist()
    assert scores == (expected or [11.0, 11.0])


@pytest.mark.parametrize(
    "parameters",
    ["*given", "candidate, **more", "candidate, reference", "candidate, images", "candidate, weight", "items, image"],
)
def test_other_parameters_are_rejected_without_a_call(parameters: str) -> None:
    with raises(UsageError, "wrong-type", value="made"):
        cb.score(CANDIDATES, REFERENCES, {"made": _form(parameters, "1 / 0")})


def test_names() -> None:
    def cider(image: str, candidate: str, references: tuple[str, ...]) -> float:
        return 1.0

    with raises(UsageError, "duplicate", value="cider"):
        cb.score(CANDIDATES, REFERENCES, cider)
    named: dict[str, Any] = {"mine": cider, "bleu-1": "bleu-1", "other": lambda image, candidate, references: 2.0}
    table = cb.score(CANDIDATES, REFERENCES, named)
    assert [row.name for row in table.rows] == ["mine", "bleu-1", "other"]
    lambdas = [lambda image, candidate, references: 1.0, lambda image, candidate, references: 2.0]
    assert [row.name for row in cb.score(CANDIDATES, REFERENCES, lambdas[:1]).rows] == ["lambda"]
    with raises(UsageError, "duplicate", value="lambda"):
        cb.score(CANDIDATES, REFERENCES, lambdas)

    def twins() -> list[Callable[..., float]]:
        def twin(image: str, candidate: str, references: tuple[str, ...]) -> float:
            return 1.0

        return [twin]

    with raises(UsageError, "duplicate", value="twin"):
        cb.score(CANDIDATES, REFERENCES, [*twins(), *twins()])


def test_without_a_version_nothing_is_cached(module: ModuleType) -> None:
    functions = [module.words, module.shortest, module.made(2.0), module.Judge().method, module.Judge()]
    for place, function in enumerate(functions):
        metric = metric_of_function(function, f"m{place}")()
        assert metric.signature().startswith("function:own_metrics.")
        assert metric.signature().endswith("@unsigned")
        assert not may_be_cached(metric)
    for _ in range(2):
        table = cb.score(CANDIDATES, REFERENCES, module.words)
        assert (table["words"].tolist(), table.cached["words"]) == ([2.0, 3.0], 0)
    assert len(module.CALLS) == 4


def test_a_stated_version_caches_a_function(module: ModuleType) -> None:
    calls: list[str] = []

    def counted(image: str, candidate: str, references: tuple[str, ...]) -> float:
        calls.append(image)
        return float(len(calls))

    first = cb.score(CANDIDATES, REFERENCES, counted, version="1")
    again = cb.score(CANDIDATES, REFERENCES, counted, version="1")
    assert (first["counted"].tolist(), again["counted"].tolist(), again.cached["counted"]) == ([1, 2], [1, 2], 2)
    assert ".counted,counted@version:1+" in first.signatures["counted"]
    assert cb.score(CANDIDATES, REFERENCES, counted, version="2")["counted"].tolist() == [3, 4]
    # Two functions of one code in one call are told apart by their labels, and each may have a version of its own.
    twins = {"a": module.made(2.0), "b": module.made(3.0)}
    for _ in range(2):
        table = cb.score(CANDIDATES, REFERENCES, twins, version={"a": "1", "b": "1"})
        assert (table["a"].tolist(), table["b"].tolist()) == ([10, 24], [15, 36])
    assert table.cached == {"a": 2, "b": 2}
    assert cb.score(CANDIDATES, REFERENCES, twins, version={"a": "1"}).cached == {"a": 2, "b": 0}
    # Other code under the same version is another metric.
    other = cb.score(CANDIDATES, REFERENCES, {"counted": lambda image, candidate, references: 9.0}, version="1")
    assert other["counted"].tolist() == [9.0, 9.0]


@pytest.mark.parametrize("name", ["pascal-50s", "composite@8k"])
def test_a_data_set_has_the_captions_of_all_its_selections(name: str) -> None:
    root = find_root("sample")
    opened = open_dataset(name, root)
    items = [item for selection in opened.selections.values() for d in opened.load(selection) for item in d.items]
    texts = {text for item in items for text in (item.candidate, *item.references)}
    found = parses.named_captions([name], root, PYTHON)
    assert (found.captions, set(found.tokens), found.skipped) == (len(texts), {name}, {})
    assert set(found.tokens[name]) == set(ptb.tokenize(list(texts)))


@pytest.mark.parametrize(
    ("name", "permitted"),
    [
        ("coco-test", True),
        ("distractions@coco", True),
        ("composite@coco", False),
        ("flickr8k", False),
        ("my/captions.json", False),
    ],
)
def test_parses_may_be_published_only_where_the_captions_licence_permits_it(
    tmp_path: Path, name: str, permitted: bool
) -> None:
    assert parses._terms(name, find_root(tmp_path)).derived is permitted


@pytest.mark.real_data
def test_flickr8k_expert_has_the_known_number_of_captions(real_data: Path) -> None:
    found = parses.named_captions(["flickr8k-expert"], find_root(real_data), PYTHON)
    assert found.captions == 4993
    assert len(found.tokens["flickr8k-expert"]) == 4992  # two differ in punctuation only
