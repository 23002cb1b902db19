"""Extraction of statistics through the score cache: once for each distinct item, batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchWarning, MetricError, UnfinishedError
from capbench.core.progress import Progress, SlowWork, part_of
from capbench.core.records import FloatArray, IntArray, Item
from capbench.core.version import code_digest
from capbench.core.workers import Engine, PartFailure
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.needs import Scores
from capbench.metrics.signing import code_signature

_WORKER_MB = 1500
_MOST_NAMED = 5

_LOOKED_UP_AT_ONCE = 65_536  # number of items whose cached rows are in memory as separate objects


class Extracted(NamedTuple):
    """Distinct items, and by metric their (n, k) statistics with (n,) True for those from the cache."""

    distinct: list[Item]  # each item once
    place: IntArray  # (items,) index of each item, repeats included, among the distinct ones
    statistics: list[tuple[FloatArray, FloatArray]]


def extract(
    metrics: Sequence[tuple[str, Metric]],  # with their labels
    items: Sequence[Item],  # all items, repeats included
    store: Cache,
    progress: Progress = lambda _: None,
    spread: Engine | None = None,
    documents: Sequence[Item] | None = None,  # all items of the data set, if ``items`` are a part of them
) -> Extracted:
    """Extract the statistics of each distinct item once, batch by batch.

    Metrics with slow work are last, so that an interruption loses little. Of these, other processes do the slow work
    only; their statistics are extracted in this process.
    """
    distinct, index = _distinct(items)
    runs = _runs(metrics, items, distinct, index, store, progress, documents)
    slow = _look_up(runs)
    quick = [run for key, run in runs.items() if key not in slow]
    here = [run for run in quick if not spread or any(isinstance(need, Scores) for need in run.metric.needs)]
    if spread is not None:
        _extract_on(spread, [run for run in quick if run not in here])
    _extract(here)
    for key, work in slow.items():
        work.run_in(progress, runs[key].label, spread)
    _extract([runs[key] for key in slow])
    return Extracted(distinct, index, [_statistics(metric, runs) for _, metric in metrics])


def remaining_work(
    metrics: Sequence[tuple[str, Metric]], items: Sequence[Item], store: Cache, documents: Sequence[Item] | None = None
) -> tuple[SlowWork, ...]:
    """The slow work that :func:`extract` would do."""
    runs = _runs(metrics, items, *_distinct(items), store, lambda _: None, documents)
    return tuple(_look_up(runs).values())


def _runs(
    metrics: Sequence[tuple[str, Metric]],
    items: Sequence[Item],
    distinct: Sequence[Item],
    index: IntArray,
    store: Cache,
    progress: Progress,
    documents: Sequence[Item] | None,
) -> dict[str, _Run]:
    """Prepared metrics, of combined ones their inputs, by the cache space of their statistics."""
    runs: dict[str, _Run] = {}
    repeats = np.bincount(index)

    def add(metric: Metric, label: str, shown: int) -> None:
        metric.prepare(items)
        if isinstance(metric, CombinedMetric):
            for place, input_metric in enumerate(metric.inputs()):
                add(input_metric, input_metric.name, shown if place == 0 else 0)
            return
        if documents is not None and metric.corpus_id():
            metric.prepare(documents)
        key = _space(metric)
        if key not in runs:
            runs[key] = _Run(metric, label, distinct, repeats, store, progress)
        runs[key].shown += shown

    for label, metric in metrics:
        add(metric, label, 1)
    return runs


def _look_up(runs: Mapping[str, _Run]) -> dict[str, SlowWork]:
    """Look up cached statistics; returns the remaining slow work by the metrics' keys."""
    works = {key: run.look_up() for key, run in runs.items()}
    return {key: work for key, work in works.items() if work is not None}


def _extract(runs: Sequence[_Run]) -> None:
    for run, places in _parts(runs):
        run.keep(places, run.metric.statistics(run.at(places), run.progress_of(places)))


