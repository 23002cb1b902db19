"""System-level agreement: does a metric rank the captioning systems as human raters do?

A system's score and rating are means over its captions. All captions of an image are resampled together, so intervals
reflect the choice of images, not of systems.

References:
    Kocmi, T. et al. (2021). To ship or not to ship: An extensive evaluation of automatic metrics for machine
    translation. WMT. (pairwise accuracy)
    Thompson, B., Mathur, N., Deutsch, D. and Khayrallah, H. (2024). Improving statistical significance in human
    evaluation of automatic metrics via soft pairwise accuracy. WMT.
    Mathur, N., Baldwin, T. and Cohn, T. (2020). Tangled up in BLEU: Reevaluating the evaluation of automatic machine
    translation evaluation metrics. ACL. (few systems, and outliers among them)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, SystemCoefficient
from capbench.stats.agreement import Agreement, Labels, Numbers, named, rated, unit_numbers
from capbench.stats.permutation import swapped
from capbench.stats.resampling import Weighted, WeightedStatistic, standardise, unit_codes
from capbench.stats.ties import SUM_ROUNDING, merged
from capbench.stats.vectors import scaled_values

#: Number of paired permutations for each p-value (as in Thompson et al.).
PERMUTATIONS = 1000
_SEED = 0
# Pairs of systems times resamples in one matrix product.
_COLUMNS = 512
# Sums that are equal up to rounding count as equal.
_ROUNDING = 1e-9


class PairPermutations:
    """One-sided p-values of pairs of systems from paired permutations, on weighted images.

    Each copy of an image that was drawn several times is permuted separately.

    ``differences``: (U, pairs) difference of the two systems on each image, 0 if one of them has no caption.
    """

    def __init__(self, differences: FloatArray, permutations: int = PERMUTATIONS, seed: int = _SEED) -> None:
        self._differences = np.ascontiguousarray(differences)
        self._permutations = permutations
        self._seed = seed

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        """(B, U) weights to (B, pairs) p-values; 1 where no image with both systems was drawn."""
        images, pairs = self._differences.shape
        together = max(1, _COLUMNS // max(1, pairs))
        values = []
        for start in range(0, len(weights), together):
            part = weights[start : start + together]
            # One column per pair and resample: the drawn images in rows, padded with zeros.
            sample = np.zeros((int(part.sum(axis=1).max()), len(part), pairs))
            for column, drawn in enumerate(part):
                places = np.repeat(np.arange(images), drawn)
                sample[: len(places), column] = self._differences[places]
            flat = sample.reshape(len(sample), -1)
            threshold = flat.sum(axis=0) - _ROUNDING * np.abs(flat).sum(axis=0)
            # Counts do not depend on the rounding of the products.
            signs = _signs(len(flat), self._permutations, self._seed)
            extreme = np.count_nonzero(signs @ flat >= threshold, axis=0)
            values.append(extreme.reshape(len(part), pairs) / self._permutations)
        return np.concatenate(values) if values else np.empty((0, pairs))


@lru_cache(maxsize=4)
def _signs(count: int, permutations: int, seed: int) -> FloatArray:
    """(permutations, count) random signs; the first ones are the same for any count."""
    coins = np.random.default_rng(seed).integers(0, 2, (count, permutations), dtype=np.int8)
    return np.ascontiguousarray(coins.T * 2.0 - 1.0)


def soft_accuracy(human: FloatArray, metric: FloatArray) -> WeightedStatistic:
    """Soft pairwise accuracy (Thompson et al. 2024): one minus the mean distance of human and metric p-values.

    ``human``, ``metric``: (U, pairs) differences.
    """
    sides = PairPermutations(human), PairPermutations(metric)

    def value(weights: NDArray[np.integer]) -> FloatArray:
        of_human, of_metric = (side(weights) for side in sides)
        return np.asarray(1.0 - np.abs(of_human - of_metric).mean(axis=1), dtype=np.float64)

    return Weighted(len(metric), value)


def system_differences(sums: FloatArray, captions: FloatArray) -> FloatArray:
    """(U, pairs) difference of two systems' means on each image that both have, 0 on others."""
    means = sums / np.maximum(captions, 1)
    firsts, seconds = np.triu_indices(len(sums), 1)
    difference, rounding = means[firsts] - means[seconds], _mean_rounding(sums)[:, None]
    apart = np.abs(difference) > np.maximum(rounding[firsts], rounding[seconds])
    return np.asarray(np.where((captions[firsts] > 0) & (captions[seconds] > 0) & apart, difference, 0.0).T)


