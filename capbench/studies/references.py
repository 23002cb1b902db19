"""Agreement with human ratings by the number of references.

After TIGEr (Jiang et al. 2019, Figure 5) and FAIEr (Wang et al. 2021, Figure 4).

A *draw* is a random order of each image's references; with k references, a caption is scored against the first k of
that order. So the sets within a draw are nested, which keeps a curve free of the noise between unrelated sets, and
draws are independent of each other. All captions of an image share the same order. Protocols with sampled references
use the same orders (:func:`capbench.datasets.judgement_files.reference_orders`), so with the same seed the curve at 5
references is the number of ``random-5-refs``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from capbench import __version__
from capbench.core.errors import DataError, MetricError, ProtocolError, UsageError
from capbench.core.files import read_json
from capbench.core.plugins import stdout_to_stderr
from capbench.core.progress import Progress, part_of
from capbench.core.records import FloatArray, Item, Judgements, ScoreTable
from capbench.core.typed_json import Strict, check_version, validated
from capbench.datasets.base import Dataset
from capbench.datasets.judgement_files import reference_orders
from capbench.datasets.protocol import Protocol
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.scoring import complete, score
from capbench.studies.evaluate import check_defined, evaluate
from capbench.studies.judged import judge
from capbench.studies.results import Cell

CURVES_SCHEMA_VERSION = 1
_COUNTS = (0, 1, 2, 5, 10, 20, 50)
_FEW = 10  # up to this maximum, the default is every number


class CurvePoint(Strict):
    """One metric column at one number of references, overall (``group`` is ``""``) or in one group.

    Attributes:
        count: number of references of each candidate, from 0.
        mean: mean of the statistic over draws.
        sd: sample standard deviation over draws; None for a single value.
        values: the statistic of each draw; a single one without draws (no references, or all of them).
        n: data points (ratings or pairs) behind each value.
    """

    metric: str
    column: str
    title: str
    group: str = ""
    count: int
    mean: float
    sd: float | None = None
    values: tuple[float, ...]
    n: int


class ReferenceCurves(Strict):
    """Result of :func:`reference_curves`.

    Attributes:
        schema_version: version of this schema.
        capbench: version of the program.
        protocol: ``dataset/items/statistic``.
        dataset_title: the data set's name in tables.
        statistic: short name of the statistic (``τ-c``, ``accuracy``).
        kind: ``correlation`` or ``accuracy`` (a share in [0, 1]).
        sample: True if the data was the embedded synthetic sample.
        n_items: scored items.
        groups: names of the groups, in order, without the overall ``""``.
        counts: numbers of references, ascending.
        most: maximum number of references of an item.
        draws: number of draws.
        seed: seed of the draws.
        points: all numbers, by metric column, then group, then count.
        signatures: one line by metric.
        notes: notes for the reader, one line each.
        seconds: wall-clock time.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
    """

    schema_version: int = CURVES_SCHEMA_VERSION
    capbench: str
    protocol: str
    dataset_title: str
    statistic: str
    kind: Literal["correlation", "accuracy"]
    sample: bool = False
    n_items: int
    groups: tuple[str, ...] = ()
    counts: tuple[int, ...]
    most: int
    draws: int
    seed: int
    points: tuple[CurvePoint, ...]
    signatures: dict[str, str]
    notes: tuple[str, ...] = ()
    seconds: float
    version: str = ""

    @property
    def columns(self) -> dict[tuple[str, str], str]:
        """Titles by metric and column, in order."""
        return {(point.metric, point.column): point.title for point in self.points}

    def curve(self, metric: str, column: str, group: str = "") -> tuple[CurvePoint, ...]:
        """The points of one column in one group, by ascending number of references."""
        return tuple(p for p in self.points if (p.metric, p.column, p.group) == (metric, column, group))


def curve_protocol(dataset: Dataset, text: str | None) -> Protocol:
    """The protocol that a user names, with all references if only a statistic, or nothing, is named.

    Raises:
        ProtocolError: there is no such protocol.
    """
    protocol = dataset.protocol(text)
    names_items = any(piece in dataset.selections for piece in (text or "").split("/"))
    if dataset.most_references and not names_items:
        return replace(protocol, items=dataset.selections[dataset.most_references])
    return protocol


def reference_curves(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    counts: Sequence[int] | None = None,
    draws: int = 5,
    seed: int = 0,
    resources: Resources | None = None,
    cache: bool = True,
    sample: bool = False,
    progress: Progress | None = None,
) -> ReferenceCurves:
    """Compute a protocol's statistic with several numbers of references.

    Metrics that can sweep (:meth:`capbench.metrics.base.Metric.sweep`) extract their statistics once; the others score
    every set of references separately, through the score cache.

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation or an accuracy as its statistic, and without sampled
            references.
        requests: metrics and their columns.
        counts: numbers of references. 0 applies only to metrics that work without references. Default: 0 (if a metric
            can), 1, 2, 5, 10, 20, 50, as far as available, and all; every number up to 10.
        draws: number of random orders.
        seed: seed of the orders.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        sample: True if the data is the embedded sample; recorded only.
        progress: called with numbers of items done; they add up to ``len(items) * draws`` for each metric.

    Raises:
        ProtocolError: the protocol samples references itself, or has no human judgements.
        UsageError: a number of references is below 0 or above the maximum, or there are no draws.
        DataError, MetricError, StatisticError, …: loading or scoring failed, or a statistic is undefined.
    """
    started = time.perf_counter()
    if protocol.statistic.kind == "mean":
        raise ProtocolError(
            f"{protocol} has no human judgements to compare with", code="unsupported", value=str(protocol)
        )
    if protocol.items.seed is not None or protocol.items.draws > 1:
        raise ProtocolError(
            f"{protocol} samples references itself",
            code="conflict",
            value=str(protocol),
            hint="Choose items that keep all references, see 'capbench data info --protocols'",
        )
    if draws < 1:
        raise UsageError(
            f"the number of draws of references is {draws}",
            code="out-of-range",
            value=draws,
            hint="Set it to 1 or more",
        )
    judged = judge(dataset, protocol.items, requests, resources, cache=cache).require_all()
    (judgements,) = judged.draws
    if judgements.reverse is not None:
        raise ProtocolError(
            f"{protocol} rates captions against each other, so their number is fixed",
            code="unsupported",
            value=str(protocol),
            hint="Choose other items, see 'capbench data info --protocols'",
        )
    sizes = np.array([len(item.references) for item in judgements.items])
    free = [row.title for request in requests for row in _free(request).rows]
    bound = next((request.label for request in requests if not _free(request).columns), None)
    wanted = _counts(counts, int(sizes.max(initial=0)), bool(free), str(protocol))
    if wanted[-1] == 0 and bound is not None:
        raise UsageError(
            f"{bound} requires references, and 0 is the only requested number",
            code="missing-references",
            value=bound,
            hint="Add 1 to the numbers of references",
        )
    task = _Task(
        protocol,
        judgements,
        wanted,
        tuple(reference_orders(judgements.items, seed, draws)),
        int(sizes.max(initial=0)),
        complete(judged.resources, cache=cache),
        cache,
        progress or (lambda _: None),
    )
    points: list[CurvePoint] = []
    signatures: dict[str, str] = {}
    undefined: dict[str, Cell] = {}
    for request in requests:
        of_request, signature, without = _curves_of(task, request)
        points += of_request
        signatures[request.label] = signature
        undefined |= without
    if not points:
        check_defined(undefined.values())
    notes = [*judgements.notes, *undefined]
    notes += [
        f"{request.label}: document frequencies are those of {dataset.title} alone"
        for request in requests
        if _counts_documents(task, request)
    ]
    for count in wanted:
        short = int((sizes < count).sum())
        if short:
            notes.append(f"at {count} references, {short:,} of {len(sizes):,} items have fewer and keep all they have")
    if wanted[0] == 0 and len(free) < sum(len(r.columns) for r in requests):
        notes.append(f"without references, only {', '.join(free)} can be computed")
    return ReferenceCurves(
        capbench=__version__,
        protocol=str(protocol),
        dataset_title=dataset.title,
        statistic=protocol.statistic.label,
        kind=protocol.statistic.kind,
        sample=sample,
        n_items=len(judgements.items),
        groups=tuple(dict.fromkeys(point.group for point in points if point.group)),
        counts=wanted,
        most=task.most,
        draws=draws,
        seed=seed,
        points=tuple(points),
        signatures=signatures,
        notes=tuple(notes),
        seconds=round(time.perf_counter() - started, 3),
        version=protocol.version,
    )


def _counts(counts: Sequence[int] | None, most: int, free: bool, protocol: str) -> tuple[int, ...]:
    if most == 0:
        raise ProtocolError(f"{protocol} has no references to vary", code="missing-references", value=protocol)
    if counts is None:
        steps = range(most) if most <= _FEW else _COUNTS
        return tuple(sorted({*(c for c in steps if c < most and (c > 0 or free)), most}))
    wanted = sorted(set(counts))
    if not wanted or wanted[0] < 0:
        raise UsageError(
            "the numbers of references must be one or more numbers of at least 0",
            code="out-of-range",
            value=wanted[0] if wanted else None,
            hint="Example: 1,2,5",
        )
    if wanted[-1] > most:
        raise UsageError(
            f"no item of {protocol} has {wanted[-1]} references",
            code="out-of-range",
            value=wanted[-1],
            hint=f"The maximum is {most}",
        )
    if wanted[0] == 0 and not free:
        raise UsageError(
            "none of these metrics works without references",
            code="missing-references",
            value=0,
            hint="Remove 0 from the numbers of references",
        )
    return tuple(wanted)


@dataclass(frozen=True)
class _Task:
    protocol: Protocol
    judgements: Judgements
    counts: tuple[int, ...]
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    most: int
    resources: Resources
    cache: bool
    progress: Progress

    def draws_at(self, count: int) -> int:
        """Number of draws of ``count`` references; one for no references or all of them."""
        return 1 if count == 0 or count >= self.most else len(self.orders)


@stdout_to_stderr()
def _curves_of(task: _Task, request: MetricRequest) -> tuple[list[CurvePoint], str, dict[str, Cell]]:
    """All points of one metric, by column, group and count; its signature; and its undefined cells by their note.

    A point has no value if the statistic is undefined on one of its draws.
    """
    metric = request.make(task.resources)
    metric.prepare(task.judgements.items)
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    undefined: dict[tuple[str, str, int], Cell] = {}
    sizes: dict[str, int] = {}
    for count, table in _tables(task, request, metric):
        rows = [row for row in request.rows if row.key in table.values]
        cells, _ = evaluate(task.protocol, [task.judgements], [table], rows)
        for cell in cells:
            sizes.setdefault(cell.group, cell.n)
            if cell.value is None:
                undefined.setdefault((cell.column, cell.group, count), cell)
            else:
                values.setdefault((cell.column, cell.group), {}).setdefault(count, []).append(cell.value)
    points = []
    for row in request.rows:
        for group in sizes:
            for count, of_draws in sorted(values.get((row.name, group), {}).items()):
                if (row.name, group, count) in undefined:
                    continue
                points.append(
                    CurvePoint(
                        metric=row.metric,
                        column=row.name,
                        title=row.title,
                        group=group,
                        count=count,
                        mean=float(np.mean(of_draws)),
                        sd=float(np.std(of_draws, ddof=1)) if len(of_draws) > 1 else None,
                        values=tuple(of_draws),
                        n=sizes[group],
                    )
                )
    lines = {
        f"{cell.title}{f' on {cell.group}' if cell.group else ''} with {count} reference{'' if count == 1 else 's'}: "
        f"{cell.undefined}": cell
        for (_, _, count), cell in undefined.items()
    }
    return points, metric.signature(), lines


def _counts_documents(task: _Task, request: MetricRequest) -> bool:
    """True if the items are a part of a data set, and the metric's corpus statistics are those of this part."""
    if task.judgements.documents is None:
        return False
    metric = request.make(task.resources)
    corpora = set()
    for items in (task.judgements.items, task.judgements.documents):
        metric.prepare(items)
        corpora.add(metric.corpus_id())
        if corpora == {""}:
            return False
    return len(corpora) > 1


