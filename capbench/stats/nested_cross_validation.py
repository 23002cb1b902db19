"""Nested cross-validation by image: honest scores of a learnt combination for every caption.

Images are dealt into outer folds. A fold's captions are scored by a combination that was learnt on the other folds:
its penalty was chosen there, by a second, inner cross-validation, again by image. So neither the weights, nor the
penalty, nor the means and deviations that inputs are standardised by have seen a judgement of the image that is scored.

Scores of different folds must be comparable, since agreement is measured over all captions together. Learners end in an
intercept, the mean rating of the training folds. That mean is low exactly where the fold that is left out has high
ratings, so intercepts by fold push the agreement of out-of-fold scores below chance. All folds share one constant
instead, the mean rating of all: it changes neither ranks nor differences.

References:
    Stone, M. (1974). Cross-validatory choice and assessment of statistical predictions. Journal of the Royal
    Statistical Society B 36 (2).
    Varma, S. and Simon, R. (2006). Bias in error estimation when using cross-validation for model selection. BMC
    Bioinformatics 7 (91).
    Parker, B. J., Günter, S. and Bedo, J. (2007). Stratification bias in low signal microarray studies. BMC
    Bioinformatics 8 (326). (What intercepts by fold do.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray
from capbench.stats.combination import Basis, Examples, Fit, Learner, effects, fit, fit_path, loss
from capbench.stats.resampling import BLOCK, Bootstrap

__all__ = [
    "PENALTIES",
    "OutOfFold",
    "Settings",
    "WeightInterval",
    "check",
    "check_judgements",
    "choose_penalty",
    "deal",
    "learn",
    "nested_scores",
    "weight_intervals",
]

PENALTIES: tuple[float, ...] = tuple(float(f"{digit}e{exponent}") for exponent in range(-5, 2) for digit in (1, 3))
"""Penalties that are tried, 0.00001 to 30: at the last, a weight is shrunk to a thirtieth or less."""

_NO_PROGRESS: Callable[[int], None] = lambda _: None  # noqa: E731


@dataclass(frozen=True)
class Settings:
    """How a combination is learnt.

    Attributes:
        learner: the model.
        folds: outer folds.
        inner_folds: inner folds.
        seed: of the folds.
        penalties: what is tried, ascending.
    """

    learner: Learner
    folds: int = 10
    inner_folds: int = 5
    seed: int = 0
    penalties: tuple[float, ...] = PENALTIES

    @property
    def steps(self) -> int:
        """How often :func:`nested_scores` calls ``progress`` with 1."""
        return self.folds


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Scores that no judgement of their own image had a part in.

    Attributes:
        scores: (m,) scores.
        fold: (units,) the fold of each unit; the scores of its captions come from the other folds.
        fits: what was learnt without each fold.
        penalties: the penalty that was chosen without it.
    """

    scores: FloatArray
    fold: IntArray
    fits: tuple[Fit, ...]
    penalties: tuple[float, ...]


@dataclass(frozen=True)
class WeightInterval:
    """What an input counts in a combination.

    Attributes:
        value: what one standard deviation of the input moves the score.
        low: lower end of its bootstrap interval over units.
        high: upper end.
    """

    value: float
    low: float
    high: float


def deal(units: IntArray, folds: int, total: int, seed: int, stream: int = 0) -> IntArray:
    """Deal units into folds of almost equal size.

    Units are dealt by their number, so the order of the data points plays no part.

    Args:
        units: numbers of the units that are dealt, repeats allowed.
        folds: number of folds.
        total: number of all units.
        seed: of the shuffle.
        stream: tells shuffles of one seed apart.

    Returns:
        (total,) fold of each unit, from 0; -1 for units that are not dealt.
    """
    dealt = np.unique(units)
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, stream)))
    fold = np.full(total, -1, dtype=np.int64)
    fold[random.permutation(dealt)] = np.arange(len(dealt)) % folds
    return fold


