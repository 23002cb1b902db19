"""Sentences of comparisons: the corrected p-value decides, and intervals that suggest the opposite are explained."""

from __future__ import annotations

from typing import Any

import pytest

from capbench.reports.compare import sentence
from capbench.reports.methods import p_value_text
from tests.reports.toy import pairs_tested, study

PROTOCOL = "toy/all/tau-c"
ABOVE = (0.01, 0.2)
AROUND = (-0.01, 0.2)


def sentences(p_values: list[float], intervals: list[tuple[float, float]], **how: Any) -> list[str]:
    """Those of the pairs of metrics A, B, … with these p-values and intervals."""
    values = {name: 0.5 - 0.1 * place for place, name in enumerate({1: "AB", 3: "ABC"}[len(p_values)])}
    tests = pairs_tested(PROTOCOL, values, p_values, intervals, **how)
    result = study({PROTOCOL: values}, comparisons=(tests,))
    return [sentence(pair, tests, result) for pair in tests.pairs]


@pytest.mark.parametrize(("units", "tested"), [(5, False), (6, True)])
def test_a_pair_has_a_p_value_only_if_some_difference_could_be_significant(units: int, tested: bool) -> None:
    (line,) = sentences([0.125], [(0.05, 0.2)], units=units)
    assert ("p = 0.1250" in line) is tested
    assert ("significant" in line) is tested


def test_an_interval_that_excludes_0_beside_an_insignificant_corrected_p_value_is_explained() -> None:
    first, second, third = sentences([0.03, 0.2, 0.001], [ABOVE, AROUND, ABOVE])
    # Holm: .03 is the second of three p-values, so it is doubled.
    assert "do not differ significantly" in first
    assert "corrected p = 0.0600" in first
    assert first.endswith("Without the correction for 3 pairs, the difference is significant.")
    # Where interval and corrected p-value agree, the interval is the end of the text.
    assert second.endswith("].")
    assert third.endswith("].")
    assert "agrees better" in third
    texts = sentences([0.03, 0.2, 0.001], [ABOVE, AROUND, ABOVE], correction="none")
    assert all("corrected" not in text for text in texts)
    assert "agrees better" in texts[0]


def test_p_values_at_the_floor_are_upper_bounds() -> None:
    first, _, third = sentences([0.001, 0.001, 0.5], [ABOVE, ABOVE, AROUND])
    assert "p ≤ 0.0030" in first
    assert "p = 0.5000" in third
    # A formula's p-values have no floor.
    assert "p = 0.0030" in sentences([0.001, 0.001, 0.5], [ABOVE, ABOVE, AROUND], resamples=None, test="williams")[0]


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
