"""Extraction of statistics through the score cache: once for each distinct item, batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchWarning, MetricError, UnfinishedError
from capbench.core.progress import Progress, SlowWork, part_of
from capbench.core.records import FloatArray, IntArray, Item
from capbench.core.version import code_digest
from capbench.core.workers import PartFailure, Spread
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.needs import Scores
from capbench.metrics.signing import code_signature

_WORKER_MB = 1500
_MOST_NAMED = 5

_LOOKED_UP_AT_ONCE = 65_536  # number of items whose cached rows are in memory as separate objects


class Extraction:
    """Statistics of distinct items under several metrics, each extracted once.

    Args:
        items: all items, repeats included, for ``prepare``.
        distinct: each item once.
        index: (items) index of each item among the distinct ones.
        store: the score cache.
        progress: called with numbers of items done.
        spread: extracts in other processes; None: in this process.
        documents: all items of the data set, for corpus statistics, if ``items`` are a part of them; else None.
    """

    def __init__(
        self,
        items: Sequence[Item],
        distinct: Sequence[Item],
        index: IntArray,
        store: Cache,
        progress: Progress,
        spread: Spread | None = None,
        documents: Sequence[Item] | None = None,
    ) -> None:
        self._items, self._distinct, self._store, self._progress = items, distinct, store, progress
        self._spread, self._documents = spread, documents
        self._repeats = np.bincount(index, minlength=len(distinct))
        self._runs: dict[str, Run] = {}

    def add(self, metric: Metric, label: str, shown: int = 1) -> None:
        """Prepare a metric, or the inputs of a combined metric.

        Args:
            metric: the metric.
            label: its name in the progress display.
            shown: number of times that its items count as progress.
        """
        metric.prepare(self._items)
        if isinstance(metric, CombinedMetric):
            for place, input_metric in enumerate(metric.inputs()):
                self.add(input_metric, input_metric.name, shown if place == 0 else 0)
            return
        if self._documents is not None and metric.corpus_id():
            metric.prepare(self._documents)
        key = _space(metric)
        if key not in self._runs:
            self._runs[key] = Run(metric, label, self._distinct, self._repeats, self._store, self._progress)
        self._runs[key].shown += shown

    def slow_work(self) -> dict[str, SlowWork]:
        """Look up cached statistics; returns the remaining slow work by the metrics' keys."""
        works = {key: run.look_up() for key, run in self._runs.items()}
        return {key: work for key, work in works.items() if work is not None}

    def run(self) -> None:
        """Extract batch by batch, metrics with slow work last, so that an interruption loses little.

        Other processes do the slow work only; the statistics of these metrics are extracted in this process.
        """
        slow = self.slow_work()
        quick = [run for key, run in self._runs.items() if key not in slow]
        if self._spread is None:
            self._extract(quick)
        else:
            of_files = [run for run in quick if any(isinstance(need, Scores) for need in run.metric.needs)]
            spread_over = [run for run in quick if run not in of_files]
            extract_on(self._spread, spread_over, self._groups(spread_over, spread=True))
            self._extract(of_files)
        for key, work in slow.items():
            progress = part_of(self._progress, self._runs[key].label, len(work.units), work.unit, work.seconds)
            if self._spread is None or work.run_on is None:
                work.run(progress)
            else:
                work.run_on(self._spread, progress)
        self._extract([self._runs[key] for key in slow])

    def _extract(self, runs: Sequence[Run]) -> None:
        for batch, alike in self._groups(runs):
            for run in alike:
                run.extract(batch)

    def _groups(self, runs: Sequence[Run], *, spread: bool = False) -> Iterator[tuple[list[int], list[Run]]]:
        """Batches of item indices, each with the metrics that use the same batches and can share work."""
        by_kind: dict[tuple[int, bool], list[Run]] = {}
        for run in runs:
            size = run.metric.part_size if spread and run.metric.part_size else run.metric.batch_size
            by_kind.setdefault((size, run.metric.by_image), []).append(run)
        for kind, alike in by_kind.items():
            for batch in _batches(self._distinct, *kind):
                yield batch, alike

    def of(self, metric: Metric) -> tuple[FloatArray, FloatArray]:
        """(n, k) statistics of the distinct items, and (n) True for those from the cache."""
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
    """Cache space of a metric's statistics; in a checkout with a digest of the code of capbench that extracts them."""
    code = code_digest(*(cls.__module__ for cls in type(metric).__mro__ if cls.__module__.startswith("capbench.")))
    return "\n".join((metric.statistics_signature(), metric.corpus_id(), *filter(None, [code])))


