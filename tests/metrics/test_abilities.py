"""The base class has the methods of every metric; other methods are abilities."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pytest

from capbench.core import plugins
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics import abilities
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric, corpus_of_sums, corpus_terms
from capbench.metrics.metric_request import GivenMetric
from capbench.metrics.needs import Resources
from capbench.metrics.registry import BUILT_IN
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score

ITEMS = [Item("1", "a dog", ("a dog runs",), "a"), Item("2", "two cats here", ("cats", "two cats"), "b")]


class Plug(Metric):
    """A plug-in as it was written when all these methods were the base class's."""

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


def public(cls: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")} - {"option_type"}


def test_the_base_class_has_nine_public_methods() -> None:
    assert public(Metric) == {
        *("prepare", "corpus_id", "facts", "signature", "cache_key"),
        *("statistics", "scores", "corpus_scores", "reference_free"),
    }


def test_no_ability_is_the_base_classs() -> None:
    protocols = [value for value in vars(abilities).values() if getattr(value, "_is_protocol", False)]
    protocols = [protocol for protocol in protocols if protocol.__module__ == abilities.__name__]
    assert len(protocols) == 14
    assert [protocol for protocol in protocols if issubclass(Metric, protocol)] == []


@pytest.mark.parametrize(
    ("ability", "names"),
    [
        (abilities.Explains, {"tiger", "reo", "faier", "vilbertscore"}),
        (abilities.Retrieves, {"tiger", "faier", "leic", "dual-encoder", "clipscore", "pac-s"}),
        (abilities.HasLayers, {"vilbertscore"}),
        (abilities.CorpusSums, {"bleu", "meteor"}),
        (
            abilities.Sweeps,
            {
                *("bleu", "rouge-l", "meteor", "cider", "spice", "spider", "tiger", "faier", "vilbertscore", "nneval"),
                *("leic", "dual-encoder", "clipscore", "pac-s"),
            },
        ),
    ],
)
def test_abilities_of_built_in_metrics(ability: type, names: set[str]) -> None:
    known = {name for name in BUILT_IN if name in plugins.names("capbench.metrics")}
    found = {name for name in known if issubclass(plugins.load("capbench.metrics", name), ability)}
    assert found == names & known


def test_methods_of_a_plug_in_are_found() -> None:
    (request,) = resolve_metrics([GivenMetric(Plug)])
    table = score(ITEMS, [request], dataset="mine", cache=False)
    assert table.cautions == {"plug": ("2 items of mine",)}
    metric = Plug()
    assert isinstance(metric, abilities.Opens)
    assert isinstance(metric, abilities.Sweeps)
    assert not isinstance(metric, abilities.Explains)
    terms = corpus_terms(metric, np.array([[1.0], [3.0]]))
    assert terms is not None
    assert corpus_of_sums(metric, terms.sum(axis=0, keepdims=True))["plug"].tolist() == [2.0]
