"""Metrics over items: every distinct item is scored once, and what was scored before comes from the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core.cache import Cache
from capbench.core.errors import DataError, MetricError
from capbench.core.progress import SlowWork
from capbench.core.records import FloatArray, IntArray, Item, ScoreColumn, ScoreTable
from capbench.core.workers import Spread
from capbench.datasets.user.captions import user_items
from capbench.metrics.abilities import HasSlowWork, warnings_of
from capbench.metrics.base import CombinedMetric, Metric, Progress, Resources
from capbench.metrics.requests import MetricRequest
from capbench.metrics.score_cache import Extraction, item_name
from capbench.metrics.score_files import to_frame, write_scores

__all__ = [
    "CorpusStatistics",
    "complete",
    "score",
    "score_for_resampling",
    "slow_work",
    "summary",
    "to_frame",
    "user_items",
    "write_scores",
]


@dataclasses.dataclass(frozen=True, eq=False)
class CorpusStatistics:
    """What a request's corpus scores are computed from, for resampling without scoring again.

    Attributes:
        metric: the metric, prepared on the items.
        rows: (n, k) its statistics of the items, repeats included.
    """

    metric: Metric
    rows: FloatArray


def score(
    items: Sequence[Item],
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    dataset: str,
    cache: bool = True,
    progress: Progress | None = None,
    spread: Spread | None = None,
    by_group: bool = False,
) -> ScoreTable:
    """Score items with metrics.

    Statistics are extracted once for each distinct (image, candidate, references) and kept in the score cache
    under the metric's signature, batch by batch, so that an interrupted run goes on where it stopped. Requests that
    differ in nothing but what recombines statistics share them, and so do metrics made of other metrics' columns.
    Corpus scores count repeated items as often as they stand in ``items``.

    Args:
        items: what to score, repeats included.
        requests: metrics and their columns, from :func:`capbench.metrics.requests.resolve_metrics`.
        resources: what metrics need beside captions.
        dataset: name of the data set, for the table.
        cache: False neither reads nor writes the cache.
        progress: called with numbers of items done; they add up to ``len(items)`` for each request. Metrics are told
            apart (:class:`capbench.core.progress.Parts`) by what is really done of them, without what the cache holds.
        spread: lets other processes extract statistics, and do what of the slow work can be cut into parts.
        by_group: whether corpus scores of each group of the items are given, too.

    Raises:
        DataError: there are no items.
        MetricError: a metric cannot be computed on them, or gave a value that is no number.
        ToolError, FeatureError, ModelError, UsageError: a metric lacks something.
    """
    table, _ = score_for_resampling(
        items,
        requests,
        resources,
        dataset=dataset,
        cache=cache,
        progress=progress,
        spread=spread,
        by_group=by_group,
        keep=False,
    )
    return table


def score_for_resampling(
    items: Sequence[Item],
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    dataset: str,
    cache: bool = True,
    progress: Progress | None = None,
    spread: Spread | None = None,
    by_group: bool = False,
    keep: bool = True,
) -> tuple[ScoreTable, dict[str, CorpusStatistics]]:
    """Scores, and by label the statistics that they were computed from, if ``keep``. Else as :func:`score`."""
    if not items:
        raise DataError(f"{dataset} has no items to score", hint="Choose other items or another file")
    resources = complete(resources, cache=cache)
    distinct, index = _distinct(items)
    values: dict[ScoreColumn, FloatArray] = {}
    corpus: dict[ScoreColumn, float] = {}
    signatures: dict[str, str] = {}
    cached: dict[str, int] = {}
    warnings: dict[str, tuple[str, ...]] = {}
    kept: dict[str, CorpusStatistics] = {}
    places = _places_of_groups(items) if by_group else {}
    group_corpus: dict[str, dict[ScoreColumn, float]] = {group: {} for group in places}
    with Cache("scores", enabled=cache) as store:
        extraction = Extraction(items, distinct, index, store, progress or (lambda _: None), spread)
        metrics = [request.make(resources) for request in requests]
        for request, metric in zip(requests, metrics, strict=True):
            extraction.add(metric, request.label)
        extraction.run()
        for request, metric in zip(requests, metrics, strict=True):
            statistics, known = extraction.of(metric)
            columns = metric.scores(statistics)
            rows = statistics if len(distinct) == len(items) else statistics[index]  # the items are in their order then
            totals = metric.corpus_scores(rows)
            for column in request.columns:
                key = ScoreColumn(request.label, column)
                values[key] = _checked(columns, column, distinct, request.label)[index]
                corpus[key] = _checked_total(totals, column, request.label)
            for group, chosen in places.items():
                totals = metric.corpus_scores(rows[chosen])
                for column in request.columns:
                    value = _checked_total(totals, column, request.label)
                    group_corpus[group][ScoreColumn(request.label, column)] = value
            signatures[request.label] = metric.signature()
            cached[request.label] = int(known[index].sum())
            if lines := warnings_of(metric, dataset, items):
                warnings[request.label] = lines
            if keep:
                kept[request.label] = CorpusStatistics(metric, rows)
    return ScoreTable(dataset, tuple(items), values, corpus, signatures, cached, group_corpus, warnings), kept


def _distinct(items: Sequence[Item]) -> tuple[list[Item], IntArray]:
    """Each item once, the last of equal ones at the place of the first; and (items,) which of them each one is."""
    place_of_key: dict[bytes, int] = {}
    index = np.empty(len(items), dtype=np.int64)
    distinct: list[Item] = []
    for place, item in enumerate(items):
        at = index[place] = place_of_key.setdefault(item.key, len(distinct))
        if at == len(distinct):
            distinct.append(item)
        else:
            distinct[at] = item
    return distinct, index


def _places_of_groups(items: Sequence[Item]) -> dict[str, IntArray]:
    """Places of the items of each group."""
    places: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if item.group:
            places.setdefault(item.group, []).append(place)
    return {group: np.array(of_group, dtype=np.int64) for group, of_group in places.items()}


def summary(table: ScoreTable) -> list[dict[str, Any]]:
    """For each column its corpus score, and the mean and the range of the items' scores."""
    return [
        {
            "metric": key.label,
            "column": key.column,
            "corpus": table.corpus[key],
            "mean": float(values.mean()),
            "min": float(values.min()),
            "max": float(values.max()),
        }
        for key, values in table.values.items()
    ]