def fewest_systems(coefficient: SystemCoefficient) -> int:
    """The number of systems that a statistic requires."""
    return 3 if coefficient in ("pearson", "tau-b") else 2


#: A system-level value with fewer systems is unreliable.
FEW_SYSTEMS = 10


@dataclass(frozen=True, eq=False)
class Systems(Agreement):
    """System-level agreement of several metrics with the same ratings."""

    coefficient: SystemCoefficient
    scores: Mapping[str, FloatArray]  # (draws, S, U) sums of each metric's scores over a system's captions of an image
    human: FloatArray  # (S, U) the same sums of ratings
    captions: FloatArray  # (S, U) number of a system's captions of an image
    systems: tuple[str, ...]  # names of the systems, ascending
    scaled: Mapping[str, FloatArray]  # (draws, S, U) sums of z-scores, for the permutation test
    units: int  # number of images
    labels: NDArray[Any]
    prefix = "system "

    @classmethod
    def of(
        cls,
        coefficient: SystemCoefficient,
        scores: Mapping[str, Numbers],  # (n,) or (draws, n) scores by metric
        human: Numbers,  # (n,) ratings of the same captions
        system: Sequence[str] | NDArray[np.str_],  # (n,) name of each caption's system
        image: Labels,  # (n,) label of each caption's image
    ) -> Systems:
        """Raises StatisticError: NaN or infinite values, a caption without a
        system, fewer than two systems (three for correlations), fewer than two images, means that are all equal, or,
        for soft pairwise accuracy, two systems without a common image.
        """
        arrays, ratings = rated(scores, human)
        arrays = {name: np.stack([merged(row) for row in rows]) for name, rows in arrays.items()}
        ratings = merged(ratings)
        system_names = named(system, "system")
        code, count = unit_codes(system_names) if len(ratings) else (np.empty(0, dtype=np.int64), 0)
        minimum = fewest_systems(coefficient)
        if count < minimum:
            raise StatisticError(
                f"{coefficient} over systems requires {minimum} systems or more, got {count}",
                code="too-few",
                value=count,
                hint="Choose a statistic over captions, such as tau-b",
            )
        image_of_caption, labels = unit_numbers(image, len(ratings))
        images = len(labels)
        place = code * images + image_of_caption

        def sums(values: FloatArray) -> FloatArray:
            table = np.bincount(place, weights=values, minlength=count * images).astype(np.float64)
            return table.reshape(count, images)

        summed = {name: np.stack([sums(row) for row in rows]) for name, rows in arrays.items()}
        scaled = {
            name: np.stack([sums(standardise(row) if row.min() < row.max() else np.zeros_like(row)) for row in rows])
            for name, rows in arrays.items()
        }
        human_sums, captions, systems = sums(ratings), sums(np.ones(len(ratings))), tuple(np.unique(system_names))
        if coefficient == "soft-accuracy":
            _check_common_images(captions, systems)
        if coefficient in ("pearson", "tau-b"):
            for name, rows in (*summed.items(), ("the human ratings", human_sums[None])):
                if any(np.ptp(row.sum(axis=1) / captions.sum(axis=1)) <= _mean_rounding(row).max() for row in rows):
                    message = (
                        f"{coefficient} over systems is not defined: all {count} systems have the same mean of {name}"
                    )
                    raise StatisticError(message, value=name)
        return cls(coefficient, summed, human_sums, captions, systems, scaled, images, labels)

    @property
    def points(self) -> int:
        """Number of images."""
        return self.units

    @property
    def n(self) -> int:
        """Number of systems."""
        return len(self.systems)

    @property
    def shared(self) -> int:
        """Number of images for which every system has a caption."""
        return int((self.captions > 0).all(axis=0).sum())

    def of_draw(self, scores: FloatArray) -> WeightedStatistic:
        if self.coefficient == "soft-accuracy":
            return soft_accuracy(*(system_differences(sums, self.captions) for sums in (self.human, scores)))
        return _OfMeans(self.coefficient, scores, self.human, self.captions)

    def swap_of_draw(self, first: FloatArray, second: FloatArray) -> WeightedStatistic:
        both = np.concatenate([first, second], axis=1)
        human, captions = np.tile(self.human, 2), np.tile(self.captions, 2)
        return swapped(_OfMeans(self.coefficient, both, human, captions))

    def swaps(self, first: str, second: str) -> list[WeightedStatistic]:
        """See :meth:`Agreement.swaps`; z-scores, as means are not invariant under increasing maps of the scores.

        Raises StatisticError: soft pairwise accuracy, which would require permutations within every permutation.
        """
        if self.coefficient == "soft-accuracy":
            raise StatisticError(
                "system-soft-accuracy has no permutation test: it would be a permutation test in every permutation",
                code="unsupported",
                value=self.coefficient,
                hint="Choose the test 'bootstrap'",
            )
        return [self.swap_of_draw(a, b) for a, b in zip(self.scaled[first], self.scaled[second], strict=True)]


