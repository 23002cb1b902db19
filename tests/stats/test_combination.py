"""Ridge, logistic regression and the monotone model minimise penalised losses; the mean rank averages quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import rankdata

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray
from capbench.stats.combination import QUANTILES, SEGMENTS, Basis, Examples, Fit, fit_path, mean_rank
from tests.errors import raises

NAMES = ("a", "b", "c")


def inputs_of(seed: int, n: int = 200) -> FloatArray:
    """Three metrics on scales of their own, two of which agree with each other."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(n, 3))
    values[:, 1] += values[:, 0]
    return values * [1.0, 50.0, 0.001] + [0.0, 300.0, -2.0]


def pairs_of(seed: int, n: int = 150) -> tuple[Examples, FloatArray]:
    random = np.random.default_rng(seed)
    first, second = inputs_of(seed, n), inputs_of(seed + 1, n)
    preferred = np.where(random.random(n) < 0.5, 1, -1)
    preferred[: n // 3] = np.where(first[: n // 3, 0] > second[: n // 3, 0], 1, -1)
    return Examples.of_pairs(first, second, preferred, np.arange(n)), (first - second) * preferred[:, None]


def fit(matrix: FloatArray, target: FloatArray | None, penalty: float, **settings: Any) -> tuple[FloatArray, float]:
    ((weights, intercept),) = fit_path(matrix, target, (penalty,), **settings)
    return weights, intercept


@pytest.mark.parametrize("penalty", [1e-5, 0.1, 30.0])
def test_ridge_is_the_closed_form(penalty: float) -> None:
    random = np.random.default_rng(0)
    inputs = inputs_of(0)
    ratings = 2 + 0.3 * inputs[:, 0] + random.normal(size=len(inputs))
    basis = Basis.of(inputs, NAMES, monotone=False)
    weights, intercept = fit(basis.features(inputs), ratings, penalty, shares=basis.shares)
    # Hoerl and Kennard (1970), on variables of mean 0 and variance 1: (Z'Z + n k I)^-1 Z'y.
    z = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    expected = np.linalg.inv(z.T @ z + len(z) * penalty * np.eye(3)) @ z.T @ (ratings - ratings.mean())
    np.testing.assert_allclose(weights, expected, rtol=1e-9)
    assert intercept == pytest.approx(ratings.mean(), abs=1e-12)


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_logistic_regression_is_the_minimum_that_scipy_finds(penalty: float) -> None:
    examples, differences = pairs_of(3)
    basis = Basis.of(examples.captions, NAMES, monotone=False)
    weights, intercept = fit(basis.matrix(examples), None, penalty, shares=basis.shares)
    d = differences / examples.captions.std(axis=0)

    def penalised(w: FloatArray) -> float:
        return float(np.mean(np.log1p(np.exp(-d @ w))) + penalty / 2 * w @ w)

    found = minimize(penalised, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(weights, found.x, atol=2e-6)
    assert penalised(weights) <= found.fun + 1e-12
    assert intercept == 0


@pytest.mark.parametrize("of_pairs", [False, True])
def test_the_monotone_model_is_the_minimum_over_weights_from_zero(of_pairs: bool) -> None:
    penalty = 0.01
    if of_pairs:
        examples, _ = pairs_of(5)
    else:
        inputs = inputs_of(5)
        bent = np.tanh(inputs[:, 0]) - 0.5 * (inputs[:, 1] - 300) / 50
        ratings = bent + np.random.default_rng(1).normal(scale=0.2, size=len(inputs))
        examples = Examples.of_ratings(inputs, ratings, np.arange(len(inputs)))
    basis = Basis.of(examples.captions, NAMES, monotone=True)
    matrix = basis.matrix(examples)
    weights, _ = fit(matrix, examples.target, penalty, shares=basis.shares, nonnegative=True)
    assert weights.min() >= 0

    def penalised(w: FloatArray) -> float:
        size = penalty / 2 * float((w**2 / SEGMENTS).sum())
        if examples.target is None:
            return float(np.mean(np.log1p(np.exp(-matrix @ w)))) + size
        centered = matrix - matrix.mean(axis=0)
        return 0.5 * float(np.mean((examples.target - examples.target.mean() - centered @ w) ** 2)) + size

    bounds = [(0, None)] * len(weights)
    found = minimize(
        penalised, np.full(len(weights), 0.1), method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}
    )
    assert penalised(weights) <= found.fun + 1e-10
    np.testing.assert_allclose(weights, found.x, atol=2e-3)


def test_whole_number_counts_are_repeated_examples() -> None:
    random = np.random.default_rng(2)
    examples, _ = pairs_of(7)
    inputs = inputs_of(9)
    rated = Examples.of_ratings(inputs, inputs[:, 0] + random.normal(size=len(inputs)), np.arange(len(inputs)))
    for one in (examples, rated):
        basis = Basis.of(one.captions, NAMES, monotone=True)
        matrix, counts = basis.matrix(one), random.integers(0, 4, len(one))
        repeated = np.repeat(np.arange(len(one)), counts)
        target = None if one.target is None else one.target[repeated]
        once, at = fit(matrix, one.target, 0.1, shares=basis.shares, nonnegative=True, counts=counts.astype(np.float64))
        again, there = fit(matrix[repeated], target, 0.1, shares=basis.shares, nonnegative=True)
        np.testing.assert_allclose(once, again, atol=1e-6)
        assert at == pytest.approx(there, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_score_of_the_monotone_model_falls_where_an_input_rises(seed: int) -> None:
    inputs = inputs_of(seed)
    ratings = np.sin(inputs[:, 0] * 3) + 0.2 * inputs[:, 0] - (inputs[:, 1] - 300) / 100
    basis = Basis.of(inputs, NAMES, monotone=True)
    weights, intercept = fit(basis.features(inputs), ratings, 1e-4, shares=basis.shares, nonnegative=True)
    learnt = Fit(basis, weights, intercept)
    spread = inputs.std(axis=0)
    for column in range(3):
        line = np.repeat(inputs[:1], 400, axis=0)
        # Far beyond what was learnt from, too.
        line[:, column] = inputs[:, column].mean() + np.linspace(-8, 8, 400) * spread[column]
        steps = np.diff(learnt.scores(line))
        counts = weights[basis.owner == column].max() > 0
        assert (steps > 0).all() if counts else np.abs(steps).max() < 1e-12


def test_the_mean_rank_is_the_mean_of_midranks_if_the_captions_have_few_scores() -> None:
    random = np.random.default_rng(0)
    inputs = np.stack(
        [random.integers(0, 20, 300), random.integers(0, 3, 300) / 3, random.integers(0, 90, 300)], axis=1
    )
    whole = mean_rank(inputs, NAMES)
    midranks = (rankdata(inputs, axis=0) - 0.5) / 300
    np.testing.assert_allclose(whole.scores(inputs), midranks.mean(axis=1), atol=1e-12)
    shuffled = random.permutation(300)[:7]
    np.testing.assert_array_equal(whole.scores(inputs[shuffled]), whole.scores(inputs)[shuffled])


def test_the_mean_rank_of_many_scores_is_within_two_pieces_of_the_midranks() -> None:
    inputs = np.concatenate([inputs_of(7, 5000), np.zeros((2000, 3))])  # a seventh of 2 has the same score
    whole = mean_rank(inputs, NAMES)
    assert max(map(len, whole.basis.knots)) < QUANTILES + 5
    features = whole.basis.features(inputs)
    assert np.abs(features - (rankdata(inputs, axis=0) - 0.5) / len(inputs)).max() < 2 / QUANTILES
    for column, scores in zip(features.T, inputs.T, strict=True):
        assert (np.diff(column[np.argsort(scores, kind="stable")]) >= 0).all()


def test_scores_outside_the_captions_of_a_mean_rank_have_the_quantile_of_the_end() -> None:
    whole = mean_rank(np.array([[0.0], [1.0], [2.0], [2.0]]), ("a",))
    assert whole.scores(np.array([[-9.0], [0.5], [2.0], [9.0]])).tolist() == [0.125, 0.25, 0.75, 0.75]
    with raises(StatisticError, "undefined", value="b"):
        mean_rank(inputs_of(0) * [1.0, 0.0, 1.0], NAMES)
