"""Records of explanations reject content that cannot be drawn, so that a metric's author notices at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from capbench.core.errors import MetricError
from capbench.core.explanations import Bars, ExplainedCandidate, Explanation, Matrix, Panel, RegionMaps, Regions
from tests.errors import raises

NAN = float("nan")
ONE = Regions(("a",))


def explained(*panels: Panel, regions: Regions | None = None, **scores: float) -> Explanation:
    return Explanation("X", "pond", (ExplainedCandidate("a dog", (), None, scores, panels),), "x", regions)


@pytest.mark.parametrize(
    ("make", "code", "value"),
    [
        (lambda: explained(share=NAN), "not-a-number", "share"),
        (lambda: explained(Bars("words", ("a",), np.zeros(2))), "wrong-shape", (2,)),
        (lambda: explained(Matrix("alike", ("a",), ("b",), np.array([[NAN]]))), "not-a-number", "alike"),
        (lambda: explained(Matrix("alike", ("a",), ("b",), np.zeros((2, 1)))), "wrong-shape", (2, 1)),
        (lambda: explained(RegionMaps("heat", ("a",), np.zeros((1, 2)))), "wrong-shape", (1, 2)),
        (lambda: explained(RegionMaps("heat", ("a",), np.zeros((2, 1))), regions=ONE), "wrong-shape", (2, 1)),
        (lambda: explained(RegionMaps("heat", ("a",), np.zeros((1, 2))), regions=ONE), "wrong-shape", (1, 2)),
    ],
)
def test_content_that_cannot_be_drawn_is_rejected(make: Callable[[], object], code: str, value: object) -> None:
    with raises(MetricError, code, value=value):
        make()
