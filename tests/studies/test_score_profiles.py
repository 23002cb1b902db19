"""Percentiles, levels and disagreements, against plain computations and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import percentileofscore

from capbench.studies.score_profiles import (
    by_level,
    disagreement,
    human_percentiles,
    percentiles,
)
from tests.reports.page.world import make_items, make_pairs


def test_percentiles_are_scipys_mean_percentiles() -> None:
    values = np.random.default_rng(3).integers(0, 9, 40).astype(float)
    expected = [percentileofscore(values, value, kind="mean") for value in values]
    assert percentiles(values).tolist() == pytest.approx(expected)


def test_levels_count_every_caption_once() -> None:
    generator = np.random.default_rng(4)
    human = generator.integers(1, 5, 200).astype(float)
    scores = human + generator.normal(size=200)
    levels, edges = by_level(scores, human, bins=12)
    assert [level.rating for level in levels] == [1, 2, 3, 4]
    assert sum(sum(level.counts) for level in levels) == 200
    for level in levels:
        chosen = scores[human == level.rating]
        assert [level.n, level.mean, level.sd] == [
            len(chosen),
            pytest.approx(chosen.mean()),
            pytest.approx(chosen.std(ddof=1)),
        ]
    assert (edges[0], edges[-1]) == (scores.min(), scores.max())
    assert len(by_level(scores, generator.normal(size=200))[0]) <= 10  # many ratings are binned
    assert sum(by_level(np.ones(5), np.arange(5.0))[0][0].counts) == 1  # equal scores


def test_disagreement_is_the_widest_distance_of_percentiles() -> None:
    table = make_items(50, ["cider", "meteor"])
    human = human_percentiles(table)
    wide = [np.abs(percentiles(np.array(values, dtype=float)) - human) for values in table.scores.values()]
    assert disagreement(table).tolist() == pytest.approx(np.max(wide, axis=0).tolist())
    pairs = make_pairs(20, ["cider"])
    assert int(np.argmax(disagreement(pairs))) == 15  # the most negative difference
