from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from capbench.core.records import FloatArray
from capbench.text.greedy_matching import Frequencies, Tokens, match, unit


def _plain(candidate: Tokens, reference: Tokens) -> tuple[float, float, float]:
    """The same computation word by word."""

    def side(texts: tuple[Tokens, Tokens]) -> float:
        one, other = texts
        total, sum_of_weights = 0.0, 0.0
        even = one.weights.sum() <= 0
        for i, vector in enumerate(one.vectors):
            best = 0.0 if other.padded or not len(other.weights) else -math.inf
            for j, against in enumerate(other.vectors):
                cosine = sum(float(a) * float(b) for a, b in zip(vector, against, strict=True))
                for text, place in ((one, i), (other, j)):
                    if text.scale is not None:
                        cosine *= float(text.scale[place])
                best = max(best, cosine)
            weight = 1.0 if even else float(one.weights[i])
            total += weight * best
            sum_of_weights += weight
        return total / sum_of_weights if sum_of_weights else 0.0

    precision, recall = side((candidate, reference)), side((reference, candidate))
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _text(rng: np.random.Generator, length: int, *, scaled: bool = False, padded: bool = False) -> Tokens:
    weights = rng.random(length) * (rng.random(length) > 0.2)
    return Tokens(unit(rng.normal(size=(length, 8))), weights, weights if scaled else None, padded)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_pairs_of_any_lengths_are_matched_as_by_hand(scaled: bool, padded: bool) -> None:
    rng = np.random.default_rng(0)
    lengths = [(1, 1), (1, 6), (5, 2), (9, 9), (0, 3), (3, 0), (0, 0), (4, 7)]
    for m, n in lengths:
        pair = _text(rng, m, scaled=scaled, padded=padded), _text(rng, n, scaled=scaled, padded=padded)
        np.testing.assert_allclose(match(*pair), _plain(*pair), atol=1e-6)


def test_layers_are_matched_each_by_itself() -> None:
    rng = np.random.default_rng(2)
    vectors = [unit(rng.normal(size=(3, length, 8))) for length in (4, 6)]
    left, right = (Tokens(v, np.ones(v.shape[1])) for v in vectors)
    scores = match(left, right)
    assert scores.shape == (3, 3)
    for layer in range(3):
        single = match(*(Tokens(v[layer], np.ones(v.shape[1])) for v in vectors))
        np.testing.assert_allclose(scores[layer], single, atol=1e-7)


def test_a_word_without_a_similar_one_matches_padding_only_where_there_is_some() -> None:
    one = unit(np.array([[1.0, 0.0]]))
    for padded, expected in ((False, [-1.0, -1.0, -1.0]), (True, [0.0, -1.0, 0.0])):
        assert match(Tokens(one, np.ones(1)), Tokens(-one, np.ones(1), padded=padded)).tolist() == expected
    both = Tokens(unit(np.array([[1.0, 0.0], [-1.0, 0.0]])), np.array([1.0, 0.0]))
    assert match(both, Tokens(both.vectors[1:], np.ones(1))).tolist() == [-1.0, 1.0, 0.0]  # P + R is 0


def test_rare_tokens_weigh_more_and_unseen_ones_most() -> None:
    frequencies = Frequencies([[1, 2, 2], [1, 3], [1]])
    assert frequencies.documents == 3
    assert dict(frequencies.counts) == {1: 3, 2: 1, 3: 1}
    assert [frequencies.weight(token) for token in (1, 2, 9)] == [0.0, math.log(4 / 2), math.log(4)]


@pytest.mark.parametrize("idf", [False, True])
def test_it_gives_the_numbers_of_the_original(parity: Path, idf: bool) -> None:
    numbers = np.load(parity / "vilbertscore" / "greedy_matching.npz")
    cases = sorted({name.split("__")[0] for name in numbers.files if name.endswith("__hyp_emb")})
    checked = 0
    for case in cases:
        if f"{case}__P" not in numbers.files or (idf and f"{case}__P_idf" not in numbers.files):
            continue
        sides = []
        for side in ("hyp", "ref"):
            states, mask = numbers[f"{case}__{side}_emb"], numbers[f"{case}__{side}_mask"]
            weights: FloatArray = numbers[f"{case}__{side}_idf"].astype(float) if idf else mask.astype(float)
            width = mask.shape[1] - 1  # without [CLS] and the last place, which [SEP] has in a full text
            texts = []
            for row, n in enumerate((mask.sum(axis=1) - 1).tolist()):
                words = weights[row, 1 : 1 + n]
                texts.append(Tokens(unit(states[row, 1 : 1 + n]), words, words if idf else None, padded=n < width))
            sides.append(texts)
        scores = np.array([match(*pair) for pair in zip(*sides, strict=True)])
        for place, name in enumerate("PRF"):
            expected = numbers[f"{case}__{name}{'_idf' if idf else ''}"]
            np.testing.assert_allclose(scores[:, place], expected, atol=1e-5, err_msg=f"{case} {name}")
            checked += len(expected)
    assert checked >= 24
