"""What the functions of ``import capbench`` are given, as the rooms below take it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from capbench import plugins
from capbench.datasets.base import Dataset
from capbench.datasets.root import DataRoot
from capbench.errors import UsageError, suggest
from capbench.files import check_folder
from capbench.metrics.asking import asked_metrics, refuse_waiting
from capbench.metrics.base import Metric, Resources
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.from_function import metric_of_function
from capbench.metrics.requests import FOR_ALL, Asked, GivenMetric, MetricRequest, split_label

__all__ = [
    "DatasetGiven",
    "FilesGiven",
    "MetricGiven",
    "MetricsGiven",
    "OptionsGiven",
    "PathGiven",
    "ScoresGiven",
    "asked",
    "dataset_name",
    "options_by_owner",
    "requested",
    "resources_of",
    "scores_entries",
    "texts",
]

PathGiven = str | os.PathLike[str]
MetricGiven = str | type[Metric] | Callable[..., Any]
"""A metric's or column's name (``cider``, ``label=cider``), a class, or a function."""
MetricsGiven = MetricGiven | Sequence[MetricGiven] | Mapping[str, MetricGiven]
"""One metric, several, or several by label."""
DatasetGiven = PathGiven | type[Dataset]
"""A data set's name, with ``@`` and a group or not; a file of judgements; or a class."""
ScoresGiven = PathGiven | Sequence[PathGiven] | Mapping[str, PathGiven]
"""Files of scores that were computed elsewhere, by name or not."""
OptionsGiven = Mapping[str, Any]
"""Options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``."""
FilesGiven = PathGiven | Mapping[str, PathGiven]
"""A file for all metrics, or files by metric or label."""


def asked(metrics: MetricsGiven) -> list[Asked]:
    """Metrics as they are asked for below.

    Raises:
        UsageError: one of them is none, a label cannot be one, or two functions are called alike.
    """
    if isinstance(metrics, Mapping):
        entries = [(_label(label), metric) for label, metric in metrics.items()]
    elif isinstance(metrics, str | type) or callable(metrics):
        entries = [("", metrics)]
    else:
        entries = [("", metric) for metric in metrics]
    names: list[Asked] = []
    made: dict[str, tuple[object, GivenMetric]] = {}
    for label, metric in entries:
        if isinstance(metric, str):
            names.append(f"{label}={metric}" if label not in ("", metric) else metric)
        elif isinstance(metric, type):
            if not issubclass(metric, Metric):
                raise UsageError(f"the class {metric.__name__} is no metric", hint="Derive it from capbench.Metric")
            names.append(GivenMetric(metric, label))
        elif callable(metric):
            named = label or _unlike(metric, made)
            cls = metric_of_function(metric, named)
            known = made.setdefault(cls.name, (metric, GivenMetric(cls)))
            if known[0] is not metric:
                raise UsageError(
                    f"two functions are called '{cls.name}'",
                    hint="Name them: metrics={'my-name': function, 'other-name': function}",
                )
            names.append(known[1])
        else:
            raise UsageError(
                f"{repr(metric)[:60]} is no metric", hint="Give a metric's name, a function, or a subclass of Metric"
            )
    return list(dict.fromkeys(names))


def _unlike(function: Callable[..., Any], made: Mapping[str, tuple[object, GivenMetric]]) -> str:
    """A name for a function that has none; ``""`` for one that has."""
    if not isinstance(function, FunctionType) or function.__name__ != "<lambda>":
        return ""
    number = 1 + sum(name.startswith("lambda") for name in made)
    return "lambda" if number == 1 else f"lambda-{number}"


def _label(label: object) -> str:
    if not isinstance(label, str):
        raise UsageError(f"the label {label!r} of a metric is no text", hint="Write metrics={'my-name': metric}")
    try:
        split_label(f"{label}=metric")
    except UsageError as error:
        raise UsageError(
            f"'{label}' cannot be a metric's label", hint="Use letters, digits, '-', '_' and '+'"
        ) from error
    return label


