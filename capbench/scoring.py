"""Metrics over items: every distinct item is scored once, and what was scored before comes from the cache."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capbench.cache import Cache
from capbench.datasets.user.captions import user_items
from capbench.errors import CapbenchWarning, DataError, MetricError
from capbench.metrics.base import CombinedMetric, Metric, Progress, Resources
from capbench.metrics.requests import MetricRequest
from capbench.progress import SlowWork, part_of
from capbench.records import FloatArray, IntArray, Item, ScoreColumn, ScoreTable
from capbench.score_files.writing import to_frame, write_scores

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
            apart (:class:`capbench.progress.Parts`) by what is really done of them, without what the cache holds.

    Raises:
        DataError: there are no items.
        MetricError: a metric cannot be computed on them, or gave a value that is no number.
        ToolError, FeatureError, ModelError, UsageError: a metric lacks something.
    """
    table, _ = score_for_resampling(
        items, requests, resources, dataset=dataset, cache=cache, progress=progress, keep=False
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
    keep: bool = True,
) -> tuple[ScoreTable, dict[str, CorpusStatistics]]:
    """Scores, and by label the statistics that they were computed from, if ``keep``. Else as :func:`score`."""
    if not items:
        raise DataError(f"{dataset} has no items to score", hint="Choose other items or another file")
    resources = complete(resources, cache=cache)
    distinct = list({item.key: item for item in items}.values())
    position = {item.key: i for i, item in enumerate(distinct)}
    index = np.array([position[item.key] for item in items], dtype=np.int64)
    values: dict[ScoreColumn, FloatArray] = {}
    corpus: dict[ScoreColumn, float] = {}
    signatures: dict[str, str] = {}
    cached: dict[str, int] = {}
    cautions: dict[str, tuple[str, ...]] = {}
    kept: dict[str, CorpusStatistics] = {}
    places = _places_of_groups(items)
    group_corpus: dict[str, dict[ScoreColumn, float]] = {group: {} for group in places}
    with Cache("scores", enabled=cache) as store:
        extraction = _Extraction(items, distinct, index, store, progress or (lambda _: None))
        metrics = [request.make(resources) for request in requests]
        for request, metric in zip(requests, metrics, strict=True):
            extraction.add(metric, request.label)
        extraction.run()
        for request, metric in zip(requests, metrics, strict=True):
            statistics, known = extraction.of(metric)
            columns = metric.scores(statistics)
            rows = statistics[index]
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
            if lines := tuple(metric.cautions(dataset, items)):
                cautions[request.label] = lines
            if keep:
                kept[request.label] = CorpusStatistics(metric, rows)
    return ScoreTable(dataset, tuple(items), values, corpus, signatures, cached, group_corpus, cautions), kept


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
    distinct = list({item.key: item for item in items}.values())
    works: dict[str, tuple[SlowWork, ...]] = {}
    with Cache("scores", enabled=cache) as store:
        for request in requests:
            if not _may_be_slow(request.metric):
                continue
            metric = request.make(resources)
            # Of a combined metric only the inputs in question are prepared: the others may take long themselves.
            for plain in metric.inputs() if isinstance(metric, CombinedMetric) else [metric]:
                if _may_be_slow(type(plain)):
                    extraction = _Extraction(items, distinct, np.arange(len(distinct)), store, lambda _: None)
                    extraction.add(plain, request.label)
                    works[request.label] = (*works.get(request.label, ()), *extraction.slow_work().values())
    return {label: of_label for label, of_label in works.items() if of_label}


def _may_be_slow(metric: type[Metric]) -> bool:
    return issubclass(metric, CombinedMetric) or metric.slow_work is not Metric.slow_work


def complete(resources: Resources | None, *, cache: bool) -> Resources:
    """Resources with the choice of cache, and with ways to look up named corpora and pictures if none were given."""
    resources = dataclasses.replace(resources or Resources(), cache=cache)
    if resources.captions is None:
        resources = dataclasses.replace(resources, captions=_caption_lookup(resources.data))
    if resources.pictures is None:
        resources = dataclasses.replace(resources, pictures=_picture_lookup(resources.data, resources.images))
    return resources


def _picture_lookup(data: str | None, images: str | None) -> Callable[[Sequence[str]], Mapping[str, Path]]:
    def look_up(wanted: Sequence[str]) -> Mapping[str, Path]:
        from capbench.datasets.images import image_paths
        from capbench.datasets.root import find_root

        return image_paths(wanted, find_root(data), None if images is None else Path(images))

    return look_up


def _caption_lookup(data: str | None) -> Callable[[str], Mapping[str, Sequence[str]]]:
    def look_up(name: str) -> Mapping[str, Sequence[str]]:
        from capbench.datasets.captions import load_captions
        from capbench.datasets.root import find_root

        return load_captions(name, find_root(data))

    return look_up


