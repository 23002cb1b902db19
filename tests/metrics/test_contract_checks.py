"""Each promise of the contract: a metric that breaks one fails exactly its check."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import capbench
from capbench import FloatArray, Item, Metric, MetricError, Options, Positive, Progress, option


@dataclass(frozen=True)
class CappedOptions(Options):
    cap: float = option(5.0, Positive(), "ratios above it count as it")


class Good(Metric):
    """Length of a candidate in mean lengths of its references."""

    name = "good"
    columns: ClassVar[tuple[str, ...]] = ("good",)
    titles: ClassVar[Mapping[str, str]] = {"good": "Good"}
    citation = "an example"
    option_type = CappedOptions
    options: CappedOptions

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        rows = [[self.ratio(item)] for item in items]
        progress(len(items))
        return np.array(rows)

    def ratio(self, item: Item) -> float:
        if not item.references:
            raise MetricError("an item has no references", hint="Give some")
        mean = np.mean([len(reference) for reference in item.references])
        return min(self.options.cap, len(item.candidate) / float(mean))


class NoTitle(Good):
    titles: ClassVar[Mapping[str, str]] = {"other": "Other"}


class SwallowsOptions(Good):
    def __init__(self, resources: Any = None, **options: Any) -> None:
        super().__init__(resources, **{name: value for name, value in options.items() if name == "cap"})


class OneRow(Good):
    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        return super().statistics(items, progress)[:1]


class Draws(Good):
    def ratio(self, item: Item) -> float:
        return super().ratio(item) * float(np.random.default_rng().random())


class OtherSums(Good):
    def corpus_terms(self, statistics: FloatArray) -> FloatArray:
        return np.column_stack([statistics[:, 0] * 2, np.ones(len(statistics))])


class NewSignature(Good):
    runs = itertools.count()

    def facts(self) -> Mapping[str, object]:
        return {"run": next(self.runs)}


class KeepsFunction(Good):
    def __init__(self, resources: Any = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self.clean = lambda text: text.strip()


class OneKey(Good):
    def cache_key(self, item: Item) -> bytes:
        return b"the same"


class ClaimsToDoWithout(Good):
    @classmethod
    def reference_free(cls) -> frozenset[str]:
        return frozenset(cls.columns)


class DividesByWords(Good):
    def ratio(self, item: Item) -> float:
        return super().ratio(item) + 1 / len(item.candidate)


def states(metric: Any, **given: Any) -> dict[str, str]:
    return {check.name: check.state for check in capbench.check_metric(metric, **given)}


def failed(metric: Any) -> list[str]:
    checks = [check for check in capbench.check_metric(metric) if check.state == "failed"]
    assert all(check.seen and check.advice for check in checks)
    return [check.name for check in checks]


def test_a_good_metric_passes() -> None:
    found = states(Good)
    assert found.pop("references") == "skipped"  # it names no columns without
    assert set(found.values()) == {"passed"}


@pytest.mark.parametrize(
    ("metric", "check"),
    [
        (NoTitle, "declaration"),
        (SwallowsOptions, "options"),
        (OneRow, "statistics"),
        (Draws, "repeatable"),
        (OtherSums, "scores"),
        (NewSignature, "cache"),
        (KeepsFunction, "pickling"),
        (OneKey, "cache"),
        (ClaimsToDoWithout, "references"),
        (DividesByWords, "bad-input"),
    ],
)
def test_a_broken_promise_fails_its_check_alone(metric: type[Metric], check: str) -> None:
    assert failed(metric) == [check]


def overlap(image: str, candidate: str, references: Sequence[str]) -> float:
    words = set(candidate.split())
    return max((len(words & set(reference.split())) / (len(words) or 1) for reference in references), default=0.0)


def breaks(image: str, candidate: str, references: Sequence[str]) -> str:
    return "no number"