def check(examples: Examples, settings: Settings, names: Sequence[str], unit: str = "image") -> None:
    """See to it that a combination can be learnt.

    Args:
        examples: what is learnt from.
        settings: how.
        names: of the inputs, for messages.
        unit: what a unit is called.

    Raises:
        StatisticError: see :func:`check_judgements`; or an input is constant.
    """
    check_judgements(examples, settings, unit)
    Basis.of(examples.captions, names, monotone=False)


def check_judgements(examples: Examples, settings: Settings, unit: str = "image") -> None:
    """See to it that a combination can be learnt, as far as judgements tell; what the captions are scored is not read.

    Args:
        examples: what is learnt from.
        settings: how.
        unit: what a unit is called.

    Raises:
        StatisticError: no examples, too few units for the folds, a learner that is for other examples, or ratings that
            are all the same.
    """
    if settings.folds < 2 or settings.inner_folds < 2:
        raise StatisticError("cross-validation needs 2 folds or more, outer and inner", hint="Give 5 or 10")
    if not len(examples):
        raise StatisticError("there are no judgements to learn from")
    if examples.target is None and settings.learner == "ridge":
        raise StatisticError("ridge learns from ratings, and these judgements are pairs", hint="Choose logistic")
    if examples.target is not None and settings.learner == "logistic":
        raise StatisticError("logistic learns from pairs, and these judgements are ratings", hint="Choose ridge")
    units = len(np.unique(examples.unit))
    if units < settings.folds:
        raise StatisticError(
            f"judgements of {units} {unit}{'' if units == 1 else 's'} cannot be dealt into {settings.folds} folds",
            hint=f"Give {units} folds or fewer" if units > 2 else f"Judgements of three {unit}s or more are needed",
        )
    left = units - -(-units // settings.folds)
    if left < settings.inner_folds:
        raise StatisticError(
            f"the {left} {unit}{'' if left == 1 else 's'} outside a fold cannot be dealt into {settings.inner_folds} "
            "inner folds",
            hint=f"Give {left} inner folds or fewer" if left > 1 else f"Judgements of three {unit}s or more are needed",
        )
    if examples.target is not None and np.ptp(examples.target) == 0:
        raise StatisticError("all ratings are the same: there is nothing to learn")


def choose_penalty(
    examples: Examples, settings: Settings, names: Sequence[str], stream: int
) -> tuple[float, FloatArray]:
    """The penalty with the lowest loss on images that were left out; of equally good ones the largest.

    Args:
        examples: what is learnt from; nothing else is looked at.
        settings: learner, inner folds, penalties and seed.
        names: of the inputs, for messages.
        stream: tells shuffles of one seed apart.

    Returns:
        The penalty, and (P,) the mean loss under each.
    """
    total = int(examples.unit.max()) + 1
    fold = deal(examples.unit, settings.inner_folds, total, settings.seed, stream)
    losses = np.zeros(len(settings.penalties))
    for inner in range(settings.inner_folds):
        training, held_out = examples.of_units(fold != inner), examples.of_units(fold == inner)
        basis = _basis(training, settings, names)
        matrix, held_matrix = basis.matrix(training), basis.matrix(held_out)
        fits = fit_path(
            matrix, training.target, settings.penalties, shares=basis.shares, nonnegative=settings.learner == "monotone"
        )
        for place, (weights, intercept) in enumerate(fits):
            losses[place] += len(held_out) * loss(intercept + held_matrix @ weights, held_out.target)
    losses /= len(examples)
    return settings.penalties[int(np.flatnonzero(losses == losses.min())[-1])], losses


def learn(examples: Examples, settings: Settings, names: Sequence[str], stream: int) -> tuple[Fit, float]:
    """A combination learnt from all of some examples, with the penalty that cross-validation among them chooses.

    Arguments are those of :func:`choose_penalty`. Gives the combination and the penalty.
    """
    penalty, _ = choose_penalty(examples, settings, names, stream)
    basis = _basis(examples, settings, names)
    weights, intercept = fit(
        basis.matrix(examples),
        examples.target,
        penalty,
        shares=basis.shares,
        nonnegative=settings.learner == "monotone",
    )
    return Fit(basis, weights, intercept), penalty


def nested_scores(
    examples: Examples,
    inputs: FloatArray,
    unit: IntArray,
    settings: Settings,
    names: Sequence[str],
    progress: Callable[[int], None] = _NO_PROGRESS,
) -> OutOfFold:
    """Score captions by combinations that saw no judgement of their image.

    Args:
        examples: what is learnt from.
        inputs: (m, k) scores of all captions by the metrics.
        unit: (m,) number of each caption's image, in the numbering of the examples.
        settings: how.
        names: of the k metrics, for messages.
        progress: called with 1 for each fold.

    Raises:
        StatisticError: see :func:`check`; or an input is constant outside a fold.
    """
    check(examples, settings, names)
    total = int(max(unit.max(), examples.unit.max())) + 1
    fold = deal(examples.unit, settings.folds, total, settings.seed)
    # Captions of an image that nobody judged may be scored by any of the combinations.
    fold[fold < 0] = 0
    scores = np.empty(len(inputs))
    constant = 0.0 if examples.target is None else float(examples.target.mean())
    fits: list[Fit] = []
    penalties: list[float] = []
    for outer in range(settings.folds):
        learnt, penalty = learn(examples.of_units(fold != outer), settings, names, stream=1 + outer)
        shared = Fit(learnt.basis, learnt.weights, constant)
        rows = fold[unit] == outer
        scores[rows] = shared.scores(inputs[rows])
        fits.append(shared)
        penalties.append(penalty)
        progress(1)
    return OutOfFold(scores, fold, tuple(fits), tuple(penalties))


def weight_intervals(
    examples: Examples,
    learnt: Fit,
    settings: Settings,
    penalty: float,
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Callable[[int], None] = _NO_PROGRESS,
) -> tuple[WeightInterval, ...]:
    """What each input counts in a combination, with bootstrap intervals over images (percentile).

    The combination is learnt again on each resample, with the same features and the same penalty.

    Args:
        examples: what it was learnt from.
        learnt: the combination.
        settings: the learner.
        penalty: its penalty.
        resamples: number of resamples.
        seed: their seed.
        level: coverage.
        progress: called with numbers of resamples done.

    Returns:
        One for each of the k inputs.
    """
    codes = np.unique(examples.unit, return_inverse=True)[1]
    matrix, owner = learnt.basis.matrix(examples), learnt.basis.owner
    draws = Bootstrap(int(codes.max()) + 1, resamples, seed)
    weights: list[FloatArray] = []
    for index in range(-(-resamples // BLOCK)):
        for counts in draws.block(index):
            weights.append(_refit(matrix, examples.target, counts[codes], learnt, settings, penalty))
            progress(1)
    features = learnt.basis.features(examples.captions)
    values = effects(owner, features, learnt.weights[None])[0]
    lows, highs = np.quantile(effects(owner, features, np.stack(weights)), ((1 - level) / 2, (1 + level) / 2), axis=0)
    triples = zip(values.tolist(), lows.tolist(), highs.tolist(), strict=True)
    return tuple(WeightInterval(*triple) for triple in triples)


def _refit(
    matrix: FloatArray,
    target: FloatArray | None,
    counts: NDArray[np.integer],
    learnt: Fit,
    settings: Settings,
    penalty: float,
) -> FloatArray:
    drawn = counts > 0
    weights, _ = fit(
        matrix[drawn],
        None if target is None else target[drawn],
        penalty,
        shares=learnt.basis.shares,
        nonnegative=settings.learner == "monotone",
        counts=counts[drawn].astype(np.float64),
    )
    return weights


def _basis(examples: Examples, settings: Settings, names: Sequence[str]) -> Basis:
    return Basis.of(examples.captions, names, monotone=settings.learner == "monotone")
