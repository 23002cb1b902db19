"""Agreement within images and within sources, against loops, scipy and pairs written down one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray, SourceCoefficient, WithinCoefficient
from capbench.stats import within_images as image_pairs
from capbench.stats.resampling import Bootstrap, Swaps, mean_statistic, observed_value
from capbench.stats.within_images import HELD_OUT_SEED, WithinImages
from capbench.stats.within_sources import WithinSources
from tests.errors import raises

COEFFICIENTS = get_args(WithinCoefficient)
SCORES = "the scores"
# Held-out thresholds come from random halves of the resampling units, and a resample keeps them.
WITHOUT_HALVES = [name for name in COEFFICIENTS if name != "acc-eq-held-out"]
OF_ONE_IMAGE: dict[str, Callable[[FloatArray, FloatArray], float]] = {
    "tau-b": lambda x, y: float(scipy.stats.kendalltau(x, y).statistic),
    "tau-c": lambda x, y: float(scipy.stats.kendalltau(x, y, variant="c").statistic),
    "spearman": lambda x, y: float(scipy.stats.spearmanr(x, y).statistic),
    "pearson": lambda x, y: float(scipy.stats.pearsonr(x, y).statistic),
}


def of(coefficient: WithinCoefficient, x: FloatArray, y: FloatArray, image: IntArray) -> WithinImages:
    return WithinImages.of(coefficient, {SCORES: x}, y, image, minimum=1)


def value_of(data: WithinImages) -> float:
    return observed_value(data.statistic(SCORES))


def plainly(coefficient: str, x: FloatArray, y: FloatArray, image: IntArray) -> tuple[float, int, int, int]:
    """The mean over images, image after image; images that count, with one caption, and with one rating."""
    values, few, tied = [], 0, 0
    for name in np.unique(image):
        a, b = x[image == name], y[image == name]
        if len(a) < 2:
            few += 1
        elif len(set(b)) == 1:
            tied += 1
        else:
            values.append(OF_ONE_IMAGE[coefficient](a, b) if len(set(a)) > 1 else 0.0)
    return float(np.mean(values)), len(values), few, tied


def ordered(a: float, b: float, epsilon: float) -> float:
    """Order of two scores, 0 if they differ by at most ε up to rounding."""
    return 0.0 if abs(a - b) <= epsilon + 1e-14 else float(np.sign(a - b))


def by_listing_pairs(x: FloatArray, y: FloatArray, image: IntArray) -> tuple[float, float]:
    """acc*_eq averaged over images under every ε that changes something; the best one, and the smallest ε."""
    names = [name for name in np.unique(image) if (image == name).sum() > 1]
    steps = {0.0}
    for name in names:
        a = x[image == name]
        steps |= {abs(float(p - q)) for p in a for q in a}
    best, best_epsilon = -1.0, 0.0
    for epsilon in sorted(steps):
        shares = []
        for name in names:
            a, b = x[image == name].tolist(), y[image == name].tolist()
            right = []
            for i in range(len(a)):
                for j in range(i):
                    right.append(ordered(a[i], a[j], epsilon) == np.sign(b[i] - b[j]))
            shares.append(np.mean(right))
        if np.mean(shares) > best + 1e-12:
            best, best_epsilon = float(np.mean(shares)), epsilon
    return best, best_epsilon


def by_listing_differences(x: FloatArray, y: FloatArray, image: IntArray) -> float:
    """Pearson's r of the differences of all pairs of captions of one image, each pair in both orders."""
    dx, dy = [], []
    for name in np.unique(image):
        a, b = x[image == name], y[image == name]
        for i in range(len(a)):
            for j in range(len(a)):
                if i != j:
                    dx.append(a[i] - a[j])
                    dy.append(b[i] - b[j])
    return float(scipy.stats.pearsonr(dx, dy).statistic)


