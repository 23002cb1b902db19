from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict
from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, TieRule
from capbench.stats import permutation, significance
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.correlation import correlation
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.pairs import Correction, Test
from capbench.stats.resampling import Swaps, mean_statistic
from capbench.stats.significance import (
    FormulaTest,
    adjust,
    adjusted_pairs,
    at_floor,
    better_p_values,
    compare,
    mcnemar,
    permutations_needed,
    permutations_to_use,
    significance_ranks,
    steiger,
    williams,
)
from tests.errors import raises


def example(coefficient: Coefficient = "tau-c", n: int = 240, seed: int = 0) -> Correlations:
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    human = np.clip(np.round(quality + 2.5), 1, 4)
    scores = {
        "good": quality + rng.normal(size=n) * 0.5,
        "good-too": quality + rng.normal(size=n) * 0.5,
        "bad": quality + rng.normal(size=n) * 3,
    }
    return Correlations.of(coefficient, scores, human, np.arange(n) // 3)


def accuracies(ties: TieRule = "strict", seed: int = 0) -> Accuracies:
    rng = np.random.default_rng(seed)
    n = 200
    better = rng.choice([-1, 1], n)
    first = {name: np.round(better * size + rng.normal(size=n), 1) for name, size in (("a", 1.0), ("b", 0.4))}
    return Accuracies.of(ties, first, {name: np.zeros(n) for name in first}, better)


def test_a_clear_difference_is_found_and_equal_metrics_share_the_top() -> None:
    table = compare(example(), permutations=999)
    assert set(table.top) == {"good", "good-too"}
    assert table.ranks["bad"] == 2
    assert [pair.worse for pair in table.pairs if pair.significant] == ["bad", "bad"]
    assert list(table.ranks) == [table.pairs[0].better, table.pairs[0].worse, "bad"]
    assert all(pair.difference >= 0 for pair in table.pairs)


def test_the_p_value_is_the_exact_one_of_all_permutations() -> None:
    rng = np.random.default_rng(2)
    n = 8
    human = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0])
    a, b = human + rng.normal(size=n), human + rng.normal(size=n) * 2
    ra, rb = scipy.stats.rankdata(a), scipy.stats.rankdata(b)
    differences = []
    for swap in itertools.product([False, True], repeat=n):
        x, y = np.where(swap, rb, ra), np.where(swap, ra, rb)
        differences.append(abs(correlation("tau-b", x, human).value - correlation("tau-b", y, human).value))
    exact = float(np.mean(np.array(differences) >= differences[0] - 1e-12))
    table = compare(Correlations.of("tau-b", {"a": a, "b": b}, human), permutations=20_000)
    assert table.pairs[0].p_value == pytest.approx(exact, abs=0.012)


def test_the_paired_bootstrap_counts_differences_moved_to_the_null_hypothesis() -> None:
    data = example()
    sample = draw_bootstrap(data, resamples=500, seed=3)
    pair = next(p for p in compare(data, test="bootstrap", sample=sample).pairs if p.worse == "bad")
    values = sample.values[pair.better] - sample.values["bad"]
    count = int((np.abs(values - pair.difference) >= abs(pair.difference)).sum())
    assert pair.p_value == (count + 1) / 501
    assert (pair.low, pair.high) == pytest.approx(tuple(np.quantile(values, (0.025, 0.975))))


@pytest.mark.parametrize("coefficient", ["pearson", "spearman"])
def test_formulas_take_the_three_correlations(coefficient: Coefficient) -> None:
    data = example(coefficient)
    tests: list[tuple[Test, Callable[..., FormulaTest]]] = [("williams", williams), ("steiger", steiger)]
    for test, formula in tests:
        table = compare(data, test=test, correction="none")
        for pair in table.pairs:
            a, b = data.scores[pair.better][0], data.scores[pair.worse][0]
            r12, r13 = (correlation(coefficient, scores, data.human).value for scores in (a, b))
            assert pair.p_value == formula(r12, r13, correlation(coefficient, a, b).value, 240).p_value
        assert (table.unit, table.resamples, table.units) == (None, None, 240)


def test_mcnemars_test_counts_the_pairs_that_one_metric_has_right() -> None:
    data = accuracies()
    right = {name: credit[0] == 1 for name, credit in data.scores.items()}
    table = compare(data, test="mcnemar")
    expected = mcnemar(int((right["a"] & ~right["b"]).sum()), int((right["b"] & ~right["a"]).sum()))
    assert table.pairs[0].p_value == expected.p_value
    # The permutation test on the same pairs estimates the same two-sided probability.
    close = accuracies(seed=3)
    p = compare(close, permutations=20_000).pairs[0].p_value
    assert p == pytest.approx(compare(close, test="mcnemar").pairs[0].p_value, abs=0.02)


