"""Tests between systems and agreement over them: plain loops, all permutations of a small case, sacrebleu, scipy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
import scipy.stats

from capbench.core.arguments import SystemTest
from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray, Item, SystemCoefficient
from capbench.metrics.ngram import Bleu
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.resampling import Bootstrap, Swaps, mean_statistic, observed_value
from capbench.stats.significance import compare
from capbench.stats.system_agreement import PERMUTATIONS, PairPermutations, Systems
from capbench.stats.systems import (
    CorpusGroup,
    SumScores,
    SystemTable,
    SystemTests,
    compare_corpora,
    corpus_intervals,
)
from tests.errors import raises


def _ratio(sums: FloatArray) -> FloatArray:
    """Two scores of (r, 3) sums: a ratio of the first two, and a mean."""
    return np.column_stack([sums[:, 0] / (sums[:, 1] + 1e-9), sums[:, 0] / sums[:, 2]])


def _plain(rows: list[list[float]]) -> tuple[float, float]:
    """The same of a list of rows, without numpy."""
    hits, guesses = math.fsum(row[0] for row in rows), math.fsum(row[1] for row in rows)
    return hits / (guesses + 1e-9), hits / len(rows)


def _counts(rng: np.random.Generator, units: int, share: float = 0.4) -> FloatArray:
    guesses = rng.integers(1, 12, units)
    return np.column_stack([rng.binomial(guesses, share), guesses, np.ones(units)]).astype(np.float64)


def _group(systems: dict[str, FloatArray]) -> CorpusGroup:
    return CorpusGroup(("ratio", "mean"), {name: SumScores(terms, _ratio) for name, terms in systems.items()})


def _estimates(systems: dict[str, FloatArray]) -> dict[str, dict[str, float]]:
    plain = {name: _plain(terms.tolist()) for name, terms in systems.items()}
    return {score: {name: values[i] for name, values in plain.items()} for i, score in enumerate(("ratio", "mean"))}


def _compare(systems: dict[str, FloatArray], test: SystemTest, resamples: int, seed: int = 0) -> SystemTable:
    (units,) = {len(terms) for terms in systems.values()}
    return compare_corpora(
        (_group(systems),),
        _estimates(systems),
        units,
        SystemTests(test=test, resamples=resamples, seed=seed, correction="none"),
    )


def _all_draws(draws: Bootstrap | Swaps) -> list[list[int]]:
    return [row for index in range(-(-draws.count // 64)) for row in draws.block(index).tolist()]


@pytest.mark.parametrize("test", ["permutation", "bootstrap"])
def test_plain_loops_over_images_give_the_same_numbers(test: SystemTest) -> None:
    rng = np.random.default_rng(5)
    systems = {"a": _counts(rng, 23), "b": _counts(rng, 23, 0.5)}
    table = _compare(systems, test, 150, seed=9)
    a, b = systems["a"].tolist(), systems["b"].tolist()
    for column, score in enumerate(("ratio", "mean")):
        (pair,) = [pair for pair in table.pairs if pair.score == score]
        observed = _plain(b)[column] - _plain(a)[column]
        drawn_a, drawn_b = [], []
        for weights in _all_draws(Bootstrap(23, 150, 9)):
            chosen = [image for image, times in enumerate(weights) for _ in range(times)]
            drawn_a.append(_plain([a[image] for image in chosen])[column])
            drawn_b.append(_plain([b[image] for image in chosen])[column])
        differences = [of_b - of_a for of_a, of_b in zip(drawn_a, drawn_b, strict=True)]
        if test == "bootstrap":
            extreme = sum(abs(difference - observed) >= abs(observed) for difference in differences)
        else:
            extreme = 0
            for coins in _all_draws(Swaps(23, 150, 9)):
                first = [y if coin else x for coin, x, y in zip(coins, a, b, strict=True)]
                second = [x if coin else y for coin, x, y in zip(coins, a, b, strict=True)]
                extreme += abs(_plain(second)[column] - _plain(first)[column]) >= abs(observed) - 1e-12
        assert pair.difference == pytest.approx(observed, abs=1e-12)
        assert pair.p_value == (1 + extreme) / 151
        assert (pair.low, pair.high) == pytest.approx(np.quantile(differences, (0.025, 0.975)), abs=1e-12)
        for name, values in (("a", drawn_a), ("b", drawn_b)):
            interval = table.intervals[score][name]
            assert (interval.low, interval.high) == pytest.approx(np.quantile(values, (0.025, 0.975)), abs=1e-12)
            assert interval.value == pytest.approx(_plain(systems[name].tolist())[column], abs=1e-12)


def test_images_with_several_captions_are_drawn_whole() -> None:
    rng = np.random.default_rng(3)
    rows, unit = _counts(rng, 30), np.sort(rng.integers(0, 12, 30)).astype(np.int64)
    of_items = SumScores.of_items(rows, unit, 12, _ratio)
    weights = Bootstrap(12, 100, 0).block(0)
    drawn = [np.repeat(rows, counts[unit], axis=0).sum(axis=0, keepdims=True) for counts in weights]
    assert of_items.drawn(weights) == pytest.approx(np.concatenate([_ratio(sums) for sums in drawn]), abs=1e-12)


def test_comparisons_are_corrected_together_and_drawn_for() -> None:
    rng = np.random.default_rng(4)
    systems = {name: _counts(rng, 40) for name in "abcd"}
    every = SystemTests(all_pairs=True, resamples=100)
    table = compare_corpora((_group(systems),), _estimates(systems), 40, every)
    assert len(table.pairs) == 2 * 6
    assert (table.resamples, table.permutations) == (100, 2 * (12 * 20 - 1))
    ordered = sorted(table.pairs, key=lambda pair: pair.p_value)
    assert ordered[0].p_adjusted == min(1.0, 12 * ordered[0].p_value)
    assert SystemTests().pairs("abc") == [("b", "a"), ("c", "a")]
    assert every.pairs("abc") == [("b", "a"), ("c", "a"), ("c", "b")]
    assert SystemTests().draws(2) == (1_000, 10_000)
    assert SystemTests(test="bootstrap").draws(2) == (1_000, 1_000)
    assert SystemTests(test="bootstrap", resamples=100).draws(12) == (478, 478)
    assert SystemTests(resamples=100, correction="none").draws(12) == (100, 100)
    assert SystemTests(resamples=0).draws(2)[0] == 0  # refused when resampling, not replaced by the default


def test_invalid_comparisons_are_rejected() -> None:
    systems = {"a": _counts(np.random.default_rng(0), 5), "b": _counts(np.random.default_rng(1), 5)}
    group, estimates = _group(systems), _estimates(systems)
    with raises(StatisticError, "too-few", value=1):
        corpus_intervals((group,), estimates, Bootstrap(1, 100, 0))
    undefined = CorpusGroup(("x",), {"a": SumScores(systems["a"], lambda sums: np.full((len(sums), 1), np.nan))})
    with raises(StatisticError, "undefined", value="x"):
        corpus_intervals((undefined,), {"x": {"a": 0.0}}, Bootstrap(5, 100, 0))


def _sentences(rng: np.random.Generator, number: int) -> tuple[list[str], list[str], list[list[str]]]:
    """Captions of two systems and three references of each image, in tokens that no tokeniser changes."""
    words = ["a", "the", "dog", "cat", "man", "runs", "sits", "on", "under", "near", "grass", "house", "red", "two"]
    references, first, second = [], [], []
    for _ in range(number):
        meant = rng.choice(words, rng.integers(6, 13)).tolist()

        def said(share: float, meant: list[str] = meant) -> str:
            return " ".join(str(rng.choice(words)) if rng.random() < share else word for word in meant)

        references.append([said(0.2) for _ in range(3)])
        first.append(said(0.35))
        second.append(said(0.31))
    return first, second, references


@pytest.mark.parametrize("kind", ["bs", "ar"])
def test_sacrebleu_draws_the_same_conclusions_from_the_same_draws(kind: str) -> None:
    pytest.importorskip("sacrebleu")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    n, draws = 60, 200
    first, second, references = _sentences(np.random.default_rng(6), n)
    streams = [list(stream) for stream in zip(*references, strict=True)]
    peer = BLEU(tokenize="none", references=streams)
    paired = PairedTest([("a", first), ("b", second)], {"BLEU": peer}, None, kind, draws, 100, 1)
    baseline, other = paired()[1]["BLEU"]
    assert not isinstance(baseline, str)
    assert not isinstance(other, str)

    metric = Bleu()
    statistics = {}
    for name, captions in (("a", first), ("b", second)):
        items = [Item(f"i{i}", text, tuple(references[i])) for i, text in enumerate(captions)]
        statistics[name] = metric.statistics(items, lambda _: None)
        score = (baseline if name == "a" else other).score
        assert 100 * metric.corpus_scores(statistics[name])["bleu-4"] == pytest.approx(score, abs=1e-5)
    systems = {
        name: SumScores(terms, lambda sums: metric.corpus_of_sums(sums)["bleu-4"][:, None])
        for name, terms in statistics.items()
    }
    rng = np.random.default_rng(12345)  # sacrebleu's own draws
    observed = (other.score - baseline.score) / 100
    if kind == "ar":
        swaps = rng.integers(2, size=(draws, n), dtype=bool).astype(np.int64)
        b, a = systems["b"].swapped(systems["a"], swaps)
        differences = b - a
        assert other.p_value == (1 + np.count_nonzero(np.abs(differences) > abs(observed) + 1e-9)) / (draws + 1)
        return
    places = rng.choice(n, size=(draws, n), replace=True)
    weights = np.stack([np.bincount(row, minlength=n) for row in places])
    values = {name: scores.drawn(weights)[:, 0] for name, scores in systems.items()}
    ends = [np.sort(100 * values["b"])[place] for place in (draws // 40, draws - draws // 40 - 1)]
    assert other.ci == pytest.approx((ends[1] - ends[0]) / 2, abs=1e-4)
    # There the differences' absolute values are centred at their mean, and one side of them is counted.
    sizes = np.abs(values["b"] - values["a"])
    assert other.p_value == (1 + np.count_nonzero(sizes - sizes.mean() > abs(observed))) / (draws + 1)


COEFFICIENTS = get_args(SystemCoefficient)

Long = tuple[FloatArray, FloatArray, list[str], list[int]]


def exact_p(first: FloatArray, second: FloatArray) -> float:
    """One-sided p-value over all 2^n ways in which two systems' values can change places."""
    observed = float(np.sum(first - second))
    as_large = 0
    for swaps in itertools.product((False, True), repeat=len(first)):
        total = sum((b - a) if swap else (a - b) for a, b, swap in zip(first, second, swaps, strict=True))
        as_large += total >= observed - 1e-9
    return float(as_large / 2 ** len(first))


