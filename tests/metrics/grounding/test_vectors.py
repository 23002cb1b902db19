"""The NumPy core of TIGEr and REO against the original's numbers, against plain loops, and at its edges."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.records import FloatArray
from capbench.metrics.grounding import grounding as core
from capbench.metrics.grounding.grounding import Attention

RNG = np.random.default_rng(7)


def unit(*shape: int) -> FloatArray:
    found = RNG.normal(size=shape)
    return np.asarray(found / np.linalg.norm(found, axis=-1, keepdims=True))


def named(statistics: FloatArray) -> dict[str, float]:
    return dict(zip(core.STATISTICS, statistics.tolist(), strict=True))


def one(candidate: FloatArray, reference: FloatArray) -> dict[str, float]:
    return named(core.compare(candidate[None], reference[None], np.array([1]))[0])


def read(folder: Path, arrays: str, facts: str) -> tuple[Any, dict[str, Any]]:
    return np.load(folder / "tiger" / arrays), json.loads((folder / "tiger" / facts).read_text(encoding="utf-8"))


@pytest.mark.real_data
def test_scores_equal_the_originals(parity: Path) -> None:
    arrays, expected = read(parity, "scoring_cases.npz", "scoring_expected.json")
    assert expected
    for name, wanted in expected.items():
        references = arrays[f"{name}__refs"].mean(axis=0)
        assert references == pytest.approx(arrays[f"{name}__mean_ref"], abs=1e-15)
        found = one(arrays[f"{name}__cand"], references)
        d_rel = float(core.d_rel(*(np.array(found[f"norm_{side}_released"]) for side in ("reference", "candidate"))))
        assert found["kl"] == pytest.approx(wanted["kl"], abs=1e-10), name
        assert d_rel == pytest.approx(wanted["d_rel"], abs=1e-10), name
        distance = np.array(found["kl"] + d_rel)
        assert float(core.wds(distance, 1.5)) == pytest.approx(wanted["wds"], abs=1e-10), name
        assert float(core.wds(distance, 1.0)) == pytest.approx(wanted["wds_tau1"], abs=1e-10), name
        if wanted["rrs"] is not None:
            assert found["rrs"] == pytest.approx(wanted["rrs"], abs=1e-10), name
            tiger = (found["rrs"] + float(core.wds(distance, 1.5))) / 2
            assert tiger == pytest.approx(wanted["tiger"], abs=1e-10), name
        else:
            assert 0 <= found["rrs"] <= 1, name


@pytest.mark.real_data
def test_grounding_vectors_equal_the_originals(parity: Path) -> None:
    arrays, facts = read(parity, "grounding_cases.npz", "grounding_meta.json")
    assert facts
    for name, meta in facts.items():
        own = f"{name}__V" in arrays
        regions, words = (arrays[f"{name if own else 'full'}__{letter}"].astype(np.float64) for letter in ("V", "W"))
        attention = Attention(smoothing=meta["lambda_softmax"], norm=meta["raw_feature_norm"])
        padded = core.pad([words[: meta["n_words"]], words[:1]], attention)
        weights, _ = core.attend(regions, padded, attention)
        tolerance = 1e-10 if meta["dtype"] == "torch.float64" else 1e-6
        if f"{name}__attn" in arrays:
            assert weights[0] == pytest.approx(arrays[f"{name}__attn"][: meta["n_words"]], abs=tolerance), name
        if f"{name}__context" in arrays:
            assert core.contexts(weights, padded)[0] == pytest.approx(arrays[f"{name}__context"], abs=tolerance), name
        found = core.grounding(regions, padded, attention)[0]
        assert found == pytest.approx(arrays[f"{name}__grounding"], abs=tolerance), name


def slow_grounding(regions: FloatArray, words: FloatArray, attention: Attention) -> tuple[FloatArray, FloatArray]:
    """Region by region and word by word, as the papers' equations stand."""
    n, m = len(regions), len(words)
    product = [[float(w @ v) for v in regions] for w in words]
    similar = [row[:] for row in product]
    if attention.norm.startswith("clipped"):
        slope = 0.1 if attention.clip == "leaky" else 0.0
        similar = [[x if x > 0 else slope * x for x in row] for row in similar]
    if attention.norm.endswith("l2norm"):
        similar = [[x / (math.sqrt(sum(y * y for y in row)) + 1e-8) for x in row] for row in similar]
    if attention.norm == "softmax":
        similar = [[math.exp(x) / sum(math.exp(y) for y in row) for x in row] for row in similar]
    found, context = np.empty(n), np.empty_like(regions)
    for i in range(n):
        raised = [math.exp(attention.smoothing * similar[j][i]) for j in range(m)]
        context[i] = sum(raised[j] / sum(raised) * words[j] for j in range(m))
        found[i] = regions[i] @ context[i] / max(np.linalg.norm(regions[i]) * np.linalg.norm(context[i]), 1e-8)
    return found, context


