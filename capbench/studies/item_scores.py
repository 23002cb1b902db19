"""Human ratings and scores of single items, stored next to a study's results on request: they contain captions."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from capbench.core.errors import DataError
from capbench.core.files import atomic_write, unpack_gzip
from capbench.core.records import FloatArray, IntArray, Judgements, Ratings
from capbench.core.typed_json import Strict, check_version, validated
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import Row
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.ties import merged
from capbench.studies.scoring import Scored
from capbench.studies.uncertainty import common_scores, group_scores

ITEMS_FILE = "items.json.gz"  # next to ``results.json``
_SCHEMA_VERSION = 1


class ItemScores(Strict):
    """The data points of one human side, with every metric's scores. All lists but ``reference_lists`` are parallel.

    A point of ``ratings`` is a caption. One of ``preferences`` is a pair without even votes: ``captions`` has the
    preferred caption, ``others`` the other one, and a score is the difference. Of several draws of references the first
    is used.
    """

    items: str  # dataset/items
    side: str  # name of the ratings or preferences
    kind: Literal["ratings", "preferences"]
    dataset_title: str
    protocols: tuple[str, ...]  # of the study, on this human side
    images: list[str]
    captions: list[str]
    others: list[str] = Field(default_factory=list)  # for pairs, the other caption
    references: list[int]  # index of each point's references in reference_lists
    reference_lists: list[list[str]]
    groups: list[str]
    systems: list[str]
    human: list[float]  # mean rating; 1 for pairs
    ratings: list[list[float]]  # each caption's single ratings; for pairs the votes for both, if known
    scores: dict[str, list[float | None]]  # by column of the study; None where the metric has no score

    def __len__(self) -> int:
        return len(self.images)

    def points(self, name: str) -> tuple[IntArray, FloatArray]:
        """The points with a score in a column: (m,) indices and (m,) scores."""
        known = [(place, value) for place, value in enumerate(self.scores[name]) if value is not None]
        places = np.array([place for place, _ in known], dtype=np.int64)
        return places, np.array([value for _, value in known], dtype=np.float64)


def percentiles(values: FloatArray) -> FloatArray:
    """(n,) percentiles in (0, 100): the share of smaller values, plus half the share of equal values.

    >>> percentiles(np.array([3.0, 1.0, 2.0, 2.0])).tolist()
    [87.5, 12.5, 50.0, 50.0]
    """
    from scipy.stats import rankdata

    return np.asarray(100 * (rankdata(merged(values)) - 0.5) / max(len(values), 1), dtype=np.float64)


def human_percentiles(table: ItemScores) -> FloatArray:
    """(n,) percentiles of the human ratings. For pairs it is 100: the preferred order is the maximum."""
    return np.full(len(table), 100.0) if table.kind == "preferences" else percentiles(np.array(table.human))


def disagreement(table: ItemScores) -> FloatArray:
    """(n,) largest distance between the human percentile and a metric's, over all metrics of a table."""
    human, greatest = human_percentiles(table), np.zeros(len(table))
    for name in table.scores:
        places, scores = table.points(name)
        greatest[places] = np.maximum(greatest[places], np.abs(percentiles(scores) - human[places]))
    return greatest


class Collector:
    """Gathers the items of a study while it runs: ``run_plan(plan, progress, keep=collector)``."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], ItemScores] = {}

    def __call__(self, protocol: Protocol, scored: Scored, rows: Sequence[Row]) -> None:
        if protocol.statistic.kind == "mean":
            return
        judgements, side = scored.draws[0], protocol.statistic.human
        key = (f"{scored.dataset.name}/{protocol.items.name}", side)
        if (known := self._tables.get(key)) is not None:
            self._tables[key] = known.model_copy(update={"protocols": (*known.protocols, str(protocol))})
            return
        values = _values(scored, rows)
        is_pairs = protocol.statistic.side == "preferences"
        points = _pairs(judgements, side, values) if is_pairs else _rated(judgements, judgements.ratings[side], values)
        title, ids = scored.dataset.title, (str(protocol),)
        self._tables[key] = ItemScores(items=key[0], side=side, dataset_title=title, protocols=ids, **points)

    @property
    def tables(self) -> tuple[ItemScores, ...]:
        """The stored tables, in the order of their arrival."""
        return tuple(self._tables.values())


def _values(scored: Scored, rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(items,) scores by row name in the first draw, NaN outside groups whose items alone have scores."""
    values = {name: of_draws[0] for name, of_draws in common_scores(scored.tables, rows).items()}
    for group in scored.groups:
        for name, of_draws in group_scores(scored, group, rows).items():
            known = values.setdefault(name, np.full(len(scored.draws[0].items), np.nan))
            np.copyto(known, of_draws[0], where=np.isfinite(of_draws[0]))
    return values