def test_the_number_of_permutations_allows_a_significant_difference() -> None:
    assert permutations_needed(66) == 1319
    assert 66 / (1319 + 1) <= 0.05 < 66 / (1318 + 1)
    assert permutations_needed(66, correction="none") == 19
    with raises(StatisticError, "too-many", value=45 * 10**9 - 1):
        permutations_needed(45, 1e-9)


@pytest.mark.parametrize("coefficient", ["tau-b", "tau-c", "spearman", "pearson"])
def test_the_number_of_pairs_prepared_at_a_time_changes_nothing(
    coefficient: Coefficient, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = example(coefficient)
    together = compare(data, permutations=300)
    monkeypatch.setattr(significance, "_POINTS_TOGETHER", 0)
    monkeypatch.setattr(permutation, "_VALUES", 0)
    assert asdict(compare(data, permutations=300)) == asdict(together)


def test_draws_of_references_are_averaged() -> None:
    data = example("pearson")
    both = {name: np.repeat(rows, 2, axis=0) for name, rows in data.scores.items()}
    doubled = compare(Correlations.of("pearson", both, data.human, data.unit), permutations=200)
    differences = [pair.difference for pair in compare(data, permutations=200).pairs]
    assert [pair.difference for pair in doubled.pairs] == pytest.approx(differences)


def test_there_are_enough_permutations_for_any_number_of_metrics() -> None:
    assert permutations_to_use(None, 2) == 10_000
    assert permutations_to_use(None, 2, test="bootstrap") == 1000
    assert permutations_to_use(500, 3) == 500
    for metrics in (10, 12, 30):
        needed = permutations_needed(metrics * (metrics - 1) // 2)
        assert permutations_to_use(None, metrics) == max(10_000, 2 * needed)
        assert permutations_to_use(needed, metrics) == needed
        assert permutations_to_use(needed - 1, metrics) == 2 * needed
    assert permutations_to_use(1000, 30, correction="none") == 1000
    assert permutations_to_use(None, 40) == 2 * permutations_needed(780) > 10_000


def test_a_difference_is_significant_by_its_adjusted_p_value() -> None:
    first, second = adjusted_pairs([("a", "b", 0.3), ("a", "c", 0.2)], [0.04, 0.01], "holm", 0.05)
    assert (first.p_value, first.p_adjusted, first.significant) == (0.04, 0.04, True)
    assert (second.better, second.worse, second.p_adjusted, second.significant) == ("a", "c", 0.02, True)
    both = adjusted_pairs([("a", "b", 0.3), ("a", "c", 0.2)], [0.04, 0.03], "holm", 0.05)
    assert [pair.significant for pair in both] == [False, False]


@pytest.mark.parametrize(
    ("correction", "counts", "floors"),
    [
        ("holm", (0, 1, 40), (True, False, False)),
        # Holm's method raises the last p-value, twice the smallest one, to four times the smallest one.
        ("holm", (0, 0, 0, 1), (True, True, True, True)),
        ("bh", (0, 1, 2), (True, False, False)),
        ("none", (0, 1, 40), (True, False, False)),
    ],
)
def test_p_values_that_the_number_of_permutations_limits_are_at_the_floor(
    correction: Correction, counts: tuple[int, ...], floors: tuple[bool, ...]
) -> None:
    p_values = [(1 + count) / 100 for count in counts]
    found = [
        at_floor(p, p_adjusted, pairs=len(counts), resamples=99, correction=correction)
        for p, p_adjusted in zip(p_values, adjust(p_values, correction).tolist(), strict=True)
    ]
    assert found == list(floors)
    assert not at_floor(1e-9, 1e-9, pairs=3, resamples=None, correction=correction)  # a formula has no floor


@pytest.mark.parametrize("coefficient", ["tau-b", "tau-c", "pearson"])
def test_one_sided_p_values_count_each_permutation_and_its_complement(coefficient: Coefficient) -> None:
    data = example(coefficient, n=60)
    pairs = list(itertools.permutations(data.names, 2))
    whole = np.ones((1, data.units), dtype=np.int32)
    p_values = better_p_values(data, pairs, permutations=99, seed=3)
    for (first, second), p in zip(pairs, p_values.tolist(), strict=True):
        swapped = mean_statistic(data.swaps(first, second))
        drawn = np.concatenate([Swaps(data.units, 99, 3).block(index) for index in range(2)])
        differences = swapped(np.concatenate([drawn, 1 - drawn, 0 * drawn[:1], 0 * drawn[:1] + 1]))
        observed = data.statistic(first)(whole)[0] - data.statistic(second)(whole)[0]
        expected = np.mean(differences >= swapped(0 * drawn[:1])[0] - 1e-12)
        if observed > 0:
            assert p == pytest.approx(expected)
        else:
            assert p >= 0.5


def apart(*pairs: str) -> Callable[[str, str], bool]:
    found = {frozenset(pair) for pair in pairs}
    return lambda first, second: frozenset((first, second)) in found


VALUES = {"c": 0.3, "a": 0.5, "d": 0.2, "b": 0.4}


def test_a_new_rank_begins_with_the_first_metric_that_differs_from_any_of_the_rank() -> None:
    # b is as good as a and c as b, but c is worse than a: c opens rank 2, where d, though worse than a, stays.
    assert significance_ranks(VALUES, apart("ac", "ad", "bd")) == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert significance_ranks(VALUES, apart()) == {"a": 1, "b": 1, "c": 1, "d": 1}
    every = apart("ab", "ac", "ad", "bc", "bd", "cd")
    assert significance_ranks(VALUES, every) == {"a": 1, "b": 2, "c": 3, "d": 4}


@given(st.dictionaries(st.sampled_from("abcdefg"), st.floats(-1, 1), min_size=1), st.data())
def test_metrics_of_one_rank_never_differ(values: dict[str, float], data: st.DataObject) -> None:
    pairs = [a + b for a in values for b in values if a < b]
    differ = apart(*data.draw(st.lists(st.sampled_from(pairs))) if pairs else ())
    ranks = significance_ranks(values, differ)
    assert not any(differ(*pair) for pair in pairs if ranks[pair[0]] == ranks[pair[1]])
    assert list(ranks.values()) == sorted(ranks.values())
    assert [values[name] for name in ranks] == sorted(values.values(), reverse=True)


_p_values = st.lists(
    st.sampled_from([0.0, 0.001, 0.01, 0.02, 0.04, 0.05, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=30
)


@pytest.mark.parametrize(("ours", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
@settings(deadline=None)
@given(p=_p_values)
def test_corrections_are_those_of_statsmodels(ours: Correction, theirs: str, p: list[float]) -> None:
    with patch("gc.collect"):  # which multipletests calls at its end, a second for a process with many libraries
        expected = multipletests(p, method=theirs)[1]
    np.testing.assert_allclose(adjust(p, ours), expected, atol=1e-12)


# Printed by R's cocor (tests williams1959 and steiger1980) for correlations printed with four decimals, and by psych's
# r.test for the example of Steiger (1980): r12, r13, r23, n, then t and z.
PUBLISHED = [
    (-0.1741, 0.2015, 0.3734, 646, -9.0340, -8.6124),
    (0.8066, 0.2383, 0.2255, 177, 9.3823, 8.5460),
    (0.5447, 0.8000, 0.0729, 70, -2.8114, None),
    (0.2493, 0.3395, 0.4082, 553, None, -2.0660),
    (0.0228, 0.3522, 0.3718, 553, None, -7.1345),
    (0.4, 0.5, 0.1, 103, -0.89, None),
]


@pytest.mark.parametrize(("r12", "r13", "r23", "n", "t", "z"), PUBLISHED)
def test_published_examples_are_met(
    r12: float, r13: float, r23: float, n: int, t: float | None, z: float | None
) -> None:
    # What the four decimals of the correlations leave open.
    slack = 0.5e-4 * math.sqrt(2 * n) + 0.5e-4
    if t is not None:
        assert williams(r12, r13, r23, n).statistic == pytest.approx(t, abs=max(slack, 0.005 if t == -0.89 else 0))
    if z is not None:
        assert steiger(r12, r13, r23, n).statistic == pytest.approx(z, abs=slack)


def test_published_p_values_are_met() -> None:
    assert round(williams(0.5447, 0.8, 0.0729, 70).p_value, 4) == 0.0065
    assert round(steiger(0.2493, 0.3395, 0.4082, 553).p_value, 4) == 0.0388
    assert round(williams(0.4, 0.5, 0.1, 103).p_value, 2) == 0.37


def test_the_p_values_are_those_of_students_t_and_the_normal_distribution() -> None:
    t, z = williams(0.3, 0.2, 0.5, 40), steiger(0.3, 0.2, 0.5, 40)
    assert t.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t.statistic), 37), rel=1e-12)
    assert z.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z.statistic)), rel=1e-12)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 5), (1, 9), (30, 14), (400, 350), (0, 6)])
def test_mcnemars_p_value_is_that_of_statsmodels_and_scipy(first: int, second: int) -> None:
    ours = mcnemar(first, second).p_value
    theirs = statsmodels_mcnemar([[10, first], [second, 7]], exact=True).pvalue
    assert ours == pytest.approx(min(1.0, float(np.nan_to_num(theirs, nan=1.0))), abs=1e-12)
    if first + second:
        assert ours == pytest.approx(scipy.stats.binomtest(first, first + second).pvalue, abs=1e-12)