def _check_common_images(captions: FloatArray, systems: Sequence[str]) -> None:
    for a, b in itertools.combinations(range(len(systems)), 2):
        if not ((captions[a] > 0) & (captions[b] > 0)).any():
            message = f"soft pairwise accuracy compares by image, and {systems[a]} and {systems[b]} have none in common"
            hint = "Choose system-pearson, system-tau-b or system-accuracy"
            raise StatisticError(message, value=(systems[a], systems[b]), hint=hint)


class _OfMeans:
    """A statistic of the systems' means."""

    def __init__(self, coefficient: SystemCoefficient, x: FloatArray, y: FloatArray, captions: FloatArray) -> None:
        self.units = int(x.shape[1])
        self._coefficient = coefficient
        self._sums = tuple(scaled_values(side) for side in (x, y))
        self._rounding = tuple(_mean_rounding(side) for side in self._sums)
        self._captions = captions

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        """NaN where a system was not drawn."""
        drawn = weights.astype(np.float64)
        # Not a matrix product: its rounding may depend on the number of threads.
        captions = np.einsum("bu,su->bs", drawn, self._captions)
        with np.errstate(divide="ignore", invalid="ignore"):
            x, y = (np.einsum("bu,su->bs", drawn, side) / captions for side in self._sums)
            if self._coefficient == "pearson":
                a, b = (side - side.mean(axis=1, keepdims=True) for side in (x, y))
                aa, bb = (np.einsum("bs,bs->b", side, side) for side in (a, b))
                value = np.einsum("bs,bs->b", a, b) / np.sqrt(aa * bb)
                # Differences of equal means are only rounding.
                defined = np.ones(len(value), dtype=np.bool_)
                for squares, rounding in zip((aa, bb), self._rounding, strict=True):
                    defined &= squares > rounding.max() ** 2
                return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)
            order_x, order_y = (_orders(*side) for side in zip((x, y), self._rounding, strict=True))
            if self._coefficient == "accuracy":
                value = (order_x == order_y).mean(axis=1)
            else:
                untied = [np.abs(order).sum(axis=1) for order in (order_x, order_y)]
                value = (order_x * order_y).sum(axis=1) / np.sqrt(untied[0] * untied[1])
        return np.where((captions > 0).all(axis=1), value, np.nan)


def _mean_rounding(sums: FloatArray) -> FloatArray:
    """(S,) how much each system's mean may differ from an equal one by rounding."""
    return np.asarray(SUM_ROUNDING * np.abs(sums).sum(axis=1), dtype=np.float64)


def _orders(means: FloatArray, rounding: FloatArray) -> FloatArray:
    """(B, pairs) +1 where the first system of a pair has the larger mean, -1 where the second has, 0 for a tie."""
    firsts, seconds = np.triu_indices(means.shape[1], 1)
    difference = means[:, firsts] - means[:, seconds]
    return np.where(np.abs(difference) <= np.maximum(rounding[firsts], rounding[seconds]), 0.0, np.sign(difference))
