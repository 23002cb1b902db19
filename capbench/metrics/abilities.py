"""Abilities that only some metrics have: one protocol each, tested with isinstance and issubclass.

A metric has an ability if it has the protocol's methods; nothing is registered or inherited. Code that can use one
tests for it (``if isinstance(metric, Sweeps)``), and does without it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item

if TYPE_CHECKING:
    from capbench.core.explanations import Explanation, Subject
    from capbench.metrics.needs import Need, Resources

__all__ = [
    "CorpusSums",
    "CorpusTerms",
    "Explains",
    "HasCautions",
    "HasLayers",
    "HasSlowWork",
    "HasWarnings",
    "IgnoresReferences",
    "NamesStatistics",
    "OffersByWeights",
    "Opens",
    "PassesOn",
    "ReferenceSweep",
    "RegionWords",
    "Retrieves",
    "ScoresWords",
    "Sweeps",
    "explains_ensembles",
    "explains_errors",
    "warnings_of",
]

# What users of capbench see: curves over references, retrieval, explanations, layers, warnings.


@dataclass(frozen=True)
class ReferenceSweep:
    """The same items with growing sets of references, added in one or more orders.

    Attributes:
        items: (n) items with all their references, repeats included.
        orders: for each draw and item, places of the item's references (from 0) in the order in which they are added.
        counts: ascending numbers of references, each at least 1.
    """

    items: tuple[Item, ...]
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    counts: tuple[int, ...]

    def subset(self, draw: int, count: int) -> tuple[Item, ...]:
        """Items with the first ``count`` references of a draw, in its order; with all where there are fewer."""
        return tuple(
            replace(item, references=tuple(item.references[place] for place in order[:count]))
            for item, order in zip(self.items, self.orders[draw], strict=True)
        )


@dataclass(frozen=True, eq=False)
class RegionWords:
    """How words fit the regions of an image.

    Attributes:
        candidate: the candidate's words (k), and their scores (k, n) with the n regions after references are fused.
        references: for each reference its words, and their scores with the regions before that.
    """

    candidate: tuple[tuple[str, ...], FloatArray]
    references: tuple[tuple[tuple[str, ...], FloatArray], ...]


@runtime_checkable
class Sweeps(Protocol):
    """A metric that scores growing sets of references at once; others score every set anew."""

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """Statistics with growing sets of references.

        Called after ``prepare`` with ``sweep.items``, and without ``open``. Nothing is cached.

        Args:
            sweep: items, orders of their references, and numbers of references.
            progress: called with numbers of items done; they add up to the number of items for each draw.

        Returns:
            For each draw one array (counts, n, k): the statistics that ``prepare`` and ``statistics`` give for
            ``sweep.subset(draw, count)``. None if every set has to be scored anew under the metric's options.

        Raises:
            ToolError, FeatureError, ModelError, MetricError: it cannot be computed.
        """


@runtime_checkable
class Retrieves(Protocol):
    """A metric that scores every caption against every image with each side encoded once; others score each pair."""

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray | None:
        """(n, m) scores of captions against images, for retrieval; None if they have to be scored pair by pair.

        Called after ``prepare``.

        Args:
            images: (n) image ids.
            captions: (m) captions.
            references: each image's references; none for a column that does without.
            column: the column.
            progress: called with numbers of images done.

        Raises:
            FeatureError, ModelError, MetricError: it cannot be computed.
        """


@runtime_checkable
class Explains(Protocol):
    """A metric that explains its scores (``capbench explain``).

    Two class attributes may stand beside: ``explains_ensembles = False`` if an explanation needs a single network, and
    ``explains_errors = True`` if it compares what it finds with errors that people name.
    """

    def explain(self, subject: Subject) -> Explanation | None:
        """Why candidates of one image get their scores; None if this image has no explanation.

        Called without ``prepare`` and ``open``.

        Raises:
            UsageError, FeatureError, ModelError, MetricError: these candidates cannot be explained.
        """


def explains_ensembles(metric: type) -> bool:
    """True unless a metric class declares that its explanation needs a single network."""
    return bool(getattr(metric, "explains_ensembles", True))


def explains_errors(metric: type) -> bool:
    """True if a metric class declares that its explanation compares what it finds with errors that people name."""
    return bool(getattr(metric, "explains_errors", False))


@runtime_checkable
class ScoresWords(Protocol):
    """A metric that scores single words with regions (``capbench words``)."""

    def region_words(self, image: str, candidate: str, references: Sequence[str]) -> RegionWords | None:
        """How words of a candidate and of references fit the image's regions; None if this image has no such scores.

        Raises:
            FeatureError, ModelError, MetricError, ToolError: it cannot be computed for this image.
        """


@runtime_checkable
class HasLayers(Protocol):
    """A metric over a network that has a value for each of several layers, one column a layer."""

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that some of the metric's columns stand for under options.

        Args:
            options: options that are given, checked.
            columns: those that were requested.
        """

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The layers of a network that the option ``layer`` can name together, with a column for each.

        Args:
            resources: what is given to its label.
            options: options that are given, checked; where ``layer`` is among them, these are the layers.
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
class HasCautions(Protocol):
    """The former name of :class:`HasWarnings`, for metrics written for earlier versions."""

    def cautions(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """See :meth:`HasWarnings.warnings`."""


def warnings_of(metric: object, dataset: str, items: Sequence[Item]) -> tuple[str, ...]:
    """Warnings about a metric's scores of a data set; empty for a metric without this ability."""
    if isinstance(metric, HasWarnings):
        return tuple(metric.warnings(dataset, items))
    return tuple(metric.cautions(dataset, items)) if isinstance(metric, HasCautions) else ()


# How scoring goes about its work.


@runtime_checkable
class Opens(Protocol):
    """A metric that sees all items before the first batch."""

    def open(self, items: Sequence[Item]) -> None:
        """Called once with all items whose statistics will be extracted, in batches, after ``prepare``.

        For what is cheaper at once: rejecting items that cannot be scored. Not called when the cache holds everything.
        """


@runtime_checkable
class HasSlowWork(Protocol):
    """A metric with work that comes before statistics and takes long, such as SPICE's parses."""

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """The work that must be done once before the statistics of these items can be extracted; None if nothing is.

        Called after ``prepare``. Scoring does it before ``statistics``, after all metrics without such work.
        """


@runtime_checkable
class CorpusTerms(Protocol):
    """A metric that decides itself whether its corpus scores are a function of sums over items."""

    def corpus_terms(self, statistics: FloatArray) -> FloatArray | None:
        """(n, t) what each item adds to the sums; None if the corpus scores are not a function of sums.

        A metric without :class:`CorpusSums` adds each item's scores and a one: its corpus scores are their means.
        """


@runtime_checkable
class CorpusSums(CorpusTerms, Protocol):
    """A metric whose corpus scores are another function of sums over items than a mean: BLEU, METEOR."""

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        """Corpus scores of r corpora from (r, t) sums of :meth:`corpus_terms`: column → (r,)."""


@runtime_checkable
class NamesStatistics(Protocol):
    """A metric whose statistics have another name than its signature without the options that only recombine them."""

    def statistics_signature(self) -> str:
        """What its statistics are kept under."""


# What follows from what a metric is given.


@runtime_checkable
class IgnoresReferences(Protocol):
    """A metric whose options decide which columns look at references; else those do that cannot do without."""

    @classmethod
    def ignores_references(cls, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        """Columns that look at no references, under options."""


@runtime_checkable
class OffersByWeights(Protocol):
    """A metric whose weights decide which columns there are."""

    @classmethod
    def offered(cls, resources: Resources) -> tuple[str, ...]:
        """The columns that the metric's bare name stands for with what is given to it; of other metrics all."""

    @classmethod
    def takes_parses(cls, resources: Resources) -> bool:
        """True if scores require SPICE's parses with what is given to it; of other metrics, if they need the parser."""


@runtime_checkable
class PassesOn(Protocol):
    """A metric that hands what it is given to other metrics, by their labels: a saved combination."""

    @classmethod
    def given(cls, resources: Resources, label: str) -> Resources:
        """What of all that is given belongs to a request of this metric."""

    @classmethod
    def lacking(
        cls, resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
    ) -> list[tuple[Need, str]]:
        """The needs of the other metrics that are not met, each with what is missing."""
