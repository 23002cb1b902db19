from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray
from capbench.stats.agreement import Accuracies, Correlations
from capbench.stats.correlation import correlation
from capbench.stats.intervals import (
    BootstrapSample,
    bootstrap_intervals,
    draw_bootstrap,
)
from capbench.stats.resampling import BLOCK, evaluate
from tests.errors import raises

COEFFICIENTS: tuple[Coefficient, ...] = ("tau-b", "tau-c", "spearman", "pearson")


@dataclass(frozen=True)
class Given:
    """Resamples from a list of drawn indices."""

    indices: NDArray[np.integer]

    @property
    def count(self) -> int:
        return len(self.indices)

    def block(self, index: int) -> NDArray[np.integer]:
        rows = self.indices[index * BLOCK : (index + 1) * BLOCK]
        return np.stack([np.bincount(row, minlength=rows.shape[1]) for row in rows])


def example(n: int = 60, seed: int = 0, levels: int = 4) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, levels, n).astype(float)
    return y + rng.normal(size=n) * 1.5, y


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_the_interval_is_scipys_on_the_same_resamples(
    coefficient: Coefficient, method: Literal["percentile", "bca"]
) -> None:
    x, y = example(40)
    theirs = scipy.stats.bootstrap(
        (x, y),
        lambda a, b: correlation(coefficient, a, b).value,
        n_resamples=400,
        paired=True,
        vectorized=False,
        method="BCa" if method == "bca" else "percentile",
        random_state=np.random.default_rng(7),
    )
    indices = np.random.default_rng(7).integers(0, 40, (400, 40))
    data = Correlations.of(coefficient, {"m": x}, y)
    values = evaluate([data.statistic("m")], Given(indices))
    np.testing.assert_allclose(values[0], theirs.bootstrap_distribution, atol=1e-12)
    sample = BootstrapSample(("m",), np.array([correlation(coefficient, x, y).value]), values, "rating", 40, 7)
    ours = bootstrap_intervals(data, sample, method=method)["m"]
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=1e-12)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=1e-12)
    assert ours.standard_error == pytest.approx(theirs.standard_error, abs=1e-12)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_resampling_units_is_resampling_rows_of_whole_units(coefficient: Coefficient) -> None:
    x, y = example(60)
    image = np.repeat(np.arange(20), 3)
    data = Correlations.of(coefficient, {"m": x}, y, image)
    sample = draw_bootstrap(data, resamples=100, seed=9)
    from capbench.stats.resampling import Bootstrap

    for value, weights in zip(sample.values[0], Bootstrap(20, 100, seed=9).block(0), strict=False):
        rows = np.concatenate([np.flatnonzero(image == u) for u in range(20) for _ in range(weights[u])])
        assert value == pytest.approx(correlation(coefficient, x[rows], y[rows]).value, abs=1e-12)


@pytest.mark.parametrize("coefficient", ["tau-b", "tau-c", "spearman"])
@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_increasing_maps_and_the_order_of_rows_change_nothing(coefficient: Coefficient, seed: int) -> None:
    x, y = example(45, seed)
    image = np.arange(45) // 3
    shuffled = np.random.default_rng(seed).permutation(45)
    results = []
    for a, b, u in (
        (x, y, image),
        (np.exp(x) - 4, y**3, image),
        (x[shuffled], y[shuffled], image[shuffled]),
    ):
        data = Correlations.of(coefficient, {"m": a}, b, u)
        sample = draw_bootstrap(data, resamples=100, seed=2)
        results.append([asdict(bootstrap_intervals(data, sample, method=m)["m"]) for m in ("percentile", "bca")])
    assert results[0] == results[1]
    for ours, other in zip(results[0], results[2], strict=True):
        assert (ours["low"], ours["high"]) == pytest.approx((other["low"], other["high"]), abs=1e-12)


def test_copies_of_an_images_ratings_do_not_narrow_the_interval() -> None:
    x, y = example(300)
    image = np.arange(300)
    widths = []
    for times in (1, 2):
        data = Correlations.of("pearson", {"m": np.repeat(x, times)}, np.repeat(y, times), np.repeat(image, times))
        interval = bootstrap_intervals(data, draw_bootstrap(data, seed=1))["m"]
        widths.append((interval.value, interval.low, interval.high))
    # Two copies of a rating know no more than one: images as units see that.
    assert widths[0] == pytest.approx(widths[1], abs=1e-9)


def test_all_metrics_share_the_resamples() -> None:
    x, y = example(50)
    data = Correlations.of("tau-b", {"m": x, "twice": 2 * x, "minus": -x}, y)
    values = draw_bootstrap(data, resamples=200).values
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_allclose(values[0], -values[2])


def test_a_mean_over_draws_is_resampled_as_a_mean() -> None:
    x, y = example(50)
    z, _ = example(50, seed=3)
    both = draw_bootstrap(Correlations.of("tau-c", {"m": np.stack([x, z])}, y), resamples=100)
    single = [draw_bootstrap(Correlations.of("tau-c", {"m": row}, y), resamples=100).values for row in (x, z)]
    np.testing.assert_allclose(both.values, np.mean(single, axis=0))


def test_a_perfect_correlation_has_an_interval_of_one_point() -> None:
    x = np.arange(10.0)
    data = Accuracies.of("strict", {"m": x + 1}, {"m": x}, np.ones(10, dtype=int))
    for method in ("percentile", "bca"):
        found = bootstrap_intervals(data, draw_bootstrap(data, resamples=100), method=method)["m"]
        assert (found.low, found.high) == (1.0, 1.0)


def test_resamples_without_a_value_are_counted_or_rejected() -> None:
    y = np.array([1.0] * 9 + [2.0] * 3)
    data = Correlations.of("tau-b", {"m": np.arange(12.0)}, y)
    interval = bootstrap_intervals(data, draw_bootstrap(data, resamples=1000))["m"]
    assert 0 < interval.undefined < 60
    rare = Correlations.of("tau-b", {"m": np.arange(12.0)}, np.array([1.0] * 11 + [2.0]))
    with raises(StatisticError, "undefined", value="m"):
        draw_bootstrap(rare, resamples=1000)


def test_one_unit_cannot_be_resampled() -> None:
    x, y = example(30)
    with raises(StatisticError, "too-few", value=1):
        Correlations.of("tau-b", {"m": x}, y, ["one.jpg"] * 30)


def test_bad_scores_are_named() -> None:
    x, y = example(30)
    x[4] = np.nan
    with raises(StatisticError, "not-a-number", value="cider") as caught:
        Correlations.of("tau-b", {"cider": x}, y)
    assert "position 4" in caught.value.message
