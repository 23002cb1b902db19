"""The contract of a metric, and how one is found by name.

A metric turns items into **statistics** (per-item numbers that take time to extract: n-gram matches,
METEOR's counts), and statistics into **scores**, per item and for a corpus, which is cheap. So
resampling and reference sweeps never extract twice, and the score cache keeps the statistics.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench import __version__, plugins
from capbench.errors import CapbenchError, UsageError, suggest
from capbench.explanations import Explanation, Subject
from capbench.records import FloatArray, Item, ScoreColumn

__all__ = [
    "Metric",
    "MetricRequest",
    "ReferenceSweep",
    "Resources",
    "metric_columns",
    "metric_names",
    "resolve_metrics",
]

Progress = Callable[[int], None]
"""Called with the number of items done since the last call."""


@dataclass(frozen=True)
class Resources:
    """What a metric may need beside captions.

    Attributes:
        features: path of a region-feature store (``--features``).
        model: path of weights (``--model FILE``), or a name that :func:`capbench.models.registry.locate` knows.
        models: likewise by metric name (``--model METRIC=FILE``), which come before ``model``.
        data: the data folder, for named corpora such as ``coco-val``.
        captions: looks up a corpus of captions (``coco-val``, or a file): captions by image. Metrics know no
            data sets, so whoever runs them hands this in.
        cache: whether the cache folder may be read and written.
    """

    features: str | None = None
    model: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    data: str | None = None
    captions: Callable[[str], Mapping[str, Sequence[str]]] | None = None
    cache: bool = True

    def of(self, metric: str) -> Resources:
        """These resources with the file of the metric's own weights as ``model``.

        Raises:
            ModelError: the weights are given by a name of ``capbench models``, and are not here.
        """
        model = self.models.get(metric, self.model)
        if model is not None and not Path(model).exists():
            from capbench.models.registry import is_known, locate

            # What is neither a file nor a known name is the metric's own matter: it may be a name elsewhere.
            model = str(locate(model)) if is_known(model) else model
        return replace(self, model=model)


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


class Metric(abc.ABC):
    """One metric with its options.

    Options are the keyword-only parameters of ``__init__`` after ``resources``; each has a default,
    so that the command line can list and check them. A subclass calls ``super().__init__(resources)``.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    columns: ClassVar[tuple[str, ...]]
    """Names of its output columns, the main one first."""
    titles: ClassVar[Mapping[str, str]]
    """Each column's name in tables (``BLEU-4``)."""
    citation: ClassVar[str]
    """The paper, one line."""
    needs: ClassVar[frozenset[str]] = frozenset({"references"})
    """Any of ``references``, ``images``, ``features``, ``java``, ``weights``."""
    waits_for: ClassVar[str | None] = None
    """For a metric that this version knows of but cannot compute: what it waits for."""
    batch_size: int = 1024
    """Items that :meth:`statistics` gets at once; each batch is kept in the cache as soon as it is done."""
    order: ClassVar[int] = 1000
    """Its place in lists and tables, lowest first."""
    uses_corpus: ClassVar[bool] = False
    """True if :meth:`prepare` makes scores depend on the whole list of items."""

    def __init__(self, resources: Resources | None = None) -> None:
        self.resources = resources or Resources()

    @classmethod
    def is_set_up(cls) -> bool:
        """False if something must be fetched first (``capbench setup``): ``all`` then leaves the metric out."""
        return True

    @classmethod
    def lacks(cls, resources: Resources, options: Mapping[str, Any] | None = None) -> str | None:
        """What must be given before it can be computed, and how (it follows "waits for"); None if nothing.

        Args:
            resources: what is given, ``model`` being this metric's.
            options: options that are given.
        """
        return cls.waits_for

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """Columns that do without references, which an item may then lack."""
        return frozenset() if "references" in cls.needs else frozenset(cls.columns)

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        """Options and their defaults, from the signature of ``__init__``."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def signature(self) -> str:
        """One line with everything that can change a score: ``name|capbench:version|key:value|…``."""
        parts = [self.name, f"capbench:{__version__}", *(f"{k}:{v}" for k, v in self.signature_parts().items())]
        return "|".join(parts)

    def statistics_signature(self) -> str:
        """What the cache keeps statistics under; shorter than the signature where options only recombine them."""
        return self.signature()

    def signature_parts(self) -> Mapping[str, object]:
        """The metric's own part of the signature, in a fixed order. Valid after :meth:`prepare`."""
        return {}

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

    def open(self, items: Sequence[Item]) -> None:  # noqa: B027  (most metrics have nothing to do once)
        """Called once with all items whose statistics will be extracted, in batches, after :meth:`prepare`.

        For what is cheaper at once: tokenising, reading features. Not called when the cache holds everything.
        """

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

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Per-item scores: column → (n,). By default the statistics are the columns."""
        return {column: np.ascontiguousarray(statistics[:, i]) for i, column in enumerate(self.columns)}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """Corpus-level score by column. By default the mean of the items' scores."""
        return {column: float(values.mean()) for column, values in self.scores(statistics).items()}

    def explain(self, subject: Subject) -> Explanation | None:
        """Why candidates of one image get their scores; None, the default, from a metric that does not tell.

        Called without :meth:`prepare` and :meth:`open`.

        Raises:
            UsageError, FeatureError, ModelError, MetricError: it cannot be told of these candidates.
        """
        return None