def _rated(judgements: Judgements, ratings: Ratings, values: dict[str, FloatArray]) -> dict[str, Any]:
    given: dict[int, list[float]] = {}
    for place, value in zip(ratings.item.tolist(), ratings.value.tolist(), strict=True):
        given.setdefault(place, []).append(value)
    rated, means = aggregate(ratings.item, ratings.value, "mean")
    places = rated.tolist()
    return {
        **_of_items(judgements, places),
        "kind": "ratings",
        "human": means.tolist(),
        "ratings": [given[place] for place in places],
        "scores": {column: _listed(array[places]) for column, array in values.items()},
    }


def _pairs(judgements: Judgements, side: str, values: dict[str, FloatArray]) -> dict[str, Any]:
    pairs = judgements.preferences[side]
    chosen = np.flatnonzero(pairs.preferred != 0)
    first_is_better = pairs.preferred[chosen] > 0
    better = np.where(first_is_better, pairs.first[chosen], pairs.second[chosen])
    worse = np.where(first_is_better, pairs.second[chosen], pairs.first[chosen])
    votes: list[list[float]] = [[] for _ in chosen]
    if pairs.votes.shape[1] == 2:
        ordered = np.where(first_is_better[:, None], pairs.votes[chosen], pairs.votes[chosen][:, ::-1])
        votes = ordered.astype(np.float64).tolist()
    return {
        **_of_items(judgements, better.tolist()),
        "kind": "preferences",
        "others": [judgements.items[place].candidate for place in worse.tolist()],
        "groups": [pairs.group[place] for place in chosen.tolist()],
        "human": [1.0] * len(chosen),
        "ratings": votes,
        "scores": {column: _listed(array[better] - array[worse]) for column, array in values.items()},
    }


def _of_items(judgements: Judgements, places: Sequence[int]) -> dict[str, Any]:
    items = [judgements.items[place] for place in places]
    lists: dict[tuple[str, ...], int] = {}
    return {
        "images": [item.image for item in items],
        "captions": [item.candidate for item in items],
        "references": [lists.setdefault(item.references, len(lists)) for item in items],
        "reference_lists": [list(texts) for texts in lists],
        "groups": [item.group for item in items],
        "systems": [item.system for item in items],
    }


def _listed(values: FloatArray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def write_items(tables: Iterable[ItemScores], path: str | os.PathLike[str]) -> None:
    """Write ``items.json.gz``; the same tables produce the same bytes."""
    content = {"schema_version": _SCHEMA_VERSION, "tables": [table.model_dump(mode="json") for table in tables]}
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0, compresslevel=6) as stream:
        stream.write(json.dumps(content, ensure_ascii=False, allow_nan=False).encode())
    with atomic_write(path, "wb") as target:
        target.write(packed.getvalue())


def load_items(path: str | os.PathLike[str]) -> tuple[ItemScores, ...]:
    """Read an ``items.json.gz``. Raises DataError for another format or version."""
    hint = "Write it again with 'capbench correlate ... --out DIR --items'"
    try:
        content = json.loads(unpack_gzip(path))
        check_version(content["schema_version"], _SCHEMA_VERSION, path)
        return tuple(validated(ItemScores, table, path, code="wrong-format", hint=hint) for table in content["tables"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("contains no items of a study", code="wrong-format", path=path, hint=hint) from error
