"""Within-image agreement: does the metric rank the captions of one image as the raters do?

A statistic over all captions mixes two questions: which images are difficult, and which of an image's captions is
better. Here the statistic is computed for each image separately and averaged over images (the segment level of machine
translation, "group by item"), which isolates the second question. Two statistics are computed over all images at once,
but only from pairs of captions of one image: acc*_eq, whose tie threshold ε is the same for all images, and the
pairwise difference correlation.

An image counts if it has two captions or more and its ratings are not all equal. For the two statistics of pairs, two
captions are sufficient, since they include pairs with equal ratings. If a metric gives all captions of an image the
same score although their ratings differ, no correlation is defined, and the image counts 0. Without this rule a metric
would gain by producing ties where it is uncertain (the NaN problem of Deutsch et al.).

Captions are sorted by image; all images are computed at once.

References:
    Deutsch, D., Foster, G. and Freitag, M. (2023). Ties matter: Meta-evaluating modern metrics with pairwise accuracy
    and tie calibration. EMNLP. (groups, the NaN problem, acc*_eq averaged over items)
    DiIanni, C. and Deutsch, D. (2025). Don't sweat the small stuff: Segment-level meta-evaluation based on pairwise
    difference correlation. EMNLP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError, check_choice
from capbench.core.records import FloatArray, IntArray, WithinCoefficient
from capbench.stats.agreement import Agreement, rated
from capbench.stats.kendall import pair_counts, rank_encode
from capbench.stats.permutation import Scale, SwapDifference
from capbench.stats.resampling import (
    WeightedStatistic,
    in_parts,
    mean_statistic,
    observed_value,
    standardise,
    unit_codes,
)
from capbench.stats.ties import difference_rounding, last_of_equals, merged

HELD_OUT_SEED = 0
"""Seed of the halves of the images from which acc*_eq with held-out ε takes its thresholds."""
# Number of pairs that are listed at a time.
_PAIRS = 2_000_000
# Images with more captions are counted one by one in n log n, instead of listing their pairs.
_LARGE = 1000
_ROUNDING = 1e-12


class CalibratedPairs:
    """acc*_eq with one ε for all images, averaged over images: a statistic of weighted images.

    ε is calibrated for every resample. All pairs are sorted by the ε from which on they are tied, so that the accuracy
    for every ε is one cumulative sum.

    ``x``: (n,) scores, image by image; ``y``: (n,) ratings; ``unit``: (n,) number of the image, ascending; ``units``:
    number of images; each has two captions or more.
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
        """See :class:`~capbench.stats.resampling.WeightedStatistic`."""
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


def calibrated_pairs(x: FloatArray, y: FloatArray, unit: IntArray, units: int, name: str) -> CalibratedPairs:
    """acc*_eq with one ε for all images.

    ``x``: (n,) scores, image by image; ``y``: (n,) ratings; ``unit``: (n,) number of the image, ascending; ``units``:
    number of images; each has two captions or more; ``name``: name of the scores in error messages.

    Raises StatisticError: scores whose differences are not finite.
    """
    if float(x.max()) - float(x.min()) == np.inf:
        message = f"{name}: the largest difference of two values is not finite"
        raise StatisticError(message, code="not-a-number", value=name)
    return CalibratedPairs(x, y, unit, units)