def drawn(seed: int, n: int = 200, images: int = 40, decimals: int = 1) -> tuple[FloatArray, FloatArray, IntArray]:
    """Scores and ratings with ties and images of different sizes, not image by image."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, images, n)
    human = rng.integers(1, 5, n).astype(np.float64)
    return np.round(human + rng.normal(scale=1.5, size=n), decimals), human, image


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3), st.integers(1, 3)), min_size=4, max_size=25).filter(
        lambda rows: any(a[0] == b[0] and a[1] != b[1] and a[2] != b[2] for a in rows for b in rows)
    )
)
def test_small_cases_agree_with_loops(rows: list[tuple[int, int, int]]) -> None:
    image, x, y = (np.array(column) for column in zip(*rows, strict=True))
    x, y = x / 3, y.astype(np.float64)
    for coefficient in OF_ONE_IMAGE:
        got = of(coefficient, x, y, image)  # type: ignore[arg-type]
        assert value_of(got) == pytest.approx(plainly(coefficient, x, y, image)[0], abs=1e-12)
    calibrated = of("acc-eq", x, y, image)
    assert value_of(calibrated) == pytest.approx(by_listing_pairs(x, y, image)[0], abs=1e-12)
    assert value_of(of("difference-pearson", x, y, image)) == pytest.approx(
        by_listing_differences(x, y, image), abs=1e-12
    )


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_tie_calibration_by_image_is_the_best_of_all_thresholds(decimals: int) -> None:
    x, y, image = drawn(10 + decimals, n=90, images=25, decimals=decimals)
    got = of("acc-eq", x, y, image)
    value, epsilon = by_listing_pairs(x, y, image)
    assert value_of(got) == pytest.approx(value, abs=1e-12)
    pairs = image_pairs.CalibratedPairs(got.scores[SCORES][0], got.human, got.unit, got.images)
    assert pairs.calibrated()[0] == pytest.approx(epsilon, abs=1e-14)
    # Images on which people tie everything count: a tie is what they say.
    assert got.tied == 0


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_a_held_out_threshold_is_that_of_the_other_half_of_the_images(decimals: int) -> None:
    x, y, image = drawn(20 + decimals, n=120, images=30, decimals=decimals)
    several = np.isin(image, [name for name in np.unique(image) if (image == name).sum() > 1])
    names = np.unique(image[several])
    second = np.isin(
        np.arange(len(names)), np.random.default_rng(HELD_OUT_SEED).permutation(len(names))[len(names) // 2 :]
    )
    accuracies = {}
    for half, other in ((names[second], names[~second]), (names[~second], names[second])):
        chosen = np.isin(image, other)
        epsilon = by_listing_pairs(x[chosen], y[chosen], image[chosen])[1]
        for name in half.tolist():
            a, b = x[image == name].tolist(), y[image == name].tolist()
            right = [ordered(a[i], a[j], epsilon) == np.sign(b[i] - b[j]) for i in range(len(a)) for j in range(i)]
            accuracies[name] = float(np.mean(right))
    held_out = value_of(of("acc-eq-held-out", x, y, image))
    assert held_out == pytest.approx(np.mean(list(accuracies.values())), abs=1e-12)
    # No threshold is better than the one that is calibrated on all images.
    assert held_out <= value_of(of("acc-eq", x, y, image)) + 1e-12


def test_a_held_out_threshold_requires_two_images() -> None:
    with raises(StatisticError, "too-few"):
        value_of(of("acc-eq-held-out", np.arange(2.0), np.arange(2.0), np.zeros(2, dtype=np.int64)))


def test_every_pair_is_listed_once_whatever_is_listed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = np.repeat(np.arange(4), [1, 5, 2, 7])
    want = {(i, j) for i in range(15) for j in range(i + 1, 15) if unit[i] == unit[j]}
    for at_a_time in (1, 3, 1000):
        monkeypatch.setattr(image_pairs, "_PAIRS", at_a_time)
        listed = [pair for a, b in image_pairs.pairs_within(unit, 4) for pair in zip(a, b, strict=True)]
        assert len(listed) == len(want)
        assert set(listed) == want


def test_an_image_on_which_a_metric_ties_everything_counts_nothing_and_is_not_spared() -> None:
    image, human = np.repeat([0, 1], 3), np.array([1.0, 2, 3, 1, 2, 3])
    got = of("tau-b", np.array([1.0, 2, 3, 5, 5, 5]), human, image)
    assert (value_of(got), got.images, got.flat(SCORES)) == (0.5, 2, (1,))


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_values_at_the_ends_of_floats_keep_their_correlation(factor: float) -> None:
    x, y, image = drawn(4)
    for coefficient in ("pearson", "difference-pearson", "spearman", "tau-b"):
        got = value_of(of(coefficient, x * factor, y, image))
        assert got == pytest.approx(value_of(of(coefficient, x, y, image)), abs=1e-9)


@pytest.mark.parametrize("coefficient", WITHOUT_HALVES)
def test_a_resample_is_the_statistic_of_the_images_that_were_drawn(coefficient: WithinCoefficient) -> None:
    x, y, image = drawn(5, n=80, images=15)
    data = WithinImages.of(coefficient, {"a": np.stack([x, np.roll(x, 1)])}, y, image)
    weights = Bootstrap(data.units, 8, seed=1).block(0)
    values = data.statistic("a")(weights)
    for drawn_images, value in zip(weights, values, strict=True):
        # Each time that an image was drawn it is an image of its own.
        places = np.concatenate(
            [np.flatnonzero(data.unit == u) for u in range(data.units) for _ in range(drawn_images[u])]
        )
        sizes = np.bincount(data.unit)
        own = np.repeat(np.arange(drawn_images.sum()), np.repeat(sizes, drawn_images))
        want = [value_of(of(coefficient, row[places], data.human[places], own)) for row in data.scores["a"]]
        assert value == pytest.approx(np.mean(want), abs=1e-12)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_metrics_that_change_places_on_all_images_change_the_sign(coefficient: WithinCoefficient) -> None:
    x, y, image = drawn(6)
    data = WithinImages.of(coefficient, {"a": x, "b": np.roll(x, 7) * 100}, y, image)
    difference = mean_statistic(data.swaps("a", "b"))
    none, all_ = difference(np.array([[0] * data.units, [1] * data.units]))
    whole = np.ones((1, data.units), dtype=np.int32)
    assert none == pytest.approx(float(data.statistic("a")(whole)[0] - data.statistic("b")(whole)[0]), abs=1e-12)
    assert all_ == pytest.approx(-none, abs=1e-12)


@pytest.mark.parametrize("coefficient", WITHOUT_HALVES)
def test_images_that_are_drawn_together_are_resampled_as_one_and_compared_apart(
    coefficient: WithinCoefficient,
) -> None:
    x, y, image = drawn(5, n=80, images=15)
    scores = {"a": x, "b": np.roll(x, 7)}
    apart = WithinImages.of(coefficient, scores, y, image)
    names = np.unique(image)
    together = np.where(image == names[8], names[3], image)
    data = WithinImages.of(coefficient, scores, y, image, drawn=together)
    assert (data.images, data.units) == (apart.images, apart.units - 1)
    assert np.bincount(data.drawn).max() == 2
    whole, alone = (np.ones((1, entry.units), dtype=np.int32) for entry in (data, apart))
    assert data.statistic("a")(whole) == apart.statistic("a")(alone)
    weights, coins = Bootstrap(data.units, 8, seed=1).block(0), Swaps(data.units, 8, seed=1).block(0)
    np.testing.assert_array_equal(data.statistic("a")(weights), apart.statistic("a")(weights[:, data.drawn]))
    np.testing.assert_allclose(
        mean_statistic(data.swaps("a", "b"))(coins),
        mean_statistic(apart.swaps("a", "b"))(coins[:, data.drawn]),
        atol=1e-14,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (("tau-b", [1, 2], [1, 2], [0, 1]), "too-few", 0),
        (("tau-b", [1, 2], [3, 3], [0, 0]), "too-few", 0),
        (("acc-eq", [1, 2], [1, 2], [0, 1]), "too-few", 0),
        (("tau-b", [1, 1], [1, 2], [0, 0]), "undefined", "the scores"),
        (("tau-b", [1, float("nan")], [1, 2], [0, 0]), "not-a-number", "the scores"),
        (("tau-b", [], [], []), "too-few", 0),
        (("acc-eq", [1, 2], [3, 3], [0, 0]), "undefined", None),
        (("difference-pearson", [1, 2], [3, 3], [0, 0]), "undefined", None),
    ],
)
def test_undefined_agreement_within_images_is_rejected(arguments: tuple[object, ...], code: str, value: object) -> None:
    with raises(StatisticError, code, value=value):
        value_of(of(*arguments))  # type: ignore[arg-type]


SOURCE_COEFFICIENTS = get_args(SourceCoefficient)


def by_source(coefficient: str, x: FloatArray, y: FloatArray, source: IntArray) -> float:
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


def drawn_sources(
    seed: int, n: int = 90, sources: int = 4, decimals: int = 1
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Scores and ratings with ties; the sources differ in quality and size."""
    rng = np.random.default_rng(seed)
    source = np.minimum(rng.integers(0, sources + 2, n), sources - 1)
    human = np.clip(rng.integers(1, 5, n) + source, 1, 6).astype(np.float64)
    return np.round(human + rng.normal(scale=1.5, size=n), decimals), human, source


