from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import percentileofscore

from capbench.studies.item_scores import disagreement, human_percentiles, percentiles
from tests.reports.page.world import make_items, make_pairs


def test_percentiles_are_scipys_mean_percentiles() -> None:
    values = np.random.default_rng(3).integers(0, 9, 40).astype(float)
    expected = [percentileofscore(values, value, kind="mean") for value in values]
    assert percentiles(values).tolist() == pytest.approx(expected)


def test_disagreement_is_the_widest_distance_of_percentiles() -> None:
    table = make_items(50, ["cider", "meteor"])
    human = human_percentiles(table)
    wide = [np.abs(percentiles(np.array(values, dtype=float)) - human) for values in table.scores.values()]
    assert disagreement(table).tolist() == pytest.approx(np.max(wide, axis=0).tolist())
    pairs = make_pairs(20, ["cider"])
    assert int(np.argmax(disagreement(pairs))) == 15  # the most negative difference
