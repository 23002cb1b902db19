"""Records of explanations refuse what cannot be drawn, so that a metric's author sees it at once."""

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

NAN = float("nan")


def explained(maps: RegionMaps, regions: Regions | None) -> Explanation:
    candidate = ExplainedCandidate("a dog", (), None, (maps,), None)
    return Explanation("X", "pond", (candidate,), "x", regions)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Score("share", NAN), "'share' holds a number that is not finite"),
        (lambda: Bars("words", (Bar("a", float("inf")),)), "'words' holds a number"),
        (lambda: WeightedWords("words", (("a", NAN),)), "'words' holds a number"),
        (lambda: RegionMap("heat", np.array([NAN])), "'heat' holds a number"),
        (lambda: RegionMaps("heat", (), 0.0, NAN), "'heat' holds a number"),
        (lambda: Series("gain", np.array([NAN])), "'gain' holds a number"),
        (lambda: Matrix("alike", ("a",), ("b",), np.array([[NAN]])), "'alike' holds a number"),
        (lambda: Matrix("alike", ("a",), ("b",), np.zeros((2, 1))), r"shape \(2, 1\) for 1 rows and 1 columns"),
        (lambda: Matching("m", "l", ("a",), "r", ("b",), (Link(0, 1),)), "'m' links 0 and 1"),
        (lambda: Chart("c", ("1", "2"), (Series("s", np.zeros(3)),)), "3 values of 's' for 2"),
        (lambda: Chart("c", ("1", "2"), (), hints=("x",)), "1 hints of 'c' for 2"),
        (lambda: Table("t", ("a", "b"), (("1",),)), "1 cells of 't' for 2"),
        (lambda: Regions(("a", "b"), np.zeros((1, 4))), "1 boxes for 2"),
        (lambda: Subject("pond", (Item("pond", "a", ()),), ()), "0 ratings of people for 1"),
        (lambda: explained(RegionMaps("m", (RegionMap("h", np.zeros(2)),)), None), "2 weights of 'h' for 0"),
        (
            lambda: explained(RegionMaps("m", (RegionMap("h", None, (2,)),)), Regions(("a",))),
            r"outlines regions \(2,\)",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MetricError, match=message):
        make()


def test_candidates_have_letters() -> None:
    assert [letter(i) for i in (0, 25, 26, 53)] == ["A", "Z", "A2", "B3"]
