"""Intervals and tests under a known truth. The documented table has 2,000 draws; here are fewer, with more room."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from scripts.interval_simulation import ACCURACY, SETTINGS, covered, draw, rejected, shares, truths

DRAWS = 200
# Binomial noise of 200 draws, three standard deviations, beyond the wanted 93 to 97 % and 4 to 6 %.
COVERAGE = (0.93 - 3 * (0.93 * 0.07 / DRAWS) ** 0.5, 0.97 + 3 * (0.97 * 0.03 / DRAWS) ** 0.5)
REJECTIONS = (0.04 - 3 * (0.04 * 0.96 / DRAWS) ** 0.5, 0.06 + 3 * (0.06 * 0.94 / DRAWS) ** 0.5)
STATISTICS = ("tau-b", "tau-c", "spearman", "pearson", ACCURACY)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("setting", SETTINGS)
def test_intervals_of_95_percent_cover_the_truth_95_percent_of_the_time(setting: str) -> None:
    found = shares(partial(covered, setting, STATISTICS, truths(SETTINGS[setting])), DRAWS, workers=1)
    for (statistic, kind), share in found.items():
        if kind in ("percentile", "bca") or setting == "independent":
            assert COVERAGE[0] <= share <= COVERAGE[1], (statistic, kind, share)
    if setting == "dependent":
        # Single ratings as units claim more than they know: that is why images are the default.
        assert found["tau-c", "percentile, unit: rating"] < COVERAGE[0]
        assert found["tau-c", "formula"] < COVERAGE[0]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("setting", SETTINGS)
def test_tests_at_5_percent_reject_a_true_hypothesis_5_percent_of_the_time(setting: str) -> None:
    found = shares(partial(rejected, setting, STATISTICS, 0.05), DRAWS, workers=1)
    for statistic in STATISTICS:
        assert REJECTIONS[0] <= found[statistic, "permutation"] <= REJECTIONS[1], (statistic, found)
        # The paired bootstrap and exact tests may stay below 5 %, but not above it.
        assert found[statistic, "bootstrap"] <= REJECTIONS[1], (statistic, found)
    if setting == "independent":
        assert REJECTIONS[0] <= found["pearson", "williams"] <= REJECTIONS[1]
        assert REJECTIONS[0] <= found["pearson", "steiger"] <= REJECTIONS[1]
        assert found[ACCURACY, "mcnemar"] <= REJECTIONS[1]
    else:
        assert found["tau-c", "permutation, unit: rating"] > REJECTIONS[1]


def test_draws_depend_on_their_seed_alone() -> None:
    one, two = (draw(SETTINGS["dependent"], np.random.default_rng(5)) for _ in range(2))
    assert one.scores["a"].tobytes() == two.scores["a"].tobytes()
    assert (len(one.human), len(one.preferred), one.image.max() + 1) == (4800, 1200, 400)
    assert set(np.unique(one.human)) == {1.0, 2.0, 3.0, 4.0}


def test_the_metrics_of_the_model_are_equally_good() -> None:
    judged = draw(SETTINGS["independent"], np.random.default_rng(0), 200_000)
    r = [float(np.corrcoef(judged.scores[name], judged.human)[0, 1]) for name in "ab"]
    assert r[0] == pytest.approx(r[1], abs=0.01)
