"""Optional methods of a metric are called by scoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import GivenMetric
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score

ITEMS = [Item("1", "a dog", ("a dog runs",), "a"), Item("2", "two cats here", ("cats", "two cats"), "b")]


class Plug(Metric):
    """A plug-in with optional methods."""

    name = "plug"
    columns: ClassVar[tuple[str, ...]] = ("plug",)
    titles: ClassVar[Mapping[str, str]] = {"plug": "Plug"}
    citation = "an example"

    def __init__(self, resources: Resources | None = None) -> None:
        super().__init__(resources)
        self.opened: list[str] = []

    def open(self, items: Sequence[Item]) -> None:
        self.opened += [item.candidate_id for item in items]

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        assert self.opened
        progress(len(items))
        return np.array([[float(len(item.candidate))] for item in items])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        return None

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        return [f"{len(items)} items of {dataset}"]

    def corpus_terms(self, statistics: FloatArray) -> FloatArray | None:
        return np.column_stack([2 * statistics[:, 0], np.full(len(statistics), 2.0)])


def test_methods_of_a_plug_in_are_found() -> None:
    (request,) = resolve_metrics([GivenMetric(Plug)])
    table = score(ITEMS, [request], dataset="mine", cache=False)
    assert table.cautions == {"plug": ("2 items of mine",)}
    metric = Plug()
    terms = metric.corpus_terms(np.array([[1.0], [3.0]]))
    assert terms is not None
    assert metric.corpus_of_sums(terms.sum(axis=0, keepdims=True))["plug"].tolist() == [2.0]
