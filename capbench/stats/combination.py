"""Learning one score from several: ridge and logistic regression, and a monotone additive model.

All three are linear in a **basis**: of each input its standardised value z, or, for the monotone model, ramps between
quantiles of z. A combination is ``intercept + Σ weight · (feature - mean)``, and what is minimised is

``loss + penalty / 2 · Σ weight² / B``

with B the number of features of the weight's input. The loss of ratings is half the mean squared error, that of pairs
the mean of ``log(1 + exp(-margin))``, with the margin the score of the preferred caption minus that of the other one
(Bradley and Terry 1952). Of the monotone model all weights are 0 or more, so no score falls where an input rises.

Adding a constant to the scores, or measuring an input in another unit, changes nothing.

References:
    Hoerl, A. E. and Kennard, R. W. (1970). Ridge regression: biased estimation for nonorthogonal problems.
    Technometrics 12 (1).
    Bradley, R. A. and Terry, M. E. (1952). Rank analysis of incomplete block designs. Biometrika 39.
    Ramsay, J. O. (1988). Monotone regression splines in action. Statistical Science 3 (4). (Ours are of degree 1.)
    Lawson, C. L. and Hanson, R. J. (1974). Solving Least Squares Problems, chapter 23 (non-negative least squares).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray

__all__ = ["SEGMENTS", "Basis", "Examples", "Fit", "Learner", "effects", "fit", "fit_path", "loss"]

Learner = Literal["ridge", "logistic", "monotone"]
"""Ridge learns from ratings, logistic regression from pairs, and the monotone model from either."""

SEGMENTS = 6
"""Straight pieces of each input's curve in the monotone model; fewer where quantiles coincide."""
_SHARED_SLOPE = 0.05
# A column whose spread is below this share of its size is constant but for rounding.
_ROUNDING = 1e-12
_NEWTON_STEPS = 100
# Newton's method has converged when the next step would lower the objective by less.
_CONVERGED = 1e-15


@dataclass(frozen=True, eq=False)
class Examples:
    """What is learnt from: ratings of captions, or choices between two captions.

    Attributes:
        inputs: (n, k) scores of the rated captions, or of the preferred ones, by k metrics; higher is better.
        others: (n, k) scores of the captions that were not preferred; None for ratings.
        target: (n,) ratings; None for pairs.
        unit: (n,) number of the unit (image) of each example.
    """

    inputs: FloatArray
    others: FloatArray | None
    target: FloatArray | None
    unit: IntArray

    @classmethod
    def of_ratings(cls, inputs: FloatArray, ratings: FloatArray, unit: IntArray) -> Examples:
        """Ratings of captions.

        Args:
            inputs: (n, k) scores.
            ratings: (n,) ratings.
            unit: (n,) number of each rating's image.
        """
        return cls(inputs, None, ratings, unit)

    @classmethod
    def of_pairs(cls, first: FloatArray, second: FloatArray, preferred: IntArray, unit: IntArray) -> Examples:
        """Choices between two captions; those on which people are even tell nothing and are left out.

        Args:
            first: (n, k) scores of the first captions.
            second: (n, k) scores of the second ones.
            preferred: (n,) +1 if people prefer the first, -1 the second, 0 if they are even.
            unit: (n,) number of each pair's image.
        """
        clear = preferred != 0
        is_first = (preferred[clear] > 0)[:, None]
        a, b = first[clear], second[clear]
        return cls(np.where(is_first, a, b), np.where(is_first, b, a), None, unit[clear])

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def captions(self) -> FloatArray:
        """(m, k) scores of all captions that stand in the examples; both of a pair."""
        return self.inputs if self.others is None else np.concatenate([self.inputs, self.others])

    def of_units(self, chosen: NDArray[np.bool_]) -> Examples:
        """The examples of some units; (units,) says which."""
        rows = chosen[self.unit]
        others = None if self.others is None else self.others[rows]
        target = None if self.target is None else self.target[rows]
        return Examples(self.inputs[rows], others, target, self.unit[rows])

    def without(self, column: int) -> Examples:
        """The same without one input."""
        others = None if self.others is None else np.delete(self.others, column, axis=1)
        return Examples(np.delete(self.inputs, column, axis=1), others, self.target, self.unit)


