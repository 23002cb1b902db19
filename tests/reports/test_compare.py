"""Sentences of comparisons: the corrected p-value decides, and intervals that suggest the opposite are explained."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from capbench.reports.compare import comparison_html, sentence
from capbench.reports.uncertainty import p_value_text
from capbench.stats.intervals import Interval
from capbench.stats.pairs import Correction, Pair
from capbench.stats.significance import adjust
from capbench.studies.compare import ComparedTests, MetricComparison
from capbench.studies.uncertainty import RANK_RULE


def compared(
    p_values: list[float],
    intervals: list[tuple[float, float]],
    *,
    correction: Correction = "holm",
    resamples: int | None = 999,
    alpha: float = 0.05,
) -> MetricComparison:
    """Metrics A, B, … with these p-values and intervals for their pairs, in the order of the pairs."""
    names = {1: "AB", 3: "ABC", 6: "ABCD"}[len(p_values)]
    values = {name: 0.5 - 0.1 * place for place, name in enumerate(names)}
    adjusted = adjust(p_values, correction).tolist()
    pairs = tuple(
        Pair(
            better=a,
            worse=b,
            difference=values[a] - values[b],
            low=low,
            high=high,
            p_value=p,
            p_adjusted=p_adjusted,
            significant=p_adjusted <= alpha,
        )
        for (a, b), (low, high), p, p_adjusted in zip(
            itertools.combinations(names, 2), intervals, p_values, adjusted, strict=True
        )
    )
    table = ComparedTests(
        statistic="τ-c",
        test="permutation" if resamples else "williams",
        correction=correction,
        alpha=alpha,
        level=0.95,
        unit="image",
        units=100,
        resamples=resamples,
        seed=0,
        values=values,
        ranks=dict.fromkeys(values, 1),
        top=tuple(values),
        pairs=pairs,
    )
    intervals_by_name = {
        name: Interval(value, value - 0.1, value + 0.1, 0.95, "percentile", 0.05, "image", 100, 1000, 0)
        for name, value in values.items()
    }
    return MetricComparison("toy/all/tau-c", 300, intervals_by_name, table, {})


def sentences(comparison: MetricComparison) -> list[str]:
    return [sentence(pair, comparison, "τ-c", percent=False) for pair in comparison.table.pairs]


@pytest.mark.parametrize(("units", "tested"), [(5, False), (6, True)])
def test_a_pair_has_a_p_value_only_if_some_difference_could_be_significant(units: int, tested: bool) -> None:
    comparison = compared([0.125], [(0.05, 0.2)])
    (line,) = sentences(replace(comparison, table=replace(comparison.table, units=units)))
    assert ("p = 0.1250" in line) is tested
    assert ("significant" in line) is tested
    assert "[0.0500, 0.2000]" in line


ABOVE = (0.01, 0.2)
AROUND = (-0.01, 0.2)


def test_an_interval_that_excludes_0_beside_an_insignificant_corrected_p_value_is_explained() -> None:
    first, second, third = sentences(compared([0.03, 0.2, 0.001], [ABOVE, AROUND, ABOVE]))
    # Holm: .03 is the second of three p-values, so it is doubled.
    assert "do not differ significantly" in first
    assert "corrected p = 0.0600" in first
    assert "uncorrected 95 % interval [0.0100, 0.2000]" in first
    assert re.search(r"Without the correction for 3 pairs, the difference is significant\.$", first)
    # Where interval and corrected p-value agree, the interval is the end of the text.
    assert second.endswith("interval [-0.0100, 0.2000].")
    assert third.endswith("interval [0.0100, 0.2000].")
    assert "agrees better" in third


@pytest.mark.parametrize(("p", "interval"), [(0.04, AROUND), (0.06, ABOVE)])
def test_an_interval_and_a_test_that_differ_without_a_correction_are_explained(
    p: float, interval: tuple[float, float]
) -> None:
    (text,) = sentences(compared([p], [interval]))
    assert ("agrees better" in text) is (p <= 0.05)
    assert text.count(". The interval") == 1
    assert "the test decides" in text
    # One pair is not corrected, so neither number is called so.
    assert "corrected" not in text
    agreeing = (AROUND, ABOVE)[p <= 0.05]
    assert "the test decides" not in sentences(compared([p], [agreeing]))[0]


def test_uncorrected_tests_of_several_pairs_are_not_called_corrected() -> None:
    texts = sentences(compared([0.03, 0.2, 0.001], [ABOVE, AROUND, ABOVE], correction="none"))
    assert all("corrected" not in text for text in texts)
    assert "agrees better" in texts[0]
    assert "p = 0.0300" in texts[0]


def test_p_values_at_the_floor_are_upper_bounds() -> None:
    comparison = compared([0.001, 0.001, 0.5], [ABOVE, ABOVE, AROUND], resamples=999)
    first, second, third = sentences(comparison)
    assert "p ≤ 0.0030" in first
    assert "p ≤ 0.0030" in second
    assert "p = 0.5000" in third
    html = comparison_html(comparison, "Toy", "τ-c", percent=False)
    assert html.count("p ≤ 0.0030") == 2
    # A formula's p-values have no floor.
    assert "p = 0.0030" in sentences(compared([0.001, 0.001, 0.5], [ABOVE, ABOVE, AROUND], resamples=None))[0]


@pytest.mark.parametrize(
    ("value", "is_bound", "digits", "text"),
    [
        (0.0149850, False, 4, "= 0.0150"),
        (15 / 10001, True, 4, "≤ 0.0015"),
        (66 / 2639, True, 4, "≤ 0.0251"),  # .02501: rounded up, because .0250 would not be a bound
        (1 / 10001, True, 4, "≤ 0.0001"),
        (6e-9, False, 4, "< 0.0001"),
        (0.005994, True, 3, "≤ 0.006"),
        (1.0, False, 4, "= 1.0000"),
    ],
)
def test_p_values_are_rounded_so_that_they_stay_true(value: float, is_bound: bool, digits: int, text: str) -> None:
    assert p_value_text(value, is_bound=is_bound, digits=digits) == text


def test_a_dagger_in_a_lower_rank_is_explained_and_without_tests_there_is_none() -> None:
    comparison = compared([0.9, 0.001, 0.001], [(-0.1, 0.2)] * 3)
    table = replace(comparison.table, ranks={"A": 1, "B": 1, "C": 2}, top=("A", "B", "C"))
    page = comparison_html(replace(comparison, table=table), "Toy", "τ-c", percent=False)
    assert page.count("† [") == 3
    assert RANK_RULE in page
    same = comparison_html(replace(comparison, table=replace(table, top=("A", "B"))), "Toy", "τ-c", percent=False)
    assert same.count("† [") == 2
    assert RANK_RULE not in same
    few = comparison_html(replace(comparison, table=replace(table, units=3)), "Toy", "τ-c", percent=False)
    assert "†" not in few
    assert "3 images" in few
