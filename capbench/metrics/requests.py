"""From names to requests: which metrics are asked for, under which labels, with which options and columns.

A request's **label** is its identity: one metric may stand several times in a study, with other options, weights or
features each time. A label is the metric's name unless another one is given (``cider-coco=cider``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capbench import plugins
from capbench.errors import CapbenchError, ModelError, UsageError, suggest
from capbench.metrics.base import Metric, Resources
from capbench.metrics.names import columns_by_metric, metric_columns, metric_names
from capbench.metrics.needs import Features, Need
from capbench.options import Options
from capbench.records import ScoreColumn

__all__ = [
    "FOR_ALL",
    "SAVED",
    "Asked",
    "GivenMetric",
    "MetricRequest",
    "Row",
    "resolve_metrics",
    "split_label",
    "without_such_weights",
]

FOR_ALL = ""
"""The owner of options that go to every metric which declares them."""

SAVED = "combination:"
"""What stands before the path of a saved combination."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")


@dataclass(frozen=True)
class GivenMetric:
    """A metric that is handed over as a class, and not named; from Python.

    Attributes:
        metric: the class.
        label: its label; the metric's name by default.
    """

    metric: type[Metric]
    label: str = ""


Asked = str | GivenMetric
"""How a metric is asked for."""


@dataclass(frozen=True)
class Row:
    """One row of a study's tables: a column of a request.

    Attributes:
        key: label and column.
        metric: the metric's name.
        name: its name among all rows of the study.
        title: what it is called in tables.
    """

    key: ScoreColumn
    metric: str
    name: str
    title: str


@dataclass(frozen=True)
class MetricRequest:
    """A metric with options, the columns of it that were asked for, and a label.

    Attributes:
        metric: its class.
        columns: the columns, in the order asked for.
        options: the options that are given, checked.
        label: its identity in results and flags; the metric's name by default.
        title: what its main column is called in tables, if not what the metric calls it.
    """

    metric: type[Metric]
    columns: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.metric.name)

    @property
    def score_columns(self) -> tuple[ScoreColumn, ...]:
        """The requested columns, named with their label."""
        return tuple(ScoreColumn(self.label, column) for column in self.columns)

    @property
    def needs_references(self) -> bool:
        """Whether a requested column needs references of every item."""
        return not self.metric.reference_free().issuperset(self.columns)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the requested columns.

        A row is named by its column under the metric's own name; else by the label, with the column behind a dot
        unless it is the main one.
        """
        return tuple(
            Row(key, self.metric.name, self._name(key.column), self._title(key.column)) for key in self.score_columns
        )

    def _name(self, column: str) -> str:
        if self.label == self.metric.name:
            return column
        return self.label if column == self._main else f"{self.label}.{column}"

    @property
    def _main(self) -> str:
        """The metric's main column, of several layers the first one's."""
        return self.metric.columns_under(self.options, self.metric.columns)[0]

    def _title(self, column: str) -> str:
        title = self.metric.titles.get(column, column)
        if self.title:
            return self.title if column == self.columns[0] else f"{self.title}, {title}"
        return title if self.label == self.metric.name else f"{title} ({self.label})"

    def lacking(self, resources: Resources) -> list[tuple[Need, str]]:
        """The needs that are not met, each with what is lacking."""
        return self.metric.lacking(self.metric.given(resources, self.label), self.options, self.label)

    def lacks(self, resources: Resources) -> str:
        """What must be given before it can be computed (it follows "waits for"); ``""`` if nothing.

        Needs that may be spared (a parser, where everything was parsed before) do not count: the metric is tried.
        """
        return " and ".join(reason for need, reason in self.lacking(resources) if not need.may_be_spared)

    def needs(self, kind: type[Need]) -> bool:
        """Whether the metric declares a need of a kind."""
        return any(isinstance(need, kind) for need in self.metric.needs)

    def reads_features(self) -> bool:
        """Whether the metric reads region features under its options."""
        options = self.metric.option_type.read(self.label, self.options)
        return any(isinstance(need, Features) and need.reads_store(options) for need in self.metric.needs)

    def make(self, resources: Resources) -> Metric:
        """Build the metric with what is given to its label. Raises UsageError if an option's value does not fit."""
        try:
            return self.metric(self.metric.given(resources, self.label), **self.options)
        except CapbenchError:
            raise
        except (TypeError, ValueError) as error:
            raise UsageError(f"options of {self.label}: {error}") from error


