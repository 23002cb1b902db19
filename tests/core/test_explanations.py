"""Records of explanations reject content that cannot be drawn, so that a metric's author notices at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from capbench.core.errors import MetricError
from capbench.core.explanations import Bars, ExplainedCandidate, Explanation, Matrix, RegionMaps, Regions
from tests.errors import raises

NAN = float("nan")


def of_regions(columns: int, regions: Regions | None) -> Explanation:
    panel = RegionMaps("maps", ("a",), np.zeros((1, columns)))
    return Explanation("X", "pond", (ExplainedCandidate("a dog", (), None, {}, (panel,)),), "x", regions)


@pytest.mark.parametrize(
    ("make", "code", "value"),
    [
        (lambda: ExplainedCandidate("a", (), None, {"share": NAN}), "not-a-number", "share"),
        (lambda: Bars("words", ("a",), np.zeros(2)), "wrong-shape", (2,)),
        (lambda: RegionMaps("heat", ("a",), np.zeros((2, 1))), "wrong-shape", (2, 1)),
        (lambda: Matrix("alike", ("a",), ("b",), np.array([[NAN]])), "not-a-number", "alike"),
        (lambda: Matrix("alike", ("a",), ("b",), np.zeros((2, 1))), "wrong-shape", (2, 1)),
        (lambda: of_regions(2, None), "wrong-shape", (1, 2)),
        (lambda: of_regions(2, Regions(("a",))), "wrong-shape", (1, 2)),
    ],
)
def test_content_that_cannot_be_drawn_is_rejected(make: Callable[[], object], code: str, value: object) -> None:
    with raises(MetricError, code, value=value):
        make()
