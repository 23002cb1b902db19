"""Agreement within sources, against pairs listed one by one, scipy and resamples that are written out."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray, SourceCoefficient
from capbench.stats.resampling import Bootstrap, Swaps, mean_statistic
from capbench.stats.within_sources import WithinSources
from tests.errors import raises

COEFFICIENTS = get_args(SourceCoefficient)


def plainly(coefficient: str, x: FloatArray, y: FloatArray, source: IntArray) -> float:
    """Every pair of captions of one source, one after the other; NaN if undefined."""
    if coefficient == "pearson":
        a, b = (values - np.array([values[source == s].mean() for s in source]) for values in (x, y))
        flat = np.allclose(a, 0, atol=1e-12) or np.allclose(b, 0, atol=1e-12)
        return float("nan") if flat else float(scipy.stats.pearsonr(a, b).statistic)
    if coefficient == "tau-c":
        numerator = denominator = 0.0
        undefined = True
        for name in np.unique(source):
            a, b = x[source == name], y[source == name]
            denominator += len(a) ** 2
            if len(set(a)) > 1 and len(set(b)) > 1:
                undefined = False
                numerator += len(a) ** 2 * float(scipy.stats.kendalltau(a, b, variant="c").statistic)
        return float("nan") if undefined else numerator / denominator
    score = free_x = free_y = 0
    for i in range(len(x)):
        for j in range(i):
            if source[i] == source[j]:
                order_x, order_y = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
                score += int(order_x * order_y)
                free_x += int(order_x != 0)
                free_y += int(order_y != 0)
    return score / float(np.sqrt(free_x * free_y)) if free_x and free_y else float("nan")


def drawn(seed: int, n: int = 90, sources: int = 4, decimals: int = 1) -> tuple[FloatArray, FloatArray, IntArray]:
    """Scores and ratings with ties; the sources differ in quality and size."""
    rng = np.random.default_rng(seed)
    source = np.minimum(rng.integers(0, sources + 2, n), sources - 1)
    human = np.clip(rng.integers(1, 5, n) + source, 1, 6).astype(np.float64)
    return np.round(human + rng.normal(scale=1.5, size=n), decimals), human, source


def whole(data: WithinSources, name: str) -> float:
    return float(data.statistic(name)(np.ones((1, data.units), dtype=np.int32))[0])


def value_of(coefficient: SourceCoefficient, x: FloatArray, y: FloatArray, source: IntArray) -> float:
    return whole(WithinSources.of(coefficient, {"a": x}, y, source.astype(str), np.arange(len(x))), "a")


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_only_pairs_of_one_source_count(coefficient: SourceCoefficient, decimals: int) -> None:
    x, y, source = drawn(decimals, decimals=decimals)
    value = value_of(coefficient, x, y, source)
    assert value == pytest.approx(plainly(coefficient, x, y, source), abs=1e-12)
    # What sets the sources apart changes nothing: scores and ratings are shifted by source.
    shift = np.array([-64.0, 0, 8, 256])[source]
    if decimals == 0:  # exact sums, so that no tie is made or broken
        assert value_of(coefficient, x + shift, y - shift, source) == pytest.approx(value, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3), st.integers(1, 3)), min_size=4, max_size=25).filter(
        lambda rows: all(any(a[0] == b[0] and a[k] != b[k] for a in rows for b in rows) for k in (1, 2))
    )
)
def test_small_cases_agree_with_loops_or_are_undefined(rows: list[tuple[int, int, int]]) -> None:
    source, x, y = (np.array(column) for column in zip(*rows, strict=True))
    x, y = x / 4, y.astype(np.float64)
    several = np.bincount(source)[source] > 1  # captions that are alone in their source are excluded
    for coefficient in COEFFICIENTS:
        want = plainly(coefficient, x[several], y[several], source[several])
        got = value_of(coefficient, x, y, source)
        assert got == pytest.approx(want, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_a_resample_is_the_statistic_of_the_captions_of_the_drawn_images(coefficient: SourceCoefficient) -> None:
    x, y, source = drawn(5)
    image = np.random.default_rng(0).integers(0, 15, len(x))
    data = WithinSources.of(coefficient, {"a": np.stack([x, np.roll(x, 1)])}, y, source.astype(str), image)
    weights = Bootstrap(data.units, 6, seed=1).block(0)
    for times, value in zip(weights, data.statistic("a")(weights), strict=True):
        places = np.repeat(np.arange(len(x)), times[data.unit])
        want = [plainly(coefficient, row[places], y[places], source[places]) for row in data.scores["a"]]
        assert value == pytest.approx(np.mean(want), abs=1e-12)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("sizes", ["large", "small"])
def test_a_permutation_exchanges_the_scores_of_an_image(coefficient: SourceCoefficient, sizes: str) -> None:
    """The small sources do not keep their levels, so that the difference of tau-c is not linear there."""
    x, y, source = drawn(6, n=200 if sizes == "large" else 14, sources=3, decimals=8 if sizes == "large" else 0)
    image = np.arange(len(x)) // 2
    data = WithinSources.of(coefficient, {"a": x, "b": np.roll(x, 3) * 100}, y, source.astype(str), image)
    scaled = []
    for row in (data.scores["a"][0], data.scores["b"][0]):
        one = np.empty(len(row))
        for name in np.unique(data.source):
            at = data.source == name
            values = scipy.stats.rankdata(row[at]) if "tau" in coefficient else row[at]
            one[at] = values - values.mean()
        scaled.append(one if "tau" in coefficient else one / one.std())
    coins = np.vstack([np.zeros((1, data.units), dtype=np.int32), Swaps(data.units, 5, seed=1).block(0)])
    for swapped, difference in zip(coins, mean_statistic(data.swaps("a", "b"))(coins), strict=True):
        here = swapped[data.unit] == 1
        first, second = np.where(here, scaled[1], scaled[0]), np.where(here, scaled[0], scaled[1])
        values = [plainly(coefficient, side, data.human, data.source) for side in (first, second)]
        assert difference == pytest.approx(values[0] - values[1], abs=1e-12, nan_ok=True)
    assert mean_statistic(data.swaps("a", "b"))(coins)[0] == pytest.approx(
        whole(data, "a") - whole(data, "b"), abs=1e-12
    )


def test_sources_with_one_caption_are_excluded_and_counted() -> None:
    data = WithinSources.of("tau-b", {"m": [1.0, 2, 3, 9]}, [1, 3, 2, 9], ["b", "b", "b", "a"], [1, 2, 3, 4])
    assert (data.sources, data.few, data.n, data.units) == (("b",), 1, 3, 3)
    assert data.sizes.tolist() == [3]
    assert whole(data, "m") == pytest.approx(1 / 3)


def test_a_source_with_constant_ratings_dilutes_tau_c_only() -> None:
    source = np.array([0, 0, 0, 1, 1, 1])
    x, y = np.array([1.0, 2, 3, 1, 2, 3]), np.array([1.0, 2, 3, 2, 2, 2])
    assert value_of("tau-c", x, y, source) == pytest.approx(0.5)
    assert value_of("tau-b", x, y, source) == pytest.approx(3 / np.sqrt(6 * 3))


A, B = ["s", "s"], [1, 2]


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (("spearman", [1, 2], [1, 2], A, B), "unknown-name", "spearman"),
        (("tau-b", [1, 2], [1, 2], ["s", "t"], B), "too-few", 2),
        (("tau-b", [1, 2], [1, 2], A, [1, 1]), "too-few", 1),
        (("tau-b", [1, 2, 3], [1, 2, 3], ["", "s", "s"], [1, 2, 3]), "missing-value", 1),
        (("tau-c", [1, 1], [1, 2], A, B), "undefined", "m"),
        (("pearson", [1, 2], [3, 3], A, B), "undefined", "the human ratings"),
        (("pearson", [0.1] * 3 + [0.9] * 3, [1, 2, 3] * 2, ["s"] * 3 + ["t"] * 3, list(range(6))), "undefined", "m"),
        (("tau-b", [1, float("nan")], [1, 2], A, B), "not-a-number", "m"),
        (("tau-b", [1, 2, 3], [1, 2], A, B), "mismatch", "m"),
        (("tau-b", [1, 2], [1, 2], ["s"], B), "mismatch", "the list of sources"),
        (("tau-b", [], [], [], []), "too-few", 0),
    ],
)
def test_undefined_agreement_within_sources_is_rejected(
    arguments: tuple[SourceCoefficient, list[float], list[float], list[str], list[int]], code: str, value: object
) -> None:
    coefficient, scores, human, source, image = arguments
    with raises(StatisticError, code, value=value):
        WithinSources.of(coefficient, {"m": scores}, human, source, image)