def may_be_cached(metric: Metric) -> bool:
    """False if the class's code cannot be signed or ``keeps_statistics`` is False."""
    return metric.keeps_statistics and code_signature(type(metric)) is not None


def _batches(items: Sequence[Item], size: int, by_image: bool) -> Iterator[list[int]]:
    """Item indices in batches of at most ``size``; ``by_image`` keeps an image's items together."""
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


class Run:
    """Statistics of distinct items under one metric: cached ones and those still to extract."""

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
        self._store = store if may_be_cached(metric) else Cache("scores", enabled=False)
        self._space = _space(metric)
        self._keys = [metric.cache_key(item) for item in items]
        self._done = np.zeros(len(items), dtype=bool)
        self._rows = np.empty((len(items), 0))
        self._part: Progress | None = None  # created when work begins, so that its time excludes waiting

    def look_up(self) -> SlowWork | None:
        """Load cached statistics and open the metric for the other items; returns its slow work."""
        self._take(self._rows_by_width())
        self._done |= self.known
        self._step(int(self._repeats[self.known].sum()))
        if self.known.all():
            return None
        if self.metric.keeps_statistics and not may_be_cached(self.metric):
            warnings.warn(
                f"scores of {self.metric.name} are not cached, because its code has no source file to sign",
                CapbenchWarning,
                stacklevel=2,
            )
        left = [item for item, known in zip(self._items, self.known, strict=True) if not known]
        self.metric.open(left)
        return self.metric.slow_work(left)

    def _rows_by_width(self) -> dict[int, list[tuple[IntArray, bytes]]]:
        """Item indices and their cached rows by row size in bytes, looked up batch by batch."""
        rows: dict[int, list[tuple[IntArray, bytes]]] = {}
        in_order = sorted(range(len(self._keys)), key=self._keys.__getitem__)  # the order in the cache
        for start in range(0, len(in_order), _LOOKED_UP_AT_ONCE):
            batch = in_order[start : start + _LOOKED_UP_AT_ONCE]
            keys = list(map(self._keys.__getitem__, batch))
            blobs = self._store.get(self._space, keys)
            for width in set(map(len, blobs.values())):
                if not width or width % 8:
                    continue
                fits = [len(blobs.get(key, b"")) == width for key in keys]
                joined = b"".join(map(blobs.__getitem__, compress(keys, fits)))
                rows.setdefault(width, []).append((np.array(batch, dtype=np.int64)[fits], joined))
        return rows

    def _take(self, rows: dict[int, list[tuple[IntArray, bytes]]]) -> None:
        """Load cached rows; ``rows`` is empty afterwards."""
        # One signature has one width; a row of another width is damaged and extracted again.
        width = max(rows, key=lambda width: sum(len(places) for places, _ in rows[width]), default=0)
        batches = rows.pop(width, [])
        rows.clear()
        if batches:
            self._rows = np.empty((len(self._items), width // 8))
        while batches:
            places, joined = batches.pop()
            values = np.frombuffer(joined, dtype="<f8").reshape(len(places), -1)
            sound = np.isfinite(values).all(axis=1)
            self._rows[places[sound]] = values[sound]
            self.known[places[sound]] = True

    def missing(self, batch: Sequence[int]) -> list[int]:
        """The indices in a batch whose items are not extracted yet."""
        return [i for i in batch if not self._done[i]]

    def items_at(self, places: Sequence[int]) -> list[Item]:
        """The items with these indices."""
        return [self._items[i] for i in places]

    def extract(self, batch: Sequence[int]) -> None:
        """Extract and store the missing statistics of a batch."""
        missing = self.missing(batch)
        if missing:
            progress = self._progress_of(missing)
            self.keep(missing, self.metric.statistics(self.items_at(missing), progress))

    def keep(self, places: Sequence[int], extracted: FloatArray, *, report: bool = False) -> None:
        """Store extracted statistics in memory and in the cache.

        Args:
            places: indices of their items.
            extracted: (places, k).
            report: True reports these items as progress; otherwise the metric reported them.
        """
        _check_statistics(self.metric, extracted, self.items_at(places))
        if not self._done.any():
            self._rows = np.empty((len(self._items), extracted.shape[1]))
        if extracted.shape[1] != self._rows.shape[1]:
            raise MetricError(
                f"{self.metric.name} returned statistics of different widths under one signature",
                code="wrong-shape",
                value=extracted.shape[1],
                hint="Clear the cache folder, or run with --no-cache",
            )
        self._rows[places] = extracted
        self._done[places] = True
        rows = np.ascontiguousarray(extracted, dtype="<f8")
        self._store.put(self._space, ((self._keys[i], row.tobytes()) for i, row in zip(places, rows, strict=True)))
        if report:
            self._progress_of(places)(len(places))

    def _progress_of(self, places: Sequence[int]) -> Progress:
        if self._part is None:
            self._part = part_of(self._progress, self.label, int((~self.known).sum()), "items")
        return _weighted(self._repeats[places].tolist(), self._step, self._part)

    def statistics(self) -> FloatArray:
        """(n, k) statistics of all items."""
        return self._rows

    def _step(self, count: int) -> None:
        if self.shown:
            self._progress(self.shown * count)


@dataclass(frozen=True)
class _Work:
    """A unit of work for another process.

    Attributes:
        items: a batch.
        wanted: for each metric by its index, indices of the ``items`` whose statistics are missing.
    """

    items: Sequence[Item]
    wanted: Mapping[int, Sequence[int]]


def extract_on(spread: Spread, runs: Sequence[Run], groups: Iterable[tuple[list[int], list[Run]]]) -> None:
    """Extract missing statistics in other processes; only this process stores and caches them.

    Args:
        spread: runs the units of work.
        runs: the prepared metrics.
        groups: batches of item indices, each with its metrics, as in a single process; one unit of work each.

    Raises:
        UnfinishedError: units failed; the statistics of the others are cached.
        CapbenchError: raised by a metric.
    """
    works: list[_Work] = []
    places: list[dict[int, list[int]]] = []
    for batch, alike in groups:
        of_batch = {place: batch_place for batch_place, place in enumerate(batch)}
        missing = {number: run.missing(batch) for number, run in enumerate(runs) if run in alike}
        missing = {number: of_run for number, of_run in missing.items() if of_run}
        if missing:
            wanted = {number: [of_batch[place] for place in of_run] for number, of_run in missing.items()}
            works.append(_Work(next(iter(runs)).items_at(batch), wanted))
            places.append(missing)
    if not works:
        return
    failed: dict[int, str] = {}
    opener = partial(_opened, [run.metric for run in runs])
    for number, rows in spread.run(opener, works, memory_mb=_WORKER_MB):
        if isinstance(rows, PartFailure):
            failed[number] = rows.reason
            continue
        for run, extracted in rows.items():
            runs[run].keep(places[number][run], extracted, report=True)
    if failed:
        images = sorted({item.image for number in failed for item in works[number].items})
        raise UnfinishedError(
            f"{len(failed):,} of {len(works):,} parts failed three times, of {len(images):,} images "
            f"({', '.join(images[:_MOST_NAMED])}{', …' if len(images) > _MOST_NAMED else ''}): "
            f"{next(iter(failed.values()))}",
            value=images[0],
            hint="Scores of the other parts are cached. Fix the cause and run the same command again",
        )


def _opened(metrics: Sequence[Metric]) -> Callable[[_Work], dict[int, FloatArray]]:
    """The function that extracts a unit's statistics in a worker, by the metrics' indices."""

    def extract(work: _Work) -> dict[int, FloatArray]:
        rows: dict[int, FloatArray] = {}
        for number, places in work.wanted.items():
            items, metric = [work.items[place] for place in places], metrics[number]
            metric.open(items)
            rows[number] = metric.statistics(items, lambda _: None)
        return rows

    return extract


def _weighted(repeats: Sequence[int], progress: Progress, distinct: Progress) -> Progress:
    """Progress over distinct items that is also reported as progress over all items."""
    queue = iter(repeats)

    def step(count: int) -> None:
        distinct(count)
        progress(sum(next(queue, 0) for _ in range(count)))

    return step


def _check_statistics(metric: Metric, extracted: FloatArray, items: Sequence[Item]) -> None:
    if extracted.ndim != 2 or len(extracted) != len(items):
        raise MetricError(
            f"{metric.name} returned statistics of shape {extracted.shape} for {len(items)} items",
            code="wrong-shape",
            value=extracted.shape,
            hint="Its statistics() must return one row per item",
        )
    bad = np.flatnonzero(~np.isfinite(extracted).all(axis=1))
    if len(bad):
        item = items[bad[0]]
        message = f"{metric.name} returned a statistic that is not a finite number for {item_name(item)}"
        raise MetricError(message, code="not-a-number", value=item.image)


def item_name(item: Item) -> str:
    """Description of an item for messages."""
    label = f"'{item.candidate_id}' " if item.candidate_id else ""
    return f"the item {label}of image '{item.image}' ('{item.candidate[:60]}')"