def held_out_accuracies(x: FloatArray, y: FloatArray, unit: IntArray, drawn: IntArray, name: str) -> FloatArray:
    """(U,) accuracy of each image with the ε that is best for other images, for acc*_eq without its optimism.

    acc*_eq takes ε from the images that it is measured on, which favours metrics with many distinct scores: ties are
    chosen for them after the fact, while a metric with few distinct scores has the ties that it has. Here the
    resampling units are split into two random halves (:data:`HELD_OUT_SEED`), and ε of each half is calibrated on the
    other.

    ``x``: (n,) scores, image by image; ``y``: (n,) ratings; ``unit``: (n,) number of the image, ascending; each image
    has two captions or more; ``drawn``: (U,) resampling unit of each image; ``name``: name of the scores in error
    messages.

    Raises StatisticError: there is one unit only.
    """
    units = int(drawn.max()) + 1
    if units < 2:
        raise StatisticError(f"ε of {name} cannot be held out: there is one image only", code="too-few", value=units)
    shuffled = np.random.default_rng(HELD_OUT_SEED).permutation(units)
    in_second = np.isin(drawn, shuffled[units // 2 :])
    halves = []
    for half in (~in_second, in_second):
        chosen = half[unit]
        renumbered = (np.cumsum(half) - 1)[unit[chosen]]
        halves.append(calibrated_pairs(x[chosen], y[chosen], renumbered, int(half.sum()), name))
    values, largest = np.empty(len(drawn)), float(np.abs(x).max())
    for half, pairs, others in zip((~in_second, in_second), halves, reversed(halves), strict=True):
        epsilon = others.calibrated()[0]
        values[half] = pairs.by_image(epsilon + difference_rounding(epsilon, largest))
    return values


def starts_of(unit: IntArray) -> IntArray:
    """Start positions of the images."""
    new = np.ones(len(unit), dtype=np.bool_)
    np.not_equal(unit[1:], unit[:-1], out=new[1:])
    return np.flatnonzero(new)


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
    xy, xx, yy = _products(_deviations(x, unit, units), _deviations(y, unit, units), unit, units)
    varied = varied_within(x, starts_of(unit)) & (xx > 0) & (yy > 0)
    value = np.zeros(units)
    np.divide(xy, np.sqrt(xx * yy), out=value, where=varied)
    return np.clip(value, -1.0, 1.0)


def _kendall(coefficient: WithinCoefficient, x: FloatArray, y: FloatArray, unit: IntArray, units: int) -> FloatArray:
    score, free_x, free_y = np.zeros(units), np.zeros(units), np.zeros(units)
    sizes = np.bincount(unit, minlength=units)
    starts = np.cumsum(sizes) - sizes
    for large in np.flatnonzero(sizes > _LARGE).tolist():
        at = slice(starts[large], starts[large] + sizes[large])
        counts = pair_counts(rank_encode(x[at]), rank_encode(y[at]))
        score[large] = counts.concordant - counts.discordant
        free_x[large], free_y[large] = counts.total - counts.ties_x, counts.total - counts.ties_y
    listed = np.flatnonzero(sizes[unit] <= _LARGE)
    for first, second in pairs_within(unit[listed], units):
        first, second = listed[first], listed[second]
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
    sums = _products(_centred(x, unit, units), _centred(scaled_values(y), unit, units), unit, units)
    return np.asarray(np.stack(sums) * sizes, dtype=np.float64)


def _products(a: FloatArray, b: FloatArray, unit: IntArray, units: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(U,) sums of a b, a² and b² over each image."""
    ab, aa, bb = (
        np.bincount(unit, weights=product, minlength=units).astype(np.float64) for product in (a * b, a * a, b * b)
    )
    return ab, aa, bb


def _centred(values: FloatArray, unit: IntArray, units: int) -> FloatArray:
    """(n,) deviations from the mean of the image, exactly 0 if all values of an image are equal."""
    sizes = np.bincount(unit, minlength=units)
    # Relative to a value of the image first, so that the mean of equal values is exact.
    deviation = values - values[starts_of(unit)][unit]
    return np.asarray(deviation - (np.bincount(unit, weights=deviation, minlength=units) / sizes)[unit])


def _deviations(values: FloatArray, unit: IntArray, units: int) -> FloatArray:
    """(n,) deviations from the mean of the image, scaled so that the largest of each image is ±1."""
    deviation = _centred(scaled_values(values), unit, units)
    largest = np.maximum.reduceat(np.abs(deviation), starts_of(unit))
    return np.asarray(deviation / np.where(largest > 0, largest, 1.0)[unit], dtype=np.float64)


def scaled_values(values: FloatArray) -> FloatArray:
    """(n,) values scaled below 1 by a power of two, which is exact and keeps sums and squares in range."""
    return np.asarray(np.ldexp(values, -int(np.frexp(np.abs(values).max())[1])), dtype=np.float64)


def _ranks(values: FloatArray, unit: IntArray) -> FloatArray:
    """(n,) average ranks within the image, from 0."""
    order = np.lexsort((values, unit))
    ordered, images = values[order], unit[order]
    new = np.ones(len(values), dtype=np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]) | (images[1:] != images[:-1])
    runs = np.flatnonzero(new)
    lengths = np.diff(runs, append=len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(runs + (lengths - 1) / 2, lengths)
    return np.asarray(ranks - starts_of(unit)[unit])


def _levels(values: FloatArray, unit: IntArray, units: int) -> FloatArray:
    """(U,) number of different values of each image."""
    codes = rank_encode(values)
    different = np.unique(unit * codes.levels + codes.codes)
    return np.bincount(different // codes.levels, minlength=units).astype(np.float64)


# Statistics that include pairs with equal ratings.
_WITH_TIES: tuple[WithinCoefficient, ...] = ("acc-eq", "acc-eq-held-out", "difference-pearson")


@dataclass(frozen=True)
class WithinResult:
    """A statistic within images."""

    value: float  # the statistic, in [-1, 1]; acc*_eq in [0, 1]
    n: int  # number of captions of the images that count
    images: int  # number of images that count
    few: int  # number of images excluded because they have only one caption
    tied: int  # number of images excluded because all their ratings are equal
    flat: int  # number of images that count 0 because the metric gives all their captions the same score
    epsilon: float | None = None  # the tie threshold of acc*_eq, None for others


def within_images(
    # ``tau-b``, ``tau-c``, ``spearman``, ``pearson`` (the mean over images of
    # :func:`~capbench.stats.correlation.correlation`), ``acc-eq`` or ``difference-pearson``
    coefficient: WithinCoefficient,
    scores: Sequence[float] | NDArray[np.generic],  # (n,) scores of captions
    human: Sequence[float] | NDArray[np.generic],  # (n,) their ratings, one per caption
    image: Sequence[object] | NDArray[np.generic],  # (n,) label of each caption's image
    *,
    name: str = "the scores",  # name of the scores in error messages
) -> WithinResult:
    """One metric's within-image agreement with human ratings.

    Raises StatisticError: see :meth:`WithinImages.of`; one image that counts is sufficient here.
    """
    data = WithinImages.of(coefficient, {name: scores}, human, image, minimum=1)
    value = observed_value(data.statistic(name))
    epsilon = None
    if coefficient == "acc-eq":
        epsilon = data.pairs(name).calibrated()[0]
    return WithinResult(value, len(data.human), data.images, data.few, data.tied, data.flat(name)[0], epsilon)


@dataclass(frozen=True, eq=False)
class WithinImages(Agreement):
    """Within-image agreement of several metrics with the same ratings.

    Created by :meth:`of`, which checks all arguments. Data points are sorted by image. Images that do not count are
    excluded; the others are resampled.
    """

    coefficient: WithinCoefficient
    # (draws, n) scores of each metric, one row for each sample of references. The statistic is the mean over rows
    scores: Mapping[str, FloatArray]
    human: FloatArray  # (n,) ratings. As in the scores, values that are equal up to rounding are equal
    unit: IntArray  # (n,) number of each caption's image, ascending
    images: int  # number of images that count
    few: int  # number of images excluded because they have only one caption
    tied: int  # number of images excluded because all their ratings are equal
    drawn: IntArray  # (images,) resampling unit of each image
    units: int  # number of resampling units: the number of images that count, unless some are drawn together
    labels: NDArray[Any]  # (units,) label of each resampling unit, ascending

    @classmethod
    def of(
        cls,
        coefficient: WithinCoefficient,
        scores: Mapping[str, Sequence[float] | NDArray[np.generic]],  # (n,) or (draws, n) scores by metric
        human: Sequence[float] | NDArray[np.generic],  # (n,) ratings of the same captions
        image: Sequence[object] | NDArray[np.generic],  # (n,) label of each caption's image
        *,
        # (n,) label of the resampling unit of each caption's image, the same for all captions of an image (the
        # photograph of two image ids); default: each image separately
        drawn: Sequence[object] | NDArray[np.generic] | None = None,
        minimum: int = 2,  # minimum number of resampling units
    ) -> WithinImages:
        """Check and encode the data.

        Raises StatisticError: an unknown coefficient, unequal lengths, NaN or infinite values, too few images that
        count, or a metric that gives all captions of each image the same score.
        """
        check_choice("statistic within images", coefficient, get_args(WithinCoefficient), StatisticError)
        arrays, ratings = rated(scores, human, images=image)
        codes, images = unit_codes(image)
        if not len(ratings):
            raise StatisticError("there are no ratings", code="too-few", value=0)
        order = np.argsort(codes, kind="stable")
        codes, ratings = codes[order], merged(ratings[order])
        starts = starts_of(codes)
        sizes = np.diff(starts, append=len(codes))
        varied = varied_within(ratings, starts)
        counts = (sizes > 1) & (varied | (coefficient in _WITH_TIES))
        few = int((sizes < 2).sum())
        counting = int(counts.sum())
        resampled = np.asarray(image if drawn is None else drawn)[order][starts][counts]
        labels, together = np.unique(resampled, return_inverse=True)
        units = len(labels)
        if units < minimum:
            required = "two captions" if coefficient in _WITH_TIES else "two captions with different ratings"
            raise StatisticError(
                f"{units or 'none'} of {images} images has {required}: there is nothing to compare within images",
                code="too-few",
                value=units,
                hint="Choose a statistic over all captions, such as tau-b",
            )
        included = np.repeat(counts, sizes)
        place = np.cumsum(counts) - 1
        data = cls(
            coefficient,
            {name: np.stack([merged(row[order][included]) for row in rows]) for name, rows in arrays.items()},
            ratings[included],
            np.repeat(place, sizes)[included].astype(np.int64),
            counting,
            few,
            images - few - counting,
            together.astype(np.int64),
            units,
            labels,
        )
        if not varied.any():
            raise StatisticError("all captions of each image have the same rating: no caption is better than another")
        for name, values in data.scores.items():
            for row in values:
                if not varied_within(row, starts_of(data.unit)).any():
                    raise StatisticError(
                        f"{name} gives all captions of each image the same score: it has no within-image agreement",
                        value=name,
                    )
        return data

    @property
    def label(self) -> str:
        """Name of the statistic."""
        return f"within-image {self.coefficient}"

    @property
    def n(self) -> int:
        """Number of captions of the images that count."""
        return len(self.human)

    def flat(self, name: str) -> tuple[int, ...]:
        """Number of images with a constant score, for each sample of references; 0 for statistics with ties."""
        if self.coefficient in _WITH_TIES:
            return (0,) * len(self.scores[name])
        starts = starts_of(self.unit)
        return tuple(int((~varied_within(scores, starts)).sum()) for scores in self.scores[name])

    def statistic(self, name: str) -> WeightedStatistic:
        """The statistic of one metric under resampling of images."""
        return self._resampled(mean_statistic([self._prepare(row) for row in self.scores[name]]))

    def swapped(self, first: str, second: str, scale: Scale | None = None) -> WeightedStatistic:
        """Difference (first - second) after swapping two metrics on some images; weights are 0 and 1.

        The correlations of an image are swapped as a whole and require no common scale. The same holds for the accuracy
        of an image with the metric's ε, which remains calibrated on all images. Score differences are put on a common
        scale as z-scores, regardless of ``scale``.
        """
        parts = [self._swapped(a, b) for a, b in self.both(first, second)]
        return self._resampled(mean_statistic(parts))

    def _resampled(self, of_images: WeightedStatistic) -> WeightedStatistic:
        return of_images if self.units == self.images else _Together(of_images, self.drawn, self.units)

    def pairs(self, name: str, draw: int = 0) -> CalibratedPairs:
        """The pairs of captions of one image for tie calibration."""
        return calibrated_pairs(self.scores[name][draw], self.human, self.unit, self.images, name)

    def _prepare(self, row: FloatArray) -> WeightedStatistic:
        if self.coefficient == "acc-eq":
            return calibrated_pairs(row, self.human, self.unit, self.images, "the scores")
        if self.coefficient == "difference-pearson":
            return _Differences(difference_sums(scaled_values(row), self.human, self.unit, self.images))
        return _ImageMean(self._by_image(row))

    def _swapped(self, a: FloatArray, b: FloatArray) -> WeightedStatistic:
        if self.coefficient == "difference-pearson":
            sums = [difference_sums(standardise(x), self.human, self.unit, self.images) for x in (a, b)]
            return SwapDifference(_Differences(np.concatenate(sums, axis=1)), self.images)
        return SwapDifference(_ImageMean(np.concatenate([self._by_image(a), self._by_image(b)])), self.images)

    def swap_effects(self, first: str, second: str) -> FloatArray | None:
        """A mean of one number per image has them; the pairwise difference correlation has not."""
        if self.coefficient == "difference-pearson":
            return None
        by_image = np.mean(
            [self._by_image(a) - self._by_image(b) for a, b in self.both(first, second)],
            axis=0,
        )
        return np.bincount(self.drawn, weights=by_image / self.images, minlength=self.units).astype(np.float64)

    def _by_image(self, row: FloatArray) -> FloatArray:
        """(images,) the numbers whose mean is the statistic; acc*_eq with the ε of :meth:`swapped`."""
        if self.coefficient == "acc-eq":
            return calibrated_pairs(row, self.human, self.unit, self.images, "the scores").by_image()
        if self.coefficient == "acc-eq-held-out":
            return held_out_accuracies(row, self.human, self.unit, self.drawn, "the scores")
        return correlations_by_image(self.coefficient, row, self.human, self.unit, self.images)


class _Together:
    """A statistic of images of which some are drawn together.

    ``of_images``: the statistic; ``drawn``: (images,) unit of each image.
    """

    def __init__(self, of_images: WeightedStatistic, drawn: IntArray, units: int) -> None:
        self.units = units
        self._of_images = of_images
        self._drawn = drawn

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        return self._of_images(weights[:, self._drawn])


class _ImageMean:
    """The weighted mean of one number per image."""

    def __init__(self, values: FloatArray) -> None:
        self.units = len(values)
        self._values = values

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        drawn = weights.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.einsum("bu,u->b", drawn, self._values) / drawn.sum(axis=1)
        return np.asarray(np.clip(mean, -1.0, 1.0), dtype=np.float64)


class _Differences:
    """Pairwise difference Pearson from (3, U) sums over images: products, squares of scores, squares of ratings."""

    def __init__(self, sums: FloatArray) -> None:
        self.units = sums.shape[1]
        self._sums = sums

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        drawn = weights.astype(np.float64)
        xy, xx, yy = (np.einsum("bu,u->b", drawn, column) for column in self._sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = xy / np.sqrt(xx * yy)
        return np.where((xx > 0) & (yy > 0), np.clip(value, -1.0, 1.0), np.nan)
