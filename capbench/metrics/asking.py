"""The metrics that one command or call asks for: named ones, classes and files of scores, in one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from capbench.errors import MetricError, UsageError
from capbench.metrics.base import Resources
from capbench.metrics.from_file import ScoresEntry, chosen_of_files, collisions, requests_of_files
from capbench.metrics.requests import Asked, MetricRequest, resolve_metrics

__all__ = ["asked_metrics", "refuse_unreferenced", "refuse_waiting"]


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


def refuse_unreferenced(requests: Sequence[MetricRequest], how: str) -> None:
    """Raise UsageError if requests need references, where candidates come without any.

    Args:
        requests: the metrics.
        how: references are given (``--references FILE``).
    """
    labels = [request.label for request in requests if request.needs_references]
    if labels:
        raise UsageError(
            f"{', '.join(labels)}: references are needed ({how})",
            hint="Give them, or take metrics and columns that do without ('capbench metrics NAME' tells)",
        )


def refuse_waiting(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Raise MetricError for the first request that lacks something."""
    for request in requests:
        lacking = request.lacks(resources)
        if lacking:
            raise MetricError(f"{request.label} waits for {lacking}")
