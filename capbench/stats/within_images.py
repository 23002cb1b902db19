"""Within-image agreement: does the metric rank the captions of one image as the raters do?

The statistic is computed for each image separately and averaged over images (the segment level of machine translation,
"group by item"). Two statistics are computed over all images at once, but only from pairs of captions of one image:
acc*_eq, whose tie threshold ε is the same for all images, and the pairwise difference correlation.

An image counts if it has two captions or more and its ratings are not all equal. For the two statistics of pairs, two
captions are sufficient, since they include pairs with equal ratings. If a metric gives all captions of an image the
same score although their ratings differ, the image counts 0. Without this rule a metric would gain by producing ties
where it is uncertain (the NaN problem of Deutsch et al.).

References:
    Deutsch, D., Foster, G. and Freitag, M. (2023). Ties matter: Meta-evaluating modern metrics with pairwise accuracy
    and tie calibration. EMNLP. (groups, the NaN problem, acc*_eq averaged over items)
    DiIanni, C. and Deutsch, D. (2025). Don't sweat the small stuff: Segment-level meta-evaluation based on pairwise
    difference correlation. EMNLP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray, WithinCoefficient
from capbench.stats.agreement import Agreement, Labels, Numbers, rated
from capbench.stats.kendall import rank_encode
from capbench.stats.permutation import LinearSwap, swapped
from capbench.stats.resampling import Weighted, WeightedStatistic, in_parts, standardise, unit_codes
from capbench.stats.ties import difference_rounding, last_of_equals, merged
from capbench.stats.vectors import centred, run_starts, scaled_values

HELD_OUT_SEED = 0
"""Seed of the halves of the images from which acc*_eq with held-out ε takes its thresholds."""
# Number of pairs that are listed at a time.
_PAIRS = 2_000_000
_ROUNDING = 1e-12


class CalibratedPairs:
    """acc*_eq with one ε for all images, averaged over images: a statistic of weighted images.

    ε is calibrated for every resample. All pairs are sorted by the ε from which on they are tied, so that the accuracy
    for every ε is one cumulative sum.

    ``x``: (n,) scores, image by image; ``y``: (n,) ratings; ``unit``: (n,) number of the image, ascending. Each image
    has two captions or more.
    """

    def __init__(self, x: FloatArray, y: FloatArray, unit: IntArray, units: int) -> None:
        self.units = units
        sizes = np.bincount(unit, minlength=units).astype(np.float64)
        pairs_of_image = sizes * (sizes - 1) / 2
        right = np.zeros(units)
        epsilons, operands, images, gains = [], [], [], []
        for first, second in pairs_within(unit, units):
            order_x, order_y = orders(x, first, second), orders(y, first, second)
            image = unit[first]
            right += np.bincount(image, weights=order_x == order_y, minlength=units)
            # A new tie is right for pairs with equal ratings, and wrong for pairs that were in the right order.
            gain = (order_y == 0).astype(np.int8) - (order_x == order_y)
            changes = (order_x != 0) & (gain != 0)
            a, b = x[first[changes]], x[second[changes]]
            epsilons.append(np.abs(a - b))
            operands.append(np.maximum(np.abs(a), np.abs(b)))
            images.append(image[changes])
            gains.append(gain[changes])
        epsilon = np.concatenate(epsilons)
        by_epsilon = np.argsort(epsilon, kind="stable")
        self._epsilon: FloatArray = epsilon[by_epsilon]
        self._image: IntArray = np.concatenate(images)[by_epsilon]
        self._gain: FloatArray = np.concatenate(gains)[by_epsilon] / pairs_of_image[self._image]
        self._start: FloatArray = right / pairs_of_image
        # The accuracy of an ε is the sum up to the last pair that it ties.
        self._last = last_of_equals(self._epsilon, np.concatenate(operands)[by_epsilon])

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        values = []
        for part in in_parts(weights, len(self._gain) + 1):
            drawn = part.astype(np.float64)
            start = np.einsum("bu,u->b", drawn, self._start)
            best = start
            if len(self._last):
                gained = np.cumsum(np.take(drawn, self._image, axis=1) * self._gain, axis=1)
                best = start + np.maximum(0.0, gained[:, self._last].max(axis=1))
            with np.errstate(divide="ignore", invalid="ignore"):
                values.append(np.clip(best / drawn.sum(axis=1), 0.0, 1.0))
        return np.concatenate(values) if values else np.empty(0)

    def calibrated(self) -> tuple[float, float]:
        """The smallest ε with the best accuracy over all images, and that accuracy."""
        start = float(self._start.mean())
        if not len(self._last):
            return 0.0, start
        gained = np.cumsum(self._gain)[self._last] / self.units
        best = float(gained.max())
        if best <= _ROUNDING:
            return 0.0, start
        at = int(np.argmax(gained >= best - _ROUNDING))
        return float(self._epsilon[self._last[at]]), start + float(gained[at])

    def by_image(self, epsilon: float | None = None) -> FloatArray:
        """(U,) accuracy of each image with this ε, by default the calibrated one."""
        tied = self._epsilon <= (self.calibrated()[0] if epsilon is None else epsilon)
        gained = np.bincount(self._image[tied], weights=self._gain[tied], minlength=self.units)
        return np.asarray(self._start + gained, dtype=np.float64)


def held_out_accuracies(x: FloatArray, y: FloatArray, unit: IntArray, drawn: IntArray) -> FloatArray:
    """(U,) accuracy of each image with the ε that is best for other images, for acc*_eq without its optimism.

    acc*_eq takes ε from the images that it is measured on, which favours metrics with many distinct scores. Here the
    resampling units are split into two random halves (:data:`HELD_OUT_SEED`), and ε of each half is calibrated on the
    other.

    Arguments as of :class:`CalibratedPairs`; ``drawn``: (U,) resampling unit of each image. Raises StatisticError:
    there is one unit only.
    """
    units = int(drawn.max()) + 1
    if units < 2:
        raise StatisticError("ε cannot be held out: there is one image only", code="too-few", value=units)
    shuffled = np.random.default_rng(HELD_OUT_SEED).permutation(units)
    in_second = np.isin(drawn, shuffled[units // 2 :])
    halves = []
    for half in (~in_second, in_second):
        chosen = half[unit]
        renumbered = (np.cumsum(half) - 1)[unit[chosen]]
        halves.append(CalibratedPairs(x[chosen], y[chosen], renumbered, int(half.sum())))
    values, largest = np.empty(len(drawn)), float(np.abs(x).max())
    for half, pairs, others in zip((~in_second, in_second), halves, reversed(halves), strict=True):
        epsilon = others.calibrated()[0]
        values[half] = pairs.by_image(epsilon + difference_rounding(epsilon, largest))
    return values


def varied_within(values: FloatArray, starts: IntArray) -> NDArray[np.bool_]:
    """(U,) True if an image has two different values."""
    return np.asarray(np.maximum.reduceat(values, starts) != np.minimum.reduceat(values, starts), dtype=np.bool_)


def orders(values: FloatArray, first: IntArray, second: IntArray) -> NDArray[np.int8]:
    """(p,) +1 if the first of a pair has the larger value, -1 if the second has, 0 if they are equal."""
    a, b = values[first], values[second]
    return (a > b).astype(np.int8) - (a < b).astype(np.int8)


def pairs_within(unit: IntArray, units: int) -> Iterator[tuple[IntArray, IntArray]]:
    """All pairs of captions of one image, in batches."""
    ends = np.cumsum(np.bincount(unit, minlength=units))[unit]
    partners = ends - np.arange(len(unit)) - 1
    before = np.concatenate([[0], np.cumsum(partners)])
    start = 0
    while start < len(unit):
        stop = max(start + 1, int(np.searchsorted(before, before[start] + _PAIRS, side="right")) - 1)
        many = partners[start:stop]
        first = np.repeat(np.arange(start, stop), many)
        second = np.arange(len(first)) - np.repeat(np.cumsum(many) - many, many) + first + 1
        if len(first):
            yield first, second
        start = stop


def correlations_by_image(
    coefficient: WithinCoefficient, x: FloatArray, y: FloatArray, unit: IntArray, units: int
) -> FloatArray:
    """(U,) correlation of each image, 0 if the scores of all its captions are equal."""
    if coefficient in ("tau-b", "tau-c"):
        return _kendall(coefficient, x, y, unit, units)
    if coefficient == "spearman":
        x, y = _ranks(x, unit), _ranks(y, unit)
    xy, xx, yy = _products(_deviations(x, unit), _deviations(y, unit), unit, units)
    varied = varied_within(x, run_starts(unit)) & (xx > 0) & (yy > 0)
    value = np.zeros(units)
    np.divide(xy, np.sqrt(xx * yy), out=value, where=varied)
    return np.clip(value, -1.0, 1.0)


def _kendall(coefficient: WithinCoefficient, x: FloatArray, y: FloatArray, unit: IntArray, units: int) -> FloatArray:
    score, free_x, free_y = np.zeros(units), np.zeros(units), np.zeros(units)
    sizes = np.bincount(unit, minlength=units)
    for first, second in pairs_within(unit, units):
        order_x, order_y = orders(x, first, second), orders(y, first, second)
        image = unit[first]
        score += np.bincount(image, weights=order_x * order_y, minlength=units)
        free_x += np.bincount(image, weights=order_x != 0, minlength=units)
        free_y += np.bincount(image, weights=order_y != 0, minlength=units)
    value = np.zeros(units)
    defined = (free_x > 0) & (free_y > 0)
    if coefficient == "tau-b":
        np.divide(score, np.sqrt(free_x * free_y), out=value, where=defined)
    else:
        points = sizes.astype(np.float64)
        levels = np.minimum(_levels(x, unit, units), _levels(y, unit, units))
        np.divide(2 * score * levels, points * points * (levels - 1), out=value, where=defined)
    return np.clip(value, -1.0, 1.0)


def difference_sums(x: FloatArray, y: FloatArray, unit: IntArray, units: int) -> FloatArray:
    """(3, U) sums over the pairs of captions of each image, in both orders, halved: dx dy, dx², dy².

    Uses ``Σ_ij (x_i - x_j)(y_i - y_j) = 2 n Σ_i (x_i - x̄)(y_i - ȳ)`` instead of listing pairs.
    """
    sizes = np.bincount(unit, minlength=units)
    sums = _products(centred(x, unit), centred(scaled_values(y), unit), unit, units)
    return np.asarray(np.stack(sums) * sizes, dtype=np.float64)


def _products(a: FloatArray, b: FloatArray, unit: IntArray, units: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(U,) sums of a b, a² and b² over each image."""
    ab, aa, bb = (
        np.bincount(unit, weights=product, minlength=units).astype(np.float64) for product in (a * b, a * a, b * b)
    )
    return ab, aa, bb


