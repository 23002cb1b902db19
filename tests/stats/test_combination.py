"""Models of a combination minimise penalised losses; nested cross-validation by image leaks nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import rankdata

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray
from capbench.stats import nested_cross_validation
from capbench.stats.agreement import Correlations
from capbench.stats.combination import QUANTILES, SEGMENTS, Basis, Examples, Fit, Learner, fit_path, mean_rank
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.nested_cross_validation import (
    PENALTIES,
    Settings,
    choose_penalty,
    deal,
    learn,
    nested_scores,
    weight_intervals,
)
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
        examples = Examples(inputs, None, ratings, np.arange(len(inputs)))
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
    rated = Examples(inputs, None, inputs[:, 0] + random.normal(size=len(inputs)), np.arange(len(inputs)))
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


METRICS = ("a", "b", "c", "d")


def judged(
    seed: int, *, images: int = 80, captions: int = 6, metrics: int = 4
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Inputs of captions, ratings that the first two agree with, and images."""
    random = np.random.default_rng(seed)
    unit = np.repeat(np.arange(images), captions)
    quality = random.normal(size=len(unit))
    inputs = random.normal(size=(len(unit), metrics))
    inputs[:, 0] += quality
    inputs[:, 1] += 0.5 * quality
    ratings = np.clip(np.round(2.5 + quality + random.normal(scale=0.5, size=len(unit))), 1, 4)
    return inputs, ratings, unit


def preferences_of(inputs: FloatArray, ratings: FloatArray, unit: IntArray) -> Examples:
    """Each caption of an image beside the next one."""
    first, second = np.arange(0, len(unit), 2), np.arange(1, len(unit), 2)
    preferred = np.sign(ratings[first] - ratings[second]).astype(np.int64)
    return Examples.of_pairs(inputs[first], inputs[second], preferred, unit[first])