def plainly(coefficient: str, x: FloatArray, y: FloatArray) -> float:
    """(systems, images) scores and ratings, pair of systems after pair."""
    mean_x, mean_y = x.mean(axis=1), y.mean(axis=1)
    if coefficient == "pearson":
        return float(scipy.stats.pearsonr(mean_x, mean_y).statistic)
    if coefficient == "tau-b":
        return float(scipy.stats.kendalltau(mean_x, mean_y).statistic)
    pairs = list(itertools.combinations(range(len(x)), 2))
    if coefficient == "accuracy":
        return float(np.mean([np.sign(mean_x[i] - mean_x[j]) == np.sign(mean_y[i] - mean_y[j]) for i, j in pairs]))
    distances = [abs(exact_p(y[i], y[j]) - exact_p(x[i], x[j])) for i, j in pairs]
    return 1 - sum(distances) / len(pairs)


def long(x: FloatArray, y: FloatArray, seed: int = 0) -> Long:
    """A table as a list of captions in a random order."""
    systems, images = x.shape
    rows = [(x[s, i], y[s, i], f"system {s}", i) for s in range(systems) for i in range(images)]
    np.random.default_rng(seed).shuffle(rows)
    scores, human, names, image = zip(*rows, strict=True)
    return (
        np.array(scores, dtype=np.float64),
        np.array(human, dtype=np.float64),
        [str(name) for name in names],
        [int(i) for i in image],
    )


