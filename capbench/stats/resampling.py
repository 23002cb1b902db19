"""Resamples (bootstrap, permutations, jackknife), and statistics that are evaluated on many resamples at a time.

Resamples are generated in blocks, each with a random stream of the seed and the block's number. The same seed therefore
gives the same bits with any number of threads, and the first thousand of two thousand resamples equal one thousand.

A resample is a list of integer weights, one for each unit (an image, an item, a rating): how often the unit was drawn.
A statistic is prepared once, by sorting and encoding the data. Each resample then costs O(n log levels) for n data
points, with the levels of the human side (tau), or O(n · levels) if these are few (Spearman's rho).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from capbench.core.machine import usable_cores
from capbench.core.records import Coefficient, FloatArray, IntArray
from capbench.stats.kendall import rank_encode
from capbench.stats.vectors import run_starts, scaled_values

# Tables with at most this many cells per entry are multiplied densely, which is faster and needs no import of scipy.
_DENSE_CELLS = 16
# A side with at most this many levels is counted level by level; the measured break-even is between 10 and 20.
_FEW_LEVELS = 16
# Resamples are evaluated a few at a time in arrays of this many elements, which fit into the processor's cache and
# reuse memory.
_TOGETHER = 100_000
# Counts use 32 bits, which are faster, as long as n² fits.
_SQUARE_FITS = 46_340
# A variance below this fraction of the mean square is rounding: all values of the resample are equal.
_ROUNDING = 1e-12


class WeightedStatistic(Protocol):
    """A statistic of U weighted units."""

    @property
    def units(self) -> int:
        """Number of units, U."""

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        """Evaluate (B, U) weights ≥ 0 to (B,) values; NaN where the statistic is not defined (a constant side)."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """A statistic of U weighted units that is a function of the weights."""

    units: int
    function: Callable[[NDArray[np.integer]], FloatArray]  # (B, U) to (B,)

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        return self.function(weights)


class RankStatistic:
    """Tau-b, tau-c or Spearman's rho."""

    def __init__(
        self,
        coefficient: Coefficient,
        x: FloatArray,  # (n,) one side, finite
        y: FloatArray,  # (n,) the other side
        unit: IntArray,  # (n,) unit of each data point, in [0, units)
        units: int,  # number of units, U
        *,
        rating_levels: bool = False,  # see :class:`capbench.stats.agreement.Correlations`
    ) -> None:
        self.coefficient = coefficient
        self.units = units
        a, b = rank_encode(x), rank_encode(y)
        self._rated: FloatArray | None = None
        if rating_levels and coefficient == "tau-c":
            # (U, levels of y) number of data points.
            self._rated = np.zeros((units, b.levels))
            np.add.at(self._rated, (unit, b.codes), 1)
        self._turned = a.levels < b.levels
        if self._turned:
            a, b = b, a  # all three coefficients are symmetric: b is the side with fewer levels
        self._sizes = np.bincount(unit, minlength=units).astype(np.int64)
        by_levels = _ByLevels.dense(a.levels, b.levels, units, len(unit)) or coefficient == "spearman"
        kind = _ByLevels if b.levels <= _FEW_LEVELS and by_levels else _BySplitting
        # Counts have 32 bits, products of ranks 64; splitting copies rows of resamples, which should not be short.
        self._width = a.levels * (2 if coefficient == "spearman" else 1)
        if kind is _BySplitting:
            self._width = min(self._width, _TOGETHER // 16)
        self._counter: _ByLevels | _BySplitting = kind(a.codes, b.codes, a.levels, b.levels, unit, units)

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        parts = [self._evaluate(resamples) for resamples in in_parts(weights, self._width)]
        return np.concatenate(parts) if parts else np.empty(0)

    def pair_sums(self, weights: NDArray[np.integer]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(B,) concordant minus discordant pairs, and (B,) twice the numbers of pairs that are untied in x and in y."""
        parts = []
        for resamples in in_parts(weights, self._width):
            drawn, n = self._drawn(resamples)
            score, free_a, free_b, _ = self._counter.pair_sums(drawn, n)
            parts.append((score, free_b, free_a) if self._turned else (score, free_a, free_b))
        scores, free_x, free_y = (np.concatenate(column).astype(np.float64) for column in zip(*parts, strict=True))
        return scores, free_x, free_y

    def _drawn(self, weights: NDArray[np.integer]) -> tuple[NDArray[np.integer], IntArray]:
        n = weights.astype(np.int64) @ self._sizes
        wide = np.int64 if n.max() > _SQUARE_FITS else np.int32
        return np.ascontiguousarray(weights, dtype=wide), n

    def _evaluate(self, weights: NDArray[np.integer]) -> FloatArray:
        drawn, n = self._drawn(weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.coefficient == "spearman":
                ab, aa, bb = self._counter.rank_products(drawn, n)
                defined = (aa > 0) & (bb > 0)
                return np.where(defined, np.clip(ab / np.sqrt(aa * bb), -1.0, 1.0), np.nan)
            score, free_a, free_b, levels = self._counter.pair_sums(drawn, n)
            doubled = 2.0 * score
            if self.coefficient == "tau-b":
                value = doubled / np.sqrt(free_a.astype(np.float64) * free_b)
            else:
                if self._rated is not None:
                    levels = np.count_nonzero(drawn.astype(np.float64) @ self._rated, axis=1)
                squares = (n * n).astype(np.float64)
                value = doubled * levels / (squares * (levels - 1))
            defined = (free_a > 0) & (free_b > 0)
            return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


class _ByLevels:
    """Counts from a table of (levels of b) × (levels of a), for b with few levels.

    With ``h[k]`` the weights at level k of b, along a, and ``below[k]`` the sum of the levels below k, the number of
    concordant minus discordant pairs is ``Σ_k h[k] · (2 cumsum(below[k]) - below[k]) - Σ h[k] Σ below[k]``.
    """

    def __init__(self, a: IntArray, b: IntArray, levels_a: int, levels_b: int, unit: IntArray, units: int) -> None:
        self._shape = (levels_a, units)
        self._places = [(a[at], unit[at]) for at in (np.flatnonzero(b == level) for level in range(levels_b))]

    @staticmethod
    def dense(levels_a: int, levels_b: int, units: int, n: int) -> bool:
        """True if the tables of n data points are small enough for products of dense matrices."""
        return levels_a * levels_b * units <= _DENSE_CELLS * n

    @cached_property
    def _tables(self) -> list[Any]:
        levels, units = self._shape
        if self.dense(levels, len(self._places), units, sum(len(rows) for rows, _ in self._places)):
            # Products of float64 are exact for these counts.
            return [
                np.bincount(rows * units + columns, minlength=levels * units).reshape(levels, units).astype(np.float64)
                for rows, columns in self._places
            ]
        import scipy.sparse

        csr_array: Any = scipy.sparse.csr_array  # its stubs do not declare (values, (rows, columns))
        tables = []
        for rows, columns in self._places:
            table = csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=self._shape, dtype=np.int32)
            table.sum_duplicates()
            tables.append(table)
        return tables

    def _levels(self, weights: NDArray[np.integer]) -> list[NDArray[np.integer]]:
        if len(weights) == 1:  # the estimate: importing scipy.sparse takes longer than counting
            return [
                np.bincount(rows, weights[0, units], self._shape[0]).astype(weights.dtype)[None]
                for rows, units in self._places
            ]
        if isinstance(self._tables[0], np.ndarray):
            wide = weights.astype(np.float64)
            return [(wide @ table.T).astype(weights.dtype) for table in self._tables]
        columns = np.ascontiguousarray(weights.T)
        # Transposed twice: sparse products are fastest over a contiguous axis, cumulative sums along one.
        return [np.ascontiguousarray((table @ columns).T) for table in self._tables]

    def pair_sums(self, weights: NDArray[np.integer], n: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(B,) C - D, twice the pairs untied in a, twice those untied in b, and the smaller number of levels."""
        levels = self._levels(weights)
        score = np.zeros(len(n), dtype=np.int64)
        squares_b = np.zeros(len(n), dtype=np.int64)
        levels_b = np.zeros(len(n), dtype=np.int64)
        below = np.zeros_like(levels[0])
        for k, row in enumerate(levels):
            size = row.sum(axis=1, dtype=np.int64)
            squares_b += size * size
            levels_b += size > 0
            if k:
                running = np.cumsum(below, axis=1, dtype=below.dtype)
                size_below = running[:, -1].astype(np.int64)
                running *= 2
                running -= below
                score += np.einsum("ba,ba->b", row, running) - size * size_below
            below += row
        squares_a = np.einsum("ba,ba->b", below, below).astype(np.int64)
        levels_a = np.count_nonzero(below, axis=1)
        return score, n * n - squares_a, n * n - squares_b, np.minimum(levels_a, levels_b)

    def rank_products(self, weights: NDArray[np.integer], n: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(B,) sums of products and squares of the doubled, centred average ranks: ab, aa, bb."""
        levels = self._levels(weights)
        sizes = np.stack([row.sum(axis=1, dtype=np.int64) for row in levels], axis=1)
        total = np.sum(levels, axis=0, dtype=levels[0].dtype)
        ranks_a = 2 * np.cumsum(total, axis=1, dtype=total.dtype) - total - n[:, None].astype(total.dtype)
        ranks_b = (2 * np.cumsum(sizes, axis=1) - sizes - n[:, None]).astype(np.float64)
        ab = np.zeros(len(n))
        for k, row in enumerate(levels):
            ab += np.einsum("ba,ba->b", row, ranks_a) * ranks_b[:, k]
        wide = ranks_a.astype(np.float64)
        aa = np.einsum("ba,ba->b", wide * wide, total.astype(np.float64))
        return ab, aa, np.einsum("bk,bk->b", ranks_b * ranks_b, sizes.astype(np.float64))


class _BySplitting:
    """Inversion counts by splits of the data points that do not depend on the weights.

    Cells (distinct a, b and unit) are listed by a, then b. A pair of cells is discordant if the first bit in which
    their b differ is set in the one that is listed first. The list is split by one bit of b after another, so there are
    log2(levels of b) steps. The lists are the same for all resamples; only sums over them differ. Tables have one row
    for each cell and one column for each resample, so that rows are copied as a whole.
    """

    def __init__(self, a: IntArray, b: IntArray, levels_a: int, levels_b: int, unit: IntArray, units: int) -> None:
        order = np.lexsort((unit, b, a))
        a, b, unit = a[order], b[order], unit[order]
        first = run_starts(a, b, unit)
        self._count = np.diff(first, append=len(a)).astype(np.int32)
        a, b, self._unit = a[first], b[first], unit[first]
        joint = run_starts(a, b)
        of_both = np.repeat(np.arange(len(joint)), np.diff(joint, append=len(a)))
        # (cells,) number of the distinct a, of the distinct b and of the distinct pair of both, and how many there are.
        self._groups = {"a": (a, levels_a), "b": (b, levels_b), "both": (of_both, len(joint))}
        self._units = units
        self._splits = [_split(b, bit) for bit in range(max(1, (levels_b - 1).bit_length()))]

    @cached_property
    def _tables(self) -> dict[str, Any]:
        """(groups, U) number of data points of each unit by a, b or both; None if each group is a cell, in order."""
        import scipy.sparse

        csr_array: Any = scipy.sparse.csr_array  # its stubs do not declare (values, (rows, columns))
        cells = np.arange(len(self._unit))
        return {
            by: None
            if np.array_equal(group, cells)
            else csr_array((self._count, (group, self._unit)), shape=(levels, self._units))
            for by, (group, levels) in self._groups.items()
        }

    def _cells(self, columns: NDArray[np.integer]) -> NDArray[np.integer]:
        """(cells, B) data points of (U, B) weights."""
        drawn = np.take(columns, self._unit, axis=0)
        drawn *= self._count.astype(drawn.dtype)[:, None]
        return drawn

    def _sizes(self, by: str, columns: NDArray[np.integer], cells: NDArray[np.integer]) -> NDArray[np.integer]:
        """(groups, B) data points by a, b or both."""
        if columns.shape[1] == 1:  # the estimate: importing scipy.sparse takes longer than counting
            group, levels = self._groups[by]
            return np.bincount(group, cells[:, 0], levels).astype(cells.dtype)[:, None]
        table = self._tables[by]
        return cells if table is None else np.asarray(table @ columns)

    def pair_sums(self, weights: NDArray[np.integer], n: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """See :meth:`_ByLevels.pair_sums`."""
        columns = np.ascontiguousarray(weights.T)
        cells = self._cells(columns)
        size_a, size_b, joint = (self._sizes(by, columns, cells) for by in ("a", "b", "both"))
        squares_a, squares_b, squares_ab = (
            np.einsum("gb,gb->b", sizes, sizes).astype(np.int64) for sizes in (size_a, size_b, joint)
        )
        levels = np.minimum(np.count_nonzero(size_a, axis=0), np.count_nonzero(size_b, axis=0))
        free = (n * n - squares_a - squares_b + squares_ab) // 2  # C + D
        return free - 2 * self._discordant(cells), n * n - squares_a, n * n - squares_b, levels

    def _discordant(self, cells: NDArray[np.integer]) -> IntArray:
        total = np.zeros(cells.shape[1], dtype=np.int64)
        for is_set, is_clear, before, before_group in self._splits:
            running = np.zeros((len(is_set) + 1, cells.shape[1]), dtype=cells.dtype)
            np.cumsum(np.take(cells, is_set, axis=0), axis=0, out=running[1:])
            weight = np.take(running, before, axis=0)
            weight -= np.take(running, before_group, axis=0)
            total += np.einsum("cb,cb->b", np.take(cells, is_clear, axis=0), weight)
        return total

    def rank_products(self, weights: NDArray[np.integer], n: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """See :meth:`_ByLevels.rank_products`."""
        columns = np.ascontiguousarray(weights.T)
        cells = self._cells(columns)
        size_a, size_b = (np.ascontiguousarray(self._sizes(by, columns, cells).T, dtype=np.int64) for by in ("a", "b"))
        ranks_a = (2 * np.cumsum(size_a, axis=1) - size_a - n[:, None]).astype(np.float64)
        ranks_b = (2 * np.cumsum(size_b, axis=1) - size_b - n[:, None]).astype(np.float64)
        product = ranks_a[:, self._groups["a"][0]] * ranks_b[:, self._groups["b"][0]]
        return (
            np.einsum("bc,bc->b", product, np.ascontiguousarray(cells.T, dtype=np.float64)),
            np.einsum("bc,bc->b", ranks_a * ranks_a, size_a.astype(np.float64)),
            np.einsum("bc,bc->b", ranks_b * ranks_b, size_b.astype(np.float64)),
        )


def _split(codes: IntArray, bit: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """A step of :class:`_BySplitting`: elements with the same higher bits form a group.

    Returns elements with the bit, by group and position; elements without it that have one of these before them in
    their group; how many elements with the bit precede each of the latter, and how many precede its group.
    """
    group = codes >> (bit + 1)
    listed = np.argsort(group.astype(np.uint16) if group.max() < 1 << 16 else group, kind="stable")
    is_set = (codes[listed] >> bit & 1).astype(np.bool_)
    before: IntArray = np.cumsum(is_set) - is_set
    starts = run_starts(group[listed])
    before_group: IntArray = np.repeat(before[starts], np.diff(starts, append=len(codes)))
    preceded = ~is_set & (before > before_group)
    return listed[is_set], listed[preceded], before[preceded], before_group[preceded]


class PearsonStatistic:
    """Pearson's r of the deviations from the mean of each source, from sums over sources and units.

    Arguments as of :class:`RankStatistic`, sides that are not constant; ``source``: (n,) number of each data point's
    source, by default a single one, so that r is that over all data points.
    """

    def __init__(
        self, x: FloatArray, y: FloatArray, unit: IntArray, units: int, source: IntArray | None = None
    ) -> None:
        self.units = units
        a, b = standardise(x), standardise(y)
        place, count = (unit, 1) if source is None else (source * units + unit, int(source.max()) + 1)
        columns = (np.ones_like(a), a, b, a * a, b * b, a * b)
        sums = [np.bincount(place, weights=column, minlength=count * units) for column in columns]
        self._sums = [column.reshape(count, units) for column in sums]

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        # Not a matrix product: its rounding may depend on the number of threads.
        drawn = weights.astype(np.float64)
        n, a, b, aa, bb, ab = (np.einsum("bu,su->bs", drawn, column) for column in self._sums)
        n = np.maximum(n, 1.0)  # a source that is not drawn has sums of 0
        spread_a, spread_b, product = (
            (total - first * second / n).sum(axis=1) for total, first, second in ((aa, a, a), (bb, b, b), (ab, a, b))
        )
        defined = (spread_a > _ROUNDING * aa.sum(axis=1)) & (spread_b > _ROUNDING * bb.sum(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            value = product / np.sqrt(spread_a * spread_b)
        return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


def tie_calibrated(x: FloatArray, y: FloatArray, unit: IntArray, units: int) -> WeightedStatistic:
    """acc*_eq, pairwise accuracy with tie calibration (Deutsch et al. 2023); NaN where fewer than two points are drawn.

    ε is calibrated separately for each resample, which takes too long for a bootstrap. Arguments as of
    :class:`RankStatistic`, x being the scores.
    """
    from capbench.stats.tie_calibration import calibrate_ties

    def accuracy(times: IntArray) -> float:
        few = times.sum() < 2
        return np.nan if few else calibrate_ties(np.repeat(x, times), np.repeat(y, times)).accuracy

    return Weighted(units, lambda weights: np.array([accuracy(drawn[unit]) for drawn in weights]))


class AccuracyStatistic:
    """Pairwise accuracy, the mean over groups of pairs.

    ``credit``: (n,) credit of the metric on each pair, in [0, 1]; ``group``: (n,) group of each pair, in [0, groups);
    ``unit``: (n,) unit of each pair.
    """

    def __init__(self, credit: FloatArray, group: IntArray, unit: IntArray, units: int) -> None:
        self.units = units
        groups = int(group.max()) + 1
        at = unit * groups + group
        # (U, groups) credit and number of pairs; credits are multiples of one half, so their sums are exact.
        self._credit = np.bincount(at, weights=credit, minlength=units * groups).reshape(units, groups)
        self._pairs = np.bincount(at, minlength=units * groups).reshape(units, groups).astype(np.float64)

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        """NaN where a group was not drawn."""
        drawn = weights.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(((drawn @ self._credit) / (drawn @ self._pairs)).mean(axis=1), dtype=np.float64)


def mean_statistic(parts: Sequence[WeightedStatistic]) -> WeightedStatistic:
    """The mean of one statistic per sample of references, NaN where any of them is NaN; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    return Weighted(parts[0].units, lambda weights: np.asarray(np.mean([part(weights) for part in parts], axis=0)))


def observed_value(statistic: WeightedStatistic) -> float:
    """The value on the data themselves, every unit once; NaN where the statistic is not defined."""
    return float(statistic(np.ones((1, statistic.units), dtype=np.int32))[0])


def standardise(values: FloatArray) -> FloatArray:
    """(n,) z-scores of values that are not all equal: mean 0 and (population) standard deviation 1."""
    scaled = scaled_values(values)
    deviation = scaled_values(scaled - scaled.mean())
    return np.asarray(deviation / np.sqrt(np.mean(deviation * deviation)), dtype=np.float64)


def in_parts(weights: NDArray[np.integer], width: int) -> list[NDArray[np.integer]]:
    """(b, U) slices of (B, U) weights that are evaluated together, to limit memory; b ≥ 2, but the last may have 1.

    ``width``: length of the arrays for one resample.
    """
    together = max(2, _TOGETHER // width)
    return [weights[i : i + together] for i in range(0, len(weights), together)]


#: Number of resamples in a block.
BLOCK = 64


class Draws(Protocol):
    """A list of resamples of U units, generated block by block."""

    @property
    def count(self) -> int:
        """Number of resamples."""

    def block(self, index: int) -> NDArray[np.integer]:
        """(b, U) weights of the resamples from ``index * BLOCK``; b is ``BLOCK``, or less for the last block."""


@dataclass(frozen=True)
class Bootstrap:
    """Units drawn with replacement (Efron 1979)."""

    units: int  # number of units, U
    count: int  # number of resamples
    seed: int  # determines the random streams
    size: int | None = None  # number of units drawn for a resample; None for U

    def block(self, index: int) -> NDArray[np.integer]:
        """(b, U) number of times that each unit was drawn."""
        size = self.units if self.size is None else self.size
        rng = _stream(self.seed, 0, index)
        drawn = rng.integers(0, self.units, (BLOCK, size))
        drawn += np.arange(BLOCK)[:, None] * self.units  # to count all resamples at once
        weights = np.bincount(drawn.ravel(), minlength=BLOCK * self.units).reshape(BLOCK, self.units)
        return weights[: self.count - index * BLOCK].astype(np.int32)


@dataclass(frozen=True)
class Swaps:
    """Random permutations: a fair coin for every unit, 1 if the two metrics are swapped on it."""

    units: int  # number of units, U
    count: int  # number of permutations
    seed: int  # determines the random streams

    def block(self, index: int) -> NDArray[np.integer]:
        """(b, U) zeros (unchanged) and ones (swapped)."""
        coins = _stream(self.seed, 1, index).integers(0, 2, (BLOCK, self.units), dtype=np.int8)
        return coins[: self.count - index * BLOCK].astype(np.int32)


@dataclass(frozen=True)
class LeaveOneOut:
    """The jackknife: each unit is omitted once."""

    units: int  # number of units, U

    @property
    def count(self) -> int:
        """Number of resamples: one for each unit."""
        return self.units

    def block(self, index: int) -> NDArray[np.integer]:
        """(b, U) ones, with a zero at the omitted unit."""
        left_out = np.arange(index * BLOCK, min((index + 1) * BLOCK, self.units))
        weights = np.ones((len(left_out), self.units), dtype=np.int32)
        weights[np.arange(len(left_out)), left_out] = 0
        return weights


def evaluate(statistics: Sequence[WeightedStatistic], draws: Draws, workers: int | None = None) -> FloatArray:
    """(S, R) values of S statistics on the same R resamples; NaN where a statistic is not defined on one.

    ``workers``: number of threads (numpy releases the interpreter's lock); None for the available cores. The values do
    not depend on it.
    """
    values = np.empty((len(statistics), draws.count))

    def work(index: int) -> None:
        weights = draws.block(index)
        at = slice(index * BLOCK, index * BLOCK + len(weights))
        for row, statistic in zip(values, statistics, strict=True):
            row[at] = statistic(weights)

    blocks = range(-(-draws.count // BLOCK))
    threads = min(usable_cores() if workers is None else workers, len(blocks))
    if threads <= 1:
        for index in blocks:
            work(index)
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, blocks))
    return values


def unit_codes(labels: Sequence[object] | NDArray[np.generic]) -> tuple[IntArray, int]:
    """(n,) codes in [0, U), in ascending order of (n,) labels of units, such as image ids; and U."""
    names, codes = np.unique(np.asarray(labels), return_inverse=True)
    return np.ascontiguousarray(codes, dtype=np.int64), len(names)


def _stream(seed: int, kind: int, index: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(kind, index)))
