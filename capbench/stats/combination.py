"""Models that combine several scores: ridge and logistic regression, a monotone additive model, and the mean rank.

The first three are linear in a **basis**: the standardised value z of each input, or, for the monotone model, ramps
between quantiles of z. A combination is ``intercept + Σ weight · (feature - mean)``. Fitting minimises

``loss + penalty / 2 · Σ weight² / B``

with B the number of features of the weight's input. The loss for ratings is half the mean squared error. The loss for
pairs is the mean of ``log(1 + exp(-margin))``, where the margin is the score of the preferred caption minus that of the
other one (Bradley and Terry 1952). The monotone model has only weights ≥ 0, so no score decreases when an input
increases.

The mean rank reads no judgements: each input is mapped to its quantile among the training captions, and the quantiles
are averaged with equal weights.

References:
    Hoerl, A. E. and Kennard, R. W. (1970). Ridge regression: biased estimation for nonorthogonal problems.
    Technometrics 12 (1).
    Bradley, R. A. and Terry, M. E. (1952). Rank analysis of incomplete block designs. Biometrika 39.
    Ramsay, J. O. (1988). Monotone regression splines in action. Statistical Science 3 (4). (Degree 1 here.)
    Lawson, C. L. and Hanson, R. J. (1974). Solving Least Squares Problems, chapter 23 (non-negative least squares).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray
from capbench.stats.ties import merged

Learner = Literal["ridge", "logistic", "monotone", "mean-rank"]
"""Ridge learns from ratings, logistic regression from pairs, the monotone model from either."""
QUANTILES = 200
"""Number of evenly spaced quantiles by which the mean rank approximates an input's quantile function."""
SEGMENTS = 6
"""Linear pieces of each input's curve in the monotone model; fewer if quantiles coincide."""
_SHARED_SLOPE = 0.05
# A column whose spread is below this fraction of its magnitude is constant up to rounding.
_ROUNDING = 1e-12
_NEWTON_STEPS = 100
# Newton's method has converged if the next step would lower the objective by less.
_CONVERGED = 1e-15
_MORE_PENALTY = "Use a larger penalty, or fewer metrics"


@dataclass(frozen=True, eq=False)
class Examples:
    """n training examples: ratings of captions, or preferences between two captions, by k metrics."""

    inputs: FloatArray  # (n, k) scores of rated captions, or of the preferred ones; higher is better
    others: FloatArray | None  # (n, k) scores of the captions that were not preferred; None for ratings
    target: FloatArray | None  # (n,) ratings; None for pairs
    unit: IntArray  # (n,) number of the unit (image) of each example

    @classmethod
    def of_pairs(cls, first: FloatArray, second: FloatArray, preferred: IntArray, unit: IntArray) -> Examples:
        """Preferences between captions with (n, k) scores each: +1 for the first, -1 for the second; 0 is left out."""
        clear = preferred != 0
        is_first = (preferred[clear] > 0)[:, None]
        a, b = first[clear], second[clear]
        return cls(np.where(is_first, a, b), np.where(is_first, b, a), None, unit[clear])

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def captions(self) -> FloatArray:
        """(m, k) scores of all captions of the examples, including both of each pair."""
        return self.inputs if self.others is None else np.concatenate([self.inputs, self.others])

    def of_units(self, chosen: NDArray[np.bool_]) -> Examples:
        """The examples of the chosen units, a (units,) mask."""
        rows = chosen[self.unit]
        others = None if self.others is None else self.others[rows]
        target = None if self.target is None else self.target[rows]
        return Examples(self.inputs[rows], others, target, self.unit[rows])