def value_of(
    coefficient: SystemCoefficient,
    scores: Sequence[float] | FloatArray,
    human: Sequence[float] | FloatArray,
    systems: list[str],
    images: list[int] | IntArray,
) -> float:
    return observed_value(
        Systems.of(coefficient, {"the scores": scores}, human, systems, images).statistic("the scores")
    )


def drawn(seed: int, systems: int = 5, images: int = 9) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(systems, 1))
    human = np.clip(np.round(3 + quality + rng.normal(size=(systems, images))), 1, 5)
    return human + rng.normal(scale=1.5, size=(systems, images)), human


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_values_are_those_of_the_formulas(coefficient: SystemCoefficient, seed: int) -> None:
    x, y = drawn(seed)
    captions = long(x, y, seed)
    # A thousand drawn permutations stand for all of them: within three standard deviations of a share a pair.
    room = 3 * (0.25 / 1000) ** 0.5 if coefficient == "soft-accuracy" else 1e-12
    assert value_of(coefficient, *captions) == pytest.approx(plainly(coefficient, x, y), abs=room)
    data = Systems.of(coefficient, {"the scores": captions[0]}, *captions[1:])
    assert data.scores["the scores"][0].mean(axis=1) == pytest.approx(x.mean(axis=1))
    assert data.human.mean(axis=1) == pytest.approx(y.mean(axis=1))
    assert (data.systems[1], data.units, data.shared) == ("system 1", 9, 9)


