"""Nested cross-validation by image: out-of-fold scores of a learned combination for every caption.

Images are assigned to outer folds. A fold's captions are scored by a combination that was learned on the other folds.
Its penalty was also chosen there, by an inner cross-validation, again by image. So the weights, the penalty, and the
means and deviations that standardise the inputs do not depend on judgements of the scored image.

The intercept of a model is the mean rating of its training folds. This mean is low if the held-out fold has high
ratings, so intercepts by fold would push the agreement of out-of-fold scores below chance. All folds therefore share
one constant, the mean of all ratings.

References:
    Stone, M. (1974). Cross-validatory choice and assessment of statistical predictions. Journal of the Royal
    Statistical Society B 36 (2).
    Varma, S. and Simon, R. (2006). Bias in error estimation when using cross-validation for model selection. BMC
    Bioinformatics 7 (91).
    Parker, B. J., Günter, S. and Bedo, J. (2007). Stratification bias in low signal microarray studies. BMC
    Bioinformatics 8 (326). (effect of intercepts by fold)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from capbench.core.errors import StatisticError, count
from capbench.core.records import FloatArray, IntArray
from capbench.stats.combination import Basis, Examples, Fit, Learner, effects, fit_path, loss, mean_rank
from capbench.stats.resampling import BLOCK, Bootstrap

PENALTIES: tuple[float, ...] = tuple(float(f"{digit}e{exponent}") for exponent in range(-5, 2) for digit in (1, 3))
"""Candidate penalties, 0.00001 to 30; the largest shrinks a weight to a thirtieth or less."""

_NO_PROGRESS: Callable[[int], None] = lambda _: None  # noqa: E731


@dataclass(frozen=True)
class Settings:
    """Settings for learning a combination."""

    learner: Learner = "ridge"
    folds: int = 10
    inner_folds: int = 5
    seed: int = 0
    penalties: tuple[float, ...] = PENALTIES  # candidates, ascending


def deal(units: IntArray, folds: int, total: int, seed: int, stream: int = 0) -> IntArray:
    """(total,) fold of each unit, from 0, of almost equal size; -1 for numbers that are not among ``units``.

    The assignment depends on the units' numbers, not on the order of the data points; ``stream`` distinguishes shuffles
    with the same seed.
    """
    dealt = np.unique(units)
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, stream)))
    fold = np.full(total, -1, dtype=np.int64)
    fold[random.permutation(dealt)] = np.arange(len(dealt)) % folds
    return fold


def _check_judgements(examples: Examples, settings: Settings) -> None:
    """Raise StatisticError if no combination can be learned from the judgements."""
    units = len(np.unique(examples.unit))
    left = units - -(-units // settings.folds)
    for images, folds, what in ((units, settings.folds, "folds"), (left, settings.inner_folds, "inner folds")):
        if images < folds:
            message = f"{count(images, 'image')} cannot be split into {folds} {what}"
            hint = f"Use {images} {what} or fewer" if left > 1 else "Judgements of three images or more are required"
            raise StatisticError(message, code="too-few", value=images, hint=hint)
    if examples.target is not None and np.ptp(examples.target) == 0:
        raise StatisticError("all ratings are equal: there is nothing to learn")


def choose_penalty(
    examples: Examples, settings: Settings, names: Sequence[str], stream: int
) -> tuple[float, FloatArray]:
    """The penalty with the lowest loss on held-out images, the largest one among ties; and the (P,) mean losses."""
    total = int(examples.unit.max()) + 1
    fold = deal(examples.unit, settings.inner_folds, total, settings.seed, stream)
    losses = np.zeros(len(settings.penalties))
    for inner in range(settings.inner_folds):
        held_out = examples.of_units(fold == inner)
        fits = _fits(examples.of_units(fold != inner), settings, names, settings.penalties)
        matrix = fits[0].basis.matrix(held_out)
        on_fold = [loss(fit.intercept + matrix @ fit.weights, held_out.target) for fit in fits]
        losses += len(held_out) * np.array(on_fold)
    losses /= len(examples)
    return settings.penalties[int(np.flatnonzero(losses == losses.min())[-1])], losses


def learn(examples: Examples, settings: Settings, names: Sequence[str], stream: int) -> tuple[Fit, float]:
    """Learn a combination from all examples, with the penalty chosen by cross-validation among them.

    Arguments as of :func:`choose_penalty`. Returns the combination and the penalty; the mean rank has penalty 0.
    """
    if settings.learner == "mean-rank":
        return mean_rank(examples.captions, names), 0.0
    penalty, _ = choose_penalty(examples, settings, names, stream)
    return _fits(examples, settings, names, (penalty,))[0], penalty


def _fits(examples: Examples, settings: Settings, names: Sequence[str], penalties: Sequence[float]) -> list[Fit]:
    """The combination of examples for each penalty."""
    monotone = settings.learner == "monotone"
    basis = Basis.of(examples.captions, names, monotone=monotone)
    path = fit_path(basis.matrix(examples), examples.target, penalties, shares=basis.shares, nonnegative=monotone)
    return [Fit(basis, weights, intercept) for weights, intercept in path]


def nested_scores(
    examples: Examples,
    inputs: FloatArray,  # (m, k) scores of all captions by the metrics
    unit: IntArray,  # (m,) number of each caption's image, in the numbering of the examples
    settings: Settings,
    names: Sequence[str],
    progress: Callable[[int], None] = _NO_PROGRESS,  # called with 1 for each fold
) -> tuple[FloatArray, tuple[float, ...]]:
    """(m,) scores of captions by combinations that were learned without judgements of their image, and the penalty
    that was chosen without each fold."""
    _check_judgements(examples, settings)
    Basis.of(examples.captions, names, monotone=False)  # refuses a constant input
    if settings.learner == "mean-rank":
        # No judgement is read, so one function scores all folds.
        fit, penalty = learn(examples, settings, names, stream=0)
        progress(settings.folds)
        return fit.scores(inputs), (penalty,) * settings.folds
    total = int(max(unit.max(), examples.unit.max())) + 1
    # Captions of an image without judgements may be scored by any combination.
    fold = np.maximum(deal(examples.unit, settings.folds, total, settings.seed), 0)
    scores, penalties = np.empty(len(inputs)), list[float]()
    constant = 0.0 if examples.target is None else float(examples.target.mean())
    for outer in range(settings.folds):
        learned, penalty = learn(examples.of_units(fold != outer), settings, names, 1 + outer)
        rows = fold[unit] == outer
        scores[rows] = replace(learned, intercept=constant).scores(inputs[rows])
        penalties.append(penalty)
        progress(1)
    return scores, tuple(penalties)


def weight_intervals(
    examples: Examples,
    learned: Fit,
    settings: Settings,
    penalty: float,
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Callable[[int], None] = _NO_PROGRESS,
) -> FloatArray:
    """(k, 3) effect of each input in a combination, and its bootstrap interval over images (percentile).

    The combination is learned again on each resample, with the same features and the same penalty. ``progress`` is
    called with the number of resamples done.
    """
    codes = np.unique(examples.unit, return_inverse=True)[1]
    basis, matrix, weights = learned.basis, learned.basis.matrix(examples), list[FloatArray]()
    draws = Bootstrap(int(codes.max()) + 1, resamples, seed)
    # The weights of the mean rank are equal in every resample.
    for index in range(-(-resamples // BLOCK) if settings.learner != "mean-rank" else 0):
        for counts in draws.block(index):
            of_examples = counts[codes]
            drawn = of_examples > 0
            ((of_resample, _),) = fit_path(
                matrix[drawn],
                None if examples.target is None else examples.target[drawn],
                (penalty,),
                shares=basis.shares,
                nonnegative=settings.learner == "monotone",
                counts=of_examples[drawn].astype(np.float64),
            )
            weights.append(of_resample)
            progress(1)
    features = basis.features(examples.captions)
    values = effects(basis.owner, features, learned.weights[None])[0]
    drawn_values = effects(basis.owner, features, np.stack(weights or [learned.weights]))
    ends = np.quantile(drawn_values, ((1 - level) / 2, (1 + level) / 2), axis=0)
    return np.stack([values, *ends], axis=1)
