from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray
from capbench.stats.agreement import Correlations
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
    sample = BootstrapSample({"m": correlation(coefficient, x, y).value}, {"m": values[0]}, "rating", 40, 7)
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

    for value, weights in zip(sample.values["m"], Bootstrap(20, 100, seed=9).block(0), strict=False):
        rows = np.concatenate([np.flatnonzero(image == u) for u in range(20) for _ in range(weights[u])])
        assert value == pytest.approx(correlation(coefficient, x[rows], y[rows]).value, abs=1e-12)


def test_a_mean_over_draws_is_resampled_as_a_mean() -> None:
    x, y = example(50)
    z, _ = example(50, seed=3)
    both = draw_bootstrap(Correlations.of("tau-c", {"m": np.stack([x, z])}, y), resamples=100)
    single = [draw_bootstrap(Correlations.of("tau-c", {"m": row}, y), resamples=100).values["m"] for row in (x, z)]
    np.testing.assert_allclose(both.values["m"], np.mean(single, axis=0))


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