def paired_p_values(
    values: Sequence[Sequence[float] | FloatArray] | FloatArray, permutations: int = PERMUTATIONS, seed: int = 0
) -> FloatArray:
    """P-values of all pairs of rows, every image counted once."""
    table = np.asarray(values, dtype=np.float64)
    firsts, seconds = np.triu_indices(len(table), 1)
    shuffled = PairPermutations((table[firsts] - table[seconds]).T, permutations, seed)
    p_values: FloatArray = shuffled(np.ones((1, table.shape[1]), dtype=np.int32))[0]
    return p_values


@pytest.mark.parametrize("seed", range(3))
def test_paired_p_values_near_those_of_all_permutations(seed: int) -> None:
    _, y = drawn(seed, systems=4, images=8)
    got = paired_p_values(y, permutations=20_000, seed=seed)
    want = [exact_p(y[i], y[j]) for i, j in itertools.combinations(range(4), 2)]
    assert got == pytest.approx(want, abs=4 * (0.25 / 20_000) ** 0.5)


def test_systems_need_not_have_captions_of_the_same_images() -> None:
    rng = np.random.default_rng(3)
    rows = [(s, i) for s in range(4) for i in range(30) if (s + i) % 3 or i < 4] + [(0, 0), (2, 5)]
    system, image = (np.array(column) for column in zip(*rows, strict=True))
    human = rng.integers(1, 6, len(rows)).astype(np.float64)
    x = human + rng.normal(size=len(rows))
    names = [f"s{s}" for s in system]
    data = Systems.of("pearson", {"x": x}, human, names, image)
    means = [(x[system == s].mean(), human[system == s].mean()) for s in range(4)]
    pearson = scipy.stats.pearsonr(*np.array(means).T).statistic
    assert observed_value(data.statistic("x")) == pytest.approx(pearson)
    assert (data.units, data.shared) == (30, 4)
    # P-values are of the images that both systems have, by the mean of a system's captions of an image.
    soft = []
    for i, j in itertools.combinations(range(4), 2):
        both = [k for k in range(30) if all(((system == s) & (image == k)).any() for s in (i, j))]
        p = [
            paired_p_values([[side[(system == s) & (image == k)].mean() for k in both] for s in (i, j)])[0]
            for side in (human, x)
        ]
        soft.append(abs(p[0] - p[1]))
    room = 4 * (0.25 / 1000) ** 0.5  # other images get other signs
    assert value_of("soft-accuracy", x, human, names, image) == pytest.approx(1 - np.mean(soft), abs=room)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_a_resample_is_the_statistic_of_the_images_that_were_drawn(coefficient: SystemCoefficient) -> None:
    x, y = drawn(4, images=20)
    other = np.roll(x, 1, axis=1)
    scores, human, names, image = long(x, y)
    data = Systems.of(coefficient, {"a": np.stack([scores, long(other, y)[0]])}, human, names, image)
    weights = Bootstrap(20, 6, seed=1).block(0)
    for drawn_images, value in zip(weights, data.statistic("a")(weights), strict=True):
        places = np.repeat(np.arange(20), drawn_images)
        want = [value_of(coefficient, *long(side[:, places], y[:, places])) for side in (x, other)]
        assert value == pytest.approx(np.mean(want), abs=1e-12)


