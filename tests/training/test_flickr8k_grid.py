"""Computations of the scripts for Flickr8k's grid features beside training: columns, ensembles, the analysis."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.metrics.grounding.grounding import compare, d_rel, wds
from scripts.flickr8k_grid import MAPPINGS, TAUS, Grounded, columns, mean_of, table
from scripts.flickr8k_grid_analysis import by_image, by_rating, image_means, parts_of_distance, residuals, share_between


def made_up(seed: int = 0, images: int = 40, each: int = 6) -> tuple[Grounded, list[str]]:
    rng = np.random.default_rng(seed)
    n = images * each
    level = np.repeat(rng.uniform(0.2, 0.5, images), each)[:, None]
    references = np.repeat(rng.normal(0, 0.05, (images, 9)), each, axis=0) + level
    candidate = references * rng.uniform(0.3, 1.0, (n, 1)) + rng.normal(0, 0.05, (n, 9))
    return Grounded(candidate, references, np.full(n, 5)), [f"i{i // each}" for i in range(n)]


def test_columns_are_tigers_under_every_mapping_and_tau() -> None:
    grounded, _ = made_up()
    found = columns(grounded)
    statistics = compare(grounded.candidate, grounded.references, grounded.counts)
    np.testing.assert_array_equal(found["rrs"], statistics[:, 1])
    np.testing.assert_allclose(found["grounding"], grounded.candidate.mean(axis=1))
    norms = [np.linalg.norm((1 + part) / 2, axis=1) for part in (grounded.references, grounded.candidate)]
    expected = wds(statistics[:, 3] + d_rel(*norms), 0.5)
    np.testing.assert_allclose(found["wds half τ=0.5"], expected)
    np.testing.assert_allclose(found["tiger half τ=0.5"], (expected + statistics[:, 1]) / 2)
    np.testing.assert_array_equal(found["tiger"], found["tiger released τ=1.5"])
    assert {f"tiger {m} τ={t:g}" for m in MAPPINGS for t in TAUS} <= found.keys()


def test_an_ensemble_is_the_mean_vector() -> None:
    first, second = made_up(1)[0], made_up(2)[0]
    both = mean_of([first, second])
    np.testing.assert_allclose(both.candidate, (first.candidate + second.candidate) / 2)
    np.testing.assert_allclose(both.references, (first.references + second.references) / 2)
    np.testing.assert_array_equal(mean_of([first, first]).candidate, first.candidate)


def test_variance_is_split_between_and_within_images() -> None:
    codes = np.repeat([0, 1, 2], 4)
    assert share_between(np.repeat([1.0, 2.0, 5.0], 4), codes) == pytest.approx(1.0)
    assert share_between(np.tile([1.0, 2.0, 3.0, 4.0], 3), codes) == pytest.approx(0.0)
    np.testing.assert_allclose(image_means(np.arange(12.0), codes), [1.5, 5.5, 9.5])


def test_by_image_finds_the_level_that_people_follow() -> None:
    grounded, images = made_up()
    level = np.linalg.norm(grounded.references, axis=1)
    human = level * 10 + 0.01 * np.arange(len(level)) % 0.05
    found = by_image({"grounding": grounded.candidate.mean(axis=1), "level": level}, grounded, images, human)
    assert found["images"] == 40
    assert found["references' level with mean rating (Pearson)"] > 0.99
    assert found["columns"]["level"]["share between images"] > 0.999
    assert found["columns"]["level"]["tau-b between images"] > 0.95
    assert found["share of people's variance between images"] > 0.95


def test_by_rating_gives_means_and_steps() -> None:
    scores = {"good": np.array([1.0, 2.0, 3.0]), "even": np.array([1.0, -1.0, 0.0])}
    item = np.array([0, 0, 1, 1, 2, 2])
    found = by_rating(scores, item, np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]))
    assert {k: v for k, v in found["good"].items() if "step" not in k} == {"1": 1.0, "2": 2.0, "3": 3.0}
    assert found["good"]["step to 2"] == found["good"]["step to 3"] == pytest.approx(1 / np.std([1, 2, 3]))
    assert found["even"]["step to 2"] < 0


def test_the_distance_is_taken_apart() -> None:
    grounded, _ = made_up()
    human = np.linalg.norm(grounded.candidate, axis=1)
    found = parts_of_distance(grounded, human)
    assert found["ln‖candidate‖"] == pytest.approx(1.0)
    assert found["-ln‖reference‖"] == pytest.approx(-found["ln‖reference‖ (not turned)"])


def test_residuals_tell_who_is_overrated() -> None:
    rng = np.random.default_rng(5)
    human, length = rng.normal(size=300), rng.normal(size=300)
    found = residuals(human + 2 * length, human, {"length": length, "nothing": rng.normal(size=300)})
    assert found["length"] > 0.5
    assert abs(found["nothing"]) < 0.2


def test_a_table_is_markdown() -> None:
    assert table({"a": ["1", "2"]}, ("", "x", "y")) == "|  | x | y |\n|---|---|---|\n| a | 1 | 2 |"
