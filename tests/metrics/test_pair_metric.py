"""What follows from comparing pairs: batches, growing sets of references, and matrices equal plain scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.records import FloatArray, Item
from capbench.datasets.reference_draws import reference_orders
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.pair_metric import Pair, PairMetric
from tests.metrics.captions import invented


class Shared(PairMetric):
    """Number of letters that two texts share: the maximum over references."""

    name = "shared"
    columns: ClassVar[tuple[str, ...]] = ("shared",)
    titles: ClassVar[Mapping[str, str]] = {"shared": "Shared"}
    citation = "nobody"
    texts_at_once = 10

    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[str] = []
        self.compared: list[Pair] = []

    def encode(self, texts: Sequence[str]) -> dict[str, set[str]]:
        self.encoded += texts
        return {text: set(text) for text in texts}

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> list[FloatArray]:
        self.compared += pairs
        others = [set(pair.image) if pair.reference is None else encodings[pair.reference] for pair in pairs]
        return [np.array([len(encodings[p.candidate] & other)], float) for p, other in zip(pairs, others, strict=True)]

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        return np.asarray(np.max(rows, axis=0))


class WithImage(Shared):
    """The image's name counts, too."""

    against_image = True


def plain(metric: Shared, item: Item) -> int:
    texts = [*item.references, *([item.image] if metric.against_image else [])]
    return max(len(set(item.candidate) & set(text)) for text in texts)


@pytest.mark.parametrize("kind", [Shared, WithImage])
def test_each_pair_is_compared_once_and_all_ways_agree(kind: type[Shared]) -> None:
    items = [*invented(30), *invented(10)]
    metric = kind()
    steps: list[int] = []
    found = metric.statistics(items, steps.append)
    assert found[:, 0].tolist() == [plain(metric, item) for item in items]
    assert sum(steps) == len(items)
    assert len(steps) > 1
    assert len(set(metric.compared)) == len(metric.compared)
    assert [pair.image for pair in metric.compared] == sorted(pair.image for pair in metric.compared)

    sweep = ReferenceSweep(tuple(items), tuple(reference_orders(items, 4, 2)), (1, 2, 9))
    for draw, rows in enumerate(kind().sweep(sweep, lambda _: None) or ()):
        for count, of_count in zip(sweep.counts, rows, strict=True):
            assert of_count[:, 0].tolist() == [plain(metric, item) for item in sweep.subset(draw, count)]

    items = list({item.candidate: item for item in items}.values())
    references = {item.image: item.references for item in items}
    other = kind()
    matrix = other.matrix(items, lambda _: None)["shared"]
    wanted = [[plain(other, Item(image, it.candidate, texts)) for it in items] for image, texts in references.items()]
    assert matrix.tolist() == wanted
    candidates = {item.candidate for item in items}.difference(*references.values())
    assert sum(text in candidates for text in other.encoded) == len(candidates)