def split_label(text: Asked) -> tuple[str, str]:
    """``cider-coco=cider`` → (``cider-coco``, ``cider``); without a label the first is ``""``.

    Raises:
        UsageError: the label cannot be one.
    """
    if isinstance(text, GivenMetric):
        # A class is called by its own name, which messages and flags may name, too.
        return text.label or text.metric.name, text.metric.name
    label, equals, name = text.partition("=")
    if not equals or text.startswith(SAVED):  # whose path may hold '=', too
        return "", text
    if not _LABEL.fullmatch(label) or not name:
        raise UsageError(
            f"'{text}' gives no label",
            hint="Write LABEL=METRIC, with a label of letters, digits, '-', '_' and '+': cider-coco=cider",
        )
    return label, name


def resolve_metrics(
    names: Sequence[Asked],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    resources: Resources | None = None,
    titles: Mapping[str, str] | None = None,
    beside: Sequence[MetricRequest] = (),
) -> tuple[MetricRequest, ...]:
    """Turn names into requests: one for each label, with the columns in the order asked for.

    Args:
        names: metric or column names (``bleu``, ``bleu-4``, ``tiger``), ``metric.column`` for one column of a metric
            that shares its name with it (``tiger.tiger``), ``module:Class``, ``combination:FILE``, each with
            ``LABEL=`` before it if it is to have a label of its own; or ``all`` for every metric that can be computed
            here and now. Or a class.
        options: options by label, by metric or column name, or by :data:`FOR_ALL`; the first of these comes first.
        resources: what is given, for ``all``.
        titles: titles of main columns by label.
        beside: other rows of the same table, files of scores: an option for all may be theirs alone.

    Raises:
        UsageError: an unknown metric or option, a label that is taken, or a value that does not fit; the nearest name
            and the choices are printed.
    """
    options = options or {}
    resources = resources or Resources()
    wanted: dict[str, dict[str, None]] = {}
    classes: dict[str, type[Metric]] = {}
    for text in names:
        if isinstance(text, GivenMetric):
            label, name = text.label, text.metric.name
            expanded = [(_kept_contract(text.metric, name), "")]
        else:
            label, name = split_label(text)
            if label and name == "all":
                raise UsageError(f"'{text}' gives one label to all metrics", hint="Label them one by one")
            expanded = [(_metric_class(metric), column) for metric, column in _expand(name, resources, options)]
        for cls, column in expanded:
            key = label or cls.name
            if classes.setdefault(key, cls) is not cls:
                raise UsageError(
                    f"'{key}' names two metrics, {classes[key].__qualname__} and {cls.__qualname__}",
                    hint=f"Give one of them a label: LABEL={name}",
                )
            if label:
                _check_label(label, cls)
            wanted.setdefault(key, {}).update(dict.fromkeys([column] if column else _offered(cls, key, resources)))
    chosen = _options_by_label(options, classes, beside)
    return tuple(
        MetricRequest(
            classes[label],
            classes[label].columns_under(chosen[label], tuple(columns)),
            chosen[label],
            label,
            (titles or {}).get(label, ""),
        )
        for label, columns in wanted.items()
    )


def _offered(cls: type[Metric], label: str, resources: Resources) -> tuple[str, ...]:
    """The columns that a metric's name stands for."""
    try:
        return cls.offered(resources.of(label, cls.name))
    except ModelError:  # weights that are not here: whoever makes the metric is told
        return cls.columns


def _metric_class(name: str) -> type[Metric]:
    """The class behind a name. Raises UsageError if it does not keep the contract."""
    if name.startswith(SAVED):
        from capbench.metrics.combination import metric_of_combination

        return metric_of_combination(name.removeprefix(SAVED))
    return _kept_contract(plugins.load("capbench.metrics", name), name)


def _kept_contract(cls: type[Any], name: str) -> type[Metric]:
    """The class, if it keeps the contract; else raises UsageError."""
    if not issubclass(cls, Metric):
        raise UsageError(f"'{name}' is no metric", hint="It must be a subclass of capbench.metrics.base.Metric")
    for attribute in ("name", "columns", "titles", "citation"):
        if not getattr(cls, attribute, None):
            raise UsageError(f"the metric '{name}' does not say its '{attribute}'", hint="See docs/extend.md")
    if not all(isinstance(need, Need) for need in cls.needs):
        raise UsageError(
            f"the metric '{name}' names its needs in another way than this version reads",
            hint="List objects of capbench.metrics.needs, such as References()",
        )
    parameters = inspect.signature(cls.__init__).parameters.values()
    declared = {option.name for option in cls.option_type.declared()} if issubclass(cls.option_type, Options) else set()
    keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    if not issubclass(cls.option_type, Options) or keywords - declared:
        raise UsageError(
            f"the metric '{name}' has options that are not declared",
            hint="Declare them in a subclass of capbench.options.Options, see docs/extend.md",
        )
    return cls


