"""The contract of a metric.

A metric turns items into **statistics** (per-item numbers that take time to extract, such as n-gram matches or METEOR's
counts) and statistics into **scores**, per item and for a corpus, which is cheap. The score cache stores statistics, so
resampling and reference sweeps extract nothing twice.

Order of the calls: ``__init__`` (options are checked), ``prepare`` (the whole list of items), ``signature``,
``cache_key``; ``open`` and ``slow_work`` (items that are not in the cache); ``statistics``, batch by batch; then
``scores`` and ``corpus_scores``. CONTRIBUTING.md follows an example. Only ``statistics`` must be written.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.options import Options
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import TrainingRecord
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.needs import Features, Need, Packages, Parser, References, Resources, Weights, unmet_needs
from capbench.metrics.signing import signature_line


class Metric(abc.ABC):
    """One metric with its options, whose values by name are those that ``option_type`` declares."""

    name: ClassVar[str]  # Name on the command line
    columns: ClassVar[tuple[str, ...]]  # Names of the output columns, the main one first
    titles: ClassVar[Mapping[str, str]]  # Titles of the columns in tables (``BLEU-4``)
    citation: ClassVar[str]  # The paper, in one line
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    """Columns whose lower scores are better (distances); combinations negate them."""
    option_type: ClassVar[type[Options]] = Options
    """Declaration of the options, from which ``--help``, checks and the signature follow."""
    needs: ClassVar[tuple[Need, ...]] = (References(),)
    """Requirements besides candidates, from which checks, hints and the meaning of ``all`` follow."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages of extras that scoring imports (``torch``); checked before any work starts."""
    batch_size: int = 1024  # Number of items per call of :meth:`statistics`; each finished batch is stored in the cache
    by_image: ClassVar[bool] = False
    """True if :meth:`statistics` needs the items of an image together, in as few batches as possible."""
    keeps_statistics: ClassVar[bool] = True
    """False if computing is cheaper than looking up; the score cache then stores nothing."""
    explains_errors: ClassVar[bool] = False  # True if its explanation is compared with errors that humans marked

    options: Options  # The user's options and the defaults of all others

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        self.resources = resources or Resources()
        self.options = self.option_type.read(self.name, options)
        if error := unmet_needs(self.name, self.missing(self.resources, options)):
            raise error

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
            message = f"{cls.name} does not score empty captions: {len(empty):,} of {len(items):,} are empty"
            image, hint = empty[0].image, "Write these captions, or omit the metric"
            raise MetricError(message, code="missing-caption", value=image, row=f"image '{image}'", hint=hint)

    def signature(self) -> str:
        """``name|capbench:version|key:value|…``: facts, then options, in one line; valid after :meth:`prepare`."""
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
        """Extract the statistics of items: (n, k) float64, one row per item, of fixed width k."""

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Scores per item: column → (n,). By default the statistics are the columns."""
        return {column: np.ascontiguousarray(statistics[:, i]) for i, column in enumerate(self.active_columns)}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """Corpus-level score by column; by default the mean of the items' scores."""
        return {column: float(values.mean()) for column, values in self.scores(statistics).items()}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray | None:
        """(n, t) terms that each item adds to the sums from which :meth:`corpus_of_sums` computes the corpus scores.

        With them, a thousand resamples of a corpus cost one matrix product. By default, if corpus scores are means,
        each item's scores and a one; otherwise None: then corpus scores have no intervals and tests.
        """
        if type(self).corpus_scores is not Metric.corpus_scores:
            return None
        scores = self.scores(statistics)
        return np.column_stack([*(scores[column] for column in self.active_columns), np.ones(len(statistics))])

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        """Corpus scores of r corpora from (r, t) sums of :meth:`corpus_terms`: column → (r,)."""
        return {column: sums[:, i] / sums[:, -1] for i, column in enumerate(self.active_columns)}

    @property
    def active_columns(self) -> tuple[str, ...]:
        """All columns under the metric's options."""
        chosen = {declared.name: getattr(self.options, declared.name) for declared in self.option_type.declared()}
        return self.columns_under(chosen, self.columns)

    # Optional steps of scoring.

    def open(self, items: Sequence[Item]) -> None:  # noqa: B027  (most metrics need nothing)
        """Reject items that cannot be scored; called after ``prepare`` with all items that the cache does not hold."""

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """Work to do once before the statistics of these items can be extracted, such as SPICE's parses."""
        return None

    def statistics_signature(self) -> str:
        """Name of the statistics in the cache: the signature without options that only recombine them."""
        if type(self).signature is not Metric.signature:
            return self.signature()
        return signature_line(self.name, type(self), self.facts(), self.options, recombining=False)

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Warnings about the scores of a data set's items, one line each."""
        return ()

    def training_records(self) -> Sequence[TrainingRecord]:
        """The records of the metric's networks, covariances and word vectors; empty for files without a record."""
        from capbench.weights.training_files import read_training_record

        paths = [path for need in self.needs for path in need.trained_files(self.name, self.resources, self.options)]
        return tuple(dict.fromkeys(read_training_record(path) for path in dict.fromkeys(paths)))

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """Statistics with growing sets of references; None, the default, if every set must be scored separately.

        Called after ``prepare`` with ``sweep.items``, and without ``open``. Nothing is cached.

        ``sweep``: items, orders of their references, and numbers of references; ``progress``: called with numbers of
        items done; they add up to the number of items for each draw.
        Returns for each draw one array (counts, n, k): the statistics that ``prepare`` and ``statistics`` compute for
        ``sweep.subset(draw, count)``.
        """
        return None

    def plain_metrics(self) -> Sequence[Metric]:
        """The metrics whose statistics are extracted: itself, or the inputs of a combined one."""
        return (self,)

    def matrix(self, items: Sequence[Item], progress: Progress) -> dict[str, FloatArray]:
        """Scores of all captions for all images (retrieval): column → (n, m), by default pair by pair.

        Called after ``prepare``, and without ``open``. Nothing is cached.

        ``items``: m captions with the references of their n images, which are the rows in the order of their first
        item; ``progress``: called with numbers of pairs done.
        """
        for plain in self.plain_metrics():
            plain.open(items)
            if work := plain.slow_work(items):
                work.run_in(progress, plain.name)
        images = {item.image: item.references for item in items}
        pairs = (Item(image, item.candidate, references) for image, references in images.items() for item in items)
        scores = []
        while batch := list(islice(pairs, self.batch_size)):
            self.open(batch)
            scores.append(self.scores(np.asarray(self.statistics(batch, progress), dtype=np.float64)))
        return {key: np.concatenate([of[key] for of in scores]).reshape(len(images), -1) for key in scores[0]}

    # What depends on a request's options and resources.

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that the requested ones stand for under checked options: one for each of several layers."""
        return tuple(columns)

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The layers of a network that the option ``layer`` can name together, with a column for each."""
        return ()

    @classmethod
    def ignores_references(cls, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        """Columns that do not use references under these options; by default the reference-free ones."""
        return cls.reference_free()

    @classmethod
    def offered(cls, resources: Resources) -> tuple[str, ...]:
        """The columns that the metric's bare name stands for with these resources. Raises ModelError: no weights."""
        return cls.columns

    @classmethod
    def takes_parses(cls, resources: Resources) -> bool:
        """True if scores require SPICE's parses with these resources."""
        return any(isinstance(single, Parser) for need in cls.needs for single in need.each())

    @classmethod
    def given(cls, resources: Resources, label: str) -> Resources:
        """The resources that belong to a request of this metric. Raises ModelError as :meth:`Resources.of`."""
        return resources.of(label, cls.name)

    @classmethod
    def missing(
        cls, resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
    ) -> list[tuple[Need, str]]:
        """The unmet needs, each with a description of what is missing and how to provide it."""
        chosen = cls.option_type.read(cls.name, options or {})
        packages = (Packages(cls.packages),) if cls.packages else ()
        needs = [single for need in (*cls.needs, *packages) for single in need.each()]
        reasons = ((need, need.missing(label or cls.name, resources, chosen)) for need in needs)
        return [(need, reason) for need, reason in reasons if reason]

    @classmethod
    def check_items(cls, items: Sequence[Item], resources: Resources, options: Mapping[str, Any]) -> None:
        """Raise CapbenchError for items that lack features, an image file or the like; ``resources``: the request's."""
        chosen = cls.option_type.read(cls.name, options)
        for single in (single for need in cls.needs for single in need.each()):
            single.check_items(items, resources, chosen)


# Metrics made of other metrics' columns.


class CombinedMetric(Metric):
    """A metric made of other metrics' columns, which are extracted and cached once for all metrics that use them."""

    @abc.abstractmethod
    def inputs(self) -> Sequence[Metric]:
        """The input metrics, the same objects in every call."""

    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(n, k) statistics from the columns (n,) of :meth:`inputs` by name."""
        raise NotImplementedError

    def combine_each(self, columns: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
        """(n, k) statistics from the columns of each input, for a metric whose inputs share column names."""
        return self.combine({name: values for of_input in columns for name, values in of_input.items()})

    def plain_metrics(self) -> Sequence[Metric]:
        return [plain for metric in self.inputs() for plain in metric.plain_metrics()]

    def prepare(self, items: Sequence[Item]) -> None:
        for metric in self.inputs():
            metric.prepare(items)

    def corpus_id(self) -> str:
        return "+".join(filter(None, (metric.corpus_id() for metric in self.inputs())))

    def facts(self) -> Mapping[str, object]:
        inputs = (metric.signature().replace("|", ",") for metric in self.inputs())
        return {**super().facts(), "of": "+".join(inputs)}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics, extracted from the inputs; scoring passes their columns to :meth:`combine` instead."""
        columns: list[Mapping[str, FloatArray]] = []
        for metric in self.inputs():
            metric.open(items)
            columns.append(metric.scores(metric.statistics(items, lambda _: None)))
        progress(len(items))
        return self.combine_each(columns)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw; None if an input cannot sweep."""
        sweeps = []
        for place, metric in enumerate(self.inputs()):
            step = progress if place == 0 else lambda _: None
            arrays = metric.sweep(sweep, step)
            if arrays is None:
                return None
            sweeps.append(arrays)
        return map(self._combined, *sweeps)

    def _combined(self, *draw: FloatArray) -> FloatArray:
        """(counts, n, k) from the (counts, n, ...) statistics of the inputs."""
        steps = []
        for statistics in zip(*draw, strict=True):
            inputs = zip(self.inputs(), statistics, strict=True)
            steps.append(self.combine_each([metric.scores(np.ascontiguousarray(rows)) for metric, rows in inputs]))
        return np.stack(steps)

    def training_records(self) -> Sequence[TrainingRecord]:
        records = [*super().training_records(), *(record for it in self.inputs() for record in it.training_records())]
        return tuple(dict.fromkeys(records))


def classes_of(metric: Metric) -> frozenset[type[Metric]]:
    """The classes of a metric and of all metrics that it combines."""
    inputs = metric.inputs() if isinstance(metric, CombinedMetric) else ()
    return frozenset({type(metric)}).union(*map(classes_of, inputs))
