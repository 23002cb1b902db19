"""Turns names into metric requests with labels, options and columns.

The **label** identifies a request: a study may contain one metric several times with different options, weights or
features. By default the label is the metric's name; ``cider-coco=cider`` sets another one.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from capbench.core import plugins
from capbench.core.errors import CapbenchError, ModelError, UsageError, check_choice, suggest
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import FOR_ALL, Asked, GivenMetric, MetricRequest
from capbench.metrics.needs import Need, Resources, unmet_needs
from capbench.metrics.registry import columns_by_metric, metric_columns, metric_names

SENTINEL_NAMES = ("length", "length-ratio", "source", "candidate-only", "image-mean")
"""Names of the sentinels, which are computed from the judgements and are not metrics (docs/sentinels.md)."""
SAVED = "combination:"  # Prefix of the path of a saved combination

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")


def split_label(text: Asked) -> tuple[str, str]:
    """``cider-coco=cider`` → (``cider-coco``, ``cider``); without a label the first is ``""``."""
    if isinstance(text, GivenMetric):
        # Messages and flags use the class's own name.
        return text.label or text.metric.name, text.metric.name
    label, equals, name = text.partition("=")
    if not equals or text.startswith(SAVED):  # a path may contain '='
        return "", text
    if not _LABEL.fullmatch(label) or not name:
        message = f"'{text}' has no valid label"
        hint = "Write LABEL=METRIC, with letters, digits, '-', '_' and '+' in the label: cider-coco=cider"
        raise UsageError(message, code="wrong-format", value=text, hint=hint)
    return label, name


def labels_of(names: Iterable[Asked]) -> list[str]:
    """The labels that features and weights can belong to: those of names, and those of the inputs of combinations."""
    labels = []
    for label, name in map(split_label, names):
        labels += [label] if label else []
        if name.startswith(SAVED):
            from capbench.metrics.combination import read_combination

            with contextlib.suppress(CapbenchError):  # raised when the metric is made
                labels += [entry.label for entry in read_combination(name.removeprefix(SAVED)).inputs]
    return labels


def resolve_metrics(
    # metric or column names (``bleu``, ``bleu-4``, ``tiger``), ``metric.column`` for a column with the name of its
    # metric (``tiger.tiger``), ``module:Class``, ``combination:FILE``, each optionally with ``LABEL=`` before it;
    # ``all`` for every metric whose requirements are met; or a class
    names: Sequence[Asked],
    # options by label, by metric or column name, or by :data:`FOR_ALL`, in order of precedence
    options: Mapping[str, Mapping[str, Any]] | None = None,
    resources: Resources | None = None,  # the resources, for ``all``
    titles: Mapping[str, str] | None = None,  # titles of main columns by label
    # score files in the same table, which may be the only ones that declare an option for all
    of_files: Sequence[MetricRequest] = (),
) -> tuple[MetricRequest, ...]:
    """Turn names into requests, one for each label, with the columns in the requested order."""
    options = options or {}
    resources = resources or Resources()
    wanted: dict[str, dict[str, None]] = {}
    classes: dict[str, type[Metric]] = {}
    for text in names:
        label, name = split_label(text)
        if isinstance(text, GivenMetric):
            label = text.label
            expanded = [(checked_class(text.metric, name), "")]
        elif label and name == "all":
            message, hint = f"'{text}' gives one label to all metrics", "Label them one by one"
            raise UsageError(message, code="conflict", value=text, hint=hint)
        else:
            expanded = [(metric_class(metric), column) for metric, column in _expand(name, resources, options)]
        for cls, column in expanded:
            key = label or cls.name
            if classes.setdefault(key, cls) is not cls:
                message = f"'{key}' names two metrics, {classes[key].__qualname__} and {cls.__qualname__}"
                raise UsageError(message, code="duplicate", value=key, hint=f"Label one of them: LABEL={name}")
            if label:
                _check_label(label, cls)
            wanted.setdefault(key, {}).update(dict.fromkeys([column] if column else _offered(cls, key, resources)))
    chosen = _options_by_label(options, classes, of_files)
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
    except ModelError:  # missing weights: making the metric reports them
        return cls.columns


def metric_class(name: str) -> type[Metric]:
    """The class of a name, or of the function behind ``module:function``."""
    if name.startswith(SAVED):
        from capbench.metrics.combination import metric_of_combination

        return metric_of_combination(name.removeprefix(SAVED))
    found = plugins.load_any("capbench.metrics", name)
    if callable(found) and not isinstance(found, type):
        return _class_of_function(found)
    return checked_class(plugins.load("capbench.metrics", name), name)


@functools.cache  # a function has one metric, however often it is named
def _class_of_function(function: Callable[..., Any]) -> type[Metric]:
    from capbench.metrics.from_function import metric_of_function

    return metric_of_function(function)


def checked_class(cls: type[Any], name: str) -> type[Metric]:
    """The class. Raises UsageError if it breaks the contract."""
    if not issubclass(cls, Metric):
        hint = "It must be a subclass of capbench.metrics.base.Metric"
        raise UsageError(f"'{name}' is not a metric", code="wrong-type", value=name, hint=hint)
    for attribute in ("name", "columns", "titles", "citation"):
        if not getattr(cls, attribute, None):
            message = f"the metric '{name}' does not define '{attribute}'"
            raise UsageError(message, code="missing-key", value=attribute, hint="See docs/extend.md")
    if not all(isinstance(need, Need) for need in cls.needs):
        message = f"the needs of the metric '{name}' are in a format that this version does not read"
        hint = "List objects of capbench.metrics.needs, such as References()"
        raise UsageError(message, code="wrong-format", value=name, hint=hint)
    return cls


def _check_label(label: str, cls: type[Metric]) -> None:
    taken = metric_columns().get(label)
    means = "means all metrics" if label.lower() == "all" else ""
    if taken is not None and label != cls.name:
        means = f"is the name of a column of {taken[0]}"
    if means:
        raise UsageError(f"the label '{label}' {means}", code="duplicate", value=label, hint="Choose another label")


def _options_by_label(
    options: Mapping[str, Mapping[str, Any]], classes: Mapping[str, type[Metric]], of_files: Sequence[MetricRequest]
) -> dict[str, dict[str, Any]]:
    """Checked options of each label: those of the label override those of its metric, which override those for all."""
    by_metric: dict[str, dict[str, Any]] = {}
    columns = metric_columns()
    metrics = {cls.name for cls in classes.values()}
    for owner, values in options.items():
        if owner in classes or owner == FOR_ALL:
            continue
        # The owner may be a column (bleu-4) instead of its metric, or the path of a class.
        metric = metric_class(owner).name if ":" in owner else columns.get(owner.lower(), (owner, ""))[0]
        if metric not in metrics:
            hint = suggest(owner, [*classes, *(request.label for request in of_files)])
            message = f"there is an option for '{owner}', which is not a requested metric or score file"
            raise UsageError(message, code="unknown-name", value=owner, hint=hint)
        for option, value in values.items():
            if by_metric.get(metric, {}).get(option, value) != value:
                message = f"the option '{option}' of {metric} has two different values"
                raise UsageError(message, code="conflict", value=option)
            by_metric.setdefault(metric, {})[option] = value
    chosen: dict[str, dict[str, Any]] = {}
    declared = {label: [d.name for d in cls.option_type.declared()] for label, cls in classes.items()}
    for_all = options.get(FOR_ALL, {})
    known = {name for names in declared.values() for name in names}
    known |= {d.name for request in of_files for d in request.metric.option_type.declared()}
    for option in (name for name in for_all if name not in known):
        message, hint = f"none of the metrics has an option '{option}'", suggest(option, sorted(known))
        raise UsageError(message, code="unknown-option", value=option, hint=hint)
    for label, cls in classes.items():
        given = {name: value for name, value in for_all.items() if name in declared[label]}
        given |= {**by_metric.get(cls.name, {}), **options.get(cls.name, {}), **options.get(label, {})}
        cls.option_type.read(label, given)
        chosen[label] = given
    return chosen


def _expand(name: str, resources: Resources, options: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(metric, column) of a name, or of every metric whose requirements are met; column ``""`` means all."""
    if ":" in name:
        return [(name, "")]
    columns = metric_columns()
    if name == "all":
        left_out = left_out_of_all(resources, options)
        return [(metric, "") for metric in metric_names() if metric not in left_out]
    metric, dot, column = name.lower().partition(".")
    if dot and metric in metric_names():
        known = columns_by_metric()[metric]
        check_choice(f"column of {metric}", column, known)
        return [(metric, column)]
    if name.lower() not in columns:
        if name.lower() in SENTINEL_NAMES:
            message = f"'{name}' is a sentinel, not a metric"
            hint = "'capbench compare' and 'rank' print sentinels, and 'capbench correlate' with --sentinels"
            raise UsageError(message, code="unsupported", value=name, hint=hint)
        hint = suggest(name, ["all", *columns])
        raise UsageError(f"unknown metric '{name}'", code="unknown-name", value=name, hint=hint)
    return [columns[name.lower()]]