def dataset_name(dataset: DatasetGiven) -> str:
    """The name under which a data set is opened."""
    if isinstance(dataset, type):
        return f"{dataset.__module__}:{dataset.__qualname__}"
    return os.fspath(dataset)


def texts(values: DatasetGiven | Sequence[DatasetGiven] | None) -> list[str]:
    """One name or several as a list."""
    if values is None:
        return []
    if isinstance(values, str | os.PathLike | type):
        return [dataset_name(values)]
    return [dataset_name(value) for value in values]


def scores_entries(scores: ScoresGiven) -> tuple[ScoresEntry, ...]:
    """Files of scores as entries."""
    if isinstance(scores, Mapping):
        return tuple(ScoresEntry(os.fspath(path), _label(label)) for label, path in scores.items())
    paths = [scores] if isinstance(scores, str | os.PathLike) else scores
    return tuple(ScoresEntry(os.fspath(path)) for path in paths)


def options_by_owner(options: OptionsGiven | None) -> dict[str, dict[str, Any]]:
    """Options by metric or label; those that name none are for all that have them."""
    owners: dict[str, dict[str, Any]] = {}
    for key, value in (options or {}).items():
        if isinstance(value, Mapping):
            pairs = [(key, str(name), given) for name, given in value.items()]
        else:
            owner, _, name = key.rpartition(".")
            pairs = [(owner or FOR_ALL, name, value)]
        for owner, name, given in pairs:
            if name in owners.get(owner, {}):
                raise UsageError(f"the option '{name}' of {owner or 'all metrics'} is given twice", hint="Give it once")
            # A path is a text to whoever reads options.
            owners.setdefault(owner, {})[name] = str(given) if isinstance(given, Path) else given
    return owners


def requested(
    metrics: MetricsGiven,
    scores: ScoresGiven,
    options: OptionsGiven | None,
    features: FilesGiven | None,
    model: FilesGiven | None,
    images: PathGiven | None,
    allow_missing: bool,
    root: DataRoot,
) -> tuple[tuple[MetricRequest, ...], Resources]:
    """The metrics and what is given to them.

    Raises:
        UsageError: none is named, or an argument does not fit.
        MetricError: one lacks something.
    """
    requests, resources = asked_metrics(
        asked(metrics),
        options_by_owner(options),
        scores_entries(scores),
        lambda left: resources_of(left, features, model, images, allow_missing, root),
    )
    if not requests:
        raise UsageError("no metric is named", hint="Give metrics=['cider', …], or scores=['file.csv']")
    refuse_waiting(requests, resources)
    return requests, resources


def resources_of(
    names: Iterable[Asked],
    features: FilesGiven | None,
    model: FilesGiven | None,
    images: PathGiven | None,
    allow_missing: bool,
    root: DataRoot,
) -> Resources:
    """What metrics are given.

    Raises:
        UsageError: a file is given for what is no metric, or there is no folder of pictures.
    """
    if images is not None:
        check_folder(images, "images")
    labels = [label for label, _ in map(split_label, names) if label]
    store, stores = _files("features", features, labels)
    weights, models = _files("model", model, labels)
    return Resources(
        features=store,
        features_of=stores,
        model=weights,
        models=models,
        images=None if images is None else os.fspath(images),
        data=str(root.path),
        allow_missing=allow_missing,
    )


def _files(argument: str, given: FilesGiven | None, labels: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    if given is None:
        return None, {}
    if not isinstance(given, Mapping):
        return os.fspath(given), {}
    known = [*labels, *(name for name in plugins.names("capbench.metrics") if name not in labels)]
    for name in given:
        if name not in known and not re.search(":", name):
            raise UsageError(f"{argument} names '{name}', which is no metric", hint=suggest(name, known))
    return None, {name: os.fspath(path) for name, path in given.items()}
