"""Compares metrics on one protocol: intervals of each, and tests between all pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.errors import ProtocolError
from capbench.metrics.base import MetricRequest, Resources
from capbench.records import FloatArray, Judgements, ScoreTable
from capbench.scoring import score
from capbench.stats.aggregate import aggregate
from capbench.stats.agreement import Accuracies, Agreement, Correlations, Unit
from capbench.stats.correction import Correction
from capbench.stats.intervals import Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.significance import ComparisonTable, Test, compare

__all__ = ["MetricComparison", "compare_metrics"]


@dataclass(frozen=True)
class MetricComparison:
    """What :func:`compare_metrics` found.

    Attributes:
        protocol: id of the protocol.
        n: data points (ratings, or pairs).
        intervals: bootstrap interval of each metric, by title.
        table: the tests, with metrics by title.
        signatures: one line by metric.
    """

    protocol: str
    n: int
    intervals: dict[str, Interval]
    table: ComparisonTable
    signatures: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def compare_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: int = 1000,
    seed: int = 0,
    unit: Unit = "image",
    resources: Resources | None = None,
    cache: bool = True,
    progress: Callable[[int], None] | None = None,
) -> MetricComparison:
    """Score, bootstrap and test.

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation or an accuracy as its statistic.
        requests: the metrics; every requested column is compared.
        test: see :func:`capbench.stats.significance.compare`.
        correction: for the number of pairs.
        resamples: bootstrap resamples, and permutations.
        seed: of both.
        unit: what is resampled.
        resources: what metrics need beside captions.
        cache: whether the score cache is used.
        progress: called with numbers of items scored.

    Raises:
        ProtocolError: the protocol's statistic is a plain mean.
        StatisticError: the test does not fit, or a statistic is undefined.
        DataError, MetricError, …: loading or scoring failed.
    """
    if protocol.statistic.kind == "mean":
        raise ProtocolError(f"{protocol} has no human judgements to compare metrics on")
    draws = dataset.load(protocol.items)
    tables = [score(j.items, requests, resources, dataset=dataset.name, cache=cache, progress=progress) for j in draws]
    titles = {
        column: request.metric.titles.get(column.column, column.column)
        for request in requests
        for column in request.score_columns
    }
    scores = {title: np.stack([table.values[column] for table in tables]) for column, title in titles.items()}
    data, n = _agreement(protocol, draws[0], scores, unit)
    sample = draw_bootstrap(data, resamples=resamples, seed=seed, unit=unit)
    table = compare(
        data,
        test=test,
        correction=correction,
        permutations=resamples if test == "permutation" else None,
        seed=seed,
        unit=unit,
        sample=sample,
    )
    return MetricComparison(str(protocol), n, bootstrap_intervals(data, sample), table, _signatures(tables))


def _signatures(tables: Sequence[ScoreTable]) -> dict[str, str]:
    # Draws differ in the fingerprint of their documents at most; the first one's stands for all.
    return dict(tables[0].signatures)


def _agreement(
    protocol: Protocol, judgements: Judgements, scores: dict[str, FloatArray], unit: Unit
) -> tuple[Agreement, int]:
    """The human side and the metrics' scores (draws, items) at its data points, and the number of these."""
    spec = protocol.statistic
    images = np.array([item.image for item in judgements.items])
    labels: NDArray[Any] | None
    if spec.kind == "correlation" and spec.coefficient is not None:
        ratings = judgements.ratings[spec.human]
        item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
        labels = {"image": images[item], "item": item, "rating": None}[unit]
        at_points = {title: values[:, item] for title, values in scores.items()}
        return Correlations.of(spec.coefficient, at_points, human, unit=labels), len(human)
    if spec.ties is None:
        raise ProtocolError(f"{protocol} names neither a coefficient nor a tie rule")
    preferences = judgements.preferences[spec.human]
    labels = images[preferences.first] if unit == "image" else None
    accuracies = Accuracies.of(
        spec.ties,
        {title: values[:, preferences.first] for title, values in scores.items()},
        {title: values[:, preferences.second] for title, values in scores.items()},
        preferences.preferred,
        preferences.group,
        unit=labels,
    )
    return accuracies, len(preferences)
