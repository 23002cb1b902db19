from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import rel_entr

from capbench.metrics.vilbert.train import (
    alignment_loss,
    f_scores,
    late_similarities,
    region_loss,
)
from capbench.text.greedy_matching import Tokens, match, unit


def test_f_is_that_of_the_metric_without_padding() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(5, 6, 4)).astype(np.float32) + 1, rng.normal(size=(5, 7, 4)).astype(np.float32) + 1
    here, there = np.arange(6) < rng.integers(1, 7, (5, 1)), np.arange(7) < rng.integers(1, 8, (5, 1))
    here[0, 0], here[0, 1] = False, True  # as [CLS] is
    f = f_scores(*(torch.from_numpy(array) for array in (first, here, second, there))).numpy()

    def tokens(states: np.ndarray, present: np.ndarray) -> Tokens:
        return Tokens(unit(states[present]), np.ones(int(present.sum())))

    expected = [match(tokens(first[k], here[k]), tokens(second[k], there[k]))[2] for k in range(5)]
    assert f == pytest.approx(np.array(expected), abs=1e-5)


def test_late_similarity_is_the_mean_of_each_tokens_best_region() -> None:
    rng = np.random.default_rng(1)
    tokens, regions = rng.normal(size=(3, 5, 4)), rng.normal(size=(2, 6, 4))
    present = np.arange(5) < np.array([[5], [1], [3]])
    similar = late_similarities(torch.from_numpy(tokens), torch.from_numpy(present), torch.from_numpy(regions)).numpy()
    for image in range(2):
        for caption in range(3):
            best = []
            for token in tokens[caption][present[caption]]:
                cosines = [token @ r / np.linalg.norm(token) / np.linalg.norm(r) for r in regions[image]]
                best.append(max(cosines))
            assert similar[image, caption] == pytest.approx(np.mean(best))


def test_region_losses_are_what_they_are_called() -> None:
    rng = np.random.default_rng(2)
    told, shares = rng.normal(size=(3, 4)), rng.dirichlet(np.ones(4), 3)
    softmax = np.exp(told) / np.exp(told).sum(axis=1, keepdims=True)
    divergence = region_loss(torch.from_numpy(told), torch.from_numpy(shares), None)
    assert float(divergence) == pytest.approx(rel_entr(shares, softmax).sum() / 3)
    error = region_loss(torch.from_numpy(told), torch.from_numpy(shares), 2.5)
    assert float(error) == pytest.approx(np.mean((told - shares) ** 2) / 2.5)


def test_alignment_weighs_both_answers_the_same() -> None:
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    together = torch.tensor([True, True, False])
    right, wrong = math.log1p(math.exp(-2)), math.log1p(math.exp(2))
    assert float(alignment_loss(logits, together)) == pytest.approx((right + wrong) / 2)