def _tables(task: _Task, request: MetricRequest, metric: Metric) -> Iterator[tuple[int, ScoreTable]]:
    """Number of references and scores, draw by draw."""
    items = task.judgements.items
    positive = tuple(count for count in task.counts if count > 0)
    if 0 in task.counts and _free(request).columns:
        bare = tuple(replace(item, references=()) for item in items)
        yield 0, _scored(task, _free(request), bare, _steps(task.progress, request.label, len(bare), whole=False))
    if not positive:
        return
    sweep = ReferenceSweep(items, task.orders, positive)
    step = _steps(task.progress, request.label, len(items) * len(task.orders))
    arrays = metric.sweep(sweep, step)
    if arrays is None:
        wanted = [[count for count in positive if draw < task.draws_at(count)] for draw in range(len(task.orders))]
        step = part_of(task.progress, request.label, len(items) * sum(map(len, wanted)), "items")
        for draw, counts in enumerate(wanted):
            for count in counts:
                yield count, _scored(task, request, sweep.subset(draw, count), step)
            task.progress(len(items))  # overall progress counts draws, whatever their sets
        return
    for draw, array in enumerate(arrays):
        if array.ndim != 3 or array.shape[:2] != (len(positive), len(items)):
            raise MetricError(
                f"{metric.name} returned a sweep of shape {array.shape} for {len(items)} items",
                code="wrong-shape",
                value=array.shape,
            )
        for count, statistics in zip(positive, array, strict=True):
            if draw < task.draws_at(count):
                yield count, _table(task, metric, request, statistics)


