"""Percentiles, levels within images and between them, and systems, against plain computations and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, percentileofscore

from capbench.studies.score_profiles import (
    by_level,
    disagreement,
    human_percentiles,
    image_levels,
    percentiles,
    system_means,
)
from tests.reports.page.world import make_items, make_pairs


def test_percentiles_are_scipys_mean_percentiles() -> None:
    values = np.random.default_rng(3).integers(0, 9, 40).astype(float)
    expected = [percentileofscore(values, value, kind="mean") for value in values]
    assert percentiles(values).tolist() == pytest.approx(expected)


def test_within_images_and_between_them_are_means_and_correlations_of_means() -> None:
    generator = np.random.default_rng(2)
    images = [f"i{place // 5}" for place in range(50)]
    human = generator.permutation(np.tile(np.arange(5.0), 10))
    scores = human + generator.normal(size=50)
    found = image_levels(scores, human, images)
    blocks = [slice(5 * place, 5 * place + 5) for place in range(10)]
    varied = [block for block in blocks if len(set(human[block])) > 1]
    assert found.images == len(varied)
    assert found.within == pytest.approx(np.mean([kendalltau(scores[b], human[b]).statistic for b in varied]))
    means = [(scores[b].mean(), human[b].mean()) for b in blocks]
    assert found.between == pytest.approx(kendalltau(*zip(*means, strict=True)).statistic)


def test_one_caption_an_image_has_nothing_within_images() -> None:
    found = image_levels(np.arange(4.0), np.array([1.0, 2, 2, 3]), ["a", "b", "c", "d"])
    assert found.within is None
    assert found.between == pytest.approx(kendalltau(range(4), [1, 2, 2, 3]).statistic)


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


def test_systems_are_means_of_their_captions_best_liked_first() -> None:
    means = system_means(np.array([1.0, 3, 5, 7]), np.array([1.0, 1, 4, 2]), ["a", "a", "b", ""])
    assert [(m.system, m.n, m.human, m.score) for m in means] == [("b", 1, 4, 5), ("a", 2, 1, 2)]
    assert system_means(np.ones(2), np.ones(2), ["a", "a"]) == ()


def test_disagreement_is_the_widest_distance_of_percentiles() -> None:
    table = make_items(50, ["cider", "meteor"])
    human = human_percentiles(table)
    wide = [np.abs(percentiles(np.array(values, dtype=float)) - human) for values in table.scores.values()]
    assert disagreement(table).tolist() == pytest.approx(np.max(wide, axis=0).tolist())
    pairs = make_pairs(20, ["cider"])
    assert int(np.argmax(disagreement(pairs))) == 15  # the most negative difference
