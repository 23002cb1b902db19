"""Where scores disagree with ratings: by rating, image, length and triplets."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.records import Item
from capbench.studies.recipe_grounding import (
    analysed,
    by_rating,
    image_means,
    kind_of_image,
    residuals,
    share_between,
)
from capbench.studies.recipe_scores import Rated


def rated(seed: int = 0) -> Rated:
    rng = np.random.default_rng(seed)
    own = {0: ("a dog runs", "the dog jumps"), 1: ("two men sit", "a man waits"), 2: ("a red hill", "some grass")}
    items = tuple(Item(f"image-{n % 12}", f"a thing {'here ' * (n % 3)}", own[n % 12 % 3], f"c{n}") for n in range(60))
    of_rating = np.repeat(np.arange(60), 2)
    return Rated(items, of_rating, rng.integers(1, 5, len(of_rating)).astype(float), "toy/all/tau-c")


def test_scores_are_analysed_by_rating_image_and_triplets() -> None:
    data = rated(2)
    human = data.mean()
    noise = np.random.default_rng(3).normal(size=60) * 0.01
    good = human + noise  # of equal ratings one is above the other
    found = analysed(data, {"good": good, "bad": -good}, (np.arange(60) % 4).astype(float))
    assert found["tau-c"]["good"] == pytest.approx(-found["tau-c"]["bad"])
    within, between = (found["by image"][n][f"tau-b {w} images"] for n, w in (("good", "within"), ("bad", "between")))
    assert within > 0.9
    assert between < -0.9
    assert found["captions"] == {"no triplet": 15, "triplets": 45}
    assert found["images"] == {"dog": 4, "people": 4, "other": 4}
    dogs = [place for place, item in enumerate(data.items) if "dog" in item.references[0]]
    few = np.isin(data.item, dogs)
    expected = Rated(data.items, data.item[few], data.value[few], "").correlation("tau-c", good)
    assert found["tau-c by image"]["dog"]["good"] == pytest.approx(expected)
    assert found["captions"]["triplets"] == 45


def test_an_image_is_of_the_kind_that_most_of_its_captions_name() -> None:
    assert kind_of_image(("a dog", "a man with a dog", "a man")) == "dog"
    assert kind_of_image(("a dog.", "a man", "two women")) == "people"
    assert kind_of_image(("a hill", "the sea")) == "other"


def test_variance_is_split_between_and_within_images() -> None:
    codes = np.repeat([0, 1, 2], 4)
    assert share_between(np.repeat([1.0, 2.0, 5.0], 4), codes) == pytest.approx(1.0)
    assert share_between(np.tile([1.0, 2.0, 3.0, 4.0], 3), codes) == pytest.approx(0.0)
    np.testing.assert_allclose(image_means(np.arange(12.0), codes), [1.5, 5.5, 9.5])


def test_mean_scores_of_ratings_and_steps_between_them() -> None:
    scores = {"good": np.array([1.0, 2.0, 3.0]), "even": np.array([1.0, -1.0, 0.0])}
    found = by_rating(scores, np.array([0, 0, 1, 1, 2, 2]), np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]))
    assert {k: v for k, v in found["good"].items() if "step" not in k} == {"1": 1.0, "2": 2.0, "3": 3.0}
    assert found["good"]["step to 2"] == found["good"]["step to 3"] == pytest.approx(1 / np.std([1, 2, 3]))
    assert found["even"]["step to 2"] < 0


def test_overrated_captions_are_found() -> None:
    rng = np.random.default_rng(5)
    human, length = rng.normal(size=300), rng.normal(size=300)
    found = residuals(human + 2 * length, human, {"length": length, "nothing": rng.normal(size=300)})
    assert found["length"] > 0.5
    assert abs(found["nothing"]) < 0.2
