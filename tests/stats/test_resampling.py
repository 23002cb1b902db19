from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import Coefficient, FloatArray
from capbench.stats import resampling
from capbench.stats.agreement import Correlations
from capbench.stats.correlation import correlation
from capbench.stats.intervals import (
    BootstrapSample,
    bootstrap_intervals,
    draw_bootstrap,
)
from capbench.stats.resampling import (
    BLOCK,
    AccuracyStatistic,
    Bootstrap,
    Draws,
    LeaveOneOut,
    PearsonStatistic,
    RankStatistic,
    Swaps,
    evaluate,
    mean_statistic,
    standardise,
    unit_codes,
)
from tests.errors import raises
from tests.stats.strategies import paired_values

RANKS: tuple[Coefficient, ...] = ("tau-b", "tau-c", "spearman")


def by_scipy(coefficient: Coefficient, x: FloatArray, y: FloatArray) -> float:
    if coefficient == "spearman":
        return float(scipy.stats.spearmanr(x, y).statistic)
    return float(scipy.stats.kendalltau(x, y, variant="b" if coefficient == "tau-b" else "c").statistic)


@pytest.mark.parametrize(
    ("few_levels", "dense_cells"),
    [(0, 0), (10**6, 0), (10**6, 10**6)],
    ids=["by splitting", "by levels, sparse", "by levels, dense"],
)
@given(pair=paired_values(max_size=40), data=st.data())
@settings(max_examples=60, deadline=None)
def test_weights_give_what_scipy_gives_for_repeated_points(
    few_levels: int, dense_cells: int, pair: tuple[FloatArray, FloatArray], data: st.DataObject
) -> None:
    x, y = pair
    units = data.draw(st.integers(1, len(x)))
    unit = np.array(data.draw(st.lists(st.integers(0, units - 1), min_size=len(x), max_size=len(x))))
    weights = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 3), min_size=units, max_size=units), min_size=1, max_size=3))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "_FEW_LEVELS", few_levels)
        patch.setattr(resampling, "_DENSE_CELLS", dense_cells)
        for coefficient in RANKS:
            values = RankStatistic(coefficient, x, y, unit, units)(weights)
            for value, row in zip(values, weights, strict=True):
                xs, ys = np.repeat(x, row[unit]), np.repeat(y, row[unit])
                if not len(xs) or xs.min() == xs.max() or ys.min() == ys.max():
                    assert np.isnan(value)
                else:
                    assert value == pytest.approx(by_scipy(coefficient, xs, ys), abs=1e-12)


def test_pearson_follows_scipy_on_repeated_points() -> None:
    rng = np.random.default_rng(0)
    x = 1e6 + rng.normal(size=90)
    y, unit, weights = x + rng.normal(size=90), rng.integers(0, 20, 90), rng.integers(0, 4, (30, 20))
    for value, row in zip(PearsonStatistic(x, y, unit, 20)(weights), weights, strict=True):
        again = scipy.stats.pearsonr(np.repeat(x, row[unit]), np.repeat(y, row[unit])).statistic
        assert value == pytest.approx(again, abs=1e-9)


@pytest.mark.parametrize("coefficient", ["tau-b", "tau-c", "spearman", "pearson"])
def test_a_constant_resample_has_no_value(coefficient: Coefficient) -> None:
    x, y = np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0, 5.0])
    weights = np.array([[2, 2, 0, 0], [0, 2, 2, 0], [0, 0, 0, 4], [1, 1, 1, 1]])
    data = Correlations.of(coefficient, {"m": x}, y)
    values = data.statistic("m")(weights)
    assert np.isnan(values[:3]).all()
    assert np.isfinite(values[3])


def test_counts_beyond_32_bits_stay_exact() -> None:
    rng = np.random.default_rng(1)
    n = 120_000
    y = rng.integers(0, 4, n).astype(float)
    x = y + rng.normal(size=n)
    value = RankStatistic("tau-b", x, y, np.arange(n), n)(np.ones((1, n), dtype=np.int64))[0]
    assert value == pytest.approx(correlation("tau-b", x, y).value, abs=1e-14)