@dataclass(frozen=True, eq=False)
class Basis:
    """How inputs become features. Learnt from training examples alone.

    Attributes:
        centers: (k,) mean of each input.
        scales: (k,) standard deviation of each.
        knots: for each input ascending values of z between which its curve is straight; none for a straight line.
        means: (F,) mean of each feature.
    """

    centers: FloatArray
    scales: FloatArray
    knots: tuple[FloatArray, ...]
    means: FloatArray

    @classmethod
    def of(cls, inputs: FloatArray, names: Sequence[str], *, monotone: bool) -> Basis:
        """The basis that fits some captions.

        Args:
            inputs: (n, k) scores.
            names: of the k inputs, for messages.
            monotone: whether each input gets a curve.

        Raises:
            StatisticError: an input is the same for all captions.
        """
        centers, scales = inputs.mean(axis=0), inputs.std(axis=0)
        for name, scale, size in zip(names, scales, np.abs(inputs).max(axis=0), strict=True):
            if not scale > _ROUNDING * size:
                raise StatisticError(
                    f"{name} gives all captions that are learnt from the same score: it cannot be combined",
                    hint=f"Leave {name} out",
                )
        z = (inputs - centers) / scales
        shares = np.arange(1, SEGMENTS) / SEGMENTS
        knots = [np.unique(np.quantile(column, shares)) if monotone else np.empty(0) for column in z.T]
        # A knot at an end would make a piece that no caption is on.
        inner = tuple(k[(k > column.min()) & (k < column.max())] for k, column in zip(knots, z.T, strict=True))
        bare = cls(centers, scales, inner, np.zeros(sum(len(k) + 1 for k in inner)))
        return cls(centers, scales, inner, bare.features(inputs).mean(axis=0))

    @property
    def owner(self) -> IntArray:
        """(F,) the input that each feature belongs to."""
        return np.repeat(np.arange(len(self.knots)), [len(knots) + 1 for knots in self.knots])

    @property
    def shares(self) -> FloatArray:
        """(F,) 1 / B: what the square of each weight counts in the penalty.

        A straight line has the weight w at all B features of its input, and so costs w² whatever B is.
        """
        sizes = np.array([len(knots) + 1 for knots in self.knots])
        return np.asarray(1 / sizes[self.owner], dtype=np.float64)

    def features(self, inputs: FloatArray) -> FloatArray:
        """(n, F) features of captions: mean 0 over the captions that the basis was made of.

        An input without knots has one feature, z. Else it has one for each piece between knots (the outer ones have no
        end): ``0.95 clip(z, low, high) + 0.05 z / B``. The second term lets every piece rise with any of them, so that
        captions which a metric tells apart are never tied if it counts at all.
        """
        z = (inputs - self.centers) / self.scales
        columns = []
        for values, knots in zip(z.T, self.knots, strict=True):
            if not len(knots):
                columns.append(values)
                continue
            ends = np.concatenate([[-np.inf], knots, [np.inf]])
            straight = _SHARED_SLOPE / (len(knots) + 1) * values
            columns += [
                (1 - _SHARED_SLOPE) * np.clip(values, low, high) + straight for low, high in itertools.pairwise(ends)
            ]
        stacked: FloatArray = np.stack(columns, axis=1)
        return stacked - self.means

    def matrix(self, examples: Examples) -> FloatArray:
        """(n, F) features of examples; of pairs, those of the preferred caption minus those of the other one."""
        first = self.features(examples.inputs)
        return first if examples.others is None else first - self.features(examples.others)


@dataclass(frozen=True, eq=False)
class Fit:
    """A combination.

    Attributes:
        basis: its features.
        weights: (F,) their weights.
        intercept: the score of a caption all of whose features are 0: the mean rating; 0 for pairs.
    """

    basis: Basis
    weights: FloatArray
    intercept: float

    def scores(self, inputs: FloatArray) -> FloatArray:
        """(n,) scores of captions with (n, k) inputs: on the ratings' scale, or in log-odds of being preferred."""
        scores: FloatArray = self.intercept + self.basis.features(inputs) @ self.weights
        return scores

    def effects(self, captions: FloatArray) -> FloatArray:
        """(k,) what one standard deviation of each input moves the score over (n, k) captions; see :func:`effects`."""
        moved: FloatArray = effects(self.basis.owner, self.basis.features(captions), self.weights[None])[0]
        return moved


def effects(owner: IntArray, features: FloatArray, weights: FloatArray) -> FloatArray:
    """What inputs count: the standard deviation of each one's contribution, negative where the score falls with it.

    For a straight line this is the weight of z.

    Args:
        owner: (F,) input of each feature.
        features: (n, F) features of captions.
        weights: (R, F) weights of R combinations.

    Returns:
        (R, k).
    """
    columns = []
    for place in range(int(owner.max()) + 1):
        of_input = owner == place
        spread = np.cov(features[:, of_input], rowvar=False, ddof=0).reshape(of_input.sum(), -1)
        w = weights[:, of_input]
        columns.append(np.sign(w.sum(axis=1)) * np.sqrt(np.maximum(0.0, np.einsum("rf,fg,rg->r", w, spread, w))))
    return np.stack(columns, axis=1)


