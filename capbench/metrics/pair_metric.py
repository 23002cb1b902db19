"""Metrics that compare a candidate with each of its references, or with the image, and reduce the results.

Such a metric writes :meth:`PairMetric.encode` (each distinct caption once), :meth:`PairMetric.pairs` (each distinct
pair once) and :meth:`PairMetric.reduce` (over an item's references). Equal items have equal scores, because each
distinct pair of a batch is computed once; in another batch, scores in 32 bits may differ by 1e-5 of their value.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.score_cache import batches
from capbench.metrics.tokens import require_references


class Pair(NamedTuple):
    """A candidate in an image with one of its references; None: with the image itself."""

    image: str
    candidate: str
    reference: str | None


class PairMetric(Metric):
    """A metric of pairs."""

    by_image: ClassVar[bool] = True
    against_image: ClassVar[bool] = False
    """True if candidates are also compared with the image; items without references then have statistics."""
    texts_at_once: int = 2048  # Number of captions that are encoded at once, unless a single image has more

    def encode(self, texts: Sequence[str]) -> Mapping[str, Any]:
        """Encodings of distinct captions that do not depend on the image, by caption; by default none."""
        return {}

    @abc.abstractmethod
    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> Iterable[FloatArray]:
        """The numbers of each pair, arrays of any shape.

        ``pairs``: distinct pairs, those of an image in succession; ``encodings``: from :meth:`encode` of their
        captions, possibly among others.
        """

    @abc.abstractmethod
    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """(k,) statistics of an item from its pairs: with ``against_image`` the image's first, then its references'."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics. Raises MetricError for an item without references, unless ``against_image`` is True."""
        return np.stack([self.reduce(rows) for rows in self._compared(items, progress)])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw; every pair is compared once.

        A metric whose pairs depend on all references (idf) returns None instead.
        """
        of_image = int(self.against_image)
        compared = self._compared(sweep.items, lambda _: None)

        def of_draw(orders: Sequence[Sequence[int]]) -> FloatArray:
            each = list(zip(compared, orders, strict=True))
            progress(len(each))
            return np.array(
                [
                    [
                        self.reduce([*rows[:of_image], *(rows[of_image + place] for place in order[:count])])
                        for rows, order in each
                    ]
                    for count in sweep.counts
                ]
            )

        return map(of_draw, sweep.orders)

    def matrix(self, items: Sequence[Item], progress: Progress) -> dict[str, FloatArray]:
        references = {item.image: item.references for item in items}
        scores = {column: np.empty((len(references), len(items))) for column in self.active_columns}
        for start in range(0, len(items), self.texts_at_once):
            captions = [item.candidate for item in items[start : start + self.texts_at_once]]
            known = self.encode(list(dict.fromkeys(captions)))
            for row, (image, texts) in enumerate(references.items()):
                pairs = [Item(image, caption, texts) for caption in captions]
                statistics = np.stack([self.reduce(rows) for rows in self._compared(pairs, progress, known)])
                of_image = self.scores(statistics)
                for column, matrix in scores.items():
                    matrix[row, start : start + len(captions)] = of_image[column]
        return scores

    def _compared(
        self, items: Sequence[Item], progress: Progress, known: Mapping[str, Any] | None = None
    ) -> list[list[FloatArray]]:
        """The numbers of each item's pairs, as :meth:`reduce` takes them."""
        if not self.against_image:
            require_references(self.name, items)
        known = known or {}
        compared: list[list[FloatArray]] = [[] for _ in items]

        def size(places: list[int]) -> int:
            return len({text for place in places for text in (items[place].candidate, *items[place].references)})

        for places in batches(items, self.texts_at_once, True, size):
            of_items = {place: self._pairs_of(items[place]) for place in places}
            pairs = list(dict.fromkeys(pair for of_item in of_items.values() for pair in of_item))
            texts = {text for pair in pairs for text in pair[1:] if text is not None}.difference(known)
            encodings = {**known, **(self.encode(sorted(texts)) if texts else {})}
            rows = dict(zip(pairs, self.pairs(pairs, encodings), strict=True))
            for place, of_item in of_items.items():
                compared[place] = [rows[pair] for pair in of_item]
            progress(len(places))
        return compared

    def _pairs_of(self, item: Item) -> list[Pair]:
        texts = [None, *item.references] if self.against_image else item.references
        return [Pair(item.image, item.candidate, text) for text in texts]
