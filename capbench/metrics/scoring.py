"""Scoring of items with metrics: each distinct item once, earlier ones from the cache. Score tables as files."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capbench.core.cache import Cache, reused
from capbench.core.errors import DataError, MetricError, UsageError, require
from capbench.core.files import atomic_write
from capbench.core.plugins import stdout_to_stderr
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import (
    FloatArray,
    Item,
    ScoreColumn,
    ScoreTable,
    groups_of_images,
    references_hash,
)
from capbench.core.training_record import TrainingRecord
from capbench.core.workers import Engine
from capbench.datasets.user.caption_warnings import caption_warnings
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.score_cache import check_finite, extract, remaining_work
from capbench.metrics.score_files import COLUMNS

if TYPE_CHECKING:
    import pandas as pd


def warnings_of_captions(items: Sequence[Item], requests: Sequence[MetricRequest]) -> list[str]:
    """Warnings about a user's captions under some metrics; see :func:`caption_warnings`."""
    from_items = [asked.metric.name for asked in requests if asked.options.get("df", "items") in ("items", "images")]
    return caption_warnings(items, from_items)


@dataclasses.dataclass(frozen=True, eq=False)
class CorpusStatistics:
    """Statistics behind a request's corpus scores, for resampling without scoring again."""

    metric: Metric  # the metric, prepared on the items
    rows: FloatArray  # (n, k) statistics of the items, repeats included


@stdout_to_stderr()
def score(
    items: Sequence[Item],  # the items, repeats included
    # metrics and their columns, from :func:`capbench.metrics.requests.resolve_metrics`
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,  # inputs of metrics besides captions
    *,
    dataset: str,  # name of the data set, for the table
    cache: bool = True,  # False neither reads nor writes the cache
    # called with numbers of items done; they add up to ``len(items)`` for each request.
    # :class:`capbench.core.progress.Display` also gets the progress of each metric, without cached items.
    progress: Progress | None = None,
    spread: Engine | None = None,  # extracts statistics, and does slow work that can be split, in other processes
    by_group: bool = False,  # True adds corpus scores of each group of the items
    # the items of the whole data set, which corpus statistics (document frequencies) are taken from, if ``items`` are a
    # part of them; by default ``items``
    documents: Sequence[Item] | None = None,
    statistics_of: dict[str, CorpusStatistics] | None = None,  # receives the statistics of each label, for resampling
) -> ScoreTable:
    """Score items with metrics.

    Statistics are stored in the score cache batch by batch, so that an interrupted run resumes. Requests that differ
    only in options that recombine statistics share them. Corpus scores count repeated items as often as they occur.
    """
    if not items:
        message = f"{dataset} has no items to score"
        hint = "Choose other items or another file"
        raise DataError(message, code="missing-caption", value=dataset, hint=hint)
    resources = complete(resources, items)
    values: dict[ScoreColumn, FloatArray] = {}
    corpus: dict[ScoreColumn, float] = {}
    signatures: dict[str, str] = {}
    cached: dict[str, int] = {}
    cautions: dict[str, tuple[str, ...]] = {}
    trained_on: dict[str, tuple[TrainingRecord, ...]] = {}
    groups = np.array([item.group if by_group else "" for item in items], dtype=object)
    places = {group: np.flatnonzero(groups == group) for group in dict.fromkeys(groups.tolist()) if group}
    group_corpus: dict[str, dict[ScoreColumn, float]] = {group: {} for group in places}
    with Cache("scores", enabled=cache) as store:
        metrics = [(request.label, request.make(resources)) for request in requests]
        distinct, index, extracted = extract(metrics, items, store, progress or (lambda _: None), spread, documents)
        for request, (label, metric), (statistics, known) in zip(requests, metrics, extracted, strict=True):
            columns = metric.scores(statistics)
            rows = statistics if len(distinct) == len(items) else statistics[index]  # without repeats, the same order
            totals = metric.corpus_scores(rows)
            totals_of = {group: metric.corpus_scores(rows[chosen]) for group, chosen in places.items()}
            for column in request.columns:
                key = ScoreColumn(label, column)
                values[key] = _checked(columns.get(column), column, distinct, label)[index]
                corpus[key] = _checked_total(totals, column, label)
                for group, of_group in totals_of.items():
                    group_corpus[group][key] = _checked_total(of_group, column, label)
            signatures[label], cached[label] = metric.signature(), int(known[index].sum())
            if lines := metric.warnings(dataset, items):
                cautions[label] = tuple(lines)
            if records := metric.training_records():
                trained_on[label] = tuple(records)
            if statistics_of is not None:
                statistics_of[label] = CorpusStatistics(metric, rows)
    reused["scores"] += sum(cached.values())
    return ScoreTable(dataset, tuple(items), values, corpus, signatures, cached, group_corpus, cautions, trained_on)


