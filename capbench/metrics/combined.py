"""A metric made of other metrics' columns."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from capbench.metrics.base import Metric, Progress, ReferenceSweep
from capbench.records import FloatArray, Item

__all__ = ["CombinedMetric"]


class CombinedMetric(Metric):
    """A metric made of other metrics' columns, which are extracted and cached once whoever asks for them."""

    @abc.abstractmethod
    def inputs(self) -> Sequence[Metric]:
        """The metrics that it is made of, always the same objects."""

    @abc.abstractmethod
    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(n, k) statistics from the columns (n,) of :meth:`inputs`, by column name."""

    def combine_each(self, columns: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
        """(n, k) statistics from the columns of each input; for a metric whose inputs share names of columns.

        By default :meth:`combine` of all of them together.
        """
        return self.combine({name: values for of_input in columns for name, values in of_input.items()})

    def prepare(self, items: Sequence[Item]) -> None:
        """Prepare the inputs."""
        for metric in self.inputs():
            metric.prepare(items)

    def corpus_id(self) -> str:
        """What the inputs took from the items."""
        return "+".join(filter(None, (metric.corpus_id() for metric in self.inputs())))

    def facts(self) -> Mapping[str, object]:
        """The inputs' signatures."""
        inputs = (metric.signature().replace("|", ",") for metric in self.inputs())
        return {**super().facts(), "of": "+".join(inputs)}

    def cache_key(self, item: Item) -> bytes:
        """The inputs' keys."""
        return b"".join(metric.cache_key(item) for metric in self.inputs())

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k), the inputs' statistics extracted here; scoring hands their columns to :meth:`combine` instead."""
        columns: list[Mapping[str, FloatArray]] = []
        for metric in self.inputs():
            metric.open(items)
            columns.append(metric.scores(metric.statistics(items, lambda _: None)))
        progress(len(items))
        return self.combine_each(columns)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw, unless one of the inputs cannot sweep."""
        sweeps = []
        for place, metric in enumerate(self.inputs()):
            arrays = metric.sweep(sweep, progress if place == 0 else lambda _: None)
            if arrays is None:
                return None
            sweeps.append(arrays)
        return self._combined(sweeps)

    def _combined(self, sweeps: Sequence[Iterator[FloatArray]]) -> Iterator[FloatArray]:
        for draw in zip(*sweeps, strict=True):
            steps = []
            for statistics in zip(*draw, strict=True):
                inputs = zip(self.inputs(), statistics, strict=True)
                steps.append(self.combine_each([metric.scores(np.ascontiguousarray(rows)) for metric, rows in inputs]))
            yield np.stack(steps)