@dataclass(frozen=True)
class MetricRequest:
    """A metric with options and the columns of it that were asked for."""

    metric: type[Metric]
    columns: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def score_columns(self) -> tuple[ScoreColumn, ...]:
        """The requested columns, named with their metric."""
        return tuple(ScoreColumn(self.metric.name, column) for column in self.columns)

    def lacks(self, resources: Resources) -> str | None:
        """What must be given before it can be computed (it follows "waits for"); None if nothing."""
        return self.metric.lacks(resources.of(self.metric.name), self.options)

    def make(self, resources: Resources) -> Metric:
        """Build the metric with its own weights. Raises UsageError if an option's value does not fit."""
        try:
            return self.metric(resources.of(self.metric.name), **self.options)
        except CapbenchError:
            raise
        except (TypeError, ValueError) as error:
            raise UsageError(f"options of {self.metric.name}: {error}") from error


def metric_names() -> list[str]:
    """Names of all registered metrics, in the order of :attr:`Metric.order`."""

    def place(name: str) -> int:
        try:
            return int(plugins.load("capbench.metrics", name).order)
        except (CapbenchError, AttributeError):  # a broken plug-in must not hide the others
            return Metric.order

    return sorted(plugins.names("capbench.metrics"), key=place)


def metric_columns() -> dict[str, tuple[str, str]]:
    """Every name that can be asked for → (metric, column); ``""`` as column stands for all of the metric's."""
    found: dict[str, tuple[str, str]] = {}
    for name in metric_names():
        cls = plugins.load("capbench.metrics", name)
        for column in cls.columns:
            found.setdefault(column, (name, column))
    for name in metric_names():
        found[name] = (name, "")
    return found


def resolve_metrics(
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    resources: Resources | None = None,
) -> tuple[MetricRequest, ...]:
    """Turn names into requests: one for each metric, with the columns in the order asked for.

    Args:
        names: metric or column names (``bleu``, ``bleu-4``, ``tiger``), ``metric.column`` for one column of a metric
            that shares its name with it (``tiger.tiger``), ``module:Class``, or ``all`` for every metric that can be
            computed here and now, without weights, or with the features and weights given.
        options: options by metric name.
        resources: what is given, for ``all``.

    Raises:
        UsageError: an unknown metric or option; the nearest name and the choices are printed.
    """
    options = dict(options or {})
    wanted: dict[str, dict[str, None]] = {}
    classes: dict[str, type[Metric]] = {}
    for name in names:
        for metric, column in _expand(name, resources or Resources(), options):
            cls = classes.setdefault(metric, plugins.load("capbench.metrics", metric))
            if not issubclass(cls, Metric):
                raise UsageError(f"'{name}' is no metric", hint="It must be a subclass of capbench.metrics.base.Metric")
            chosen = wanted.setdefault(metric, {})
            chosen.update(dict.fromkeys([column] if column else cls.columns))
    requests = []
    for metric, columns in wanted.items():
        cls = classes[metric]
        given = dict(options.pop(cls.name, {}))
        known = cls.option_defaults()
        for option in given:
            if option not in known:
                raise UsageError(f"{cls.name} has no option '{option}'", hint=suggest(option, list(known)))
        requests.append(MetricRequest(cls, tuple(columns), given))
    if options:
        stray = next(iter(options))
        raise UsageError(
            f"an option is given for '{stray}', which is not among the metrics",
            hint=suggest(stray, [r.metric.name for r in requests]),
        )
    return tuple(requests)


def _expand(name: str, resources: Resources, options: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    if ":" in name:
        return [(name, "")]
    columns = metric_columns()
    if name == "all":
        able = [(m, plugins.load("capbench.metrics", m)) for m in metric_names()]
        return [(m, "") for m, cls in able if _is_able(cls, resources, options.get(m, {}))]
    metric, dot, column = name.lower().partition(".")
    if dot and metric in metric_names():
        known = plugins.load("capbench.metrics", metric).columns
        if column not in known:
            raise UsageError(f"{metric} has no column '{column}'", hint=suggest(column, list(known)))
        return [(metric, column)]
    if name.lower() not in columns:
        raise UsageError(f"unknown metric '{name}'", hint=suggest(name, ["all", *columns]))
    return [columns[name.lower()]]


def _is_able(cls: type[Metric], resources: Resources, options: Mapping[str, Any]) -> bool:
    # Weights that do not go with features are given as an option, and so only to a metric that is asked for by name.
    given = "weights" not in cls.needs or "features" in cls.needs
    return given and cls.is_set_up() and cls.lacks(resources.of(cls.name), options) is None