def fit(
    matrix: FloatArray,
    target: FloatArray | None,
    penalty: float,
    *,
    shares: FloatArray,
    nonnegative: bool = False,
    counts: FloatArray | None = None,
) -> tuple[FloatArray, float]:
    """The weights that minimise the penalised loss.

    Args:
        matrix: (n, F) features of examples; of pairs, differences.
        target: (n,) ratings; None for pairs.
        penalty: above 0.
        shares: (F,) what the square of each weight counts.
        nonnegative: whether no weight may be below 0.
        counts: (n,) how often each example counts; None for once.

    Returns:
        (F,) weights, and the intercept: the mean rating, 0 for pairs.

    Raises:
        StatisticError: the search for the minimum did not end.
    """
    ((weights, intercept),) = fit_path(
        matrix, target, (penalty,), shares=shares, nonnegative=nonnegative, counts=counts
    )
    return weights, intercept


def fit_path(
    matrix: FloatArray,
    target: FloatArray | None,
    penalties: Sequence[float],
    *,
    shares: FloatArray,
    nonnegative: bool = False,
    counts: FloatArray | None = None,
) -> list[tuple[FloatArray, float]]:
    """What :func:`fit` gives for each of several ascending penalties, with the work that they share done once."""
    share = np.full(len(matrix), 1 / len(matrix)) if counts is None else counts / counts.sum()
    fits: list[tuple[FloatArray, float]] = []
    if target is None:
        # A large penalty is quickly done, and its weights are near those of the next one.
        weights = np.zeros(matrix.shape[1])
        for penalty in reversed(penalties):
            weights = _newton(matrix, share, np.diag(penalty * shares), nonnegative, weights)
            fits.append((weights, 0.0))
        return fits[::-1]
    means, mean = share @ matrix, float(share @ target)
    centered = matrix - means
    weighted = centered * share[:, None]
    products, slopes = weighted.T @ centered, weighted.T @ (target - mean)
    for penalty in penalties:
        weights = _lowest(products + np.diag(penalty * shares), slopes, nonnegative)
        # The features' means may have moved with the counts: the mean rating belongs to the moved ones.
        fits.append((weights, mean - float(means @ weights)))
    return fits


def loss(scores: FloatArray, target: FloatArray | None) -> float:
    """Mean squared error of scores beside ratings; of (n,) margins of pairs (no target) the mean log loss."""
    if target is None:
        return float(np.logaddexp(0.0, -scores).mean())
    return float(((scores - target) ** 2).mean())


def _newton(
    matrix: FloatArray, share: FloatArray, ridge: FloatArray, nonnegative: bool, weights: FloatArray
) -> FloatArray:
    """Logistic regression on differences, without an intercept: which caption stands first must not matter."""

    def objective(weights: FloatArray) -> float:
        return float(share @ np.logaddexp(0.0, -(matrix @ weights)) + 0.5 * weights @ ridge @ weights)

    value = objective(weights)
    for _ in range(_NEWTON_STEPS):
        wrong = 1 / (1 + np.exp(np.clip(matrix @ weights, -500, 500)))
        slope = -matrix.T @ (share * wrong) + ridge @ weights
        curvature = (matrix * (share * wrong * (1 - wrong))[:, None]).T @ matrix + ridge
        step = _lowest(curvature, curvature @ weights - slope, nonnegative) - weights
        falls = float(slope @ step)
        if -falls < _CONVERGED:
            return weights
        size = 1.0
        while (lower := objective(weights + size * step)) > value + 1e-4 * size * falls:
            size /= 2
            if size < 1e-12:  # rounding: no point is lower
                return weights
        weights, value = weights + size * step, lower
    raise StatisticError("learning from pairs did not end", hint="Give a larger penalty, or fewer metrics")


def _lowest(curvature: FloatArray, linear: FloatArray, nonnegative: bool) -> FloatArray:
    """The w that minimises ``w' C w / 2 - l' w``, C positive definite; over w ≥ 0 if ``nonnegative``."""
    if not nonnegative:
        return np.asarray(np.linalg.solve(curvature, linear), dtype=np.float64)
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls

    root = np.linalg.cholesky(curvature)
    try:
        weights, _ = nnls(root.T, solve_triangular(root, linear, lower=True), maxiter=100 * len(linear))
    except RuntimeError as error:
        raise StatisticError("learning did not end", hint="Give a larger penalty, or fewer metrics") from error
    return np.asarray(weights, dtype=np.float64)
