"""PERM-BOTH of rank statistics as quadratic forms: all pairs of data points are counted once for all permutations.

Two metrics score the same n data points: x by the one and y by the other, on one scale. A permutation gives every unit
u a sign, σ_u = 1 if the metrics keep their places there and -1 if they change them. With S = ½ Σ_ij K(h_i, h_j)
sgn(v_i - v_j) over the data points of a list with scores v and human ratings h, and S₁ and S₂ those of the two lists
after the swap::

    S₁ + S₂ = ½ S(both) + ¼ σᵀ M σ,    S₁ - S₂ = ½ Σ_u σ_u d_u,
    M_uv = Σ_{p in u, q in v} e_p e_q K(h_p, h_q) sgn(c_p - c_q),    d_u = Σ_{p in u} e_p Σ_q K(h_p, h_q) sgn(c_p - c_q)

where p and q run over the list of both metrics' 2n scores c, and e is 1 for the first metric's and -1 for the second's.
K(h, h') = sgn(h - h') makes S the concordant minus the discordant pairs (tau); the difference of doubled average ranks
makes it the sum of products of both sides' doubled, centred ranks (Spearman). All sums are whole numbers, exact in
any order.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from capbench.records import FloatArray, IntArray
from capbench.stats.kendall import RankCode, rank_encode

__all__ = ["QuadraticSwap", "fits"]

# M has a row and a column for each unit, and costs as many multiplications for each permutation.
_MOST_UNITS = 2048
_MOST_LEVELS = 16
# n³ has to be exact as a float.
_MOST_POINTS = 150_000
# Cells that are compared one by one; pairs of cells further apart are counted by their histograms.
_BLOCK = 64
_SINGLE_EXACT = 1 << 24


def fits(human: RankCode, units: int) -> bool:
    """Whether this way is quicker than evaluating each permutation by itself: few units, few levels of ratings."""
    return units <= _MOST_UNITS and human.levels <= _MOST_LEVELS and len(human.codes) <= _MOST_POINTS


class QuadraticSwap:
    """Difference (first - second) of tau-b or Spearman's rho after two metrics changed places on some units.

    Args:
        coefficient: which one.
        both: (2 n,) scores of the first and then of the second metric, on one scale.
        human: (n,) human ratings.
        unit: (n,) unit of each data point, in [0, units).
        units: number of units, U.
    """

    def __init__(
        self,
        coefficient: Literal["tau-b", "spearman"],
        both: FloatArray,
        human: FloatArray,
        unit: IntArray,
        units: int,
    ) -> None:
        import scipy.sparse

        csr_array: Any = scipy.sparse.csr_array  # its stubs know no (values, (rows, columns))
        self.units = units
        self._coefficient = coefficient
        ratings, scores = rank_encode(human), rank_encode(both)
        self._n = n = len(human)
        level, place = np.tile(ratings.codes, 2), np.tile(unit, 2)
        sign = np.repeat([1.0, -1.0], n)
        ranks = np.zeros(ratings.levels)
        ranks[ratings.codes] = ratings.doubled_ranks()
        kernel = ranks[:, None] - ranks[None, :]
        if coefficient == "tau-b":
            kernel = np.sign(kernel)
            self._free_human = float(n) ** 2 - float((ratings.counts**2).sum())
        else:
            self._free_human = float((ratings.counts * ranks**2).sum())
        partners = _partner_sums(scores, level, kernel)
        self._half_of_all = float(partners.sum()) / 4  # ½ S(both), in which each pair stands twice
        self._linear = np.bincount(place, weights=sign * partners, minlength=units)
        matrix = _pair_matrix(scores.codes, place, level, sign, kernel, units)
        exact = float(np.abs(matrix).sum(axis=1).max()) < _SINGLE_EXACT
        self._matrix = matrix.astype(np.float32 if exact else np.float64)
        self._sizes = scores.counts.astype(np.float64)
        surplus = csr_array((sign.astype(np.int32), (scores.codes, place)), shape=(scores.levels, units))
        surplus.sum_duplicates()
        self._surplus = surplus

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        """Evaluate (B, U) weights 0 (as it is) and 1 (swapped) to (B,) values; NaN where a side is constant."""
        signs = 1 - 2 * weights.astype(np.int32)
        product = signs.astype(self._matrix.dtype) @ self._matrix
        total = self._half_of_all + np.einsum("bu,bu->b", product, signs, dtype=np.float64) / 4
        difference = signs.astype(np.float64) @ self._linear / 2
        free = self._free(signs)
        factor = 2.0 if self._coefficient == "tau-b" else 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = (
                factor * score / np.sqrt(of_list * self._free_human)
                for score, of_list in zip(((total + difference) / 2, (total - difference) / 2), free, strict=True)
            )
        return np.where((free[0] > 0) & (free[1] > 0), first - second, np.nan)

    def _free(self, signs: NDArray[np.int32]) -> tuple[FloatArray, FloatArray]:
        """(B,) spread of each list's scores: n² - Σ t² (tau-b) or Σ rank² = (n³ - Σ t³) / 3, t points with one score.

        With T points of both lists at a value, and g more of the first list than of the second, t = (T ± g) / 2.
        """
        n, sizes = float(self._n), self._sizes
        surplus = (self._surplus @ np.ascontiguousarray(signs.T)).astype(np.float64)
        squares = surplus * surplus
        if self._coefficient == "tau-b":
            both = (float((sizes**2).sum()) + squares.sum(axis=0)) / 2
            apart = sizes @ surplus
            return n**2 - (both + apart) / 2, n**2 - (both - apart) / 2
        both = (float((sizes**3).sum()) + 3 * (sizes @ squares)) / 4
        squares *= surplus
        apart = (3 * (sizes**2 @ surplus) + squares.sum(axis=0)) / 4
        return (n**3 - (both + apart) / 2) / 3, (n**3 - (both - apart) / 2) / 3


def _partner_sums(scores: RankCode, level: IntArray, kernel: FloatArray) -> FloatArray:
    """(m,) ``Σ_q K(h_p, h_q) sgn(c_p - c_q)`` of each data point p."""
    at = np.bincount(level * scores.levels + scores.codes, minlength=len(kernel) * scores.levels)
    counts = at.reshape(len(kernel), scores.levels).astype(np.float64)
    under_minus_over = 2 * np.cumsum(counts, axis=1) - counts - counts.sum(axis=1, keepdims=True)
    return np.asarray((kernel @ under_minus_over)[level, scores.codes], dtype=np.float64)


def _pair_matrix(
    code: IntArray, unit: IntArray, level: IntArray, sign: FloatArray, kernel: FloatArray, units: int
) -> FloatArray:
    """(U, U) sums M over the data points of two units.

    Cells (distinct score and unit) are listed by score and cut into blocks. Cells of two blocks are in the order of the
    blocks, so their pairs are a product of histograms; pairs within a block are listed. A score that stands in many
    units is a block of its own, of which all pairs are tied.
    """
    levels = len(kernel)
    names, cell = np.unique(code * units + unit, return_inverse=True)
    profile = np.bincount(cell * levels + level, weights=sign, minlength=len(names) * levels).reshape(-1, levels)
    cell_code, cell_unit = np.divmod(names, units)
    block = _blocks(cell_code)
    width = int(block[-1]) + 1
    table = np.zeros((units, width, levels))
    np.add.at(table, (cell_unit, block), profile)
    under_minus_over = 2 * np.cumsum(table, axis=1) - table - table.sum(axis=1, keepdims=True)
    weighted = under_minus_over @ kernel.T
    # Each partial sum is a whole number below the product of these two.
    bound = float(np.abs(table).sum(axis=(1, 2)).max()) * float(np.abs(weighted).max())
    kind = np.float32 if bound < _SINGLE_EXACT else np.float64
    matrix = table.reshape(units, -1).astype(kind) @ weighted.reshape(units, -1).astype(kind).T
    matrix = matrix.astype(np.float64)
    matrix += _within_blocks(block, cell_code, cell_unit, profile, kernel, units)
    return np.asarray(matrix, dtype=np.float64)


def _blocks(code: IntArray) -> IntArray:
    """(c,) block of each cell, by ascending code; equal codes are in one block, and large groups of them alone."""
    starts = np.flatnonzero(np.diff(code, prepend=code[0] - 1))
    sizes = np.diff(starts, append=len(code))
    large = sizes > _BLOCK // 4
    begins = np.diff(starts // _BLOCK, prepend=-1) != 0
    begins |= large
    begins[1:] |= large[:-1]
    return np.repeat(np.cumsum(begins) - 1, sizes)


def _within_blocks(
    block: IntArray, code: IntArray, unit: IntArray, profile: FloatArray, kernel: FloatArray, units: int
) -> FloatArray:
    """(U, U) the part of M from pairs of cells in one block."""
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    sizes = np.diff(starts, append=len(block))
    listed = (code[starts] != code[starts + sizes - 1])[block]  # a block of one code has tied pairs only
    if not listed.any():
        return np.zeros((units, units))
    starts, rows = np.unique(starts[block[listed]], return_inverse=True)
    cells = np.flatnonzero(listed)
    shape = (len(starts), int((cells - starts[rows]).max()) + 1)
    place = rows * shape[1] + cells - starts[rows]
    # Blocks are filled up with cells that hold nothing.
    codes, places = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int64)
    profiles = np.zeros((*shape, len(kernel)))
    codes.ravel()[place], places.ravel()[place] = code[cells], unit[cells]
    profiles.reshape(-1, len(kernel))[place] = profile[cells]
    pairs = (profiles @ kernel) @ profiles.transpose(0, 2, 1)
    pairs *= np.sign(codes[:, :, None] - codes[:, None, :])
    at = places[:, :, None] * units + places[:, None, :]
    return np.bincount(at.ravel(), weights=pairs.ravel(), minlength=units * units).reshape(units, units)
