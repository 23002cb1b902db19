from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from capbench.stats.significance import mcnemar, steiger, williams

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


@pytest.mark.parametrize("test", [williams, steiger])
def test_changing_places_changes_the_sign_only(test: object) -> None:
    assert callable(test)
    one, two = test(0.3, 0.2, 0.5, 40), test(0.2, 0.3, 0.5, 40)
    assert one.statistic == pytest.approx(-two.statistic)
    assert one.p_value == pytest.approx(two.p_value)
    assert test(0.3, 0.3, 1.0, 40).p_value == 1.0


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 5), (1, 9), (30, 14), (400, 350), (0, 6)])
def test_mcnemars_p_value_is_that_of_statsmodels_and_scipy(first: int, second: int) -> None:
    ours = mcnemar(first, second).p_value
    theirs = statsmodels_mcnemar([[10, first], [second, 7]], exact=True).pvalue
    assert ours == pytest.approx(min(1.0, float(np.nan_to_num(theirs, nan=1.0))), abs=1e-12)
    if first + second:
        assert ours == pytest.approx(scipy.stats.binomtest(first, first + second).pvalue, abs=1e-12)
