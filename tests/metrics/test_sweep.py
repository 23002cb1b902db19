from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from capbench.core.records import FloatArray, Item
from capbench.datasets.reference_draws import reference_orders
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.meteor import Meteor
from capbench.metrics.needs import Resources
from capbench.metrics.ngram import Bleu, Cider, RougeL, Spider
from capbench.metrics.spice import Spice
from tests.installed_parser import parsed
from tests.metrics.captions import invented
from tests.text.parsed_captions import CAPTIONS

COUNTS = (1, 2, 3, 5, 9)  # 9: more than any item has


def _sweep(items: tuple[Item, ...], draws: int = 3) -> ReferenceSweep:
    items = tuple(item for item in items if len(item.candidate) < 1_000)  # METEOR takes seconds for the longest
    return ReferenceSweep(items, tuple(reference_orders(items, 4, draws)), COUNTS)


def _anew(metric: Metric, items: tuple[Item, ...]) -> FloatArray:
    metric.prepare(items)
    metric.open(items)
    return metric.statistics(items, lambda _: None)


def _check(metric: Metric, sweep: ReferenceSweep, tolerance: float = 0.0) -> None:
    metric.prepare(sweep.items)
    done: list[int] = []
    found = metric.sweep(sweep, done.append)
    assert found is not None
    arrays = list(found)
    assert sum(done) == len(sweep.items) * len(sweep.orders)
    assert len(arrays) == len(sweep.orders)
    for draw, array in enumerate(arrays):
        for step, count in enumerate(COUNTS):
            expected = _anew(metric, sweep.subset(draw, count))
            np.testing.assert_allclose(array[step], expected, rtol=0, atol=tolerance)
    assert not np.array_equal(arrays[0][0], arrays[1][0])  # the draws do differ


@pytest.mark.parametrize(
    "metric", [Bleu(), RougeL(), RougeL(beta=2.0), Meteor()], ids=["bleu", "rouge-l", "rouge-l-beta", "meteor"]
)
def test_sweeping_equals_scoring_each_subset_anew(metric: Metric) -> None:
    _check(metric, _sweep(invented(25)))


def test_cider_with_a_corpus_of_documents_keeps_them(tmp_path: Path) -> None:
    def corpus(_name: str) -> Mapping[str, list[str]]:
        return {"1": ["a dog runs", "the dog"], "2": ["a red house near a cat"], "3": ["two men sit"]}

    metric = Cider(Resources(captions=corpus), df="coco-val", sigma=4.0)
    _check(metric, _sweep(invented(25)), tolerance=1e-12)


@pytest.mark.java
@pytest.mark.parametrize("metric", [Spice(), Spider()], ids=["spice", "spider"])
def test_merging_references_one_by_one_equals_merging_them_anew(metric: Metric) -> None:
    texts = list(CAPTIONS)
    items = tuple(
        Item(f"i{i % 4}", texts[i % len(texts)], tuple(texts[(i % 4 + j) % len(texts)] for j in range(2 + i % 4)))
        for i in range(16)
    )
    with parsed(CAPTIONS):
        _check(metric, _sweep(items), tolerance=1e-12)