def slow_work(
    items: Sequence[Item], requests: Sequence[MetricRequest], resources: Resources | None = None, *, cache: bool = True
) -> dict[str, tuple[SlowWork, ...]]:
    """By label, the slow work that scoring these items would do first; labels without any are left out.

    Arguments and errors are those of :func:`score`.
    """
    resources = complete(resources, cache=cache)
    distinct, _ = _distinct(items)
    works: dict[str, tuple[SlowWork, ...]] = {}
    with Cache("scores", enabled=cache) as store:
        for request in requests:
            if not _may_be_slow(request.metric):
                continue
            metric = request.make(resources)
            # Of a combined metric only the inputs in question are prepared: the others may take long themselves.
            for plain in metric.inputs() if isinstance(metric, CombinedMetric) else [metric]:
                if _may_be_slow(type(plain)):
                    extraction = Extraction(items, distinct, np.arange(len(distinct)), store, lambda _: None)
                    extraction.add(plain, request.label)
                    works[request.label] = (*works.get(request.label, ()), *extraction.slow_work().values())
    return {label: of_label for label, of_label in works.items() if of_label}


def _may_be_slow(metric: type[Metric]) -> bool:
    return issubclass(metric, CombinedMetric | HasSlowWork)


def complete(resources: Resources | None, *, cache: bool) -> Resources:
    """Resources with the choice of cache, and with ways to look up named corpora and pictures if none were given."""
    resources = dataclasses.replace(resources or Resources(), cache=cache)
    if resources.captions is None:
        resources = dataclasses.replace(resources, captions=partial(_captions_of, resources.data))
    if resources.pictures is None:
        resources = dataclasses.replace(resources, pictures=partial(_pictures_of, resources.data, resources.images))
    return resources


def _pictures_of(data: str | None, images: str | None, wanted: Sequence[str]) -> Mapping[str, Path]:
    """Pictures of captions that belong to no data set."""
    from capbench.datasets.images import image_paths
    from capbench.datasets.root import find_root

    return image_paths(wanted, find_root(data), None if images is None else Path(images))


def _captions_of(data: str | None, name: str) -> Mapping[str, Sequence[str]]:
    """The captions of a named corpus."""
    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import find_root

    return load_captions(name, find_root(data))


def _checked(columns: Mapping[str, FloatArray], column: str, items: Sequence[Item], name: str) -> FloatArray:
    if column not in columns:
        raise MetricError(f"{name} gave no scores for its column '{column}'", hint="Its scores() must return them all")
    values = np.asarray(columns[column], dtype=np.float64)
    if values.shape != (len(items),):
        raise MetricError(f"{name} gave {values.shape} scores of '{column}' for {len(items)} items")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise MetricError(
            f"{name} gave {values[bad[0]]} as '{column}' of {item_name(items[bad[0]])}",
            hint="A score must be a finite number",
        )
    return values


def _checked_total(totals: Mapping[str, float], column: str, name: str) -> float:
    value = totals.get(column)
    if value is None or not np.isfinite(value):
        raise MetricError(f"{name} gave {value} as the corpus score '{column}'", hint="It must be a finite number")
    return float(value)