@pytest.mark.parametrize("coefficient", ["pearson", "tau-b", "accuracy"])
def test_metrics_that_change_places_on_some_images_give_the_statistic_of_mixed_z_scores(
    coefficient: SystemCoefficient,
) -> None:
    x, y = drawn(6, images=12)
    other = 100 * np.roll(x, 2, axis=1)
    scores, human, names, image = long(x, y)
    data = Systems.of(coefficient, {"a": scores, "b": long(other, y)[0]}, human, names, image)
    swaps = np.array([[0] * 12, [1] * 12, [1, 0, 0] * 4])
    got = mean_statistic(data.swaps("a", "b"))(swaps)
    za, zb = ((side - side.mean()) / side.std() for side in (x, other))
    for row, value in zip(swaps.astype(bool), got, strict=True):
        one, two = np.where(row, zb, za), np.where(row, za, zb)
        want = plainly(coefficient, one, y) - plainly(coefficient, two, y)
        assert value == pytest.approx(want, abs=1e-9)


def test_metrics_are_tested_and_soft_accuracy_by_the_bootstrap_alone() -> None:
    x, y = drawn(7, images=60)
    noise = np.random.default_rng(0).normal(size=x.shape)
    scores, human, names, image = long(x, y)
    metrics = {"good": scores, "noise": long(noise, y)[0]}
    table = compare(Systems.of("pearson", metrics, human, names, image))
    assert table.top[0] == "good"
    assert 0 < table.pairs[0].p_value <= 1
    soft = Systems.of("soft-accuracy", metrics, human, names, image)
    with raises(StatisticError, "unsupported", value="soft-accuracy"):
        compare(soft)
    sample = draw_bootstrap(soft, resamples=200)
    assert compare(soft, test="bootstrap", sample=sample).pairs[0].better == "good"
    interval = bootstrap_intervals(soft, sample)["good"]
    assert interval.low <= interval.value <= interval.high


@pytest.mark.parametrize(
    ("coefficient", "x", "systems", "images", "code", "value"),
    [
        ("pearson", [1, 2, 3, 4], "abab", [0, 0, 1, 1], "too-few", 2),
        ("accuracy", [1, 2], "aa", [0, 1], "too-few", 1),
        ("accuracy", [1, 2], ["a", ""], [0, 1], "missing-value", 1),
        ("accuracy", [1, 2], "ab", [0, 0], "too-few", 1),
        ("accuracy", [1, float("inf")], "ab", [0, 1], "not-a-number", "the scores"),
        ("soft-accuracy", [1, 2], "ab", [0, 1], "undefined", ("a", "b")),
        ("pearson", [2, 2, 2, 2, 2, 2], "abcabc", [0, 0, 0, 1, 1, 1], "undefined", "the scores"),
        ("accuracy", [], "", [], "too-few", 0),
    ],
)
def test_undefined_system_agreement_is_rejected(
    coefficient: SystemCoefficient, x: list[float], systems: list[str], images: list[int], code: str, value: object
) -> None:
    human = np.arange(min(len(x), len(systems)), dtype=np.float64)
    with raises(StatisticError, code, value=value):
        value_of(coefficient, x, human, list(systems), images)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_soft_accuracy_of_equally_good_systems_falls_with_the_noise_as_theory_says(noise: float) -> None:
    from scipy.special import ndtr

    rng, image, names = np.random.default_rng(0), np.tile(np.arange(100), 6), np.repeat(np.arange(6), 100).astype(str)
    values = []
    for _ in range(150):
        human = rng.normal(size=600)
        scores = human + noise * rng.normal(size=600)
        data = Systems.of("soft-accuracy", {"m": scores}, human, names.tolist(), image)
        values.append(observed_value(data.statistic("m")))
    # 1 - E|Φ(z₁) - Φ(z₂)|, z correlated by 1 / sqrt(1 + noise²).
    correlated = 1 / np.sqrt(1 + noise * noise)
    first, other = rng.normal(size=(2, 1_000_000))
    second = correlated * first + np.sqrt(1 - correlated**2) * other
    assert np.mean(values) == pytest.approx(1 - np.abs(ndtr(first) - ndtr(second)).mean(), abs=0.02)