def memorised(seed: int, metrics: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Labels by image, drawn at random, and inputs that say which image a caption is of, and nothing else."""
    random = np.random.default_rng(seed)
    images, captions = 60, 8
    unit = np.repeat(np.arange(images), captions)
    ratings = random.normal(size=images)[unit]
    places = random.normal(size=(images, metrics))
    return places[unit] + random.normal(scale=0.05, size=(len(unit), metrics)), ratings, unit


@pytest.mark.parametrize("learner", ["ridge", "monotone"])
def test_a_random_label_of_each_image_is_agreed_with_by_chance_alone(learner: Learner) -> None:
    taus = []
    for seed in range(8):
        inputs, ratings, unit = memorised(seed, len(METRICS))
        examples = Examples(inputs, None, ratings, unit)
        scores = nested_scores(examples, inputs, unit, Settings(learner, 5, 3), METRICS)[0]
        data = Correlations.of("tau-b", {"combination": scores}, ratings, unit=unit)
        interval = bootstrap_intervals(data, draw_bootstrap(data, resamples=200))["combination"]
        taus.append((interval.value, interval.low <= 0 <= interval.high))
    # One value has a standard deviation of 0.12.
    assert abs(np.mean([tau for tau, _ in taus])) < 0.13
    assert sum(covered for _, covered in taus) >= 6


def test_no_image_is_on_both_sides_and_only_the_inner_loop_sees_the_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, ratings, unit = judged(1)
    examples = Examples(inputs, None, ratings, unit)
    settings = Settings("ridge", 4, 3, seed=5)
    seen: list[tuple[set[int], int]] = []
    penalties: list[float] = []
    real = nested_cross_validation.choose_penalty

    def spy(given: Examples, *arguments: object) -> tuple[float, FloatArray]:
        _, losses = real(given, *arguments)  # type: ignore[arg-type]
        seen.append((set(given.unit.tolist()), len(given)))
        penalties.append(PENALTIES[len(seen)])  # another one each time, whatever is best
        return penalties[-1], losses

    monkeypatch.setattr(nested_cross_validation, "choose_penalty", spy)
    scores, chosen = nested_scores(examples, inputs, unit, settings, METRICS)
    assert list(chosen) == penalties
    of_image = deal(unit, 4, unit.max() + 1, seed=5)
    assert len(seen) == settings.folds
    for fold, (images, count) in enumerate(seen):
        held_out = set(np.flatnonzero(of_image == fold).tolist())
        assert not images & held_out
        assert images | held_out == set(unit.tolist())
        assert count == sum(image in images for image in unit.tolist())
    # The scores are those of a ridge regression with that penalty on the other folds.
    for fold, penalty in enumerate(penalties):
        inside = of_image[unit] == fold
        x, y = inputs[~inside], ratings[~inside]
        z = (x - x.mean(axis=0)) / x.std(axis=0)
        weights = np.linalg.solve(z.T @ z + len(z) * penalty * np.eye(4), z.T @ (y - y.mean()))
        expected = ratings.mean() + (inputs[inside] - x.mean(axis=0)) / x.std(axis=0) @ weights
        np.testing.assert_allclose(scores[inside], expected, atol=1e-10)


def test_the_penalty_is_the_one_with_the_lowest_loss_on_images_that_were_left_out() -> None:
    inputs, ratings, unit = judged(2, images=20)
    settings = Settings("ridge", 4, 3, penalties=(0.001, 0.1, 10.0))
    examples = Examples(inputs, None, ratings, unit)
    penalty, losses = choose_penalty(examples, settings, METRICS, stream=2)
    fold = deal(unit, 3, 20, seed=0, stream=2)[unit]
    expected = []
    for candidate in settings.penalties:
        errors = np.empty(len(unit))
        for inner in range(3):
            train = fold != inner
            x, y = inputs[train], ratings[train]
            z = (x - x.mean(axis=0)) / x.std(axis=0)
            weights = np.linalg.solve(z.T @ z + len(z) * candidate * np.eye(4), z.T @ (y - y.mean()))
            predicted = y.mean() + (inputs[~train] - x.mean(axis=0)) / x.std(axis=0) @ weights
            errors[~train] = (ratings[~train] - predicted) ** 2
        expected.append(errors.mean())
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    assert penalty == settings.penalties[int(np.argmin(expected))]


@pytest.mark.parametrize("learner", ["ridge", "monotone", "logistic"])
def test_weights_are_the_spread_of_what_inputs_contribute_and_stand_in_their_intervals(learner: Learner) -> None:
    inputs, ratings, unit = judged(8)
    examples = preferences_of(inputs, ratings, unit) if learner == "logistic" else Examples(inputs, None, ratings, unit)
    settings = Settings(learner)
    learnt, penalty = learn(examples, settings, METRICS, stream=0)
    weights = weight_intervals(examples, learnt, settings, penalty, resamples=200)
    for column, (weight, low, high) in enumerate(weights):
        varied = np.repeat(examples.captions.mean(axis=0)[None], len(examples.captions), axis=0)
        varied[:, column] = examples.captions[:, column]
        assert abs(weight) == pytest.approx(learnt.scores(varied).std(), rel=1e-9)
        assert low <= weight <= high
    assert weights[0, 1] > 0
    assert weights[0, 0] > weights[1, 0] > abs(weights[2, 0])
    if learner != "monotone":
        assert weights[2, 1] < 0 < weights[2, 2]


def test_unsuitable_examples_are_rejected_in_one_line() -> None:
    inputs, ratings, unit = judged(0, images=6)
    examples = Examples(inputs, None, ratings, unit)
    settings = Settings("ridge", 3, 2)

    def rejected(code: str, value: object, data: Examples = examples, how: Settings = settings) -> None:
        with raises(StatisticError, code, value=value) as caught:
            nested_scores(data, inputs, unit, how, METRICS)
        assert "\n" not in str(caught.value)

    rejected("too-few", 6, how=replace(settings, folds=7))
    rejected("too-few", 4, how=replace(settings, inner_folds=5))
    alone = Examples(inputs, None, ratings, np.zeros(len(unit), dtype=np.int64))
    rejected("too-few", 1, alone)
    rejected("undefined", None, Examples(inputs, None, np.ones(len(unit)), unit))
    rejected("too-few", 0, Examples(inputs[:0], None, ratings[:0], unit[:0]))
    constant = inputs.copy()
    constant[:, 2] = 0.3
    rejected("undefined", "c", Examples(constant, None, ratings, unit))