@dataclass(frozen=True, eq=False)
class Basis:
    """Map from k inputs to F features, fitted on training examples only."""

    centers: FloatArray  # (k,) mean of each input
    scales: FloatArray  # (k,) standard deviation of each input
    knots: tuple[FloatArray, ...]  # by input, ascending z between which its curve is linear; empty for a line
    means: FloatArray  # (F,) mean of each feature
    levels: tuple[FloatArray, ...] = ()  # by input, its only feature at each knot; empty for weights by piece

    @classmethod
    def of(cls, inputs: FloatArray, names: Sequence[str], *, monotone: bool) -> Basis:
        """Fit the basis to captions with (n, k) scores; ``monotone`` gives each input a curve."""
        centers, scales = _spread(inputs, names)
        z, shares = (inputs - centers) / scales, np.arange(1, SEGMENTS) / SEGMENTS
        knots = [np.unique(np.quantile(column, shares if monotone else ())) for column in z.T]
        # A knot at an end would create a piece without captions.
        inner = tuple(k[(k > column.min()) & (k < column.max())] for k, column in zip(knots, z.T, strict=True))
        bare = cls(centers, scales, inner, np.zeros(1))
        return replace(bare, means=bare.features(inputs).mean(axis=0))

    @classmethod
    def of_quantiles(cls, inputs: FloatArray, names: Sequence[str]) -> Basis:
        """Quantile functions of captions: a caption's feature is the share of lower scores, ties counting one half."""
        _spread(inputs, names)
        knots, levels = [], []
        for column in inputs.T:
            values, counts = np.unique(merged(column), return_counts=True)
            quantiles = (np.cumsum(counts) - counts / 2) / len(column)
            # Every value if there are few; otherwise those closest above evenly spaced quantiles, and the value
            # before one that many captions have, where the quantile jumps.
            chosen = np.unique(np.searchsorted(quantiles, np.linspace(quantiles[0], quantiles[-1], QUANTILES + 1)))
            jumps = chosen[1:][np.diff(quantiles)[chosen[1:] - 1] > 1 / QUANTILES]
            chosen = np.union1d(chosen, jumps - 1)
            knots.append(values[chosen])
            levels.append(quantiles[chosen])
        return cls(np.zeros(len(knots)), np.ones(len(knots)), tuple(knots), np.zeros(len(knots)), tuple(levels))

    @property
    def sizes(self) -> IntArray:
        """(k,) B: number of features of each input."""
        return np.array([1 if self.levels else len(knots) + 1 for knots in self.knots])

    @property
    def owner(self) -> IntArray:
        """(F,) the input that each feature belongs to."""
        return np.repeat(np.arange(len(self.knots)), self.sizes)

    @property
    def shares(self) -> FloatArray:
        """(F,) 1 / B: factor of each squared weight in the penalty.

        A straight line has the weight w at all B features of its input, and so costs w² for any B.
        """
        return np.asarray(1 / self.sizes[self.owner], dtype=np.float64)

    def features(self, inputs: FloatArray) -> FloatArray:
        """(n, F) features of captions, with mean 0 over the captions to which the basis was fitted.

        An input without knots has one feature, z; one with levels has the curve through them. Otherwise it has one for
        each piece between knots (the outer ones are unbounded): ``0.95 clip(z, low, high) + 0.05 z / B``, which
        increases everywhere.
        """
        z = (inputs - self.centers) / self.scales
        if self.levels:
            curves = zip(z.T, self.knots, self.levels, strict=True)
            quantiles: FloatArray = np.stack([np.interp(*curve) for curve in curves], axis=1)
            return quantiles - self.means
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
        """(n, F) features of examples; for pairs, features of the preferred caption minus those of the other one."""
        first = self.features(examples.inputs)
        return first if examples.others is None else first - self.features(examples.others)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted combination."""

    basis: Basis
    weights: FloatArray  # (F,)
    intercept: float  # score of a caption whose features are all 0: the mean rating; 0 for pairs

    def scores(self, inputs: FloatArray) -> FloatArray:
        """(n,) scores of captions with (n, k) inputs: on the ratings' scale, or log-odds of being preferred."""
        scores: FloatArray = self.intercept + self.basis.features(inputs) @ self.weights
        return scores


def mean_rank(inputs: FloatArray, names: Sequence[str]) -> Fit:
    """The mean rank: the average of the inputs' quantiles among captions with (n, k) scores, between 0 and 1."""
    basis = Basis.of_quantiles(inputs, names)
    return Fit(basis, np.full(len(basis.knots), 1 / len(basis.knots)), 0.0)


def _spread(inputs: FloatArray, names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """(k,) mean and standard deviation of each input, which must not be constant."""
    centers, scales = inputs.mean(axis=0), inputs.std(axis=0)
    for name, scale, size in zip(names, scales, np.abs(inputs).max(axis=0), strict=True):
        if not scale > _ROUNDING * size:
            raise StatisticError(
                f"{name} gives all captions of the training data the same score and cannot be combined",
                value=name,
                hint=f"Remove {name}",
            )
    return centers, scales


def effects(owner: IntArray, features: FloatArray, weights: FloatArray) -> FloatArray:
    """(R, k) effect of each input: standard deviation of its contribution, negative if the score decreases with it.

    For a straight line this is the weight of z. ``owner`` is the (F,) input of each feature, ``features`` are (n, F)
    features of captions, ``weights`` (R, F) weights of R combinations.
    """
    columns = []
    for place in range(int(owner.max()) + 1):
        of_input = owner == place
        spread = np.cov(features[:, of_input], rowvar=False, ddof=0).reshape(of_input.sum(), -1)
        w = weights[:, of_input]
        columns.append(np.sign(w.sum(axis=1)) * np.sqrt(np.maximum(0.0, np.einsum("rf,fg,rg->r", w, spread, w))))
    return np.stack(columns, axis=1)


def fit_path(
    matrix: FloatArray,  # (n, F) features of examples; differences for pairs
    target: FloatArray | None,  # (n,) ratings; None for pairs
    penalties: Sequence[float],  # ascending, above 0
    *,
    shares: FloatArray,  # (F,) factor of each squared weight in the penalty
    nonnegative: bool = False,  # True to allow only weights ≥ 0
    counts: FloatArray | None = None,  # (n,) weight of each example; None for equal weights
) -> list[tuple[FloatArray, float]]:
    """For each penalty, (F,) weights that minimise the penalised loss, and the intercept: mean rating, 0 for pairs."""
    share = np.full(len(matrix), 1 / len(matrix)) if counts is None else counts / counts.sum()
    fits: list[tuple[FloatArray, float]] = []
    if target is None:
        # A large penalty converges quickly, and its weights are close to those of the next one.
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
        # The counts may shift the means of the features; the mean rating belongs to the shifted means.
        fits.append((weights, mean - float(means @ weights)))
    return fits


def loss(scores: FloatArray, target: FloatArray | None) -> float:
    """Mean squared error of scores against ratings; mean log loss of (n,) margins of pairs (no target)."""
    if target is None:
        return float(np.logaddexp(0.0, -scores).mean())
    return float(((scores - target) ** 2).mean())


def _newton(
    matrix: FloatArray, share: FloatArray, ridge: FloatArray, nonnegative: bool, weights: FloatArray
) -> FloatArray:
    """Logistic regression on differences, without an intercept, so that the order in a pair has no effect."""

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
            if size < 1e-12:  # no lower point up to rounding
                return weights
        weights, value = weights + size * step, lower
    raise StatisticError("the fit did not converge", code="not-converged", hint=_MORE_PENALTY)


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
        raise StatisticError("the fit did not converge", code="not-converged", hint=_MORE_PENALTY) from error
    return np.asarray(weights, dtype=np.float64)
