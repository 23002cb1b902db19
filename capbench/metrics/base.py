"""The contract of a metric.

A metric turns items into **statistics** (per-item numbers that take time to extract: n-gram matches,
METEOR's counts), and statistics into **scores**, per item and for a corpus, which is cheap. So
resampling and reference sweeps never extract twice, and the score cache keeps the statistics. Corpus scores are
mostly a function of sums over items (``corpus_terms``, ``corpus_of_sums``), so resampling need not even recombine rows.

The calls in their order: ``__init__`` (options are checked), ``prepare`` (the whole list of items), ``signature``,
``cache_key``; and for what the cache does not hold ``open`` and ``statistics`` batch by batch; then ``scores`` and
``corpus_scores``. CONTRIBUTING.md tells it with an example.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from capbench import __version__
from capbench.errors import MetricError
from capbench.metrics.needs import Features, Need, References, Weights
from capbench.metrics.resources import Resources
from capbench.metrics.signing import code_signature
from capbench.options import Options
from capbench.progress import Progress, SlowWork
from capbench.records import FloatArray, Item

if TYPE_CHECKING:
    from capbench.explanations import Explanation, Subject

__all__ = ["Metric", "Progress", "ReferenceSweep", "Resources"]


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
    explains_ensembles: ClassVar[bool] = True
    """False if :meth:`explain` needs a single network."""
    explains_errors: ClassVar[bool] = False
    """True if :meth:`explain` compares what it finds with errors that people name."""
    order: ClassVar[int] = 1000
    """Its place in lists and tables, lowest first."""

    options: Options
    """The options as they were given or by default."""

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        self.resources = resources or Resources()
        self.options = self.option_type.read(self.name, options)
        lacking = [why for need, why in self.lacking(self.resources, options) if not need.may_be_spared]
        if lacking:
            raise MetricError(f"{self.name} waits for {' and '.join(lacking)}")

    def __getstate__(self) -> dict[str, Any]:
        """What another process is handed: all but cached properties, which are what was opened here."""
        lazy = {name for cls in type(self).__mro__ for name, it in vars(cls).items() if isinstance(it, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @classmethod
    def lacks(cls, resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None) -> str:
        """What must be given before it can be computed, and how (it follows "waits for"); ``""`` if nothing.

        Args:
            resources: what is given to this metric.
            options: options that are given.
            label: the request's label, which flags name.

        Raises:
            UsageError: an option does not fit.
        """
        return " and ".join(reason for _, reason in cls.lacking(resources, options, label))

    @classmethod
    def lacking(
        cls, resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
    ) -> list[tuple[Need, str]]:
        """The needs that are not met, each with what is lacking. Arguments and errors as for :meth:`lacks`."""
        chosen = cls.option_type.read(cls.name, options or {})
        needs = [single for need in cls.needs for single in need.each()]
        reasons = ((need, need.lacking(label or cls.name, resources, chosen)) for need in needs)
        return [(need, reason) for need, reason in reasons if reason]

    @classmethod
    def given(cls, resources: Resources, label: str) -> Resources:
        """What of all that is given belongs to a request of this metric.

        Raises:
            ModelError: see :meth:`Resources.of`.
        """
        return resources.of(label, cls.name)

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """Columns that do without references, which an item may then lack."""
        return frozenset() if any(isinstance(need, References) for need in cls.needs) else frozenset(cls.columns)

    @classmethod
    def ignores_references(cls, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        """Columns that look at no references, under options; by default all that do without."""
        return cls.reference_free()

    @classmethod
    def offered(cls, resources: Resources) -> tuple[str, ...]:
        """The columns that the metric's bare name stands for with what is given to it; by default all."""
        return cls.columns

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that some of :attr:`columns` stand for under options; by default these columns.

        For a metric that gives several values of each column (one a layer of a network) if it is asked for that.

        Args:
            options: options that are given, checked.
            columns: those that were asked for.
        """
        return tuple(columns)

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The layers of a network that the option ``layer`` can name together, with a column for each.

        By default none: a metric that takes one layer at a time, or has none.

        Args:
            resources: what is given to its label.
            options: options that are given, checked; where ``layer`` is among them, these are the layers.
        """
        return ()

    def _given_columns(self) -> tuple[str, ...]:
        """All columns under the options of this metric."""
        chosen = {declared.name: getattr(self.options, declared.name) for declared in self.option_type.declared()}
        return self.columns_under(chosen, self.columns)

    def signature(self) -> str:
        """One line with everything that can change a score: ``name|capbench:version|key:value|…``.

        Facts come first, then options in the order of their declaration. Valid after :meth:`prepare`.
        """
        return self._signed(recombining=True)

    def statistics_signature(self) -> str:
        """What the cache keeps statistics under: the signature without options that only recombine them."""
        return self._signed(recombining=False)

    def _signed(self, *, recombining: bool) -> str:
        facts = {key: str(value) for key, value in self.facts().items()}
        options = self.options.signature_parts(recombining=recombining)
        # A fact says what an option came to (the documents behind cider.df), so it is the fact that is signed.
        parts = {key: value for key, value in facts.items() if key not in options}
        parts |= {key: facts.get(key, value) for key, value in options.items()}
        code = code_signature(type(self))
        own_code = [] if code == "" else [f"code:{code or type(self).__qualname__ + '@unknown'}"]
        return "|".join(
            [self.name, f"capbench:{__version__}", *own_code, *(f"{key}:{value}" for key, value in parts.items())]
        )

    def may_be_cached(self) -> bool:
        """False for a class whose code cannot be signed, or that asks for it: its scores are never kept."""
        return self.keeps_statistics and code_signature(type(self)) is not None

    def facts(self) -> Mapping[str, object]:
        """What can change a score and is no option: tokenisers, weights, features, documents. Valid after ``prepare``.

        By default the weights by the first 16 digits of their SHA-256, and what computed the region features, if the
        metric needs them. A fact under an option's key stands in its place.
        """
        facts: dict[str, object] = {}
        if any(isinstance(need, Weights) for need in self.needs) and self.resources.model is not None:
            from capbench.files import sha256_file

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

    def cautions(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """What must be said beside its scores of a data set, one line each; say, that it was fitted on these items.

        Args:
            dataset: the data set's name, as :attr:`capbench.records.Judgements.dataset` has it.
            items: what was scored, repeats included.
        """
        return ()

    def open(self, items: Sequence[Item]) -> None:  # noqa: B027  (most metrics have nothing to do once)
        """Called once with all items whose statistics will be extracted, in batches, after :meth:`prepare`.

        For what is cheaper at once: refusing items that cannot be scored. Not called when the cache holds everything.
        """

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """What must be done once before the statistics of these items can be extracted, if that takes long.

        Called after :meth:`prepare`. Scoring does it before :meth:`statistics`, after all metrics without such work.
        """
        return None

    @abc.abstractmethod
    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Extract the statistics of items: (n, k) float64, one row an item, of fixed width k.

        Raises:
            ToolError, FeatureError, ModelError, MetricError: it cannot be computed.
        """

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """Statistics with growing sets of references, if that is cheaper than extracting them for each set anew.

        Called after :meth:`prepare` with ``sweep.items``, and without :meth:`open`. Nothing is cached.

        Args:
            sweep: items, orders of their references, and numbers of references.
            progress: called with numbers of items done; they add up to the number of items for each draw.

        Returns:
            For each draw one array (counts, n, k): what :meth:`prepare` and :meth:`statistics` give for
            ``sweep.subset(draw, count)``. None, the default, if every set has to be scored anew.

        Raises:
            ToolError, FeatureError, ModelError, MetricError: it cannot be computed.
        """
        return None

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray | None:
        """Scores of every caption against every image, each side encoded once; for retrieval.

        Called after :meth:`prepare`.

        Args:
            images: (n) image ids.
            captions: (m) captions.
            references: each image's references; none for a column that does without.
            column: the column.
            progress: called with numbers of images done.

        Returns:
            (n, m) scores; None, the default, if the metric has no faster way than item by item.

        Raises:
            FeatureError, ModelError, MetricError: it cannot be computed.
        """
        return None

    def region_words(self, image: str, candidate: str, references: Sequence[str]) -> RegionWords | None:
        """How words of a candidate and of references fit the image's regions; None, the default, if it is not told.

        Raises:
            FeatureError, ModelError, MetricError, ToolError: it cannot be told of this image.
        """
        return None

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Per-item scores: column → (n,). By default the statistics are the columns."""
        return {column: np.ascontiguousarray(statistics[:, i]) for i, column in enumerate(self._given_columns())}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """Corpus-level score by column. By default the mean of the items' scores."""
        return {column: float(values.mean()) for column, values in self.scores(statistics).items()}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray | None:
        """(n, t) what each item adds to the sums from which :meth:`corpus_of_sums` makes the corpus scores.

        With it a thousand resamples of a corpus cost one product of matrices. None if the corpus scores are no
        function of sums: resampling then calls :meth:`corpus_scores` on the rows that were drawn. By default each
        item's scores and a one, if the corpus scores are their means; None in a metric with a :meth:`corpus_scores`
        of its own.
        """
        if type(self).corpus_scores is not Metric.corpus_scores:
            return None
        columns = self.scores(statistics)
        return np.column_stack([*(columns[column] for column in self._given_columns()), np.ones(len(statistics))])

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        """Corpus scores of r corpora from sums of :meth:`corpus_terms`: column → (r,).

        Args:
            sums: (r, t) sums over the items of each corpus.
        """
        return {column: sums[:, i] / sums[:, -1] for i, column in enumerate(self._given_columns())}

    def explain(self, subject: Subject) -> Explanation | None:
        """Why candidates of one image get their scores; None, the default, from a metric that does not tell.

        Called without :meth:`prepare` and :meth:`open`.

        Raises:
            UsageError, FeatureError, ModelError, MetricError: it cannot be told of these candidates.
        """
        return None