def left_out_of_all(resources: Resources, options: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, str]:
    """Metrics that ``all`` omits because of an unmet need, an optional one included, with reasons (``features``)."""
    reasons, options = {}, options or {}
    for metric in metric_names():
        cls = metric_class(metric)
        declared = {option.name for option in cls.option_type.declared()}
        for_all = {name: value for name, value in options.get(FOR_ALL, {}).items() if name in declared}
        try:
            missing = cls.missing(resources.of(metric, metric), {**for_all, **options.get(metric, {})})
        except ModelError:  # a name of weights that belong to other metrics
            reasons[metric] = f"--model {resources.model} has no weights of them; pass theirs with --model NAME=FILE"
            continue
        if missing:
            reasons[metric] = ", ".join(dict.fromkeys(need.word for need, _ in missing))
    return reasons


def without_references(requests: Sequence[MetricRequest], how: str) -> tuple[tuple[MetricRequest, ...], list[str]]:
    """The requests reduced to reference-free columns, and notes; ``how``: the argument that passes references."""
    reduced, notes, impossible = [], [], []
    for request in requests:
        free = tuple(column for column in request.columns if column in request.metric.reference_free())
        others = [column for column in request.columns if column not in free]
        if others and (not free or not set(request.columns).issuperset(request.metric.columns)):
            impossible.append(request.label)
        elif others:
            notes.append(f"{request.label}: {', '.join(others)} left out, because there are no references ({how})")
        reduced.append(replace(request, columns=free or request.columns))
    if impossible:
        message = f"{', '.join(impossible)}: references are required ({how})"
        hint = "Add references, or use reference-free metrics and columns (listed by 'capbench metrics NAME')"
        raise UsageError(message, code="missing-references", value=impossible[0], hint=hint)
    return tuple(reduced), notes


def require_resources(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Raise MetricError for the first request that requires something that is missing."""
    for request in requests:
        if error := unmet_needs(request.label, request.missing(resources)):
            raise error
