from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.records import FloatArray
from capbench.stats.agreement import Correlations
from capbench.stats.resampling import (
    BLOCK,
    Bootstrap,
    Draws,
    LeaveOneOut,
    Swaps,
    evaluate,
    unit_codes,
)


def all_weights(draws: Draws) -> NDArray[np.integer]:
    return np.concatenate([draws.block(i) for i in range(-(-draws.count // BLOCK))])


class Sum:
    """Weighted sum of unit numbers: shows which resample was evaluated where."""

    def __init__(self, units: int) -> None:
        self.units = units

    def __call__(self, weights: NDArray[np.integer]) -> FloatArray:
        return np.asarray(weights @ np.arange(self.units), dtype=np.float64)


def test_a_resample_draws_as_many_units_as_there_are() -> None:
    weights = all_weights(Bootstrap(37, 150, seed=1))
    assert weights.shape == (150, 37)
    assert (weights.sum(axis=1) == 37).all()
    assert (all_weights(Bootstrap(37, 100, seed=1, size=500)).sum(axis=1) == 500).all()


def test_each_unit_is_drawn_once_on_average() -> None:
    weights = all_weights(Bootstrap(20, 5000, seed=4))
    np.testing.assert_allclose(weights.mean(axis=0), 1.0, atol=0.08)
    np.testing.assert_allclose(weights.var(axis=0), 1 - 1 / 20, atol=0.12)
    assert len(np.unique(weights, axis=0)) == 5000


def test_coins_are_fair_and_swap_whole_units() -> None:
    coins = all_weights(Swaps(20, 5000, seed=4))
    assert set(np.unique(coins)) == {0, 1}
    np.testing.assert_allclose(coins.mean(axis=0), 0.5, atol=0.04)


def test_the_jackknife_leaves_out_each_unit_once() -> None:
    weights = all_weights(LeaveOneOut(130))
    assert (weights == 1 - np.eye(130)).all()


@pytest.mark.parametrize("kind", [Bootstrap, Swaps])
def test_the_first_of_many_resamples_are_the_few(kind: type[Bootstrap] | type[Swaps]) -> None:
    few, many = all_weights(kind(11, 100, seed=3)), all_weights(kind(11, 1000, seed=3))
    assert (few == many[:100]).all()
    assert not (few == all_weights(kind(11, 100, seed=4))).all()


def test_values_stand_at_the_place_of_their_resample() -> None:
    draws = Bootstrap(9, 333, seed=2)
    values = evaluate([Sum(9), Sum(9)], draws, workers=4)
    np.testing.assert_array_equal(values[0], all_weights(draws) @ np.arange(9))
    np.testing.assert_array_equal(values[0], values[1])


@pytest.mark.parametrize("coefficient", ["tau-b", "tau-c", "spearman", "pearson"])
@pytest.mark.parametrize("continuous", [False, True])
def test_the_same_seed_gives_the_same_bits_with_any_number_of_workers(coefficient: str, continuous: bool) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=300) if continuous else rng.integers(0, 4, 300).astype(float)
    scores = {name: y + rng.normal(size=300) * 2 for name in "ab"}
    data = Correlations.of(coefficient, scores, y, rng.integers(0, 60, 300))  # type: ignore[arg-type]
    statistics = [data.statistic("a"), data.swapped("a", "b")]
    swaps = Swaps(data.units, 200, seed=5)
    one, three = (evaluate(statistics, swaps, workers) for workers in (1, 3))
    assert one.tobytes() == three.tobytes()


def test_units_are_numbered_in_the_order_of_their_labels() -> None:
    codes, units = unit_codes(["b.jpg", "a.jpg", "b.jpg", "c.jpg"])
    assert (codes.tolist(), units) == ([1, 0, 1, 2], 3)


def test_bootstrap_and_permutations_of_one_seed_have_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    kept = np.random.default_rng

    def noted(sequence: np.random.SeedSequence) -> np.random.Generator:
        made.append(tuple(sequence.generate_state(4).tolist()))
        return kept(sequence)

    monkeypatch.setattr(np.random, "default_rng", noted)
    for seed in (0, 1):
        for draws in (Bootstrap(5, 3 * BLOCK, seed), Swaps(5, 3 * BLOCK, seed)):
            all_weights(draws)
    assert len(set(made)) == len(made) == 12


def test_who_is_drawn_says_nothing_about_who_is_swapped() -> None:
    drawn = all_weights(Bootstrap(40, 2000, seed=7)).astype(np.float64)
    swapped = all_weights(Swaps(40, 2000, seed=7)).astype(np.float64)
    # 80,000 independent pairs: a correlation beyond .02 is more than five standard errors from 0.
    assert abs(np.corrcoef(drawn.ravel(), swapped.ravel())[0, 1]) < 0.02