class _Extraction:
    """Statistics of distinct items under several metrics, each extracted once.

    Args:
        items: all items, repeats included, which metrics prepare themselves on.
        distinct: each item once.
        index: (items) place of each item among the distinct ones.
        store: the score cache.
        progress: takes numbers of items done.
    """

    def __init__(
        self, items: Sequence[Item], distinct: Sequence[Item], index: IntArray, store: Cache, progress: Progress
    ) -> None:
        self._items, self._distinct, self._store, self._progress = items, distinct, store, progress
        self._repeats = np.bincount(index, minlength=len(distinct))
        self._runs: dict[str, _Run] = {}

    def add(self, metric: Metric, label: str, shown: int = 1) -> None:
        """Prepare a metric, or the metrics that it is made of.

        Args:
            metric: the metric.
            label: what it is called while it runs.
            shown: how often its items count as progress.
        """
        metric.prepare(self._items)
        if isinstance(metric, CombinedMetric):
            for place, input_metric in enumerate(metric.inputs()):
                self.add(input_metric, input_metric.name, shown if place == 0 else 0)
            return
        key = _space(metric)
        if key not in self._runs:
            self._runs[key] = _Run(metric, label, self._distinct, self._repeats, self._store, self._progress)
        self._runs[key].shown += shown

    def slow_work(self) -> dict[str, SlowWork]:
        """Look up what the cache holds, and find the slow work that is left, by the metrics' keys."""
        works = {key: run.look_up() for key, run in self._runs.items()}
        return {key: work for key, work in works.items() if work is not None}

    def run(self) -> None:
        """Extract batch by batch, last where slow work comes first, so that an interruption loses little."""
        slow = self.slow_work()
        self._extract([run for key, run in self._runs.items() if key not in slow])
        for key, work in slow.items():
            work.run(part_of(self._progress, self._runs[key].label, len(work.units), work.unit, work.seconds))
        self._extract([self._runs[key] for key in slow])

    def _extract(self, runs: Sequence[_Run]) -> None:
        """Extract; metrics with the same batches take turns, since they can share work on a batch."""
        for kind in dict.fromkeys((run.metric.batch_size, run.metric.by_image) for run in runs):
            alike = [run for run in runs if (run.metric.batch_size, run.metric.by_image) == kind]
            for batch in _batches(self._distinct, *kind):
                for run in alike:
                    run.extract(batch)

    def of(self, metric: Metric) -> tuple[FloatArray, FloatArray]:
        """(n, k) statistics of the distinct items, and (n) whether they came from the cache."""
        if not isinstance(metric, CombinedMetric):
            run = self._runs[_space(metric)]
            return run.statistics(), run.known
        columns: list[Mapping[str, FloatArray]] = []
        known = np.ones(len(self._distinct), dtype=bool)
        for input_metric in metric.inputs():
            statistics, of_part = self.of(input_metric)
            columns.append(input_metric.scores(statistics))
            known &= of_part
        combined = np.asarray(metric.combine_each(columns), dtype=np.float64)
        _check_statistics(metric, combined, self._distinct)
        return combined, known


def _space(metric: Metric) -> str:
    """What the cache keeps a metric's statistics under."""
    return f"{metric.statistics_signature()}\n{metric.corpus_id()}"


def _batches(items: Sequence[Item], size: int, by_image: bool) -> Iterator[list[int]]:
    """Places of items in batches of at most ``size``; ``by_image`` keeps an image's items together."""
    if not by_image:
        for start in range(0, len(items), size):
            yield list(range(start, min(start + size, len(items))))
        return
    of_image: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        of_image.setdefault(item.image, []).append(place)
    batch: list[int] = []
    for image in sorted(of_image):
        if batch and len(batch) + len(of_image[image]) > size:
            yield batch
            batch = []
        batch += of_image[image]
    if batch:
        yield batch