def whole(data: WithinSources, name: str) -> float:
    return float(data.statistic(name)(np.ones((1, data.units), dtype=np.int32))[0])


def source_value(coefficient: SourceCoefficient, x: FloatArray, y: FloatArray, source: IntArray) -> float:
    return whole(WithinSources.of(coefficient, {"a": x}, y, source.astype(str), np.arange(len(x))), "a")


@pytest.mark.parametrize("coefficient", SOURCE_COEFFICIENTS)
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_only_pairs_of_one_source_count(coefficient: SourceCoefficient, decimals: int) -> None:
    x, y, source = drawn_sources(decimals, decimals=decimals)
    value = source_value(coefficient, x, y, source)
    assert value == pytest.approx(by_source(coefficient, x, y, source), abs=1e-12)
    # What sets the sources apart changes nothing: scores and ratings are shifted by source.
    shift = np.array([-64.0, 0, 8, 256])[source]
    if decimals == 0:  # exact sums, so that no tie is made or broken
        assert source_value(coefficient, x + shift, y - shift, source) == pytest.approx(value, abs=1e-12)


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
    for coefficient in SOURCE_COEFFICIENTS:
        want = by_source(coefficient, x[several], y[several], source[several])
        got = source_value(coefficient, x, y, source)
        assert got == pytest.approx(want, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("coefficient", SOURCE_COEFFICIENTS)
def test_a_resample_is_the_statistic_of_the_captions_of_the_drawn_images(coefficient: SourceCoefficient) -> None:
    x, y, source = drawn_sources(5)
    image = np.random.default_rng(0).integers(0, 15, len(x))
    data = WithinSources.of(coefficient, {"a": np.stack([x, np.roll(x, 1)])}, y, source.astype(str), image)
    weights = Bootstrap(data.units, 6, seed=1).block(0)
    for times, value in zip(weights, data.statistic("a")(weights), strict=True):
        places = np.repeat(np.arange(len(x)), times[data.unit])
        want = [by_source(coefficient, row[places], y[places], source[places]) for row in data.scores["a"]]
        assert value == pytest.approx(np.mean(want), abs=1e-12)


@pytest.mark.parametrize("coefficient", SOURCE_COEFFICIENTS)
@pytest.mark.parametrize("sizes", ["large", "small"])
def test_a_permutation_exchanges_the_scores_of_an_image(coefficient: SourceCoefficient, sizes: str) -> None:
    """The small sources do not keep their levels, so that the difference of tau-c is not linear there."""
    x, y, source = drawn_sources(6, n=200 if sizes == "large" else 14, sources=3, decimals=8 if sizes == "large" else 0)
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
        values = [by_source(coefficient, side, data.human, data.source) for side in (first, second)]
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
    assert source_value("tau-c", x, y, source) == pytest.approx(0.5)
    assert source_value("tau-b", x, y, source) == pytest.approx(3 / np.sqrt(6 * 3))


A, B = ["s", "s"], [1, 2]


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (("tau-b", [1, 2], [1, 2], ["s", "t"], B), "too-few", 2),
        (("tau-b", [1, 2], [1, 2], A, [1, 1]), "too-few", 1),
        (("tau-b", [1, 2, 3], [1, 2, 3], ["", "s", "s"], [1, 2, 3]), "missing-value", 1),
        (("tau-c", [1, 1], [1, 2], A, B), "undefined", "m"),
        (("pearson", [1, 2], [3, 3], A, B), "undefined", "the human ratings"),
        (("pearson", [0.1] * 3 + [0.9] * 3, [1, 2, 3] * 2, ["s"] * 3 + ["t"] * 3, list(range(6))), "undefined", "m"),
        (("tau-b", [1, float("nan")], [1, 2], A, B), "not-a-number", "m"),
        (("tau-b", [], [], [], []), "too-few", 0),
    ],
)
def test_undefined_agreement_within_sources_is_rejected(
    arguments: tuple[SourceCoefficient, list[float], list[float], list[str], list[int]], code: str, value: object
) -> None:
    coefficient, scores, human, source, image = arguments
    with raises(StatisticError, code, value=value):
        WithinSources.of(coefficient, {"m": scores}, human, source, image)
