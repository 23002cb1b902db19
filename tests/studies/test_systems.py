"""Systems compared by corpus scores: against scoring the resampled captions anew, and for metrics of every kind."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from capbench.core.errors import MetricError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.datasets.user.captions import SystemCaptions, read_systems
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.ngram import Bleu
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import CorpusStatistics, score
from capbench.stats.intervals import Interval
from capbench.stats.resampling import Bootstrap, Swaps
from capbench.stats.systems import SystemTests
from capbench.studies.systems import compare_systems, intervals_of_corpus
from tests.errors import raises
from tests.metrics.captions import invented
from tests.studies.toys import known

_WORDS = ["a", "the", "red", "small", "dog", "cat", "man", "house", "runs", "sits", "on", "near", "with", "two"]


class Median(Metric):
    """A corpus score that is no function of sums: the median length."""

    name: ClassVar[str] = "median-length"
    columns: ClassVar[tuple[str, ...]] = ("median-length",)
    titles: ClassVar[Mapping[str, str]] = {"median-length": "Median length"}
    citation: ClassVar[str] = "a test"

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        return np.array([[float(len(item.candidate))] for item in items])

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        return {"median-length": float(np.median(statistics))}


class HalfBleu(Bleu):
    """It inherits sums that do not give its own corpus score."""

    name: ClassVar[str] = "half-bleu"

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        return {column: value / 2 for column, value in super().corpus_scores(statistics).items()}


@pytest.fixture
def captions(tmp_path: Path) -> SystemCaptions:
    generator = random.Random(4)
    references, systems = {}, {"base": [], "new": []}  # type: ignore[var-annotated]
    for number in range(14):
        meant = generator.choices(_WORDS, k=generator.randint(5, 11))

        def said(share: float, meant: list[str] = meant) -> str:
            return " ".join(generator.choice(_WORDS) if generator.random() < share else word for word in meant)

        references[f"i{number}"] = [said(0.2) for _ in range(3)]
        for name, share in (("base", 0.4), ("new", 0.25)):
            systems[name].append({"image_id": f"i{number}", "caption": said(share)})
    generator.shuffle(systems["new"])
    for name, rows in {**systems, "references": references}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
    return read_systems({name: tmp_path / f"{name}.json" for name in systems}, tmp_path / "references.json")


def _by_image(captions: SystemCaptions) -> dict[str, list[Item]]:
    """Items of each system in the order of the images' names, in which images are drawn."""
    return {name: sorted(items, key=lambda item: item.image) for name, items in captions.items.items()}


def _pycocoevalcap(metric: str, items: Sequence[Item]) -> float:
    """A corpus score of captions by the reference implementation; the captions are tokens already."""
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer
    from pycocoevalcap.rouge.rouge import Rouge

    if metric == "bleu-4":
        scorer = BleuScorer(n=4)
        for item in items:
            scorer += (item.candidate, list(item.references))
        return float(scorer.compute_score(option="closest")[0][3])
    rouge = Rouge()
    return float(np.mean([rouge.calc_score([item.candidate], list(item.references)) for item in items]))