def _extract_on(spread: Engine, runs: Sequence[_Run]) -> None:
    """Extract in other processes, one unit of work for each batch; only this process stores."""
    parts = list(_parts(runs))
    works = [(runs.index(run), run.at(places)) for run, places in parts]
    failed: dict[int, str] = {}
    opener = partial(_extractor, [run.metric for run in runs])
    for unit, rows in spread.run(opener, works, memory_mb=_WORKER_MB) if works else ():
        run, places = parts[unit]
        if isinstance(rows, PartFailure):
            failed[unit] = rows.reason
            continue
        run.keep(places, rows)
        run.progress_of(places)(len(places))
    if failed:
        images = sorted({item.image for unit in failed for item in works[unit][1]})
        raise UnfinishedError(
            f"{len(failed):,} of {len(works):,} parts failed three times, of {len(images):,} images "
            f"({', '.join(images[:_MOST_NAMED])}{', …' if len(images) > _MOST_NAMED else ''}): "
            f"{next(iter(failed.values()))}",
            value=images[0],
            hint="Scores of the other parts are cached. Fix the cause and run the same command again",
        )


def _parts(runs: Sequence[_Run]) -> Iterator[tuple[_Run, list[int]]]:
    """Metrics with the indices of items to extract at once; metrics of equal batches alternate, to share work."""
    by_kind: dict[tuple[int, bool], list[_Run]] = {}
    for run in runs:
        by_kind.setdefault((run.metric.batch_size, run.metric.by_image), []).append(run)
    for kind, alike in by_kind.items():
        for batch in batches(alike[0].items, *kind):
            left = ((run, [place for place in batch if not run.done[place]]) for run in alike)
            yield from ((run, places) for run, places in left if places)


def _statistics(metric: Metric, runs: Mapping[str, _Run]) -> tuple[FloatArray, FloatArray]:
    """(n, k) statistics of the distinct items, and (n,) True for those from the cache."""
    if not isinstance(metric, CombinedMetric):
        run = runs[_space(metric)]
        return run.rows, run.known
    parts = [(of_input, *_statistics(of_input, runs)) for of_input in metric.inputs()]
    combined = np.asarray(metric.combine_each([of.scores(rows) for of, rows, _ in parts]), dtype=np.float64)
    _check_statistics(metric, combined, next(iter(runs.values())).items)
    return combined, np.logical_and.reduce([known for *_, known in parts])


def _distinct(items: Sequence[Item]) -> tuple[list[Item], IntArray]:
    """Each item once, the last of equal ones at the first's position; and (items,) the index of each in this list."""
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


def _space(metric: Metric) -> str:
    """Cache space of a metric's statistics; in a checkout with a digest of the code of capbench that extracts them."""
    code = code_digest(*(cls.__module__ for cls in type(metric).__mro__ if cls.__module__.startswith("capbench.")))
    return "\n".join((metric.statistics_signature(), metric.corpus_id(), *filter(None, [code])))


def may_be_cached(metric: Metric) -> bool:
    """False if the class's code cannot be signed or ``keeps_statistics`` is False."""
    return metric.keeps_statistics and code_signature(type(metric)) is not None