@pytest.mark.parametrize("norm", core.NORMS)
@pytest.mark.parametrize("clip", core.CLIPS)
def test_many_captions_at_once_equal_the_equations_one_by_one(norm: str, clip: str) -> None:
    attention = Attention(smoothing=5.0, norm=norm, clip=clip)
    regions = 3 * unit(6, 8)
    captions = [unit(m, 8) for m in (4, 1, 7, 2)]
    words = core.pad(captions, attention)
    weights, _ = core.attend(regions, words, attention)
    found, context = core.grounding(regions, words, attention), core.contexts(weights, words)
    for k, caption in enumerate(captions):
        wanted, wanted_context = slow_grounding(regions, caption, attention)
        assert found[k] == pytest.approx(wanted, abs=1e-13)
        assert context[k] == pytest.approx(wanted_context, abs=1e-13)
    assert weights.sum(axis=1) == pytest.approx(np.ones((4, 6)), abs=1e-13)


def test_a_captions_numbers_do_not_depend_on_what_it_is_padded_with() -> None:
    regions, attention = unit(5, 8), Attention()
    short, long = unit(3, 8), unit(11, 8)
    together = core.grounding(regions, core.pad([short, long], attention), attention)
    alone = core.grounding(regions, core.pad([short], attention), attention)
    assert together[0] == pytest.approx(alone[0], abs=1e-14)


@pytest.mark.parametrize("length", [core.LONG, core.LONG + 1, 3 * core.LONG])
def test_long_captions_have_the_same_numbers_by_their_contexts(length: int) -> None:
    attention = Attention(smoothing=4.0)
    regions = 2 * unit(3, 8)
    captions = [unit(length, 8), unit(2, 8)]
    words = core.pad(captions, attention)
    assert words.long is (length > core.LONG)
    found = core.grounding(regions, words, attention)
    for k, caption in enumerate(captions):
        assert found[k] == pytest.approx(slow_grounding(regions, caption, attention)[0], abs=1e-13)
    assert ("gram" in vars(words)) is not words.long  # of 10,000 words it would take 800 MB


def test_long_captions_are_worked_on_with_fewer_others() -> None:
    def parts(lengths: list[int]) -> list[list[int]]:
        return [lengths[part] for part in core.portions(lengths)]

    assert parts([]) == []
    assert parts([12] * 130) == [[12] * 64, [12] * 64, [12, 12]]
    assert parts([5, 100_000, 5, 5]) == [[5], [100_000], [5, 5]]
    mixed = np.random.default_rng(0).integers(1, 5000, size=300).tolist()
    assert [length for part in parts(mixed) for length in part] == mixed
    assert all(len(part) == 1 or len(part) * max(part) <= 64 * core.LONG for part in parts(mixed))


