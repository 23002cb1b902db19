from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray
from capbench.stats import tie_calibration
from capbench.stats.kendall import pair_counts, rank_encode
from capbench.stats.resampling import observed_value
from capbench.stats.tie_calibration import TiedPairs, Windows, calibrate_ties, chance_level
from capbench.stats.ties import merged
from capbench.stats.within_images import WithinImages
from tests.errors import raises
from tests.stats.strategies import paired_values


def tied_pairs(x: FloatArray, y: FloatArray, epsilon: float = 0.0) -> TiedPairs:
    """The counts behind the calibration, at one threshold."""
    return Windows(x, y).counts(epsilon)


def by_looking(x: FloatArray, y: FloatArray, epsilon: float) -> TiedPairs:
    concordant = discordant = human = metric = both = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        dx, dy = x[i] - x[j], y[i] - y[j]
        if abs(dx) <= epsilon:
            both, metric = both + (dy == 0), metric + (dy != 0)
        elif dy == 0:
            human += 1
        else:
            concordant, discordant = concordant + ((dx > 0) == (dy > 0)), discordant + ((dx > 0) != (dy > 0))
    return TiedPairs(epsilon, concordant, discordant, human, metric, both)


@st.composite
def judged(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    x, _ = draw(paired_values(max_size=25))
    y = draw(st.lists(st.integers(1, draw(st.integers(1, 6))), min_size=len(x), max_size=len(x)))
    return x, np.array(y, dtype=float)


@given(judged(), st.data())
@settings(max_examples=150, deadline=None)
def test_pairs_are_counted_as_by_looking_at_each(pair: tuple[FloatArray, FloatArray], data: st.DataObject) -> None:
    x, y = pair
    differences = sorted({0.0} | {float(abs(a - b)) for a, b in itertools.combinations(x, 2)})
    epsilon = data.draw(st.sampled_from(differences) | st.floats(0, 5))
    assert tied_pairs(x, y, epsilon) == by_looking(x, y, epsilon)


@pytest.mark.parametrize("leaf", [0, 5, 100_000], ids=["halving only", "halving and listing", "listing only"])
@given(pair=judged())
@settings(max_examples=100, deadline=None)
def test_calibration_finds_the_best_of_all_thresholds(leaf: int, pair: tuple[FloatArray, FloatArray]) -> None:
    x, y = pair
    first, second = np.array(list(itertools.combinations(x, 2))).T
    differences = merged(np.abs(first - second), np.maximum(np.abs(first), np.abs(second)))
    candidates = [by_looking(x, y, e) for e in sorted({0.0, *differences.tolist()})]
    best = max(c.concordant + c.ties_both for c in candidates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tie_calibration, "LEAF", leaf)
        found = calibrate_ties(x, y)
    assert found == next(c for c in candidates if c.concordant + c.ties_both == best)
    assert found.accuracy == best / found.total


@pytest.mark.parametrize("leaf", [0, 500, 100_000])
def test_a_large_calibration_agrees_with_the_definition_on_all_pairs(
    leaf: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tie_calibration, "LEAF", leaf)
    rng = np.random.default_rng(1)
    quality = rng.normal(size=700)
    human = np.clip(np.round(quality * 0.9), -1, 1)
    scores = np.round(quality + rng.normal(size=700) * 0.7, 3)
    i, j = np.triu_indices(700, 1)
    thousandths = np.rint(1000 * scores)  # their differences are exact
    d, h = np.abs(thousandths[i] - thousandths[j]), human[i] == human[j]
    right = (scores[i] > scores[j]) == (human[i] > human[j])
    order = np.argsort(d, kind="stable")
    gain = np.cumsum(np.where(h, 1, np.where(right, -1, 0))[order] * (d[order] > 0))
    last = np.append(d[order][1:] != d[order][:-1], True)
    start = int((h & (d == 0)).sum() + (~h & (d > 0) & right).sum())
    expected = (start + max(0, int(gain[last].max()))) / len(d)
    assert calibrate_ties(scores, human).accuracy == expected
    assert calibrate_ties(thousandths, human).accuracy == expected


@given(paired_values())
@settings(max_examples=50, deadline=None)
def test_without_epsilon_the_counts_are_those_of_kendalls_tau(pair: tuple[FloatArray, FloatArray]) -> None:
    if np.abs(pair[0]).max() < 1e100:
        pairs, tau = tied_pairs(*pair), pair_counts(*map(rank_encode, pair))
        assert (pairs.concordant, pairs.discordant) == (tau.concordant, tau.discordant)
        assert pairs.ties_metric + pairs.ties_both == tau.ties_x
        assert pairs.ties_human + pairs.ties_both == tau.ties_y


@pytest.mark.parametrize(
    ("scores", "human", "code"),
    [
        ([0.1, np.nan], [1, 2], "not-a-number"),
        ([-1.5e308, 1.5e308], [1, 2], "not-a-number"),
    ],
)
def test_bad_input_is_rejected(scores: list[float], human: list[float], code: str) -> None:
    with raises(StatisticError, code):
        calibrate_ties(scores, human)


@pytest.mark.parametrize("levels", [2, 4, 40])
def test_scores_without_information_reach_the_chance_level(levels: int) -> None:
    rng = np.random.default_rng(levels)
    human = rng.integers(0, levels, 3000).astype(np.float64)
    level, tied = chance_level(human)
    share = np.mean([a == b for a, b in itertools.combinations(human[:600].tolist(), 2)])
    assert level == pytest.approx(max(share, (1 - share) / 2), abs=0.01)
    assert tied is (levels == 2)
    random = calibrate_ties(rng.normal(size=3000), human).accuracy
    assert random == pytest.approx(level, abs=0.02)
    constant = calibrate_ties(np.zeros(3000), human).accuracy
    assert (constant == pytest.approx(level)) is tied


def test_the_chance_level_within_images_is_a_mean_over_images() -> None:
    rng = np.random.default_rng(1)
    image = np.repeat(np.arange(3000), rng.integers(1, 5, 3000))
    human = rng.integers(0, 3, len(image)).astype(np.float64)
    level, _ = chance_level(human, image)
    shares = []
    for number in range(3000):
        pairs = list(itertools.combinations(human[image == number].tolist(), 2))
        shares += [np.mean([a == b for a, b in pairs])] if pairs else []
    assert level == pytest.approx(max(np.mean(shares), (1 - np.mean(shares)) / 2))
    data = WithinImages.of("acc-eq", {"m": rng.normal(size=len(image))}, human, image)
    assert observed_value(data.statistic("m")) == pytest.approx(level, abs=0.02)
    with raises(StatisticError, "too-few"):
        chance_level(human[:3], np.arange(3))
