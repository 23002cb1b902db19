from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from capbench.stats.pairs import Correction
from capbench.stats.significance import adjust

_p_values = st.lists(
    st.sampled_from([0.0, 0.001, 0.01, 0.02, 0.04, 0.05, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=30
)


@pytest.mark.parametrize(("ours", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
@settings(deadline=None)
@given(p=_p_values)
def test_corrections_are_those_of_statsmodels(ours: Correction, theirs: str, p: list[float]) -> None:
    with patch("gc.collect"):  # which multipletests calls at its end, a second for a process with many libraries
        expected = multipletests(p, method=theirs)[1]
    np.testing.assert_allclose(adjust(p, ours), expected, atol=1e-12)


def test_an_example_by_hand() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert adjust(p, "holm").tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust(p, "bh").tolist() == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert adjust(p, "none").tolist() == p
