"""The contract of a metric.

A metric turns items into **statistics** (per-item numbers that take time to extract: n-gram matches,
METEOR's counts), and statistics into **scores**, per item and for a corpus, which is cheap. So
resampling and reference sweeps never extract twice, and the score cache keeps the statistics.

The calls in their order: ``__init__`` (options are checked), ``prepare`` (the whole list of items), ``signature``,
``cache_key``; for the items that the cache does not hold ``statistics``, batch by batch; then ``scores`` and
``corpus_scores``. CONTRIBUTING.md tells it with an example. Everything that only some metrics can do is a protocol of
:mod:`capbench.metrics.abilities`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.options import Options
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import CorpusSums, CorpusTerms, HasLayers, Opens, PassesOn, ReferenceSweep, Sweeps
from capbench.metrics.needs import Features, Need, References, Resources, Weights
from capbench.metrics.signing import signature_line

__all__ = [
    "CombinedMetric",
    "Metric",
    "Progress",
    "ReferenceSweep",
    "Resources",
    "columns_under",
    "corpus_of_sums",
    "corpus_terms",
    "lacking",
    "terms_of_means",
]


class Metric(abc.ABC):
    """One metric with its options.

    Args:
        resources: what is given to it.
        options: values by name, as ``option_type`` declares them.

    Raises:
        UsageError: there is no such option, or a value does not fit.
        MetricError: something that it needs is not given.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    columns: ClassVar[tuple[str, ...]]
    """Names of its output columns, the main one first."""
    titles: ClassVar[Mapping[str, str]]
    """Each column's name in tables (``BLEU-4``)."""
    citation: ClassVar[str]
    """The paper, one line."""
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    """Columns whose lower scores are better (distances); a combination turns them."""
    option_type: ClassVar[type[Options]] = Options
    """Its options: ``--help``, checks and the signature follow from the declaration."""
    needs: ClassVar[tuple[Need, ...]] = (References(),)
    """What it needs beside candidates: what is lacking, what ``all`` means and every hint follow from it."""
    batch_size: int = 1024
    """Items that :meth:`statistics` gets at once; each batch is kept in the cache as soon as it is done."""
    part_size: ClassVar[int | None] = None
    """Items that a worker of a cluster gets at once, where no statistic depends on what else is in a batch; None: a
    batch, so that numbers are those of one process."""
    by_image: ClassVar[bool] = False
    """True if :meth:`statistics` wants the items of an image together, in as few batches as can be."""
    keeps_statistics: ClassVar[bool] = True
    """False for what is cheaper to read again than to look up: the score cache keeps nothing of it."""
    order: ClassVar[int] = 1000
    """Its place in lists and tables, lowest first."""

    options: Options
    """The options as they were given or by default."""

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        self.resources = resources or Resources()
        self.options = self.option_type.read(self.name, options)
        reasons = [why for need, why in lacking(type(self), self.resources, options) if not need.may_be_spared]
        if reasons:
            raise MetricError(f"{self.name} waits for {' and '.join(reasons)}")

    def __getstate__(self) -> dict[str, Any]:
        """What another process is handed: all but cached properties, which are what was opened here."""
        lazy = {name for cls in type(self).__mro__ for name, it in vars(cls).items() if isinstance(it, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """Columns that do without references, which an item may then lack."""
        return frozenset() if any(isinstance(need, References) for need in cls.needs) else frozenset(cls.columns)

    def signature(self) -> str:
        """One line with everything that can change a score: ``name|capbench:version|key:value|…``.

        Facts come first, then options in the order of their declaration. Valid after :meth:`prepare`.
        """
        return signature_line(self.name, type(self), self.facts(), self.options)

    def facts(self) -> Mapping[str, object]:
        """What can change a score and is no option: tokenisers, weights, features, documents. Valid after ``prepare``.

        By default the weights by the first 16 digits of their SHA-256, and what computed the region features, if the
        metric needs them. A fact under an option's key stands in its place.
        """
        facts: dict[str, object] = {}
        if any(isinstance(need, Weights) for need in self.needs) and self.resources.model is not None:
            from capbench.core.files import sha256_file

            facts["model"] = sha256_file(self.resources.model)[:16]
        if any(isinstance(need, Features) for need in self.needs) and self.resources.features is not None:
            from capbench.features.store import open_store

            with open_store(self.resources.features) as store:
                facts["features"] = store.signature()
        return facts

    def prepare(self, items: Sequence[Item]) -> None:  # noqa: B027  (most metrics have nothing to prepare)
        """See the whole list of items, repeats included, before scoring (document frequencies)."""

    def corpus_id(self) -> str:
        """Name of what :meth:`prepare` took from the items, as part of the cache's key; ``""`` if nothing."""
        return ""

    def cache_key(self, item: Item) -> bytes:
        """What the cache keeps an item's statistics under, beside signature and corpus. Valid after :meth:`prepare`.

        By default the item's own key; for a metric that reads more of an item than its texts, something that also
        changes with that.
        """
        return item.key

    @abc.abstractmethod
    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Extract the statistics of items: (n, k) float64, one row an item, of fixed width k.

        Raises:
            ToolError, FeatureError, ModelError, MetricError: it cannot be computed.
        """

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Per-item scores: column → (n,). By default the statistics are the columns."""
        return {column: np.ascontiguousarray(statistics[:, i]) for i, column in enumerate(_given_columns(self))}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """Corpus-level score by column. By default the mean of the items' scores."""
        return {column: float(values.mean()) for column, values in self.scores(statistics).items()}


def lacking(
    metric: type[Metric], resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
) -> list[tuple[Need, str]]:
    """The needs of a metric that are not met, each with what is missing and how to give it.

    Args:
        metric: its class.
        resources: what is given to this metric.
        options: options that are given.
        label: the request's label, which flags name.

    Raises:
        UsageError: an option does not fit.
    """
    if issubclass(metric, PassesOn):
        return metric.lacking(resources, options, label)
    chosen = metric.option_type.read(metric.name, options or {})
    needs = [single for need in metric.needs for single in need.each()]
    reasons = ((need, need.lacking(label or metric.name, resources, chosen)) for need in needs)
    return [(need, reason) for need, reason in reasons if reason]


def columns_under(metric: type[Metric], options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that some of a metric's :attr:`Metric.columns` stand for under options, which are checked."""
    return metric.columns_under(options, columns) if issubclass(metric, HasLayers) else tuple(columns)


def corpus_terms(metric: Metric, statistics: FloatArray) -> FloatArray | None:
    """(n, t) what each item adds to the sums from which :func:`corpus_of_sums` makes the corpus scores.

    With it a thousand resamples of a corpus cost one product of matrices. For a metric whose corpus scores are means of
    its scores: each item's scores and a one. None where the corpus scores are not a function of sums: resampling
    then calls :meth:`Metric.corpus_scores` on the rows that were drawn.
    """
    if isinstance(metric, CorpusTerms):
        return metric.corpus_terms(statistics)
    return None if type(metric).corpus_scores is not Metric.corpus_scores else terms_of_means(metric, statistics)


def terms_of_means(metric: Metric, statistics: FloatArray) -> FloatArray:
    """(n, columns + 1): each item's scores and a one."""
    scores = metric.scores(statistics)
    return np.column_stack([*(scores[column] for column in _given_columns(metric)), np.ones(len(statistics))])


def corpus_of_sums(metric: Metric, sums: FloatArray) -> dict[str, FloatArray]:
    """Corpus scores of r corpora from sums of :func:`corpus_terms`: column → (r,).

    Args:
        metric: the metric.
        sums: (r, t) sums over the items of each corpus.
    """
    if isinstance(metric, CorpusSums):
        return metric.corpus_of_sums(sums)
    return {column: sums[:, i] / sums[:, -1] for i, column in enumerate(_given_columns(metric))}


def _given_columns(metric: Metric) -> tuple[str, ...]:
    """All columns under the options of a metric."""
    chosen = {declared.name: getattr(metric.options, declared.name) for declared in metric.option_type.declared()}
    return columns_under(type(metric), chosen, metric.columns)


# A metric made of other metrics' columns.


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
            if isinstance(metric, Opens):
                metric.open(items)
            columns.append(metric.scores(metric.statistics(items, lambda _: None)))
        progress(len(items))
        return self.combine_each(columns)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw, unless one of the inputs cannot sweep."""
        sweeps = []
        for place, metric in enumerate(self.inputs()):
            step = progress if place == 0 else lambda _: None
            arrays = metric.sweep(sweep, step) if isinstance(metric, Sweeps) else None
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
