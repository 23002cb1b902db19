from __future__ import annotations

import numpy as np
import pytest

from capbench.core.errors import StatisticError
from capbench.stats.retrieval import ranks, retrieval
from tests.errors import raises

IMAGE_OF = np.array([0, 0, 1, 2])
SIMILARITIES = np.array(
    [
        [0.9, 0.1, 0.2, 0.3],  # its first caption is on top
        [0.8, 0.7, 0.6, 0.5],  # two captions of image 0 are above its own
        [0.1, 0.2, 0.9, 0.3],  # one is above
    ]
)


def test_ranks_are_of_the_first_right_answer() -> None:
    to_text, to_image = ranks(SIMILARITIES, IMAGE_OF)
    assert to_text.tolist() == [1, 3, 2]
    # Columns: .9 is the best of its column; .1 is last; .6 is below .9; .3 shares its place with .3 of image 0.
    assert to_image.tolist() == [1, 3, 2, 3]


def test_recalls_are_percentages_of_queries() -> None:
    found = retrieval(SIMILARITIES, IMAGE_OF)
    assert list(found["image_to_text"].values()) == pytest.approx((100 / 3, 100, 100, 2, 2), abs=1e-6)
    assert [found["text_to_image"][f"r@{k}"] for k in (1, 5, 10)] == [25, 100, 100]
    assert found["recall_sum"] == pytest.approx(100 / 3 + 25 + 400)


def test_own_captions_do_not_stand_in_each_others_way() -> None:
    to_text, _ = ranks(np.array([[0.5, 0.5, 0.5], [0.0, 0.0, 1.0]]), np.array([0, 0, 1]))
    assert to_text.tolist() == [2, 1]  # only the other image's caption counts against it


def test_ranks_agree_with_sorting_where_nothing_is_equal() -> None:
    rng = np.random.default_rng(3)
    image_of = np.repeat(np.arange(12), 5)
    similarities = rng.normal(size=(12, 60))
    to_text, to_image = ranks(similarities, image_of)
    for i in range(12):
        order = np.argsort(-similarities[i])
        assert to_text[i] == 1 + min(np.flatnonzero(image_of[order] == i))
    for j in range(60):
        assert to_image[j] == 1 + np.flatnonzero(np.argsort(-similarities[:, j]) == image_of[j])[0]


def test_folds_are_means_over_parts() -> None:
    rng = np.random.default_rng(4)
    image_of = np.repeat(np.arange(8), 2)
    similarities = rng.normal(size=(8, 16))
    parts = [
        retrieval(similarities[:4, :8], image_of[:8]),
        retrieval(similarities[4:, 8:], image_of[8:] - 4),
    ]
    found = retrieval(similarities, image_of, folds=2)
    assert found["recall_sum"] == pytest.approx(np.mean([part["recall_sum"] for part in parts]))
    ranks_of_parts = [part["text_to_image"]["mean_rank"] for part in parts]
    assert found["text_to_image"]["mean_rank"] == pytest.approx(np.mean(ranks_of_parts))
    assert (found["images"], found["captions"]) == (8, 16)


def test_similarities_of_a_diverged_model_are_rejected() -> None:
    with raises(StatisticError, "not-a-number"):
        retrieval(np.full((2, 2), np.nan), np.arange(2))