def test_start_and_end_can_be_left_out() -> None:
    regions, caption = unit(5, 8), unit(6, 8)
    without = Attention(count_ends=False)
    found = core.grounding(regions, core.pad([caption], without), without)
    inner = core.grounding(regions, core.pad([caption[1:-1]], Attention()), Attention())
    assert np.array_equal(found, inner)
    empty = core.grounding(regions, core.pad([caption[:2], caption], without), without)
    assert np.array_equal(empty[0], np.zeros(5))
    assert np.array_equal(core.grounding(regions, core.pad([caption[:2]], without), without), np.zeros((1, 5)))


def test_zero_vectors_have_grounding_zero() -> None:
    regions = unit(4, 8)
    regions[2] = 0
    found = core.grounding(regions, core.pad([unit(5, 8), np.zeros((3, 8))], Attention()), Attention())
    assert found[0, 2] == 0
    assert np.array_equal(found[1], np.zeros(4))
    assert np.isfinite(found).all()


def test_ties_keep_the_order_of_the_regions() -> None:
    reference = np.array([[0.1, 0.9, 0.5, 0.3]])
    tied = np.array([[0.4, 0.4, 0.4, 0.1]])
    gains = (reference[0] - 0.1) / 0.8
    discounts = 1 / np.log2(np.arange(2, 6))
    wanted = (gains[[0, 1, 2, 3]] @ discounts) / (np.sort(gains)[::-1] @ discounts)
    assert core.rank_similarity(tied, reference, min_max=True)[0] == pytest.approx(wanted, abs=1e-15)


def test_a_constant_reference_vector_makes_every_order_ideal() -> None:
    candidates = np.stack([unit(6), np.zeros(6)])
    for value in (0.0, 0.4, -0.2):
        for min_max in (True, False):
            found = core.rank_similarity(candidates, np.full((2, 6), value), min_max=min_max)
            assert np.array_equal(found, [1.0, 1.0])
    assert np.array_equal(core.rank_similarity(np.array([[0.3]]), np.array([[0.7]]), min_max=True), [1.0])


def test_a_constant_candidate_gets_the_mean_over_all_orders() -> None:
    from itertools import permutations

    reference = RNG.normal(size=5)
    each = [
        core.rank_similarity(-np.array([order], dtype=np.float64), reference[None], min_max=True)[0]
        for order in permutations(range(5))
    ]
    for value in (0.0, 0.3):
        found = core.rank_similarity(np.full((1, 5), value), reference[None], min_max=True)[0]
        assert found == pytest.approx(np.mean(each), abs=1e-12)
    nearly = np.full((1, 5), 0.3)
    nearly[0, 3] += 1e-16
    assert core.rank_similarity(nearly, reference[None], min_max=True)[0] == pytest.approx(np.mean(each), abs=1e-12)


def test_plain_gains_without_an_ideal_above_zero_give_zero() -> None:
    candidate, reference = unit(1, 4), np.array([[-0.1, -0.2, -0.3, -0.4]])
    assert core.rank_similarity(candidate, reference, min_max=False)[0] == 0
    assert 0 < core.rank_similarity(candidate, reference, min_max=True)[0] <= 1


def test_an_identical_candidate_has_rrs_1_and_wds_one_half() -> None:
    vector = unit(9)
    found = one(vector, vector)
    assert found["rrs"] == 1.0
    assert found["kl"] == 0.0
    for mapping in core.D_RELS:
        assert found[f"norm_reference_{mapping}"] == found[f"norm_candidate_{mapping}"]


def test_d_rel_is_zero_where_a_norm_is() -> None:
    norms = np.array([0.0, 1.0, 0.0, 2.0])
    found = core.d_rel(norms, np.array([1.0, 0.0, 0.0, 1.0]))
    assert found == pytest.approx([0, 0, 0, math.log(2)], abs=1e-15)


