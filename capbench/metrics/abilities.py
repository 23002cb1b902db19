"""Optional abilities of metrics, one protocol each, tested with isinstance and issubclass.

A metric has an ability if it has the protocol's methods; nothing is registered or inherited. Code that can use an
ability tests for it (``if isinstance(metric, Sweeps)``) and works without it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from capbench.core.errors import CapbenchError
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import TrainingRecord

if TYPE_CHECKING:
    from capbench.core.explanations import Explanation, Subject
    from capbench.metrics.needs import Need, Resources

# Abilities that users see: curves over references, retrieval, explanations, layers, warnings.


@dataclass(frozen=True)
class ReferenceSweep:
    """The same items with growing sets of references, added in one or more orders.

    Attributes:
        items: (n) items with all their references, repeats included.
        orders: for each draw and item, indices of the item's references (from 0) in the order in which they are added.
        counts: ascending numbers of references, each at least 1.
    """

    items: tuple[Item, ...]
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    counts: tuple[int, ...]

    def subset(self, draw: int, count: int) -> tuple[Item, ...]:
        """Items with the first ``count`` references of a draw in its order, or with all if there are fewer."""
        return tuple(
            replace(item, references=tuple(item.references[place] for place in order[:count]))
            for item, order in zip(self.items, self.orders[draw], strict=True)
        )


@runtime_checkable
class Sweeps(Protocol):
    """A metric that scores growing sets of references at once; other metrics score every set separately."""

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """Statistics with growing sets of references.

        Called after ``prepare`` with ``sweep.items``, and without ``open``. Nothing is cached.

        Args:
            sweep: items, orders of their references, and numbers of references.
            progress: called with numbers of items done; they add up to the number of items for each draw.

        Returns:
            For each draw one array (counts, n, k): the statistics that ``prepare`` and ``statistics`` compute for
            ``sweep.subset(draw, count)``. None if the metric's options require every set to be scored separately.

        Raises:
            ToolError, FeatureError, ModelError, MetricError: the statistics cannot be computed.
        """


@runtime_checkable
class Retrieves(Protocol):
    """A metric that encodes each caption and each image once to score all pairs; other metrics score pair by pair."""

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray | None:
        """(n, m) scores of images and captions, for retrieval; None if the pairs must be scored one by one.

        Called after ``prepare``.

        Args:
            images: (n) image ids.
            captions: (m) captions.
            references: each image's references; empty for a reference-free column.
            column: the column.
            progress: called with numbers of images done.

        Raises:
            FeatureError, ModelError, MetricError: the scores cannot be computed.
        """


@runtime_checkable
class Explains(Protocol):
    """A metric that explains its scores (``capbench explore explain``).

    Two optional class attributes: ``explains_ensembles = False`` if an explanation needs a single network, and
    ``explains_errors = True`` if it compares its findings with errors that humans marked.
    """

    def explain(self, subject: Subject) -> Explanation | None:
        """Explanation of the scores of one image's candidates; None if this image has no explanation.

        Called without ``prepare`` and ``open``.

        Raises:
            UsageError, FeatureError, ModelError, MetricError: these candidates cannot be explained.
        """


def explains_ensembles(metric: type) -> bool:
    """True unless the metric class declares that its explanation needs a single network."""
    return bool(getattr(metric, "explains_ensembles", True))


@runtime_checkable
class HasLayers(Protocol):
    """A metric over a network that has a value for each of several layers, with one column per layer."""

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that the requested columns stand for under these options.

        Args:
            options: the user's options, checked.
            columns: the requested columns.
        """

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The layers of a network that the option ``layer`` can name together, with a column for each.

        Args:
            resources: the resources of the request's label.
            options: the user's options, checked; an option ``layer`` determines the layers.
        """


@runtime_checkable
class HasWarnings(Protocol):
    """A metric whose scores of some data sets need a warning, for example that it was fitted on these items."""

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Warnings about the scores of a data set, one line each.

        Args:
            dataset: name of the data set (:attr:`capbench.core.records.Judgements.dataset`).
            items: the scored items, repeats included.
        """


@runtime_checkable
class HasTrainingRecords(Protocol):
    """A metric that defines itself on which photographs and captions it was trained; other metrics read the records of
    their networks, word vectors and inputs."""

    def training_records(self) -> Sequence[TrainingRecord]:
        """The records of its trained files.

        Raises:
            ModelError: a record is damaged.
        """


def warnings_of(metric: object, dataset: str, items: Sequence[Item]) -> tuple[str, ...]:
    """Warnings about a metric's scores of a data set; empty for a metric without this ability."""
    return tuple(metric.warnings(dataset, items)) if isinstance(metric, HasWarnings) else ()


# Abilities that scoring uses.


@runtime_checkable
class Opens(Protocol):
    """A metric that receives all items before the first batch."""

    def open(self, items: Sequence[Item]) -> None:
        """Called once, after ``prepare``, with all items whose statistics will be extracted in batches.

        The place to reject items that cannot be scored. Not called when the cache holds everything.
        """


@runtime_checkable
class HasSlowWork(Protocol):
    """A metric with slow work before its statistics, such as SPICE's parses."""

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """The work that must be done once before the statistics of these items can be extracted; None if there is none.

        Called after ``prepare``. Scoring does this work before ``statistics`` and after all metrics without slow work.
        """


@runtime_checkable
class CorpusTerms(Protocol):
    """A metric that defines which sums over items its corpus scores are a function of, if any."""

    def corpus_terms(self, statistics: FloatArray) -> FloatArray | None:
        """(n, t) terms that each item adds to the sums; None if the corpus scores are not a function of sums.

        Without :class:`CorpusSums` the terms are each item's scores and a one: corpus scores are means.
        """


@runtime_checkable
class CorpusSums(CorpusTerms, Protocol):
    """A metric whose corpus scores are a function of sums over items other than a mean: BLEU, METEOR."""

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        """Corpus scores of r corpora from (r, t) sums of :meth:`corpus_terms`: column → (r,)."""


@runtime_checkable
class NamesStatistics(Protocol):
    """A metric that names its statistics itself; by default the name is its signature without recombining options."""

    def statistics_signature(self) -> str:
        """The name under which the cache stores its statistics."""


# Abilities that depend on a metric's options and resources.


@runtime_checkable
class IgnoresReferences(Protocol):
    """A metric whose options decide which columns use references; by default all that are not reference-free."""

    @classmethod
    def ignores_references(cls, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        """Columns that do not use references under these options."""


@runtime_checkable
class OffersByWeights(Protocol):
    """A metric whose weights decide which columns it has."""

    @classmethod
    def offered(cls, resources: Resources) -> tuple[str, ...]:
        """The columns that the metric's bare name stands for with these resources; for other metrics, all columns."""

    @classmethod
    def takes_parses(cls, resources: Resources) -> bool:
        """True if scores require SPICE's parses with these resources; for other metrics, if they need the parser."""


@runtime_checkable
class PassesOn(Protocol):
    """A metric that passes its resources on to other metrics by their labels: a saved combination."""

    @classmethod
    def given(cls, resources: Resources, label: str) -> Resources:
        """The resources that belong to a request of this metric."""

    @classmethod
    def missing(
        cls, resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
    ) -> list[tuple[Need, str]]:
        """The unmet needs of the other metrics, each with a description of what is missing."""

    @classmethod
    def unmet_by(cls, items: Sequence[Item], resources: Resources) -> CapbenchError | None:
        """The error of scoring items that lack something that one of the other metrics needs; else None."""
