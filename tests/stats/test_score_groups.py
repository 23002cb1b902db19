"""Scores on the human scale, and binned ratings."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.stats.score_groups import binned, by_rating, group_differences, score_groups


def test_scores_are_cut_where_the_ratings_are() -> None:
    human = [1, 1, 1, 2, 2, 5]
    assert score_groups(np.array([0.1, 0.9, 0.3, 0.2, 0.8, 0.4]), np.array(human)).tolist() == [1, 5, 1, 1, 2, 2]


def test_equal_scores_get_the_group_of_their_mean_rank() -> None:
    human = [1, 1, 2, 3]
    assert score_groups(np.array([0.0, 0.0, 0.0, 1.0]), np.array(human)).tolist() == [1, 1, 1, 3]
    assert (
        score_groups(np.full(4, 0.5), np.array([1, 1, 2, 2])).tolist() == [2] * 4
    )  # the middle belongs to the upper half


def test_a_rating_with_one_point_has_no_deviation() -> None:
    groups = by_rating(np.array([0.5, 0.25, 0.75]), np.array([2.0, 1.0, 1.0]))
    assert [tuple(group) for group in groups] == [(1, 2, 0.5, pytest.approx(0.125**0.5)), (2, 1, 0.5, None)]


def test_differences_and_chance_by_hand() -> None:
    scores = {"good": np.array([1.0, 2, 3, 4]), "bad": np.array([4.0, 3, 2, 1])}
    found = group_differences(scores, np.array([1.0, 1, 2, 3]))
    assert list(found.differences) == [-2, -1, 0, 1, 2]
    assert list(found.shares["good"]) == [0, 0, 1, 0, 0]
    assert list(found.shares["bad"]) == [0.25, 0.25, 0, 0.25, 0.25]
    assert found.chance == pytest.approx((2 / 16, 3 / 16, 6 / 16, 3 / 16, 2 / 16))


def test_ratings_are_put_into_ten_bins_of_equal_width() -> None:
    assert binned(np.array([0.0, 0.99, 1.0, 5.5, 9.0, 10.0])).tolist() == [0.5, 0.5, 1.5, 5.5, 9.5, 9.5]
    ratings = np.random.default_rng(0).normal(3, 1, 200)
    middles = np.unique(binned(ratings))
    width = (ratings.max() - ratings.min()) / 10
    assert np.abs(binned(ratings) - ratings).max() <= width / 2 + 1e-12
    assert len(middles) <= 10