@stdout_to_stderr()
def slow_work(
    items: Sequence[Item],
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    cache: bool = True,
    documents: Sequence[Item] | None = None,
) -> dict[str, tuple[SlowWork, ...]]:
    """Slow work before scoring these items, by label; labels without slow work are omitted."""
    resources = complete(resources, items)
    works: dict[str, tuple[SlowWork, ...]] = {}
    with Cache("scores", enabled=cache) as store:
        for request in requests:
            if not _may_be_slow(request.metric):
                continue
            # Prepares only the inputs with slow work: preparing the others may take long.
            plain = request.make(resources).plain_metrics()
            slow = [(request.label, metric) for metric in plain if _may_be_slow(type(metric))]
            works[request.label] = remaining_work(slow, items, store, documents)
    return {label: of_label for label, of_label in works.items() if of_label}


def _may_be_slow(metric: type[Metric]) -> bool:
    return issubclass(metric, CombinedMetric) or metric.slow_work is not Metric.slow_work


def complete(resources: Resources | None, items: Sequence[Item] = ()) -> Resources:
    """Resources with functions that look up named corpora, image files and, from the items, the images of captions that
    belong to no data set, if missing."""
    given = resources or Resources()
    return dataclasses.replace(
        given,
        captions=given.captions or partial(_captions_of, given.data),
        pictures=given.pictures or partial(_pictures_of, given.data, given.images),
        image_groups=given.image_groups or (partial(groups_of_images, items) if items else None),
    )


def _pictures_of(data: str | None, images: str | None, wanted: Sequence[str]) -> Mapping[str, Path]:
    """Image files of captions that belong to no data set."""
    from capbench.datasets.images import image_finder
    from capbench.datasets.root import find_root

    return image_finder(find_root(data), None if images is None else Path(images))(wanted)


def _captions_of(data: str | None, name: str) -> Mapping[str, Sequence[str]]:
    """The captions of a named corpus."""
    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import find_root

    return load_captions(name, find_root(data))


def _checked(scores: FloatArray | None, column: str, items: Sequence[Item], name: str) -> FloatArray:
    values = np.asarray(np.nan if scores is None else scores, dtype=np.float64)
    if values.shape != (len(items),):
        message = f"{name} returned scores of '{column}' of shape {values.shape} for {len(items)} items"
        hint = "Its scores() must return all columns"
        raise MetricError(message, code="wrong-shape", value=values.shape, hint=hint)
    check_finite(f"{name} returned as '{column}'", values, items)
    return values


def _checked_total(totals: Mapping[str, float], column: str, name: str) -> float:
    value = totals.get(column)
    if value is None or not np.isfinite(value):
        message = f"{name} returned {value} as the corpus score '{column}'"
        raise MetricError(message, code="not-a-number", value=column, hint="It must be a finite number")
    return float(value)


# Files of scores in the long schema: one row for each item and column of a metric.

_ENDINGS = (".csv", ".jsonl", ".parquet")


def to_frame(table: ScoreTable) -> pd.DataFrame:
    """A score table with the columns :data:`COLUMNS`, sorted by metric column, then by item; repeats once."""
    import pandas as pd

    return pd.DataFrame(list(_rows(table)), columns=list(COLUMNS))


def write_scores(table: ScoreTable, path: str | Path) -> None:
    """Write scores as ``.csv``, ``.jsonl`` or ``.parquet``, atomically and with all digits."""
    path = Path(path)
    ending = check_ending(path)
    if ending == ".parquet":
        frame = to_frame(table)
        with atomic_write(path, "wb") as stream:
            frame.to_parquet(stream, index=False)
        return
    with atomic_write(path) as stream:
        if ending == ".csv":
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(_rows(table))
        else:
            for row in _rows(table):
                stream.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False, allow_nan=False))
                stream.write("\n")


def _rows(table: ScoreTable) -> Iterator[tuple[str | float, ...]]:
    """The rows of :func:`to_frame`, without pandas; two names of one caption are two rows."""
    places: dict[tuple[bytes, str], int] = {}
    for place, item in enumerate(table.items):
        places.setdefault((item.key, item.candidate_id), place)
    texts = {
        i: (table.dataset, it.image, it.candidate_id, it.candidate, references_hash(it.references))
        for i in places.values()
        for it in [table.items[i]]
    }
    for key, values in table.values.items():
        for i, of_item in texts.items():
            if not np.isnan(values[i]):  # a category of SPICE that the caption has no score of
                yield (*of_item, key.label, key.column, float(values[i]), table.signatures[key.label])


def check_ending(path: Path) -> str:
    """The ending of a score file. Raises UsageError for an unsupported one."""
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        message = f"'{path.name}': scores cannot be written to '{ending}' files"
        raise UsageError(message, code="wrong-format", value=ending, hint=f"Use {', '.join(_ENDINGS)}")
    if ending == ".parquet":
        require("pyarrow", purpose=path.name)
    return ending
