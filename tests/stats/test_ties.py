"""Values that are equal up to rounding are one value in every statistic: decimals give what whole numbers give."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray, SourceCoefficient, SystemCoefficient, WithinCoefficient
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.combination import Basis
from capbench.stats.correlation import correlation
from capbench.stats.graded_preferences import GradedPairs
from capbench.stats.human_ceiling import leave_one_rater_out
from capbench.stats.pairwise_accuracy import aggregate, pairwise_accuracy
from capbench.stats.resampling import Bootstrap, Swaps, mean_statistic, observed_value
from capbench.stats.retrieval import ranks
from capbench.stats.system_agreement import Systems
from capbench.stats.tie_calibration import chance_level
from capbench.stats.ties import is_constant, merged, order
from capbench.stats.variance import share_between
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources
from capbench.studies.examples import percentiles, score_groups


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
            pairwise_accuracy(scores, others, preferred, ties).mean,
            *under(Accuracies.of(ties, both, {"m": others, "o": scores}, preferred, unit=image)),
        ]
    calls["other raters"] = lambda: [
        correlation("tau-b", left.others, left.rating).value for left in [leave_one_rater_out(item, ratings)]
    ]
    calls["chance level"] = lambda: [chance_level(ratings, image)[0]]
    calls["quantiles"] = lambda: [Basis.of_quantiles(scores[:, None], ["m"]).features(scores[:, None])]
    calls["groups"] = lambda: [by * score_groups(scores, ratings)]
    calls["percentiles"] = lambda: [percentiles(scores)]
    calls["variance"] = lambda: [np.nan if (share := share_between(scores, image)) is None else share]
    # Every image has a caption, and similarities are a score for each pair of an image and a caption.
    calls["ranks"] = lambda: [np.concatenate(ranks(np.outer([1, 2, 3, 4], scores), np.arange(n) % 4)).astype(float)]

    def value_or_code(call: Any) -> Any:
        try:
            return [np.asarray(value, dtype=np.float64).tolist() for value in call()]
        except StatisticError as error:
            return error.code

    return {name: value_or_code(call) for name, call in calls.items()}


@settings(max_examples=60, deadline=None)
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
