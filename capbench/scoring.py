"""Metrics over items: every distinct item is scored once, and what was scored before comes from the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from capbench.cache import Cache
from capbench.datasets.user.captions import user_items
from capbench.errors import DataError, MetricError, MissingFeaturesError
from capbench.metrics.base import Metric, MetricRequest, Resources
from capbench.records import FloatArray, IntArray, Item, ScoreColumn, ScoreTable
from capbench.score_files import read_scores, to_frame, write_scores

__all__ = ["complete", "read_scores", "score", "to_frame", "user_items", "write_scores"]

Progress = Callable[[int], None]


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
    under the metric's signature, batch by batch, so that an interrupted run goes on where it stopped. Corpus
    scores count repeated items as often as they stand in ``items``.

    Args:
        items: what to score, repeats included.
        requests: metrics and their columns, from :func:`capbench.metrics.base.resolve_metrics`.
        resources: what metrics need beside captions.
        dataset: name of the data set, for the table.
        cache: False neither reads nor writes the cache.
        progress: called with numbers of items done; they add up to ``len(items)`` for each metric.

    Raises:
        DataError: there are no items.
        MetricError: a metric cannot be computed on them, or gave a value that is no number.
        ToolError, FeatureError, ModelError, UsageError: a metric lacks something.
    """
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
    with Cache("scores", enabled=cache) as store:
        runs = []
        try:
            for request in requests:
                metric = request.make(resources)
                metric.prepare(items)
                runs.append(_Run(metric, distinct, index, store, progress or (lambda _: None)))
        except MissingFeaturesError as error:
            raise _with_covered_groups(error, items, resources, dataset) from error
        _extract(runs, len(distinct))
        for request, run in zip(requests, runs, strict=True):
            metric, name = run.metric, run.metric.name
            statistics = run.statistics()
            columns = metric.scores(statistics)
            totals = metric.corpus_scores(statistics[index])
            for column in request.columns:
                key = ScoreColumn(name, column)
                values[key] = _checked(columns, column, distinct, name)[index]
                corpus[key] = _checked_total(totals, column, name)
            signatures[name] = metric.signature()
            cached[name] = int(run.known[index].sum())
    return ScoreTable(dataset, tuple(items), values, corpus, signatures, cached)


def covered_groups(items: Sequence[Item], resources: Resources) -> list[str]:
    """The groups of which every image has features, while other items lack some; in the items' order.

    Raises:
        FeatureError: the feature store cannot be read.
    """
    from capbench.features.store import open_store

    images: dict[str, set[str]] = {}
    for item in items:
        images.setdefault(item.group, set()).add(item.image)
    if resources.features is None or len(images) < 2:
        return []
    with open_store(resources.features) as store:
        return [group for group, names in images.items() if group and all(name in store for name in names)]


def _with_covered_groups(
    error: MissingFeaturesError, items: Sequence[Item], resources: Resources, dataset: str
) -> MissingFeaturesError:
    """The error with the groups of which no image lacks features: these can be scored alone."""
    from capbench.datasets.groups import spelled

    covered = covered_groups(items, resources)
    if not covered:
        return error
    names = [f"{dataset}@{spelled(group)}" for group in covered]
    what = f"all images of group{'s' if covered[1:] else ''} {', '.join(covered)} have features"
    return MissingFeaturesError(
        error.message, path=error.path, row=error.row, hint=f"{error.hint}; {what}: ask for {' or '.join(names)}"
    )


def complete(resources: Resources | None, *, cache: bool) -> Resources:
    """Resources with the choice of cache, and with named corpora to look up if nothing else was given for that."""
    resources = dataclasses.replace(resources or Resources(), cache=cache)
    if resources.captions is None:
        resources = dataclasses.replace(resources, captions=_caption_lookup(resources.data))
    return resources


def _caption_lookup(data: str | None) -> Callable[[str], Mapping[str, Sequence[str]]]:
    def look_up(name: str) -> Mapping[str, Sequence[str]]:
        from capbench.datasets.captions import load_captions
        from capbench.datasets.root import find_root

        return load_captions(name, find_root(data))

    return look_up


class _Run:
    """Statistics of distinct items under one metric: those that the cache holds, and those still to extract."""

    def __init__(
        self, metric: Metric, items: Sequence[Item], index: IntArray, store: Cache, progress: Progress
    ) -> None:
        self.metric = metric
        self._items = items
        self._store = store
        self._progress = progress
        self._space = f"{metric.statistics_signature()}\n{metric.corpus_id()}"
        self._repeats = np.bincount(index, minlength=len(items))
        self._keys = [metric.cache_key(item) for item in items]
        found = store.get(self._space, self._keys)
        rows: list[FloatArray | None] = [_decode(found.get(key)) for key in self._keys]
        # One signature has one width; a row of another width is damage, and is extracted again.
        widths = [len(row) for row in rows if row is not None]
        width = max(set(widths), key=widths.count) if widths else 0
        self._rows = [row if row is not None and len(row) == width else None for row in rows]
        self.known = np.array([row is not None for row in self._rows])
        progress(int(self._repeats[self.known].sum()))
        if not self.known.all():
            metric.open([item for item, known in zip(items, self.known, strict=True) if not known])

    def extract(self, start: int, stop: int) -> None:
        """Extract what is missing among the items from ``start`` to ``stop``, and keep it."""
        part = [i for i in range(start, min(stop, len(self._rows))) if self._rows[i] is None]
        if not part:
            return
        items = [self._items[i] for i in part]
        extracted = self.metric.statistics(items, _weighted(self._repeats[part].tolist(), self._progress))
        _check_statistics(self.metric, extracted, items)
        for i, row in zip(part, extracted, strict=True):
            self._rows[i] = row
        self._store.put(self._space, ((self._keys[i], _encode(row)) for i, row in zip(part, extracted, strict=True)))

    def statistics(self) -> FloatArray:
        """(n, k) statistics of all items."""
        try:
            return np.array(self._rows, dtype=np.float64)
        except ValueError as error:
            raise MetricError(
                f"{self.metric.name} gave statistics of different widths under one signature",
                hint="Clear the cache folder, or run with --no-cache",
            ) from error


def _extract(runs: Sequence[_Run], n_items: int) -> None:
    """Extract batch by batch; metrics with batches of one size take turns, since they can share work on a batch."""
    for size in dict.fromkeys(run.metric.batch_size for run in runs):
        for start in range(0, n_items, size):
            for run in runs:
                if run.metric.batch_size == size:
                    run.extract(start, start + size)


def _weighted(repeats: Sequence[int], progress: Progress) -> Progress:
    """Progress over distinct items as progress over all items."""
    queue = iter(repeats)

    def step(count: int) -> None:
        progress(sum(next(queue, 0) for _ in range(count)))

    return step


def _encode(row: FloatArray) -> bytes:
    return np.asarray(row, dtype="<f8").tobytes()


def _decode(blob: bytes | None) -> FloatArray | None:
    if not blob or len(blob) % 8:
        return None
    row = np.frombuffer(blob, dtype="<f8")
    return row if np.isfinite(row).all() else None


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