def _deviations(values: FloatArray, unit: IntArray) -> FloatArray:
    """(n,) deviations from the mean of the image, scaled so that the largest of each image is ±1."""
    deviation = centred(scaled_values(values), unit)
    largest = np.maximum.reduceat(np.abs(deviation), run_starts(unit))
    return np.asarray(deviation / np.where(largest > 0, largest, 1.0)[unit], dtype=np.float64)


def _ranks(values: FloatArray, unit: IntArray) -> FloatArray:
    """(n,) average ranks within the image, from 0."""
    order = np.lexsort((values, unit))
    runs = run_starts(values[order], unit[order])
    lengths = np.diff(runs, append=len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(runs + (lengths - 1) / 2, lengths)
    return np.asarray(ranks - run_starts(unit)[unit])


def _levels(values: FloatArray, unit: IntArray, units: int) -> FloatArray:
    """(U,) number of different values of each image."""
    codes = rank_encode(values)
    different = np.unique(unit * codes.levels + codes.codes)
    return np.bincount(different // codes.levels, minlength=units).astype(np.float64)


# Statistics that include pairs with equal ratings.
_WITH_TIES: tuple[WithinCoefficient, ...] = ("acc-eq", "acc-eq-held-out", "difference-pearson")


@dataclass(frozen=True, eq=False)
class WithinImages(Agreement):
    """Within-image agreement of several metrics with the same ratings.

    Data points are sorted by image. Images that do not count are excluded; the others are resampled.
    """

    coefficient: WithinCoefficient
    scores: Mapping[str, FloatArray]  # (draws, n) scores of each metric
    human: FloatArray  # (n,) ratings. As in the scores, values that are equal up to rounding are equal
    unit: IntArray  # (n,) number of each caption's image, ascending
    images: int  # number of images that count
    few: int  # number of images excluded because they have only one caption
    tied: int  # number of images excluded because all their ratings are equal
    drawn: IntArray  # (images,) resampling unit of each image
    units: int  # number of resampling units: the number of images that count, unless some are drawn together
    labels: NDArray[Any]
    prefix = "within-image "

    @classmethod
    def of(
        cls,
        coefficient: WithinCoefficient,
        scores: Mapping[str, Numbers],  # (n,) or (draws, n) scores by metric
        human: Numbers,  # (n,) ratings of the same captions
        image: Labels,  # (n,) label of each caption's image
        *,
        # (n,) label of the resampling unit of each caption's image, the same for all captions of an image (the
        # photograph of two image ids); default: each image separately
        drawn: Labels | None = None,
        minimum: int = 2,  # minimum number of resampling units
    ) -> WithinImages:
        """Raises StatisticError: NaN or infinite values, too few images that
        count, or a metric that gives all captions of each image the same score.
        """
        arrays, ratings = rated(scores, human)
        codes, images = unit_codes(image)
        if not len(ratings):
            raise StatisticError("there are no ratings", code="too-few", value=0)
        order = np.argsort(codes, kind="stable")
        codes, ratings = codes[order], merged(ratings[order])
        starts = run_starts(codes)
        sizes = np.diff(starts, append=len(codes))
        varied = varied_within(ratings, starts)
        counts = (sizes > 1) & (varied | (coefficient in _WITH_TIES))
        few = int((sizes < 2).sum())
        counting = int(counts.sum())
        resampled = np.asarray(image if drawn is None else drawn)[order][starts][counts]
        labels, together = np.unique(resampled, return_inverse=True)
        if len(labels) < minimum:
            required = "two captions" if coefficient in _WITH_TIES else "two captions with different ratings"
            raise StatisticError(
                f"{len(labels) or 'none'} of {images} images has {required}: there is nothing to compare within images",
                code="too-few",
                value=len(labels),
                hint="Choose a statistic over all captions, such as tau-b",
            )
        if not varied.any():
            raise StatisticError("all captions of each image have the same rating: no caption is better than another")
        included = np.repeat(counts, sizes)
        unit = np.repeat(np.cumsum(counts) - 1, sizes)[included].astype(np.int64)
        kept = {name: np.stack([merged(row[order][included]) for row in rows]) for name, rows in arrays.items()}
        for name, rows in kept.items():
            if not all(varied_within(row, run_starts(unit)).any() for row in rows):
                raise StatisticError(
                    f"{name} gives all captions of each image the same score: it has no within-image agreement",
                    value=name,
                )
        excluded = few, images - few - counting
        drawn_by_image = together.astype(np.int64)
        return cls(coefficient, kept, ratings[included], unit, counting, *excluded, drawn_by_image, len(labels), labels)

    def flat(self, name: str) -> tuple[int, ...]:
        """Number of images that count 0, for their constant score, by sample of references."""
        if self.coefficient in _WITH_TIES:
            return (0,) * len(self.scores[name])
        starts = run_starts(self.unit)
        return tuple(int((~varied_within(scores, starts)).sum()) for scores in self.scores[name])

    def of_draw(self, scores: FloatArray) -> WeightedStatistic:
        if self.coefficient == "acc-eq":
            return self._resampled(CalibratedPairs(scores, self.human, self.unit, self.images))
        if self.coefficient == "difference-pearson":
            sums = difference_sums(scaled_values(scores), self.human, self.unit, self.images)
            return self._resampled(_differences(sums))
        return self._resampled(_image_mean(self._by_image(scores)))

    def swap_of_draw(self, first: FloatArray, second: FloatArray) -> WeightedStatistic:
        """The correlations of an image are swapped as a whole and require no common scale.

        The same holds for the accuracy of an image with the metric's ε, which remains calibrated on all images. Score
        differences are put on a common scale as z-scores.
        """
        if self.coefficient == "difference-pearson":
            sums = [difference_sums(standardise(x), self.human, self.unit, self.images) for x in (first, second)]
            return self._resampled(swapped(_differences(np.concatenate(sums, axis=1))))
        by_image = (self._by_image(first) - self._by_image(second)) / self.images
        return LinearSwap(np.bincount(self.drawn, weights=by_image, minlength=self.units).astype(np.float64))

    def _resampled(self, of_images: WeightedStatistic) -> WeightedStatistic:
        """The statistic of images of which some are drawn together."""
        if self.units == self.images:
            return of_images
        return Weighted(self.units, lambda weights: of_images(weights[:, self.drawn]))

    def _by_image(self, row: FloatArray) -> FloatArray:
        """(images,) the numbers whose mean is the statistic; acc*_eq with the ε of all images."""
        if self.coefficient == "acc-eq":
            return CalibratedPairs(row, self.human, self.unit, self.images).by_image()
        if self.coefficient == "acc-eq-held-out":
            return held_out_accuracies(row, self.human, self.unit, self.drawn)
        return correlations_by_image(self.coefficient, row, self.human, self.unit, self.images)


def _image_mean(values: FloatArray) -> WeightedStatistic:
    """The weighted mean of one number per image."""

    def mean(weights: NDArray[np.integer]) -> FloatArray:
        drawn = weights.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.einsum("bu,u->b", drawn, values) / drawn.sum(axis=1)
        return np.asarray(np.clip(means, -1.0, 1.0), dtype=np.float64)

    return Weighted(len(values), mean)


def _differences(sums: FloatArray) -> WeightedStatistic:
    """Pairwise difference Pearson from (3, U) sums over images: products, squares of scores, squares of ratings."""

    def correlation(weights: NDArray[np.integer]) -> FloatArray:
        drawn = weights.astype(np.float64)
        xy, xx, yy = (np.einsum("bu,u->b", drawn, column) for column in sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = xy / np.sqrt(xx * yy)
        return np.where((xx > 0) & (yy > 0), np.clip(value, -1.0, 1.0), np.nan)

    return Weighted(sums.shape[1], correlation)