@pytest.mark.parametrize("test", ["permutation", "bootstrap"])
def test_scoring_resampled_captions_anew_gives_the_same_numbers(test: str, captions: SystemCaptions) -> None:
    found = compare_systems(
        captions,
        resolve_metrics(["bleu-4", "rouge-l"]),
        SystemTests(test=test, resamples=100, seed=3, correction="none"),  # type: ignore[arg-type]
        cache=False,
    ).table
    base, new = _by_image(captions).values()
    for metric in ("bleu-4", "rouge-l"):
        (pair,) = [pair for pair in found.pairs if pair.score == metric]
        observed = _pycocoevalcap(metric, new) - _pycocoevalcap(metric, base)
        values: dict[str, list[float]] = {"base": [], "new": []}
        for index in (0, 1):
            for weights in Bootstrap(14, 100, 3).block(index).tolist():
                for name, items in (("base", base), ("new", new)):
                    drawn = [item for item, times in zip(items, weights, strict=True) for _ in range(times)]
                    values[name].append(_pycocoevalcap(metric, drawn))
        differences = [y - x for x, y in zip(values["base"], values["new"], strict=True)]
        if test == "bootstrap":
            extreme = sum(abs(difference - observed) >= abs(observed) for difference in differences)
        else:
            extreme = 0
            for index in (0, 1):
                for coins in Swaps(14, 100, 3).block(index).tolist():
                    first = [y if coin else x for coin, x, y in zip(coins, base, new, strict=True)]
                    second = [x if coin else y for coin, x, y in zip(coins, base, new, strict=True)]
                    gap = _pycocoevalcap(metric, second) - _pycocoevalcap(metric, first)
                    extreme += abs(gap) >= abs(observed) - 1e-12
        assert pair.difference == pytest.approx(observed, abs=1e-9)
        assert pair.p_value == (1 + extreme) / 101
        assert (pair.low, pair.high) == pytest.approx(np.quantile(differences, (0.025, 0.975)), abs=1e-9)


def test_a_system_scores_what_it_scores_alone_and_keeps_its_interval(captions: SystemCaptions) -> None:
    requests = resolve_metrics(["bleu", "rouge-l", "meteor", "cider"])
    found = compare_systems(captions, requests, SystemTests(resamples=100), cache=False)
    kept: dict[str, CorpusStatistics] = {}
    alone = score(captions.items["new"], requests, dataset="new", cache=False, statistics_of=kept)
    intervals = intervals_of_corpus(alone, kept, requests, resamples=100)
    for request in requests:
        for row in request.rows:
            assert found.table.intervals[row.name]["new"].value == alone.corpus[row.key]
            assert found.table.intervals[row.name]["new"] == intervals[row.key]
    assert found.fixed == {"cider": kept["cider"].metric.corpus_id()}
    assert found.signatures == dict(alone.signatures)


def test_ids_of_one_photograph_are_resampled_together() -> None:
    items = invented(12)
    pairs = [f"10071298{place // 2:02}{'_e794419615' if place % 2 else ''}" for place in range(len(items))]
    requests = resolve_metrics(["bleu-1", "rouge-l"])

    def intervals(names: list[str]) -> list[Interval]:
        renamed = tuple(replace(item, image=name) for item, name in zip(items, names, strict=True))
        kept: dict[str, CorpusStatistics] = {}
        table = score(renamed, requests, dataset="new", cache=False, statistics_of=kept)
        return list(intervals_of_corpus(table, kept, requests, resamples=100).values())

    assert intervals(pairs) == intervals([name.partition("_")[0] for name in pairs])


@pytest.mark.parametrize("metric", [Median, HalfBleu])
def test_a_corpus_score_that_is_not_of_sums_is_refused(metric: type[Metric], captions: SystemCaptions) -> None:
    request = MetricRequest(metric, metric.columns[-1:])
    with raises(MetricError, "unsupported", value=metric.name):
        compare_systems(captions, [request], SystemTests(resamples=100), cache=False)


@pytest.mark.parametrize("name", ["bleu", "rouge-l", "meteor", "cider"])
def test_sums_give_the_corpus_score_of_any_captions(name: str) -> None:
    items = invented(60)
    (request,) = resolve_metrics([name])
    kept: dict[str, CorpusStatistics] = {}
    score(items, [request], dataset="invented", cache=False, statistics_of=kept)
    metric, rows = kept[name].metric, kept[name].rows
    terms = known(metric.corpus_terms(rows))
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, len(items), size) for size in (1, 7, len(items), 500)]
    of_sums = metric.corpus_of_sums(np.stack([terms[places].sum(axis=0) for places in drawn]))
    for column in metric.columns:
        plain = [metric.corpus_scores(rows[places])[column] for places in drawn]
        assert of_sums[column] == pytest.approx(plain, rel=1e-12, abs=1e-12)
