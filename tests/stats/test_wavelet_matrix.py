from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.records import FloatArray
from capbench.stats.kendall import WaveletMatrix, pair_counts, partner_differences, rank_encode
from tests.stats.strategies import paired_values


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=40), st.data())
@settings(max_examples=150, deadline=None)
def test_questions_are_answered_as_by_looking(cells: list[tuple[int, int]], data: st.DataObject) -> None:
    codes, weights = np.array(cells).T
    levels = data.draw(st.integers(int(codes.max()) + 1, 20))
    table = WaveletMatrix(codes, weights, levels)
    first = np.array(data.draw(st.lists(st.integers(0, len(codes)), min_size=1, max_size=10)))
    value = np.array(data.draw(st.lists(st.integers(0, levels - 1), min_size=len(first), max_size=len(first))))
    below, equal = table.below_and_equal(first, value)
    for i, (f, v) in enumerate(zip(first, value, strict=True)):
        assert below[i] == weights[:f][codes[:f] < v].sum()
        assert equal[i] == weights[:f][codes[:f] == v].sum()


@given(paired_values())
@settings(max_examples=100, deadline=None)
def test_partner_differences_are_those_of_the_definition(pair: tuple[FloatArray, FloatArray]) -> None:
    x, y = rank_encode(pair[0]), rank_encode(pair[1])
    found = partner_differences(x.codes, y.codes, x.levels, y.levels)
    signs = np.sign(x.codes[:, None] - x.codes) * np.sign(y.codes[:, None] - y.codes)
    np.testing.assert_array_equal(found, signs.sum(axis=1))
    counts = pair_counts(x, y)
    assert found.sum() == 2 * (counts.concordant - counts.discordant)
