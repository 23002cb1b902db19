"""The contract of a metric.

A metric turns items into **statistics** (per-item numbers that take time to extract, such as n-gram matches or METEOR's
counts) and statistics into **scores**, per item and for a corpus, which is cheap. The score cache stores statistics, so
resampling and reference sweeps extract nothing twice.

Order of the calls: ``__init__`` (options are checked), ``prepare`` (the whole list of items), ``signature``,
``cache_key``; ``statistics``, batch by batch, for items that are not in the cache; then ``scores`` and
``corpus_scores``. CONTRIBUTING.md follows an example. Abilities that only some metrics have are protocols in
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
from capbench.core.training_record import TrainingRecord
from capbench.metrics.abilities import (
    CorpusSums,
    CorpusTerms,
    HasLayers,
    HasTrainingRecords,
    Opens,
    PassesOn,
    ReferenceSweep,
    Sweeps,
)
from capbench.metrics.needs import Features, Need, Packages, References, Resources, Weights, unmet_needs
from capbench.metrics.signing import signature_line


class Metric(abc.ABC):
    """One metric with its options.

    Args:
        resources: features, weights and other inputs.
        options: values by name, as ``option_type`` declares them.

    Raises:
        UsageError: unknown option or invalid value.
        MetricError: a required resource is missing.
    """

    name: ClassVar[str]
    """Name on the command line."""
    columns: ClassVar[tuple[str, ...]]
    """Names of the output columns, the main one first."""
    titles: ClassVar[Mapping[str, str]]
    """Titles of the columns in tables (``BLEU-4``)."""
    citation: ClassVar[str]
    """The paper, in one line."""
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    """Columns whose lower scores are better (distances); combinations negate them."""
    option_type: ClassVar[type[Options]] = Options
    """Declaration of the options, from which ``--help``, checks and the signature follow."""
    needs: ClassVar[tuple[Need, ...]] = (References(),)
    """Requirements besides candidates, from which checks, hints and the meaning of ``all`` follow."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages of extras that scoring imports (``torch``); checked before any work starts."""
    batch_size: int = 1024
    """Number of items per call of :meth:`statistics`; each finished batch is stored in the cache."""
    part_size: ClassVar[int | None] = None
    """Number of items per work unit of a cluster, if no statistic depends on the rest of its batch. None: one batch,
    so that the numbers equal those of a single process."""
    by_image: ClassVar[bool] = False
    """True if :meth:`statistics` needs the items of an image together, in as few batches as possible."""
    keeps_statistics: ClassVar[bool] = True
    """False if computing is cheaper than looking up; the score cache then stores nothing."""
    order: ClassVar[int] = 1000
    """Position in lists and tables, lowest first."""

    options: Options
    """The user's options and the defaults of all others."""

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        self.resources = resources or Resources()
        self.options = self.option_type.read(self.name, options)
        unmet = [each for each in missing_inputs(type(self), self.resources, options) if not each[0].may_be_spared]
        if unmet:
            raise unmet_needs(self.name, unmet)

    def __getstate__(self) -> dict[str, Any]:
        """State for another process: everything but cached properties, which hold open files."""
        lazy = {name for cls in type(self).__mro__ for name, it in vars(cls).items() if isinstance(it, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """Reference-free columns, which also score items without references."""
        return frozenset() if any(isinstance(need, References) for need in cls.needs) else frozenset(cls.columns)

    @classmethod
    def check_captions(cls, items: Sequence[Item]) -> None:
        """Raise MetricError for captions that the metric cannot score: by default empty candidates."""
        empty = [item for item in items if not item.candidate]
        if empty:
            raise MetricError(
                f"{cls.name} does not score empty captions: {len(empty):,} of {len(items):,} are empty",
                code="missing-caption",
                value=empty[0].image,
                row=f"image '{empty[0].image}'",
                hint="Write these captions, or omit the metric",
            )

    def signature(self) -> str:
        """One line with everything that can change a score: ``name|capbench:version|key:value|…``.

        Facts come first, then options in the order of their declaration. Valid after :meth:`prepare`.
        """
        return signature_line(self.name, type(self), self.facts(), self.options)

    def facts(self) -> Mapping[str, object]:
        """Everything besides options that can change a score: tokeniser, weights, features, documents.

        Valid after :meth:`prepare`. By default the first 16 digits of the weights' SHA-256 and the signature of the
        region features, if the metric needs them. A fact with an option's key replaces this option in the signature.
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
        """Process the whole list of items, repeats included, before scoring (document frequencies).

        If the items are a part of a data set and :meth:`corpus_id` is not empty afterwards, it is called again with all
        items of the data set. What it takes from these replaces what it took from the part.
        """

    def corpus_id(self) -> str:
        """Identifier of the data that :meth:`prepare` took from the items, part of the cache key; ``""`` if none."""
        return ""

    def cache_key(self, item: Item) -> bytes:
        """Cache key of an item's statistics, in addition to signature and corpus. Valid after :meth:`prepare`.

        By default the item's key. A metric that reads more than an item's texts returns a key that changes with
        everything it reads.
        """
        return item.key

    @abc.abstractmethod
    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Extract the statistics of items: (n, k) float64, one row per item, of fixed width k.

        Raises:
            ToolError, FeatureError, ModelError, MetricError: the statistics cannot be computed.
        """

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Scores per item: column → (n,). By default the statistics are the columns."""
        return {column: np.ascontiguousarray(statistics[:, i]) for i, column in enumerate(_active_columns(self))}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """Corpus-level score by column; by default the mean of the items' scores."""
        return {column: float(values.mean()) for column, values in self.scores(statistics).items()}


def missing_inputs(
    metric: type[Metric], resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
) -> list[tuple[Need, str]]:
    """The unmet needs of a metric, each with a description of what is missing and how to provide it.

    Args:
        metric: the class.
        resources: the metric's resources.
        options: the user's options.
        label: the request's label, for the flags in the description.

    Raises:
        UsageError: an invalid option.
    """
    if issubclass(metric, PassesOn):
        return metric.missing(resources, options, label)
    chosen = metric.option_type.read(metric.name, options or {})
    packages = (Packages(metric.packages),) if metric.packages else ()
    needs = [single for need in (*metric.needs, *packages) for single in need.each()]
    reasons = ((need, need.missing(label or metric.name, resources, chosen)) for need in needs)
    return [(need, reason) for need, reason in reasons if reason]


def columns_under(metric: type[Metric], options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that some of :attr:`Metric.columns` stand for under options, which must be checked."""
    return metric.columns_under(options, columns) if issubclass(metric, HasLayers) else tuple(columns)


def corpus_terms(metric: Metric, statistics: FloatArray) -> FloatArray | None:
    """(n, t) terms that each item adds to the sums from which :func:`corpus_of_sums` computes the corpus scores.

    With them, a thousand resamples of a corpus cost one matrix product. For a metric whose corpus scores are means of
    its scores, the terms are each item's scores and a one. None if the corpus scores are not a function of sums:
    resampling then calls :meth:`Metric.corpus_scores` on the sampled rows.
    """
    if isinstance(metric, CorpusTerms):
        return metric.corpus_terms(statistics)
    return None if type(metric).corpus_scores is not Metric.corpus_scores else terms_of_means(metric, statistics)


def terms_of_means(metric: Metric, statistics: FloatArray) -> FloatArray:
    """(n, columns + 1): each item's scores and a one."""
    scores = metric.scores(statistics)
    return np.column_stack([*(scores[column] for column in _active_columns(metric)), np.ones(len(statistics))])


def corpus_of_sums(metric: Metric, sums: FloatArray) -> dict[str, FloatArray]:
    """Corpus scores of r corpora from sums of :func:`corpus_terms`: column → (r,).

    Args:
        metric: the metric.
        sums: (r, t) sums over the items of each corpus.
    """
    if isinstance(metric, CorpusSums):
        return metric.corpus_of_sums(sums)
    return {column: sums[:, i] / sums[:, -1] for i, column in enumerate(_active_columns(metric))}


def _active_columns(metric: Metric) -> tuple[str, ...]:
    """All columns of a metric under its options."""
    chosen = {declared.name: getattr(metric.options, declared.name) for declared in metric.option_type.declared()}
    return columns_under(type(metric), chosen, metric.columns)


# Metrics made of other metrics' columns.


class CombinedMetric(Metric):
    """A metric made of other metrics' columns, which are extracted and cached once for all metrics that use them."""

    @abc.abstractmethod
    def inputs(self) -> Sequence[Metric]:
        """The input metrics, the same objects in every call."""

    @abc.abstractmethod
    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(n, k) statistics from the columns (n,) of :meth:`inputs` by name."""

    def combine_each(self, columns: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
        """(n, k) statistics from the columns of each input, for a metric whose inputs share column names.

        By default :meth:`combine` of all columns together.
        """
        return self.combine({name: values for of_input in columns for name, values in of_input.items()})

    def prepare(self, items: Sequence[Item]) -> None:
        """Prepare the inputs."""
        for metric in self.inputs():
            metric.prepare(items)

    def corpus_id(self) -> str:
        """The inputs' corpus ids."""
        return "+".join(filter(None, (metric.corpus_id() for metric in self.inputs())))

    def facts(self) -> Mapping[str, object]:
        """The inputs' signatures."""
        inputs = (metric.signature().replace("|", ",") for metric in self.inputs())
        return {**super().facts(), "of": "+".join(inputs)}

    def cache_key(self, item: Item) -> bytes:
        """The inputs' keys."""
        return b"".join(metric.cache_key(item) for metric in self.inputs())

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics, extracted from the inputs; scoring passes their columns to :meth:`combine` instead."""
        columns: list[Mapping[str, FloatArray]] = []
        for metric in self.inputs():
            if isinstance(metric, Opens):
                metric.open(items)
            columns.append(metric.scores(metric.statistics(items, lambda _: None)))
        progress(len(items))
        return self.combine_each(columns)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw; None if an input cannot sweep."""
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


def classes_of(metric: Metric) -> frozenset[type[Metric]]:
    """The classes of a metric and of all metrics that it combines."""
    inputs = metric.inputs() if isinstance(metric, CombinedMetric) else ()
    return frozenset({type(metric)}).union(*map(classes_of, inputs))


def training_records(metric: Metric) -> tuple[TrainingRecord, ...]:
    """The training records of a metric's networks, covariances and word vectors, those of its inputs included.

    Files without a record have an empty one. Raises ModelError if a record is damaged.
    """
    from capbench.weights.training_files import read_training_record

    if isinstance(metric, HasTrainingRecords):
        return tuple(metric.training_records())
    paths = [
        path for need in metric.needs for path in need.trained_files(metric.name, metric.resources, metric.options)
    ]
    records = [read_training_record(path) for path in dict.fromkeys(paths)]
    if isinstance(metric, CombinedMetric):
        records += [record for of_input in metric.inputs() for record in training_records(of_input)]
    return tuple(dict.fromkeys(records))
