from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import TieRule
from capbench.stats.pairwise_accuracy import aggregate, pairwise_accuracy
from tests.errors import raises

RULES: list[TieRule] = ["strict", "ties-right", "ties-half"]


@pytest.mark.parametrize(("rule", "expected"), [("strict", 2 / 5), ("ties-right", 3 / 5), ("ties-half", 2.5 / 5)])
def test_a_tie_counts_as_its_rule_says(rule: TieRule, expected: float) -> None:
    first, second = [0.9, 0.1, 0.5, 0.7, 0.3], [0.2, 0.4, 0.5, 0.1, 0.6]
    result = pairwise_accuracy(first, second, [1, -1, 1, -1, 1], rule)
    assert result.value == pytest.approx(expected)
    assert (result.n, result.ties) == (5, 1)


@pytest.mark.parametrize("rule", RULES)
def test_coin_flips_are_at_chance_with_ties_and_without(rule: TieRule) -> None:
    rng = np.random.default_rng(3)
    n = 40_000
    preferred = rng.choice([-1, 1], size=n)
    for tie_rate in (0.0, 0.3):
        second = np.where(rng.random(n) < tie_rate, 0.0, rng.choice([-1.0, 1.0], size=n))
        found = pairwise_accuracy(np.zeros(n), second, preferred, rule)
        assert found.value == pytest.approx(found.chance, abs=0.01)
        if tie_rate == 0.0:
            assert found.chance == 0.5


def test_pairs_on_which_people_are_even_are_left_out_and_counted() -> None:
    result = pairwise_accuracy([1.0, 2.0, 5.0], [0.0, 2.0, 9.0], [1, 0, 0], "ties-right")
    assert (result.value, result.n, result.ties) == (1.0, 1, 0)


scores = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([-1, 1])), min_size=1, max_size=50)


@given(scores)
def test_the_three_rules_differ_by_the_share_of_ties(pairs: list[tuple[int, int, int]]) -> None:
    first, second, preferred = (list(column) for column in zip(*pairs, strict=True))
    strict, right, half = (pairwise_accuracy(first, second, preferred, rule) for rule in RULES)
    share = strict.ties / strict.n
    assert right.value - strict.value == pytest.approx(share)
    assert half.value - strict.value == pytest.approx(share / 2)
    assert strict.value == sum(np.sign(a - b) == p for a, b, p in pairs) / len(pairs)


@pytest.mark.parametrize(
    ("first", "second", "preferred", "code", "value"),
    [
        ([float("nan")], [1.0], [1], "not-a-number", "cider (first of the pair)"),
        ([1.0], [float("inf")], [1], "not-a-number", "cider (second of the pair)"),
        ([1.0], [2.0], [0], "undefined", "cider"),
    ],
)
def test_undefined_accuracies_are_rejected(first: Any, second: Any, preferred: Any, code: str, value: object) -> None:
    with raises(StatisticError, code, value=value):
        pairwise_accuracy(first, second, preferred, name="cider")


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