def batches(
    items: Sequence[Item], most: int, by_image: bool, size: Callable[[list[int]], int] = len
) -> Iterator[list[int]]:
    """Item indices in batches of a size of at most ``most``, by default a number of items.

    ``by_image``: image by image in the order of their ids; a larger image is a batch of its own.
    """
    groups: dict[str | int, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault(item.image if by_image else place, []).append(place)
    batch: list[int] = []
    filled = 0
    for _, group in sorted(groups.items()) if by_image else groups.items():
        more = size(group)
        if batch and filled + more > most:
            yield batch
            batch, filled = [], 0
        batch += group
        filled += more
    if batch:
        yield batch


class _Run:
    """Statistics of distinct items under one metric: cached ones and those still to extract.

    ``shown``: number of times that its items count as progress; ``known``: (n) True for items from the cache; ``done``:
    (n) True for these and those that are extracted.
    """

    def __init__(
        self, metric: Metric, label: str, items: Sequence[Item], repeats: IntArray, store: Cache, progress: Progress
    ) -> None:
        self.metric, self.label, self.shown = metric, label, 0
        self.known = np.zeros(len(items), dtype=bool)
        self.rows = np.empty((len(items), 0))
        self.items, self._repeats, self._progress = items, repeats, progress
        self._store = store if may_be_cached(metric) else Cache("scores", enabled=False)
        self._space = _space(metric)
        self._keys = [metric.cache_key(item) for item in items]
        self.done = np.zeros(len(items), dtype=bool)
        self._part: Progress | None = None  # created when work begins, so that its time excludes waiting

    def at(self, places: Sequence[int]) -> list[Item]:
        """Some of the items."""
        return [self.items[place] for place in places]

    def look_up(self) -> SlowWork | None:
        """Load cached statistics and open the metric for the other items; returns its slow work."""
        in_order = sorted(range(len(self._keys)), key=self._keys.__getitem__)  # the order in the cache
        for start in range(0, len(in_order), _LOOKED_UP_AT_ONCE):
            batch = in_order[start : start + _LOOKED_UP_AT_ONCE]
            stored = self._store.get(self._space, [self._keys[place] for place in batch])
            places = [place for place in batch if self._keys[place] in stored]
            if places:
                joined = b"".join(stored[self._keys[place]] for place in places)
                self._set(places, np.frombuffer(joined, dtype="<f8").reshape(len(places), -1))
                self.known[places] = True
        self._step(int(self._repeats[self.known].sum()))
        if self.known.all():
            return None
        if self.metric.keeps_statistics and not may_be_cached(self.metric):
            message = f"scores of {self.metric.name} are not cached, because its code has no source file to sign"
            warnings.warn(message, CapbenchWarning, stacklevel=2)
        left = [item for item, known in zip(self.items, self.known, strict=True) if not known]
        self.metric.open(left)
        return self.metric.slow_work(left)

    def keep(self, places: Sequence[int], extracted: FloatArray) -> None:
        """Store extracted statistics (places, k) in memory and in the cache."""
        _check_statistics(self.metric, extracted, self.at(places))
        self._set(places, extracted)
        rows = np.ascontiguousarray(extracted, dtype="<f8")
        self._store.put(self._space, ((self._keys[i], row.tobytes()) for i, row in zip(places, rows, strict=True)))

    def _set(self, places: Sequence[int], rows: FloatArray) -> None:
        if not self.done.any():
            self.rows = np.empty((len(self.items), rows.shape[1]))
        if rows.shape[1] != self.rows.shape[1]:
            message = f"{self.metric.name} returned statistics of different widths under one signature"
            hint = "Clear the cache folder, or run with --no-cache"
            raise MetricError(message, code="wrong-shape", value=rows.shape[1], hint=hint)
        self.rows[places] = rows
        self.done[places] = True

    def progress_of(self, places: Sequence[int]) -> Progress:
        """Progress over these items, which is also reported as progress over all items."""
        part = self._part = self._part or part_of(self._progress, self.label, int((~self.known).sum()), "items")
        repeats = iter(self._repeats[places].tolist())

        def step(count: int) -> None:
            part(count)
            self._step(sum(islice(repeats, count)))

        return step

    def _step(self, count: int) -> None:
        if self.shown:
            self._progress(self.shown * count)


def _extractor(metrics: Sequence[Metric]) -> Callable[[tuple[int, Sequence[Item]]], FloatArray]:
    """The function that extracts a unit's statistics in a worker: those of some items under one of the metrics."""

    def extract(work: tuple[int, Sequence[Item]]) -> FloatArray:
        number, items = work
        metrics[number].open(items)
        return metrics[number].statistics(items, lambda _: None)

    return extract


def _check_statistics(metric: Metric, extracted: FloatArray, items: Sequence[Item]) -> None:
    if extracted.ndim != 2 or len(extracted) != len(items):
        message = f"{metric.name} returned statistics of shape {extracted.shape} for {len(items)} items"
        hint = "Its statistics() must return one row per item"
        raise MetricError(message, code="wrong-shape", value=extracted.shape, hint=hint)
    check_finite(f"{metric.name} returned the statistics", extracted, items)


def check_finite(what: str, values: FloatArray, items: Sequence[Item]) -> None:
    """Raise MetricError for the first item with a value that is not a finite number; ``values``: (n,) or (n, k)."""
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(items), -1).all(axis=1))
    if len(bad):
        item = items[bad[0]]
        message, hint = f"{what} {values[bad[0]]} of {item_name(item)}", "It must return finite numbers"
        raise MetricError(message, code="not-a-number", value=item.image, hint=hint)


def item_name(item: Item) -> str:
    """Description of an item for messages."""
    label = f"'{item.candidate_id}' " if item.candidate_id else ""
    return f"the item {label}of image '{item.image}' ('{item.candidate[:60]}')"
