"""From names to requests: which metrics are asked for, under which labels, with which options and columns.

A request's **label** is its identity: one metric may stand several times in a study, with other options, weights or
features each time. A label is the metric's name unless another one is given (``cider-coco=cider``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capbench.core import plugins
from capbench.core.errors import ModelError, UsageError, suggest
from capbench.core.options import Options
from capbench.metrics.abilities import OffersByWeights
from capbench.metrics.base import Metric, Resources, columns_under, lacking
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Need
from capbench.metrics.registry import columns_by_metric, metric_columns, metric_names

__all__ = [
    "FOR_ALL",
    "SAVED",
    "Asked",
    "GivenMetric",
    "MetricRequest",
    "Row",
    "left_out_of_all",
    "resolve_metrics",
    "split_label",
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
            columns_under(classes[label], chosen[label], tuple(columns)),
            chosen[label],
            label,
            (titles or {}).get(label, ""),
        )
        for label, columns in wanted.items()
    )


def _offered(cls: type[Metric], label: str, resources: Resources) -> tuple[str, ...]:
    """The columns that a metric's name stands for."""
    if not issubclass(cls, OffersByWeights):
        return cls.columns
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
            hint="Declare them in a subclass of capbench.core.options.Options, see docs/extend.md",
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


def left_out_of_all(resources: Resources, options: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, str]:
    """Metrics that ``all`` leaves out, each with the reason (``features, weights``)."""
    reasons = {}
    for metric in metric_names():
        if _of_all(metric, resources) is None:
            reasons[metric] = f"--model {resources.model} is none for them; give theirs with --model NAME=FILE"
        elif missing := _missing_of_all(metric, resources, options or {}):
            reasons[metric] = ", ".join(dict.fromkeys(need.name() for need, _ in missing))
    return reasons


def _of_all(metric: str, resources: Resources) -> Resources | None:
    """What a metric is given; None where that is a name of weights which stands for none of this metric's."""
    try:
        return resources.of(metric, metric)
    except ModelError:
        return None


def _is_able(metric: str, resources: Resources, options: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether nothing is lacking, not even what may be spared."""
    return _of_all(metric, resources) is not None and not _missing_of_all(metric, resources, options)


def _missing_of_all(
    metric: str, resources: Resources, options: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Need, str]]:
    """The needs of a metric that are not met, those that may be spared included."""
    cls = _metric_class(metric)
    declared = {option.name for option in cls.option_type.declared()}
    for_all = {name: value for name, value in options.get(FOR_ALL, {}).items() if name in declared}
    of_metric = dict(options.get(metric, {}))
    given = _of_all(metric, resources)
    return [] if given is None else lacking(cls, given, for_all | of_metric)
