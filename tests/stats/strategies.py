"""Pairs of lists that are hard for correlations: heavy ties, few levels, zeros of both signs, huge and tiny values.

No two values are different and equal up to rounding: scipy and definitions would count them as different.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from capbench.core.records import FloatArray
from capbench.stats.ties import is_constant, merged

_levels = st.sampled_from([1.0, 2.0, 3.0, 4.0])
_zeros = st.sampled_from([0.0, -0.0, 1.0])
_whole = st.integers(-50, 50).map(float)
_wide_whole = st.integers(-(10**6), 10**6).map(float)
_shares = st.sampled_from([0.0, 1 / 3, 2 / 3, 1.0, 0.3, 0.5])
_any = st.floats(-1e3, 1e3, allow_nan=False)
_extreme = st.sampled_from([1e-300, 2e-300, -1e-300, 1e-12, 1.0, 1e12, 1e100, -1e100, 0.0])
_sides = [_levels, _zeros, _whole, _wide_whole, _shares, _any, _extreme]


@st.composite
def paired_values(draw: st.DrawFn, max_size: int = 60) -> tuple[FloatArray, FloatArray]:
    """Two sides of equal length, neither constant."""
    n = draw(st.integers(2, max_size))
    sides = []
    for _ in range(2):
        values = draw(st.lists(draw(st.sampled_from(_sides)), min_size=n, max_size=n))
        if is_constant(np.array(values)):
            values[draw(st.integers(0, n - 1))] += 1.0 + abs(values[0])
        sides.append(merged(np.array(values)))
    return sides[0], sides[1]
