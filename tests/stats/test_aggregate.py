from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.stats.pairwise_accuracy import aggregate
from tests.errors import raises

ITEMS = [7, 2, 7, 2, 7, 5, 2, 2]
VALUES = [4.0, 1.0, 1.0, 3.0, 1.0, 2.0, 3.0, 1.0]


def test_unaggregated_keeps_every_rating_in_its_order() -> None:
    items, values = aggregate(ITEMS, VALUES, "unaggregated")
    assert (items.tolist(), values.tolist()) == (ITEMS, VALUES)


ratings = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=60)


@given(ratings)
def test_each_aggregation_is_that_of_the_standard_library(pairs: list[tuple[int, int]]) -> None:
    by_item: dict[int, list[int]] = {}
    for item, value in pairs:
        by_item.setdefault(item, []).append(value)
    indices = [item for item, _ in pairs]
    values = [value for _, value in pairs]
    wanted = sorted(by_item)
    for how, function in (
        ("mean", statistics.mean),
        ("median", statistics.median),
        ("mode", lambda v: statistics.mode(sorted(v))),
    ):
        items, got = aggregate(indices, values, how)  # type: ignore[arg-type]
        assert items.tolist() == wanted
        assert got.tolist() == pytest.approx([float(function(by_item[i])) for i in wanted], rel=1e-15)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_ratings_does_not_change_the_last_digit_of_a_mean(values: list[float], random: Any) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)
    _, means = aggregate([0] * len(values) + [1] * len(values), values + shuffled, "mean")
    assert means[0] == means[1]


@pytest.mark.parametrize(
    ("item", "value", "how", "code", "named"),
    [
        ([0, 0], [1, float("nan")], "mean", "not-a-number", "the human ratings"),
        ([], [], "unaggregated", "too-few", 0),
    ],
)
def test_invalid_ratings_cannot_be_aggregated(item: Any, value: Any, how: Any, code: str, named: object) -> None:
    with raises(StatisticError, code, value=named):
        aggregate(item, value, how)