def _check_label(label: str, cls: type[Metric]) -> None:
    taken = metric_columns().get(label)
    if taken is not None and label != cls.name:
        raise UsageError(f"the label '{label}' is the name of {taken[0]}'s column", hint="Choose another label")
    if label.lower() == "all":
        raise UsageError(f"the label '{label}' stands for all metrics", hint="Choose another label")


def _options_by_label(
    options: Mapping[str, Mapping[str, Any]], classes: Mapping[str, type[Metric]], beside: Sequence[MetricRequest]
) -> dict[str, dict[str, Any]]:
    """Each label's options, checked: those for all, then those of its metric, then its own come last and win."""
    by_metric: dict[str, dict[str, Any]] = {}
    columns = metric_columns()
    metrics = {cls.name for cls in classes.values()}
    for owner, values in options.items():
        if owner in classes or owner == FOR_ALL:
            continue
        # Options may stand at a column's name (bleu-4), they belong to its metric; a class is named by its path, too.
        metric = columns.get(owner.lower(), (owner, ""))[0]
        if ":" in owner:
            metric = _metric_class(owner).name
        if metric not in metrics:
            of_file = next((r.label for r in beside for row in r.rows if owner in (row.name, row.key.column)), None)
            what = "which is not among the metrics" if of_file is None else "a column of a file of scores"
            hint = suggest(owner, [*classes, *(request.label for request in beside)])
            if of_file is not None:
                hint = f"Options belong to the file: {of_file}.{next(iter(values))}; given twice, with a name each and "
                hint += "the option 'columns', its columns can differ"
            raise UsageError(f"an option is given for '{owner}', {what}", hint=hint)
        for option, value in values.items():
            if by_metric.get(metric, {}).get(option, value) != value:
                raise UsageError(f"the option '{option}' of {metric} is given twice with different values")
            by_metric.setdefault(metric, {})[option] = value
    chosen: dict[str, dict[str, Any]] = {}
    declared = {label: {d.name for d in cls.option_type.declared()} for label, cls in classes.items()}
    of_files = {d.name for request in beside for d in request.metric.option_type.declared()}
    for option in options.get(FOR_ALL, {}):
        known = sorted(of_files.union(*declared.values()))
        if option not in known:
            raise UsageError(f"none of the metrics has an option '{option}'", hint=suggest(option, known))
    for label, cls in classes.items():
        for_all = {name: value for name, value in options.get(FOR_ALL, {}).items() if name in declared[label]}
        of_metric = by_metric.get(cls.name, {}) | dict(options.get(cls.name, {}))
        given = for_all | of_metric | dict(options.get(label, {}))
        cls.option_type.read(label, given)
        chosen[label] = given
    return chosen


def _expand(name: str, resources: Resources, options: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(metric, column) of a name, or of every metric that can be computed; ``""`` stands for all columns."""
    if ":" in name:
        return [(name, "")]
    columns = metric_columns()
    if name == "all":
        return [(metric, "") for metric in metric_names() if _is_able(metric, resources, options)]
    metric, dot, column = name.lower().partition(".")
    if dot and metric in metric_names():
        known = columns_by_metric()[metric]
        if column not in known:
            raise UsageError(f"{metric} has no column '{column}'", hint=suggest(column, list(known)))
        return [(metric, column)]
    if name.lower() not in columns:
        raise UsageError(f"unknown metric '{name}'", hint=suggest(name, ["all", *columns]))
    return [columns[name.lower()]]


def without_such_weights(resources: Resources) -> list[str]:
    """Metrics for which the name of weights that is given (``sample``) stands for nothing: ``all`` leaves them out."""
    return [metric for metric in metric_names() if _of_all(metric, resources) is None]


def _of_all(metric: str, resources: Resources) -> Resources | None:
    """What a metric is given; None where that is a name of weights which stands for none of this metric's."""
    try:
        return resources.of(metric, metric)
    except ModelError:
        return None


def _is_able(metric: str, resources: Resources, options: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether nothing is lacking, not even what may be spared."""
    cls = _metric_class(metric)
    declared = {option.name for option in cls.option_type.declared()}
    for_all = {name: value for name, value in options.get(FOR_ALL, {}).items() if name in declared}
    of_metric = dict(options.get(metric, {}))
    given = _of_all(metric, resources)
    return given is not None and not cls.lacking(given, for_all | of_metric)
