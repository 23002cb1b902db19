"""Student's t: p-values against scipy's, and against what is known exactly."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc

from capbench.stats.vectors import t_p_value


@given(st.integers(1, 10_000_000), st.floats(0, 1))
def test_p_values_of_any_rest_are_scipys(degrees: int, rest: float) -> None:
    assert t_p_value(rest, degrees) == pytest.approx(float(betainc(degrees / 2, 0.5, rest)), rel=1e-11, abs=1e-300)


@given(st.integers(1, 10_000_000), st.floats(1e-6, 1e3))
def test_p_values_of_any_t_are_scipys(degrees: int, t: float) -> None:
    rest = degrees / (degrees + t * t)
    assert t_p_value(rest, degrees) == pytest.approx(float(betainc(degrees / 2, 0.5, rest)), rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("t", [0.01, 1.0, math.sqrt(3) - 1e-9, math.sqrt(3) + 1e-9, 12.0, 1e6])
def test_one_and_two_degrees_have_closed_forms(t: float) -> None:
    assert t_p_value(1 / (1 + t * t), 1) == pytest.approx(2 / math.pi * math.atan(1 / t), rel=1e-12)
    distance = math.sqrt(2 + t * t)
    assert t_p_value(2 / (2 + t * t), 2) == pytest.approx(2 / (distance * (distance + t)), rel=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 64, 16_990])
def test_p_values_end_at_0_and_1_and_never_rise(degrees: int) -> None:
    assert (t_p_value(0.0, degrees), t_p_value(1.0, degrees)) == (0.0, 1.0)
    values = [t_p_value(step / 4096, degrees) for step in range(4097)]
    assert all(below <= above for below, above in itertools.pairwise(values))


def test_a_p_value_below_the_smallest_float_is_0() -> None:
    assert t_p_value(0.5, 100_000) == 0.0
