"""The metrics that one command or call asks for: named ones, classes and files of scores, in one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from capbench.errors import MetricError, UsageError
from capbench.metrics.base import Resources
from capbench.metrics.from_file import ScoresEntry, chosen_of_files, collisions, requests_of_files
from capbench.metrics.requests import Asked, MetricRequest, resolve_metrics

__all__ = ["asked_metrics", "refuse_waiting", "without_references"]


def asked_metrics(
    names: Sequence[Asked],
    options: dict[str, dict[str, Any]],
    files: Sequence[ScoresEntry],
    resources_of: Callable[[Sequence[Asked]], Resources],
) -> tuple[tuple[MetricRequest, ...], Resources]:
    """What is asked for, as requests, and what is given to them.

    Args:
        names: metrics, and columns of the files; with none of the latter every column of the files.
        options: options by label, metric or column.
        files: files of scores.
        resources_of: features, weights and the data folder for the names that are no file's.

    Raises:
        UsageError: a name or an option does not fit, or two rows are called alike.
        DataError: a file of scores is none.
    """
    stored, problems = requests_of_files(files, options)
    if problems:
        raise problems[0]
    left, stored = chosen_of_files(names, stored)
    resources = resources_of(left)
    requests = (*resolve_metrics(left, options, resources, beside=stored), *stored)
    for problem in collisions(requests):
        raise UsageError(problem)
    return requests, resources


def without_references(requests: Sequence[MetricRequest], how: str) -> tuple[tuple[MetricRequest, ...], list[str]]:
    """The requests where candidates come without references, and what is to be said.

    Of a metric that was asked for with all its columns, those that need no references stay (``clipscore``, without
    ``refclipscore``); what stays out is said.

    Args:
        requests: the metrics.
        how: references are given (``--references FILE``).

    Raises:
        UsageError: a metric, or a column that was asked for by its name, needs references.
    """
    kept, said, refused = [], [], []
    for request in requests:
        free = tuple(column for column in request.columns if column in request.metric.reference_free())
        left = [column for column in request.columns if column not in free]
        if left and (not free or not set(request.columns).issuperset(request.metric.columns)):
            refused.append(request.label)
        elif left:
            said.append(f"{request.label}: {', '.join(left)} left out, for want of references ({how})")
        kept.append(replace(request, columns=free or request.columns))
    if refused:
        raise UsageError(
            f"{', '.join(refused)}: references are needed ({how})",
            hint="Give them, or take metrics and columns that do without ('capbench metrics NAME' tells)",
        )
    return tuple(kept), said


def refuse_waiting(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Raise MetricError for the first request that lacks something."""
    for request in requests:
        lacking = request.lacks(resources)
        if lacking:
            raise MetricError(f"{request.label} waits for {lacking}")
