"""Paired tests between systems: plain loops, all permutations of a small case, sacrebleu, and simulated data sets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from capbench.core.arguments import SystemTest
from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Item
from capbench.metrics.ngram import Bleu
from capbench.stats.resampling import Bootstrap, Swaps
from capbench.stats.systems import (
    CorpusGroup,
    RowScores,
    SumScores,
    SystemTable,
    compare_corpora,
    corpus_intervals,
    resamples_to_use,
    system_pairs,
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
        (_group(systems),), _estimates(systems), units, test=test, resamples=resamples, seed=seed, correction="none"
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


def test_rows_give_what_sums_give() -> None:
    rng = np.random.default_rng(2)
    unit = np.arange(20, dtype=np.int64)
    systems = {"a": _counts(rng, 20), "b": _counts(rng, 20)}
    rows = {
        name: RowScores(terms, unit, lambda drawn: _ratio(drawn.sum(axis=0, keepdims=True))[0])
        for name, terms in systems.items()
    }
    tables = [
        compare_corpora((group,), _estimates(systems), 20, test=test, resamples=120)
        for test in ("permutation", "bootstrap")
        for group in (_group(systems), CorpusGroup(("ratio", "mean"), rows))
    ]
    for by_sums, by_rows in (tables[:2], tables[2:]):
        for one, other in zip(by_sums.pairs, by_rows.pairs, strict=True):
            assert (one.p_value, one.p_adjusted) == (other.p_value, other.p_adjusted)
            assert (one.difference, one.low, one.high) == pytest.approx(
                (other.difference, other.low, other.high), abs=1e-12
            )


def test_images_with_several_captions_are_drawn_whole() -> None:
    rng = np.random.default_rng(3)
    rows, unit = _counts(rng, 30), np.sort(rng.integers(0, 12, 30)).astype(np.int64)
    of_items = SumScores.of_items(rows, unit, 12, _ratio)
    by_rows = RowScores(rows, unit, lambda drawn: _ratio(drawn.sum(axis=0, keepdims=True))[0])
    weights = Bootstrap(12, 100, 0).block(0)
    assert of_items.drawn(weights) == pytest.approx(by_rows.drawn(weights), abs=1e-12)


def test_comparisons_are_corrected_together_and_drawn_for() -> None:
    rng = np.random.default_rng(4)
    systems = {name: _counts(rng, 40) for name in "abcd"}
    table = compare_corpora((_group(systems),), _estimates(systems), 40, all_pairs=True, resamples=100)
    assert len(table.pairs) == 2 * 6
    assert (table.resamples, table.permutations) == (100, 2 * (12 * 20 - 1))
    ordered = sorted(table.pairs, key=lambda pair: pair.p_value)
    assert ordered[0].p_adjusted == min(1.0, 12 * ordered[0].p_value)
    assert system_pairs("abc") == [("b", "a"), ("c", "a")]
    assert system_pairs("abc", all_pairs=True) == [("b", "a"), ("c", "a"), ("c", "b")]
    assert resamples_to_use(None, "permutation", 2) == (1_000, 10_000)
    assert resamples_to_use(None, "bootstrap", 2) == (1_000, 1_000)
    assert resamples_to_use(100, "bootstrap", 12) == (478, 478)
    assert resamples_to_use(100, "permutation", 12, correction="none") == (100, 100)
    assert resamples_to_use(0, "permutation", 2)[0] == 0  # refused when resampling, not replaced by the default


def test_invalid_comparisons_are_rejected() -> None:
    systems = {"a": _counts(np.random.default_rng(0), 5), "b": _counts(np.random.default_rng(1), 5)}
    group, estimates = _group(systems), _estimates(systems)
    with raises(StatisticError, "too-few", value=1):
        compare_corpora((_group({"a": systems["a"]}),), estimates, 5)
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