class _Run:
    """Statistics of distinct items under one metric: those that the cache holds, and those still to extract."""

    def __init__(
        self,
        metric: Metric,
        label: str,
        items: Sequence[Item],
        repeats: IntArray,
        store: Cache,
        progress: Progress,
    ) -> None:
        self.metric, self.label = metric, label
        self.shown = 0
        self.known = np.zeros(len(items), dtype=bool)
        self._items, self._repeats, self._progress = items, repeats, progress
        self._store = store if metric.may_be_cached() else Cache("scores", enabled=False)
        self._space = _space(metric)
        self._keys = [metric.cache_key(item) for item in items]
        self._done = np.zeros(len(items), dtype=bool)
        self._rows = np.empty((len(items), 0))
        self._part: Progress | None = None  # made when work begins, so that waiting is no part of its time

    def look_up(self) -> SlowWork | None:
        """Take what the cache holds, and tell the metric what is left to do; gives the slow work that comes first."""
        blobs = self._store.get(self._space, self._keys)
        # One signature has one width; a row of another width is damage, and is extracted again.
        widths = [len(blob) for blob in blobs.values() if blob and len(blob) % 8 == 0]
        width = max(set(widths), key=widths.count) if widths else 0
        places = [i for i, key in enumerate(self._keys) if width and len(blobs.get(key, b"")) == width]
        if places:
            rows = np.frombuffer(b"".join(blobs[self._keys[i]] for i in places), dtype="<f8").reshape(len(places), -1)
            sound = np.isfinite(rows).all(axis=1)
            self._rows = np.empty((len(self._items), rows.shape[1]))
            self._rows[np.array(places)[sound]] = rows[sound]
            self.known[np.array(places)[sound]] = True
        self._done |= self.known
        self._step(int(self._repeats[self.known].sum()))
        if self.known.all():
            return None
        if self.metric.keeps_statistics and not self.metric.may_be_cached():
            warnings.warn(
                f"the code of {self.metric.name} has no source file that could be signed: its scores are not kept",
                CapbenchWarning,
                stacklevel=2,
            )
        left = [item for item, known in zip(self._items, self.known, strict=True) if not known]
        self.metric.open(left)
        return self.metric.slow_work(left)

    def extract(self, batch: Sequence[int]) -> None:
        """Extract what is missing among the items at some places, and keep it."""
        missing = [i for i in batch if not self._done[i]]
        if not missing:
            return
        items = [self._items[i] for i in missing]
        if self._part is None:
            self._part = part_of(self._progress, self.label, int((~self.known).sum()), "items")
        extracted = self.metric.statistics(items, _weighted(self._repeats[missing].tolist(), self._step, self._part))
        _check_statistics(self.metric, extracted, items)
        if not self._done.any():
            self._rows = np.empty((len(self._items), extracted.shape[1]))
        if extracted.shape[1] != self._rows.shape[1]:
            raise MetricError(
                f"{self.metric.name} gave statistics of different widths under one signature",
                hint="Clear the cache folder, or run with --no-cache",
            )
        self._rows[missing] = extracted
        self._done[missing] = True
        rows = np.ascontiguousarray(extracted, dtype="<f8")
        self._store.put(self._space, ((self._keys[i], row.tobytes()) for i, row in zip(missing, rows, strict=True)))

    def statistics(self) -> FloatArray:
        """(n, k) statistics of all items."""
        return self._rows

    def _step(self, count: int) -> None:
        if self.shown:
            self._progress(self.shown * count)


def _weighted(repeats: Sequence[int], progress: Progress, distinct: Progress) -> Progress:
    """Progress over distinct items (``distinct``) that is told as progress over all items, too."""
    queue = iter(repeats)

    def step(count: int) -> None:
        distinct(count)
        progress(sum(next(queue, 0) for _ in range(count)))

    return step


def _check_statistics(metric: Metric, extracted: FloatArray, items: Sequence[Item]) -> None:
    if extracted.ndim != 2 or len(extracted) != len(items):
        raise MetricError(
            f"{metric.name} gave statistics of shape {extracted.shape} for {len(items)} items",
            hint="Its statistics() must return one row an item",
        )
    bad = np.flatnonzero(~np.isfinite(extracted).all(axis=1))
    if len(bad):
        raise MetricError(f"{metric.name} gave a statistic that is no finite number for {_name(items[bad[0]])}")


def _checked(columns: Mapping[str, FloatArray], column: str, items: Sequence[Item], name: str) -> FloatArray:
    if column not in columns:
        raise MetricError(f"{name} gave no scores for its column '{column}'", hint="Its scores() must return them all")
    values = np.asarray(columns[column], dtype=np.float64)
    if values.shape != (len(items),):
        raise MetricError(f"{name} gave {values.shape} scores of '{column}' for {len(items)} items")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise MetricError(
            f"{name} gave {values[bad[0]]} as '{column}' of {_name(items[bad[0]])}",
            hint="A score must be a finite number",
        )
    return values


def _checked_total(totals: Mapping[str, float], column: str, name: str) -> float:
    value = totals.get(column)
    if value is None or not np.isfinite(value):
        raise MetricError(f"{name} gave {value} as the corpus score '{column}'", hint="It must be a finite number")
    return float(value)


def _name(item: Item) -> str:
    label = f"'{item.candidate_id}' " if item.candidate_id else ""
    return f"the item {label}of image '{item.image}' ('{item.candidate[:60]}')"