def test_accuracy_is_the_mean_over_groups_and_undefined_without_one_of_them() -> None:
    credit = np.array([1.0, 0.5, 0.0, 1.0])
    statistic = AccuracyStatistic(credit, np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), 3)
    values = statistic(np.array([[1, 1, 1], [2, 1, 0], [1, 0, 0]]))
    assert values[0] == pytest.approx((1.5 / 2 + 1 / 2) / 2)
    assert values[1] == pytest.approx((2.5 / 3 + 0 / 1) / 2)
    assert np.isnan(values[2])


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=30).filter(lambda v: min(v) < max(v)))
def test_standardised_scores_keep_their_order_and_have_spread_one(values: list[float]) -> None:
    scores = np.array(values)
    z = standardise(scores)
    assert (np.diff(z[np.argsort(scores, kind="stable")]) >= 0).all()
    assert z.std() == pytest.approx(1.0, rel=1e-6)
    assert abs(z.mean()) < 1e-6


def all_weights(draws: Draws) -> NDArray[np.integer]:
    return np.concatenate([draws.block(i) for i in range(-(-draws.count // BLOCK))])


def test_a_resample_draws_as_many_units_as_there_are() -> None:
    weights = all_weights(Bootstrap(37, 150, seed=1))
    assert weights.shape == (150, 37)
    assert (weights.sum(axis=1) == 37).all()
    assert (all_weights(Bootstrap(37, 100, seed=1, size=500)).sum(axis=1) == 500).all()


def test_each_unit_is_drawn_once_on_average() -> None:
    weights = all_weights(Bootstrap(20, 5000, seed=4))
    np.testing.assert_allclose(weights.mean(axis=0), 1.0, atol=0.08)
    np.testing.assert_allclose(weights.var(axis=0), 1 - 1 / 20, atol=0.12)
    assert len(np.unique(weights, axis=0)) == 5000


def test_the_jackknife_leaves_out_each_unit_once() -> None:
    weights = all_weights(LeaveOneOut(130))
    assert (weights == 1 - np.eye(130)).all()


@pytest.mark.parametrize("kind", [Bootstrap, Swaps])
def test_the_first_of_many_resamples_are_the_few(kind: type[Bootstrap] | type[Swaps]) -> None:
    few, many = all_weights(kind(11, 100, seed=3)), all_weights(kind(11, 1000, seed=3))
    assert (few == many[:100]).all()
    assert not (few == all_weights(kind(11, 100, seed=4))).all()


@pytest.mark.parametrize("coefficient", ["tau-b", "tau-c", "spearman", "pearson"])
@pytest.mark.parametrize("continuous", [False, True])
def test_the_same_seed_gives_the_same_bits_with_any_number_of_workers(coefficient: str, continuous: bool) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=300) if continuous else rng.integers(0, 4, 300).astype(float)
    scores = {name: y + rng.normal(size=300) * 2 for name in "ab"}
    data = Correlations.of(coefficient, scores, y, rng.integers(0, 60, 300))  # type: ignore[arg-type]
    statistics = [data.statistic("a"), mean_statistic(data.swaps("a", "b"))]
    swaps = Swaps(data.units, 200, seed=5)
    one, three = (evaluate(statistics, swaps, workers) for workers in (1, 3))
    assert one.tobytes() == three.tobytes()


def test_units_are_numbered_in_the_order_of_their_labels() -> None:
    codes, units = unit_codes(["b.jpg", "a.jpg", "b.jpg", "c.jpg"])
    assert (codes.tolist(), units) == ([1, 0, 1, 2], 3)


def test_bootstrap_and_permutations_of_one_seed_have_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    kept = np.random.default_rng

    def noted(sequence: np.random.SeedSequence) -> np.random.Generator:
        made.append(tuple(sequence.generate_state(4).tolist()))
        return kept(sequence)

    monkeypatch.setattr(np.random, "default_rng", noted)
    for seed in (0, 1):
        for draws in (Bootstrap(5, 3 * BLOCK, seed), Swaps(5, 3 * BLOCK, seed)):
            all_weights(draws)
    assert len(set(made)) == len(made) == 12


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
    sample = BootstrapSample({"m": correlation(coefficient, x, y).value}, {"m": values[0]}, 40, 7)
    ours = bootstrap_intervals(data, sample, method=method)["m"]
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=1e-12)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=1e-12)


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
