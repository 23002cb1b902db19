"""TIGEr under all options, and the analysis of grounding models, on invented grounding vectors."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.records import FloatArray
from capbench.metrics.grounding.grounding import D_RELS, STATISTICS, compare, d_rel, wds
from capbench.studies.recipe_grounding import all_options, by_image, parts_of_distance


def made_up(images: int = 40, each: int = 6) -> tuple[FloatArray, FloatArray, dict[str, FloatArray], list[str]]:
    """Candidates' and references' vectors, their statistics by name, and images."""
    rng = np.random.default_rng(0)
    n = images * each
    level = np.repeat(rng.uniform(0.2, 0.5, images), each)[:, None]
    references = np.repeat(rng.normal(0, 0.05, (images, 9)), each, axis=0) + level
    candidate = references * rng.uniform(0.3, 1.0, (n, 1)) + rng.normal(0, 0.05, (n, 9))
    statistics = compare(candidate, references, np.full(n, 5))
    return candidate, references, dict(zip(STATISTICS, statistics.T, strict=True)), [f"i{i // each}" for i in range(n)]


def test_columns_are_tigers_under_every_mapping_and_tau() -> None:
    candidate, references, statistics, _ = made_up()
    found = all_options(statistics)
    np.testing.assert_array_equal(found["rrs"], statistics["rrs"])
    np.testing.assert_allclose(found["grounding"], candidate.mean(axis=1))
    norms = [np.linalg.norm((1 + vectors) / 2, axis=1) for vectors in (references, candidate)]
    expected = wds(statistics["kl"] + d_rel(*norms), 0.5)
    np.testing.assert_allclose(found["wds half τ=0.5"], expected)
    np.testing.assert_allclose(found["tiger half τ=0.5"], (expected + statistics["rrs"]) / 2)
    np.testing.assert_array_equal(found["tiger"], found["tiger released τ=1.5"])
    assert {f"tiger {m} τ={t:g}" for m in D_RELS for t in (0.5, 1.5, 3.0)} <= found.keys()


def test_by_image_finds_the_level_that_ratings_follow() -> None:
    candidate, references, statistics, images = made_up()
    level = np.linalg.norm(references, axis=1)
    human = level * 10 + 0.01 * np.arange(len(level)) % 0.05
    nearly = level * (
        1 + 1e-6 * np.arange(len(level))
    )  # a level without differences in an image has no agreement there
    found = by_image({"grounding": candidate.mean(axis=1), "level": nearly}, statistics, images, human)
    assert found["images"] == 40
    assert found["references' level with mean rating (Pearson)"] > 0.99
    assert found["columns"]["level"]["share between images"] > 0.999
    assert found["columns"]["level"]["tau-b between images"] > 0.95
    assert found["share of people's variance between images"] > 0.95


def test_the_distance_is_taken_apart() -> None:
    candidate, _, statistics, _ = made_up()
    found = parts_of_distance(statistics, np.linalg.norm(candidate, axis=1))
    assert found["ln‖candidate‖"] == pytest.approx(1.0)
    assert found["-ln‖reference‖"] == pytest.approx(-found["ln‖reference‖ (not turned)"])
