"""Earth mover's distance of bags of words against gensim's ``wmdistance`` (which uses POT)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.metrics.wmd import word_movers_distance

WORDS = [f"w{i}" for i in range(12)]
_RAW = np.random.default_rng(3).normal(size=(12, 20)).astype(np.float32)
VECTORS = dict(zip(WORDS, _RAW / np.linalg.norm(_RAW, axis=1)[:, None], strict=True))
bags = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=14)


@pytest.fixture(scope="module")
def gensim_distance() -> object:
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    pytest.importorskip("ot")
    kv = keyedvectors.KeyedVectors(20)
    kv.add_vectors(WORDS, _RAW)
    return kv.wmdistance


@settings(max_examples=150, deadline=None)
@given(first=bags, second=bags)
def test_equals_gensim(gensim_distance, first: list[str], second: list[str]) -> None:  # type: ignore[no-untyped-def]
    expected = gensim_distance(first, second)
    assert word_movers_distance(first, second, VECTORS) == pytest.approx(expected, abs=1e-9)


def test_long_captions_of_awkward_lengths_are_solved_exactly() -> None:
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    first, second = [WORDS[i % 6] for i in range(19)], [WORDS[4 + i % 6] for i in range(17)]
    units = [np.stack([VECTORS[word] for word in bag]).astype(float) for bag in (first * 17, second * 19)]
    costs = cdist(*units)  # an assignment of 19 x 17 equal units of mass
    expected = costs[linear_sum_assignment(costs)].mean()
    assert word_movers_distance(first, second, VECTORS) == pytest.approx(expected, abs=1e-12)


def test_words_without_vectors_do_not_count() -> None:
    assert word_movers_distance(["w1", "unknown"], ["w1"], VECTORS) == 0.0
    assert word_movers_distance(["unknown"], ["w1"], VECTORS) == math.inf
    assert word_movers_distance([], [], VECTORS) == math.inf


def test_is_symmetric_and_one_word_against_one_is_their_distance() -> None:
    direct = float(np.linalg.norm(VECTORS["w1"].astype(float) - VECTORS["w2"]))
    assert word_movers_distance(["w1"], ["w2", "w2"], VECTORS) == pytest.approx(direct, abs=1e-12)
    one = word_movers_distance(["w1", "w3", "w3"], ["w2", "w4"], VECTORS)
    assert word_movers_distance(["w2", "w4"], ["w1", "w3", "w3"], VECTORS) == pytest.approx(one, abs=1e-12)
