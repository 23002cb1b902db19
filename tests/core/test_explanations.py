"""Records of explanations reject content that cannot be drawn, so that a metric's author notices at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from capbench.core.errors import MetricError
from capbench.core.explanations import (
    Bar,
    Bars,
    Chart,
    ExplainedCandidate,
    Explanation,
    Link,
    Matching,
    Matrix,
    RegionMap,
    RegionMaps,
    Regions,
    Score,
    Series,
    Subject,
    Table,
    WeightedWords,
    letter,
)
from capbench.core.records import Item
from tests.errors import raises

NAN = float("nan")


def explained(maps: RegionMaps, regions: Regions | None) -> Explanation:
    candidate = ExplainedCandidate("a dog", (), None, (maps,), None)
    return Explanation("X", "pond", (candidate,), "x", regions)


@pytest.mark.parametrize(
    ("make", "code", "value"),
    [
        (lambda: Score("share", NAN), "not-a-number", "share"),
        (lambda: Bars("words", (Bar("a", float("inf")),)), "not-a-number", "words"),
        (lambda: WeightedWords("words", (("a", NAN),)), "not-a-number", "words"),
        (lambda: RegionMap("heat", np.array([NAN])), "not-a-number", "heat"),
        (lambda: RegionMaps("heat", (), 0.0, NAN), "not-a-number", "heat"),
        (lambda: Series("gain", np.array([NAN])), "not-a-number", "gain"),
        (lambda: Matrix("alike", ("a",), ("b",), np.array([[NAN]])), "not-a-number", "alike"),
        (lambda: Matrix("alike", ("a",), ("b",), np.zeros((2, 1))), "wrong-shape", (2, 1)),
        (lambda: Matching("m", "l", ("a",), "r", ("b",), (Link(0, 1),)), "out-of-range", (0, 1)),
        (lambda: Chart("c", ("1", "2"), (Series("s", np.zeros(3)),)), "mismatch", 3),
        (lambda: Chart("c", ("1", "2"), (), hints=("x",)), "mismatch", 1),
        (lambda: Table("t", ("a", "b"), (("1",),)), "mismatch", 1),
        (lambda: Regions(("a", "b"), np.zeros((1, 4))), "mismatch", 1),
        (lambda: Subject("pond", (Item("pond", "a", ()),), ()), "mismatch", 0),
        (lambda: Subject("pond", (Item("lake", "a", ()),), (None,)), "missing-caption", "pond"),
        (lambda: explained(RegionMaps("m", (RegionMap("h", np.zeros(2)),)), None), "mismatch", 2),
        (lambda: explained(RegionMaps("m", (RegionMap("h", None, (2,)),)), Regions(("a",))), "out-of-range", (2,)),
    ],
)
def test_content_that_cannot_be_drawn_is_rejected(make: Callable[[], object], code: str, value: object) -> None:
    with raises(MetricError, code, value=value):
        make()


def test_candidates_have_letters() -> None:
    assert [letter(i) for i in (0, 25, 26, 53)] == ["A", "Z", "A2", "B3"]
