"""Compares metrics on one protocol: intervals of each, tests between all pairs, and how much data separates two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.errors import ProtocolError, UsageError
from capbench.metrics.base import MetricRequest, Resources
from capbench.scoring import score
from capbench.stats.agreement import Agreement, Correlations, Unit
from capbench.stats.correction import Correction
from capbench.stats.intervals import Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.power import Power, power
from capbench.stats.significance import ComparisonTable, Test
from capbench.studies.human_side import agreement
from capbench.studies.settings import TestSettings
from capbench.studies.uncertainty import compare_pairs

__all__ = ["MetricComparison", "MetricPower", "compare_metrics", "metric_power"]


@dataclass(frozen=True)
class MetricComparison:
    """What :func:`compare_metrics` found.

    Attributes:
        protocol: id of the protocol.
        n: data points (ratings, or pairs).
        intervals: bootstrap interval of each metric, by title.
        table: the tests, with metrics by title.
        signatures: one line by metric.
        sample: True if the data was the embedded synthetic sample.
        notes: what the data set says of its items, one line each.
    """

    protocol: str
    n: int
    intervals: dict[str, Interval]
    table: ComparisonTable
    signatures: dict[str, str]
    sample: bool = False
    notes: tuple[str, ...] = ()

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
        resamples: bootstrap resamples, and permutations. There are more permutations where the number of metrics needs
            them, see :func:`capbench.stats.significance.permutations_to_use`.
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
    data, n, signatures, notes = _scored(dataset, protocol, requests, unit, resources, cache, progress)
    sample = draw_bootstrap(data, resamples=resamples, seed=seed, unit=unit)
    settings = TestSettings(test, correction, resamples=resamples, seed=seed, unit=unit)
    table, _ = compare_pairs(data, settings, sample=sample)
    return MetricComparison(str(protocol), n, bootstrap_intervals(data, sample), table, signatures, notes=notes)


@dataclass(frozen=True)
class MetricPower:
    """What :func:`metric_power` found.

    Attributes:
        protocol: id of the protocol.
        n: data points (ratings, or pairs) at hand.
        values: the statistic of both metrics, by title.
        power: how much data separates them.
        signatures: one line by metric.
        notes: what the data set says of its items, one line each.
    """

    protocol: str
    n: int
    values: dict[str, float]
    power: Power
    signatures: dict[str, str]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def metric_power(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    gap: float | None = None,
    alpha: float = 0.05,
    target: float = 0.8,
    resamples: int = 500,
    seed: int = 0,
    unit: Unit = "image",
    resources: Resources | None = None,
    cache: bool = True,
    progress: Callable[[int], None] | None = None,
) -> MetricPower:
    """Score two metrics, and find how much data separates them.

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation or an accuracy as its statistic.
        requests: metrics with two columns in all.
        gap: the difference to be found; None for the one at hand.
        alpha: significance level, two-sided.
        target: wanted power.
        resamples: resamples at each size.
        seed: their seed.
        unit: what is resampled and counted.
        resources: what metrics need beside captions.
        cache: whether the score cache is used.
        progress: called with numbers of items scored.

    Raises:
        UsageError: not two columns.
        ProtocolError, StatisticError, DataError, MetricError, …: see :func:`compare_metrics` and
            :func:`capbench.stats.power.power`.
    """
    columns = [column for request in requests for column in request.columns]
    if len(columns) != 2:
        raise UsageError(
            f"two metrics are wanted, and there are {len(columns)}: {', '.join(columns)}",
            hint="Name single columns, such as bleu-4 in place of bleu",
        )
    data, n, signatures, notes = _scored(dataset, protocol, requests, unit, resources, cache, progress)
    whole = np.ones((1, data.units), dtype=np.int32)
    values = {name: float(data.statistic(name)(whole)[0]) for name in data.names}
    found = power(data, *data.names, gap=gap, alpha=alpha, target=target, resamples=resamples, seed=seed, unit=unit)
    return MetricPower(str(protocol), n, values, found, signatures, notes)


def _scored(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    unit: Unit,
    resources: Resources | None,
    cache: bool,
    progress: Callable[[int], None] | None,
) -> tuple[Agreement, int, dict[str, str], tuple[str, ...]]:
    """The metrics beside the human side, the number of data points, one signature by metric, and the data's notes."""
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
    data = agreement(protocol, draws[0], scores, unit)
    n = len(data.human) if isinstance(data, Correlations) else len(draws[0].preferences[protocol.statistic.human])
    # Draws differ in the fingerprint of their documents at most; the first one's stands for all.
    return data, n, dict(tables[0].signatures), draws[0].notes
