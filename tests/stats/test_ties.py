"""Values that are equal up to rounding are one value in every statistic: decimals give what whole numbers give."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray, SourceCoefficient, SystemCoefficient, WithinCoefficient
from capbench.stats import tie_calibration
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.combination import Basis
from capbench.stats.correlation import correlation
from capbench.stats.graded_preferences import GradedPairs
from capbench.stats.human_ceiling import leave_one_rater_out
from capbench.stats.kendall import pair_counts, rank_encode
from capbench.stats.pairwise_accuracy import aggregate, pairwise_accuracy
from capbench.stats.resampling import Bootstrap, Swaps, mean_statistic, observed_value
from capbench.stats.retrieval import ranks
from capbench.stats.score_groups import score_groups
from capbench.stats.system_agreement import Systems
from capbench.stats.tie_calibration import TiedPairs, Windows, calibrate_ties, chance_level
from capbench.stats.ties import is_constant, merged, order
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources
from capbench.studies.item_scores import percentiles
from tests.errors import raises
from tests.stats.strategies import paired_values


def test_values_that_agree_to_twelve_digits_are_one_value() -> None:
    values = np.array([0.3, 0.1 + 0.2, 0.3 * (1 + 5e-13), 0.3 * (1 + 5e-12), -1e-20, 1e-20, 0.0, 1e300, -1e300])
    made = merged(values)
    assert len(set(made[:3].tolist())) == 1
    assert made[3:].tolist() == values[3:].tolist()
    assert merged(made).tolist() == made.tolist()
    assert order(values[:-1], values[1:]).tolist() == [0, 0, -1, 1, -1, 1, -1, 1]
    assert is_constant(values[:3])
    assert not is_constant(values[4:6])
    assert merged(np.empty(0)).size == 0


def test_differences_agree_in_relation_to_their_operands() -> None:
    first, second = np.array([0.9, 0.6, 1e6 + 0.3, 1e6, 0.3 + 1e-8]), np.array([0.6, 0.3, 1e6, 1e6, 0.0])
    sizes = np.maximum(first, second)
    assert len(set(merged(first - second, sizes)[:3].tolist())) == 1  # 1e6 + .3 is stored with ten decimals
    assert len(set(merged(first - second, sizes)[2:].tolist())) == 3


@pytest.mark.parametrize("scale", [1, 0.1, 10])
def test_the_examples_of_equal_differences_and_means(scale: float) -> None:
    scores, ratings = scale * np.array([6, 3, 9.0]), [1, 1, 2]
    assert correlation("acc-eq", scores, ratings).value == pytest.approx(2 / 3)
    within = WithinImages.of("acc-eq", {"m": scores}, ratings, ["i"] * 3, minimum=1)
    assert observed_value(within.statistic("m")) == pytest.approx(2 / 3)
    first, second = scale * np.array([3, 5, 9.0]), scale * np.array([1, 3, 7.0])
    graded = GradedPairs.of_pairs("tau-b", {"m": first}, {"m": second}, [1, 2, 2], range(3))
    assert observed_value(graded.statistic("m")) == pytest.approx(0.8320502943)
    _, means = aggregate(np.repeat([0, 1, 2], 3), scale * np.array([2, 2, 2, 1, 2, 3, 9, 9, 9.0]), "mean")
    assert correlation("tau-b", [1, 2, 3], means).value == pytest.approx(0.8164965809)


# Whole numbers, and the same numbers divided by 10 or 100: some by division, others by multiplication, whose results
# differ in the last bit.

LABELS = ["i1", "i2", "i3", "i4"]
Made = dict[str, FloatArray]


@st.composite
def whole_numbers(draw: st.DrawFn) -> Made:
    n = draw(st.integers(8, 24))

    def column(low: int, high: int) -> FloatArray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)), dtype=np.float64)

    return {
        "scores": column(-9, 9),
        "others": column(-9, 9),
        "ratings": column(-4, 4),
        "image": column(0, 3),
        "system": column(0, 3),
        "item": column(0, n // 2),
        "coin": column(0, 1),
    }


def divided(values: FloatArray, coin: FloatArray, by: int) -> FloatArray:
    return np.where(coin > 0, values / by, values * (1 / by))


def results(made: Made, by: int) -> dict[str, Any]:
    """All statistics of decimals; the code of the error where one is undefined."""
    n, coin = len(made["coin"]), made["coin"]
    scores, others, ratings = (divided(made[name], coin, by) for name in ("scores", "others", "ratings"))
    image = np.array(LABELS)[made["image"].astype(int)]
    system = np.array(LABELS)[made["system"].astype(int)]
    item = made["item"].astype(int)
    preferred = np.where(coin > 0, 1, -1)
    drawn = Bootstrap(4, 5, 0).block(0), Swaps(4, 5, 0).block(0)

    def under(data: Any) -> list[Any]:
        """The value, and values under resampling and swaps where all units were drawn."""
        found: list[Any] = [observed_value(data.statistic("m"))]
        if data.units == 4 and "soft" not in data.label:
            found += [data.statistic("m")(drawn[0]), mean_statistic(data.swaps("m", "o"))(drawn[1])]
        return found

    both = {"m": scores, "o": others}
    calls: dict[str, Any] = {}
    for name in get_args(Coefficient):
        calls[name] = lambda name=name: [correlation(name, scores, ratings).value]
        if name != "acc-eq":
            calls[f"resampled {name}"] = lambda name=name: under(Correlations.of(name, both, ratings, image))
        for how in ("mean", "median", "mode"):
            calls[f"{name} of the {how}"] = lambda name=name, how=how: [
                correlation(name, scores[: len(set(item.tolist()))], aggregate(item, ratings, how)[1]).value
            ]
    for name in get_args(WithinCoefficient):
        calls[f"within {name}"] = lambda name=name: under(WithinImages.of(name, both, ratings, image))
    for name in get_args(SourceCoefficient):
        calls[f"source {name}"] = lambda name=name: under(WithinSources.of(name, both, ratings, system, image))
    for name in get_args(SystemCoefficient):
        calls[f"system {name}"] = lambda name=name: under(Systems.of(name, both, ratings, system, image))
    for name in ("tau-b", "pearson"):
        calls[f"graded {name}"] = lambda name=name: under(
            GradedPairs.of_pairs(name, {"m": scores, "o": -others}, {"m": others, "o": scores}, ratings, image)
        )
    for ties in ("strict", "ties-half"):
        calls[ties] = lambda ties=ties: [
            pairwise_accuracy(scores, others, preferred, ties).value,
            *under(Accuracies.of(ties, both, {"m": others, "o": scores}, preferred, unit=image)),
        ]
    calls["other raters"] = lambda: [
        correlation("tau-b", left.others, left.rating).value for left in [leave_one_rater_out(item, ratings)]
    ]
    calls["chance level"] = lambda: [chance_level(ratings, image)[0]]
    calls["quantiles"] = lambda: [Basis.of_quantiles(scores[:, None], ["m"]).features(scores[:, None])]
    calls["groups"] = lambda: [by * score_groups(scores, ratings)]
    calls["percentiles"] = lambda: [percentiles(scores)]
    # Every image has a caption, and similarities are a score for each pair of an image and a caption.
    calls["ranks"] = lambda: [np.concatenate(ranks(np.outer([1, 2, 3, 4], scores), np.arange(n) % 4)).astype(float)]

    def value_or_code(call: Any) -> Any:
        try:
            return [np.asarray(value, dtype=np.float64).tolist() for value in call()]
        except StatisticError as error:
            return error.code

    return {name: value_or_code(call) for name, call in calls.items()}


@settings(max_examples=15, deadline=None)
@given(whole_numbers())
def test_decimals_give_what_whole_numbers_give(made: Made) -> None:
    expected = results(made, 1)
    for by in (10, 100):
        for name, found in results(made, by).items():
            want = expected[name]
            if isinstance(want, str):
                assert found == want, name
                continue
            assert not isinstance(found, str), name
            for one, other in zip(found, want, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=f"{name}, divided by {by}")


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
@settings(max_examples=50, deadline=None)
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