def test_the_mappings_of_d_rel() -> None:
    values = np.array([-0.5, 0.0, 0.8])
    found = one(values, values)
    assert found["norm_candidate_released"] == pytest.approx(math.sqrt(0.25 + 0.64))
    assert found["norm_candidate_half"] == pytest.approx(math.sqrt(0.0625 + 0.25 + 0.81))
    assert found["norm_candidate_clip"] == pytest.approx(0.8)
    assert found["grounding"] == pytest.approx(0.1)


def test_without_references_only_the_candidates_own_numbers_are_given() -> None:
    candidate = unit(1, 4)
    found = named(core.compare(candidate, np.zeros((1, 4)), np.array([0]))[0])
    assert found["references"] == 0
    assert found["rrs"] == found["kl"] == found["norm_reference_half"] == 0
    assert found["grounding"] == pytest.approx(candidate.mean())


def test_wds_does_not_overflow() -> None:
    assert core.wds(np.array([-1e9, 0.0, 1e9]), 1.5) == pytest.approx([1.0, 0.5, 0.0], abs=0)


def test_with_the_identity_extraness_and_omission_are_projections() -> None:
    a, g = RNG.normal(size=(7, 5)), RNG.normal(size=(7, 5))
    dots = (a * g).sum(axis=1)
    norms = np.linalg.norm(a, axis=1), np.linalg.norm(g, axis=1)
    relevance, extraness, omission = core.extraness_omission(dots, norms, norms)
    assert relevance == pytest.approx(dots / norms[0] / norms[1], abs=1e-14)
    assert extraness == pytest.approx(np.abs(dots) / norms[1], abs=1e-14)
    assert omission == pytest.approx(np.abs(dots) / norms[0], abs=1e-14)


def test_extraness_and_omission_are_the_papers_mahalanobis_distances() -> None:
    a, g = RNG.normal(size=(7, 5)), RNG.normal(size=(7, 5))
    root = RNG.normal(size=(5, 5))
    precision = np.linalg.inv(root @ root.T + np.eye(5))

    def length(x: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(np.einsum("id,de,ie->i", x, precision, x)))

    dots = (a * g).sum(axis=1)
    norms = np.linalg.norm(a, axis=1), np.linalg.norm(g, axis=1)
    _, extraness, omission = core.extraness_omission(dots, norms, (length(a), length(g)))
    a_rest = a - (dots / norms[1] ** 2)[:, None] * g  # eq. 5
    g_rest = g - (dots / norms[0] ** 2)[:, None] * a  # eq. 8
    assert extraness == pytest.approx(length(a - a_rest), abs=1e-12)
    assert omission == pytest.approx(length(g - g_rest), abs=1e-12)


def test_zero_contexts_have_no_relevance_extraness_or_omission() -> None:
    zero = np.zeros(2)
    for norms in ((zero, zero + 2), (zero + 2, zero), (zero, zero)):
        for values in core.extraness_omission(zero, norms, norms):
            assert np.array_equal(values, zero)


@pytest.mark.parametrize("count_ends", [True, False])
def test_grounding_and_statistics_are_bitwise_those_of_a_caption_on_its_own(count_ends: bool) -> None:
    attention = Attention(count_ends=count_ends)
    regions = unit(36, 1024)
    lengths = sorted(RNG.integers(2, 31, size=90).tolist())
    captions = [unit(length, 1024) for length in lengths]
    together = np.concatenate(
        [
            core.grounding(regions, core.pad(captions[part], attention), attention)
            for part in core.portions(lengths, alike=True)
        ]
    )
    alone = [core.grounding(regions, core.pad([caption], attention), attention)[0] for caption in captions]
    assert np.array_equal(together, alone)
    references, counts = np.roll(together, 1, axis=0), np.ones(len(together), dtype=np.int64)
    found = core.compare(together, references, counts)
    rows = [core.compare(together[i : i + 1], references[i : i + 1], counts[:1])[0] for i in range(len(together))]
    assert np.array_equal(found, rows)
    assert len(set(found[:, core.STATISTICS.index("rrs")].tolist())) > 80