def _steps(progress: Progress, label: str, total: int, *, whole: bool = True) -> Progress:
    """Steps of one metric as a part with its name and total; with ``whole``, also steps of the overall progress."""
    parts: list[Progress] = []

    def step(done: int) -> None:
        if not parts:  # a metric without steps has no part
            parts.append(part_of(progress, label, total, "items"))
        parts[0](done)
        if whole:
            progress(done)

    return step


def _free(request: MetricRequest) -> MetricRequest:
    """The request with only the columns that work without references."""
    free = request.metric.reference_free()
    return replace(request, columns=tuple(column for column in request.columns if column in free))


def _scored(task: _Task, request: MetricRequest, items: tuple[Item, ...], progress: Progress) -> ScoreTable:
    return score(items, [request], task.resources, dataset=task.judgements.dataset, cache=task.cache, progress=progress)


def _table(task: _Task, metric: Metric, request: MetricRequest, statistics: FloatArray) -> ScoreTable:
    scores = metric.scores(np.ascontiguousarray(statistics))
    values = {key: scores[key.column] for key in request.score_columns}
    corpus = {key: float(of_column.mean()) for key, of_column in values.items()}
    return ScoreTable(task.judgements.dataset, task.judgements.items, values, corpus, {request.label: ""})


def load_curves(path: str | os.PathLike[str]) -> ReferenceCurves:
    """Read the curves that ``capbench correlate --references-curve --json`` or ``--out`` wrote.

    Raises:
        DataError: the file has another format, or a later version than this one reads.
    """
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) and "points" in raw else None
    if not isinstance(version, int) or version < 1:
        hint = "Write one with 'capbench correlate --references-curve ... --out DIR'"
        message = "contains no curves over the number of references"
        raise DataError(message, code="wrong-format", path=path, hint=hint)
    check_version(version, CURVES_SCHEMA_VERSION, path)
    return validated(ReferenceCurves, raw, path, code="wrong-format")
