from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import TieRule
from capbench.stats.pairwise_accuracy import pairwise_accuracy
from tests.errors import raises

RULES: list[TieRule] = ["strict", "ties-right", "ties-half"]


@pytest.mark.parametrize(("rule", "expected"), [("strict", 2 / 5), ("ties-right", 3 / 5), ("ties-half", 2.5 / 5)])
def test_a_tie_counts_as_its_rule_says(rule: TieRule, expected: float) -> None:
    first, second = [0.9, 0.1, 0.5, 0.7, 0.3], [0.2, 0.4, 0.5, 0.1, 0.6]
    result = pairwise_accuracy(first, second, [1, -1, 1, -1, 1], rule)
    assert result.pooled.value == result.mean == pytest.approx(expected)
    assert (result.pooled.n, result.pooled.ties) == (5, 1)


@pytest.mark.parametrize(("rule", "expected"), [("strict", 0.0), ("ties-right", 1.0), ("ties-half", 0.5)])
def test_a_constant_metric_is_exactly_at_chance(rule: TieRule, expected: float) -> None:
    pooled = pairwise_accuracy([3.0] * 4, [3.0] * 4, [1, -1, -1, 1], rule).pooled
    assert pooled.value == pooled.chance == expected


@pytest.mark.parametrize("rule", RULES)
def test_coin_flips_are_at_chance_with_ties_and_without(rule: TieRule) -> None:
    rng = np.random.default_rng(3)
    n = 40_000
    preferred = rng.choice([-1, 1], size=n)
    for tie_rate in (0.0, 0.3):
        second = np.where(rng.random(n) < tie_rate, 0.0, rng.choice([-1.0, 1.0], size=n))
        pooled = pairwise_accuracy(np.zeros(n), second, preferred, rule).pooled
        assert pooled.value == pytest.approx(pooled.chance, abs=0.01)
        if tie_rate == 0.0:
            assert pooled.chance == 0.5


def test_groups_are_reported_in_their_order_and_their_mean_is_not_the_pooled_value() -> None:
    first, second = [2.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 2.0]
    result = pairwise_accuracy(first, second, [1, 1, 1, 1], groups=["HI", "HI", "HI", "HC"])
    assert [(g.name, g.value, g.n) for g in result.groups] == [("HI", 1.0, 3), ("HC", 0.0, 1)]
    assert (result.mean, result.pooled.value) == (0.5, 0.75)
    assert result.mean_chance == 0.5


def test_pairs_on_which_people_are_even_are_left_out_and_counted() -> None:
    result = pairwise_accuracy([1.0, 2.0, 5.0], [0.0, 2.0, 9.0], [1, 0, 0], "ties-right")
    assert (result.pooled.value, result.pooled.n, result.pooled.ties) == (1.0, 1, 0)


def test_huge_scores_do_not_overflow() -> None:
    assert pairwise_accuracy([1e308], [-1e308], [1]).pooled.value == 1.0


scores = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([-1, 1])), min_size=1, max_size=50)


@given(scores)
def test_the_three_rules_differ_by_the_share_of_ties(pairs: list[tuple[int, int, int]]) -> None:
    first, second, preferred = (list(column) for column in zip(*pairs, strict=True))
    strict, right, half = (pairwise_accuracy(first, second, preferred, rule).pooled for rule in RULES)
    share = strict.ties / strict.n
    assert right.value - strict.value == pytest.approx(share)
    assert half.value - strict.value == pytest.approx(share / 2)
    assert strict.value == sum(np.sign(a - b) == p for a, b, p in pairs) / len(pairs)


@given(scores)
def test_exchanging_first_and_second_changes_nothing(pairs: list[tuple[int, int, int]]) -> None:
    first, second, preferred = (list(column) for column in zip(*pairs, strict=True))
    one = pairwise_accuracy(first, second, preferred)
    assert one == pairwise_accuracy(second, first, [-p for p in preferred])


@pytest.mark.parametrize(
    ("first", "second", "preferred", "groups", "code", "value"),
    [
        ([float("nan")], [1.0], [1], None, "not-a-number", "cider (first of the pair)"),
        ([1.0], [float("inf")], [1], None, "not-a-number", "cider (second of the pair)"),
        ([1.0], [1.0, 2.0], [1], None, "mismatch", "cider"),
        ([], [], [], None, "too-few", 0),
        ([1.0], [2.0], [2], None, "wrong-value", 2.0),
        ([1.0], [2.0], [0], None, "undefined", ""),
        ([1.0, 1.0], [2.0, 2.0], [1, 0], ["HC", "HM"], "undefined", "HM"),
    ],
)
def test_undefined_accuracies_are_rejected(
    first: Any, second: Any, preferred: Any, groups: Any, code: str, value: object
) -> None:
    with raises(StatisticError, code, value=value):
        pairwise_accuracy(first, second, preferred, groups=groups, name="cider")
