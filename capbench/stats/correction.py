"""Correction of p-values for the number of tests in a table.

References:
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.
    Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate. Journal of the Royal Statistical
    Society B 57 (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from capbench.errors import StatisticError, suggest
from capbench.records import FloatArray
from capbench.stats.vectors import finite_vector

__all__ = ["Correction", "adjust"]

Correction = Literal["holm", "bh", "none"]


def adjust(p_values: Sequence[float] | NDArray[np.generic], correction: Correction) -> FloatArray:
    """Adjusted p-values: reject where they are at most α.

    With the p-values in ascending order, p_(1) ≤ … ≤ p_(m):

    - ``holm``: ``max_{j ≤ i} min(1, (m - j + 1) p_(j))``. The chance of one false difference or more in the
      table is at most α, whatever the dependence between the tests.
    - ``bh``: ``min_{j ≥ i} min(1, m p_(j) / j)``. Of the differences found, a share of at most α is false on average,
      for independent or positively dependent tests.
    - ``none``: as they are.

    Args:
        p_values: (m,) p-values in any order.
        correction: the method.

    Raises:
        StatisticError: an unknown correction, or a p-value outside [0, 1].
    """
    if correction not in get_args(Correction):
        raise StatisticError(
            f"unknown correction '{correction}'", hint=suggest(str(correction), list(get_args(Correction)))
        )
    p = finite_vector(p_values, "the p-values")
    if len(p) and (p.min() < 0 or p.max() > 1):
        raise StatisticError("the p-values: there is one outside [0, 1]")
    if correction == "none" or not len(p):
        return p.copy()
    m = len(p)
    order = np.argsort(p, kind="stable")
    ranks = np.arange(1, m + 1)
    if correction == "holm":
        steps = np.maximum.accumulate((m - ranks + 1) * p[order])
    else:
        steps = np.minimum.accumulate((m * p[order] / ranks)[::-1])[::-1]
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted
