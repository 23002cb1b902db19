from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.errors import MetricError
from capbench.core.options import Number, Options, option
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score, slow_work
from tests.errors import raises

ITEMS = (
    Item("i1", "a dog", ("the dog", "a brown dog"), "c1"),
    Item("i2", "two cats", ("cats",), "c2"),
    Item("i1", "a dog", ("the dog", "a brown dog"), "c1 again"),
    Item("i3", "a long caption of a tree", ("a tree",), "c3"),
)


@dataclass(frozen=True)
class LengthsOptions(Options):
    factor: float = option(1.0, Number(), "factor of the lengths")


class Lengths(Metric):
    """Two columns from two counts; records the extracted items."""

    name: ClassVar[str] = "lengths"
    columns: ClassVar[tuple[str, ...]] = ("letters", "ratio")
    titles: ClassVar[Mapping[str, str]] = {"letters": "Letters", "ratio": "Ratio"}
    citation: ClassVar[str] = "nobody"
    extracted: ClassVar[list[str]] = []
    opened: ClassVar[list[int]] = []
    stop_after: ClassVar[int | None] = None

    option_type = LengthsOptions
    options: LengthsOptions

    def open(self, items: Sequence[Item]) -> None:
        self.opened.append(len(items))

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        if self.stop_after is not None and len(self.extracted) >= self.stop_after:
            raise KeyboardInterrupt
        self.extracted.extend(item.candidate for item in items)
        for _ in items:
            progress(1)
        return np.array(
            [[len(i.candidate) * self.options.factor, len(i.references[0])] for i in items], dtype=np.float64
        )

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        return {"letters": statistics[:, 0], "ratio": statistics[:, 0] / statistics[:, 1]}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lengths, "extracted", [])
    monkeypatch.setattr(Lengths, "opened", [])


def _request(metric: type[Metric] = Lengths, **options: Any) -> list[MetricRequest]:
    return [MetricRequest(metric, metric.columns, options)]


def test_values_are_in_the_order_of_the_items_repeats_are_scored_once_and_a_second_run_reads_the_cache() -> None:
    steps: list[int] = []
    table = score(ITEMS, _request(), dataset="own", progress=steps.append)
    assert table.values[ScoreColumn("lengths", "letters")].tolist() == [5, 8, 5, 24]
    assert Lengths.extracted == ["a dog", "two cats", "a long caption of a tree"]
    assert Lengths.opened == [3]
    assert sum(steps) == len(ITEMS)
    assert table.cached == {"lengths": 0}
    again = score(ITEMS, _request(), dataset="own", progress=steps.append)
    assert Lengths.opened == [3]
    assert again.cached == {"lengths": 4}
    assert sum(steps) == 2 * len(ITEMS)
    assert again.corpus == table.corpus
    for column, values in table.values.items():
        assert np.array_equal(again.values[column], values)


def test_interrupted_run_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lengths, "batch_size", 10)
    items = [Item("i", f"caption {i}", ("x",)) for i in range(35)]
    monkeypatch.setattr(Lengths, "stop_after", 20)
    with pytest.raises(KeyboardInterrupt):
        score(items, _request(), dataset="own")
    monkeypatch.setattr(Lengths, "stop_after", None)
    assert score(items, _request(), dataset="own").cached == {"lengths": 20}
    assert Lengths.extracted == [item.candidate for item in items]


def _broken(**methods: Any) -> type[Metric]:
    return type("Broken", (Lengths,), {"name": "broken", **methods})


@pytest.mark.parametrize(
    ("methods", "code", "value"),
    [
        ({"statistics": lambda self, items, progress: np.ones(len(items))}, "wrong-shape", (3,)),
        ({"statistics": lambda self, items, progress: np.ones((1, 2))}, "wrong-shape", (1, 2)),
        ({"scores": lambda self, statistics: {"letters": statistics[:, 0]}}, "wrong-shape", ()),
        ({"scores": lambda self, s: {"letters": s[:1, 0], "ratio": s[:, 1]}}, "wrong-shape", (1,)),
        ({"corpus_scores": lambda self, statistics: {"letters": 1.0}}, "not-a-number", "ratio"),
        ({"corpus_scores": lambda self, s: {"letters": float("nan"), "ratio": 1.0}}, "not-a-number", "letters"),
    ],
)
def test_a_metric_that_breaks_the_contract(methods: dict[str, Any], code: str, value: object) -> None:
    with raises(MetricError, code, value=value):
        score(ITEMS, _request(_broken(**methods)), dataset="own")


def test_ciders_cached_scores_are_of_documents_that_occur_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.text.ptb.tokenize", lambda captions, **_: [text.lower() for text in captions])
    dog = Item("i1", "a dog is over there", ("a dog runs over there", "the dog"), "c1")
    cat = Item("i2", "a cat is here", ("a cat sits here", "the cat"), "c2")
    tree = Item("i3", "a tree", ("a tree over there", "a tall tree"), "c3")
    again = {item: Item(item.image, f"{item.candidate} too", item.references, "again") for item in (dog, cat)}
    requests = resolve_metrics(["cider"])
    column = ScoreColumn("cider", "cider")
    found = {}
    # The same three documents: each once, the dog's twice, the cat's twice, and in another order.
    for items in ((dog, cat, tree), (dog, again[dog], cat, tree), (dog, cat, again[cat], tree)):
        table = score(items, requests, dataset="own")
        assert table.cached["cider"] == 0
        uncached = score(items, requests, dataset="own", cache=False)
        assert table.values[column].tolist() == uncached.values[column].tolist()
        found[table.signatures["cider"]] = table.values[column][0]
        assert score(items[::-1], requests, dataset="own").signatures == table.signatures
        assert score(items[::-1], requests, dataset="own").cached["cider"] == len(items)
    assert len(found) == len(set(found.values())) == 3


class Parted:
    """A progress that remembers its parts."""

    def __init__(self) -> None:
        self.whole = 0
        self.parts: list[tuple[str, int, str, float | None]] = []
        self.done: list[tuple[str, int]] = []

    def __call__(self, done: int) -> None:
        self.whole += done

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        self.parts.append((name, total, unit, expected_s))
        return lambda done: self.done.append((name, done))


class Slow(Lengths):
    """Needs half a second of work for each letter that an item begins with."""

    name: ClassVar[str] = "slow"
    order_of_work: ClassVar[list[str]] = []

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        def run(progress: Progress, _: object) -> None:
            self.order_of_work.append("slow work")
            progress(2)

        return SlowWork("Slow reads", "letters", frozenset(item.candidate[0] for item in items), 2.0, run)

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        self.order_of_work.append("slow")
        return super().statistics(items, progress)


class Quick(Lengths):
    name: ClassVar[str] = "quick"

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        Slow.order_of_work.append("quick")
        return super().statistics(items, progress)


def test_slow_work_comes_after_all_other_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "order_of_work", [])
    requests = [*_request(Slow), *_request(Quick)]
    works = slow_work(ITEMS, requests)
    ((label, (work,)),) = works.items()
    assert (label, work.subject, work.units, work.seconds) == ("slow", "Slow reads", frozenset("at"), 1.0)
    assert Slow.order_of_work == []
    progress = Parted()
    score(ITEMS, requests, dataset="own", progress=progress)
    assert Slow.order_of_work == ["quick", "slow work", "slow"]
    assert progress.parts[1] == ("slow", 2, "letters", 1.0)
    assert ("slow", 2) in progress.done
    assert progress.whole == 2 * len(ITEMS)
    assert slow_work(ITEMS, requests) == {}
