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
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from capbench import __version__
from capbench.core.errors import DataError, MetricError, ProtocolError, UsageError
from capbench.core.files import read_json
from capbench.core.plugins import stdout_to_stderr
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, ScoreTable
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
from capbench.studies.judged import Judged, ProgressFactory, no_progress
from capbench.studies.results import Cell
from capbench.studies.study import CurveTask

CURVES_SCHEMA_VERSION = 1
_COUNTS = (0, 1, 2, 5, 10, 20, 50)
_FEW = 10  # up to this maximum, the default is every number


class CurvePoint(Strict):
    """One metric column at one number of references, overall (``group`` is ``""``) or in one group."""

    metric: str
    column: str
    title: str
    group: str = ""
    count: int  # references of each candidate, from 0
    mean: float  # of the statistic over draws
    sd: float | None = None  # sample standard deviation over draws; None for a single value
    values: tuple[float, ...]  # of each draw; a single one without draws (no references, or all of them)
    n: int  # data points (ratings or pairs) behind each value


class ReferenceCurves(Strict):
    """Curves of metrics over the number of references, under one protocol."""

    schema_version: int = CURVES_SCHEMA_VERSION
    capbench: str
    protocol: str
    dataset_title: str
    statistic: str  # short name (τ-c, accuracy)
    kind: Literal["correlation", "accuracy", "mean"]  # an accuracy is a share in [0, 1]
    sample: bool = False
    n_items: int
    groups: tuple[str, ...] = ()
    counts: tuple[int, ...]
    most: int  # maximum number of references of an item
    draws: int
    seed: int
    points: tuple[CurvePoint, ...]  # by metric column, then group, then count
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

    def rows(self) -> list[dict[str, Any]]:
        """One row for each point."""
        return [{"protocol": self.protocol, **point.model_dump()} for point in self.points]


class ReferenceResult(Strict):
    """Curves of one or more protocols; metrics and protocols that were not computed, by title with the reason."""

    curves: tuple[ReferenceCurves, ...]
    missing: dict[str, str]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each point."""
        return [row for curves in self.curves for row in curves.rows()]


def curve_protocol(dataset: Dataset, text: str | None) -> Protocol:
    """The protocol that a user names, with all references if only a statistic, or nothing, is named."""
    protocol = dataset.protocol(text)
    names_items = any(piece in dataset.selections for piece in (text or "").split("/"))
    if dataset.most_references and not names_items:
        return replace(protocol, items=dataset.selections[dataset.most_references])
    return protocol


def reference_curves(
    judged: Judged,
    protocol: Protocol,
    task: CurveTask | None = None,
    *,
    sample: bool = False,
    progress: ProgressFactory = no_progress,
) -> ReferenceCurves:
    """A protocol's statistic with several numbers of references.

    Metrics that can sweep (:meth:`capbench.metrics.base.Metric.sweep`) extract their statistics once; the others score
    every set of references separately, through the score cache. The numbers default to 0 (if a metric works without
    references), 1, 2, 5, 10, 20, 50, as far as available, and all; to every number if there are at most 10.
    """
    started, task = time.perf_counter(), task or CurveTask()
    (judgements, *others), requests = judged.draws, judged.requests
    problem = None
    if protocol.statistic.kind == "mean":
        problem, code, hint = "has no human judgements to compare with", "unsupported", "Choose another protocol"
    elif protocol.items.seed is not None or others:
        problem, code, hint = "samples references itself", "conflict", "Choose items that keep all references"
    elif judgements.reverse is not None:
        problem, code = "rates captions against each other, so their number is fixed", "unsupported"
        hint = "Choose other items"
    if problem:
        hint += ", see 'capbench data info --protocols'"
        raise ProtocolError(f"{protocol} {problem}", code=code, value=str(protocol), hint=hint)
    sizes = np.array([len(item.references) for item in judgements.items])
    free = [row.title for request in requests for row in _free(request).rows]
    counts = _counts(task.counts, int(sizes.max(initial=0)), protocol)
    if counts[-1] == 0 and (bound := [request.label for request in requests if not _free(request).columns]):
        message = f"{bound[0]} requires references, and 0 is the only requested number"
        hint = "Add 1 to the numbers of references"
        raise UsageError(message, code="missing-references", value=bound[0], hint=hint)
    counts = counts if free else tuple(count for count in counts if count)
    notes = list(judgements.notes)
    points: list[CurvePoint] = []
    signatures: dict[str, str] = {}
    undefined: dict[str, Cell] = {}
    resources = complete(judged.resources, cache=judged.cache)
    orders = tuple(reference_orders(judgements.items, task.seed, task.draws))
    sweep = ReferenceSweep(judgements.items, orders, tuple(count for count in counts if count))
    for request in requests:
        metric, of_request, without = _curve(protocol, judged, request, sweep, 0 in counts, resources, progress)
        points += of_request
        undefined |= without
        signatures[request.label] = metric.signature()
        if _counts_documents(judged, metric):
            notes.append(f"{request.label}: document frequencies are those of {judged.dataset.title} alone")
    if not points:
        check_defined(undefined.values())
    notes += undefined
    for count in counts:
        if short := int((sizes < count).sum()):
            notes.append(f"at {count} references, {short:,} of {len(sizes):,} items have fewer and keep all they have")
    if counts[0] == 0 and len(free) < sum(len(request.columns) for request in requests):
        notes.append(f"without references, only {', '.join(free)} can be computed")
    return ReferenceCurves(
        capbench=__version__,
        protocol=str(protocol),
        dataset_title=judged.dataset.title,
        statistic=protocol.statistic.label,
        kind=protocol.statistic.kind,
        sample=sample,
        n_items=len(judgements.items),
        groups=tuple(dict.fromkeys(point.group for point in points if point.group)),
        counts=counts,
        most=int(sizes.max()),
        draws=task.draws,
        seed=task.seed,
        points=tuple(points),
        signatures=signatures,
        notes=tuple(notes),
        seconds=round(time.perf_counter() - started, 3),
        version=protocol.version,
    )


def _counts(counts: Sequence[int] | None, most: int, protocol: Protocol) -> tuple[int, ...]:
    if most == 0:
        message = f"{protocol} has no references to vary"
        raise ProtocolError(message, code="missing-references", value=str(protocol))
    if counts is None:
        steps = range(most) if most <= _FEW else _COUNTS
        return (*(count for count in steps if count < most), most)
    if max(counts) > most:
        message = f"no item of {protocol} has {max(counts)} references"
        raise UsageError(message, code="out-of-range", value=max(counts), hint=f"The maximum is {most}")
    return tuple(counts)


@stdout_to_stderr()
def _curve(
    protocol: Protocol,
    judged: Judged,
    request: MetricRequest,
    sweep: ReferenceSweep,
    bare: bool,
    resources: Resources,
    progress: ProgressFactory,
) -> tuple[Metric, list[CurvePoint], dict[str, Cell]]:
    """All points of one metric, by column, group and count; and its undefined cells by their note.

    A point has no value if the statistic is undefined on one of its draws.
    """
    metric = request.make(resources)
    metric.prepare(sweep.items)
    values: dict[tuple[str, str, int], list[float]] = {}
    undefined: dict[tuple[str, str, int], Cell] = {}
    sizes: dict[str, int] = {}
    for count, table in _tables(judged, request, metric, sweep, bare, resources, progress):
        rows = [row for row in request.rows if row.key in table.values]
        for cell in evaluate(protocol, judged.draws, [table], rows)[0]:
            sizes.setdefault(cell.group, cell.n)
            place = (cell.column, cell.group, count)
            if cell.value is None:
                undefined.setdefault(place, cell)
            else:
                values.setdefault(place, []).append(cell.value)
    counts = sorted({count for _, _, count in values})
    places = [(row, group, count) for row in request.rows for group in sizes for count in counts]
    points = [
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
        for row, group, count in places
        if (of_draws := values.get((row.name, group, count))) and (row.name, group, count) not in undefined
    ]
    lines = {
        f"{cell.title}{f' on {cell.group}' if cell.group else ''} with {count} reference{'' if count == 1 else 's'}: "
        f"{cell.undefined}": cell
        for (_, _, count), cell in undefined.items()
    }
    return metric, points, lines


def _counts_documents(judged: Judged, metric: Metric) -> bool:
    """True if the items are a part of a data set, and the metric's corpus statistics are those of this part."""
    judgements = judged.draws[0]
    if judgements.documents is None:
        return False
    corpora = set()
    for items in (judgements.items, judgements.documents):
        metric.prepare(items)
        corpora.add(metric.corpus_id())
    return len(corpora) > 1


def _tables(
    judged: Judged,
    request: MetricRequest,
    metric: Metric,
    sweep: ReferenceSweep,
    bare: bool,
    resources: Resources,
    progress: ProgressFactory,
) -> Iterator[tuple[int, ScoreTable]]:
    """Number of references and scores, draw by draw; one draw for no references or all of them."""
    items, counts, free = sweep.items, sweep.counts, _free(request)
    most = max(len(item.references) for item in items)
    sets = [(draw, count) for draw in range(len(sweep.orders)) for count in counts if draw == 0 or count < most]

    def scored(request: MetricRequest, items: tuple[Item, ...], step: Progress) -> ScoreTable:
        dataset = judged.draws[0].dataset
        return score(items, [request], resources, dataset=dataset, cache=judged.cache, progress=step)

    if bare and free.columns:
        with progress(f"{request.label} without references", len(items)) as step:
            yield 0, scored(free, tuple(replace(item, references=()) for item in items), step)
    if not counts:
        return
    with progress(request.label, len(items) * len(sweep.orders)) as step:
        arrays = metric.sweep(sweep, step)
        for draw, array in enumerate(arrays or ()):
            if array.ndim != 3 or array.shape[:2] != (len(counts), len(items)):
                message = f"{metric.name} returned a sweep of shape {array.shape} for {len(items)} items"
                raise MetricError(message, code="wrong-shape", value=array.shape)
            for count, statistics in zip(counts, array, strict=True):
                if (draw, count) in sets:
                    yield count, _table(judged, metric, request, statistics)
    if arrays is None:
        with progress(request.label, len(items) * len(sets)) as step:
            for draw, count in sets:
                yield count, scored(request, sweep.subset(draw, count), step)


def _free(request: MetricRequest) -> MetricRequest:
    """The request with only the columns that work without references."""
    free = request.metric.reference_free()
    return replace(request, columns=tuple(column for column in request.columns if column in free))


def _table(judged: Judged, metric: Metric, request: MetricRequest, statistics: FloatArray) -> ScoreTable:
    scores = metric.scores(np.ascontiguousarray(statistics))
    values = {key: scores[key.column] for key in request.score_columns}
    corpus = {key: float(of_column.mean()) for key, of_column in values.items()}
    judgements = judged.draws[0]
    return ScoreTable(judgements.dataset, judgements.items, values, corpus, {request.label: ""})


def load_curves(path: str | os.PathLike[str]) -> ReferenceCurves:
    """Read the curves that ``capbench correlate --references-curve --json`` or ``--out`` wrote."""
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) and "points" in raw else None
    if not isinstance(version, int) or version < 1:
        hint = "Write one with 'capbench correlate --references-curve ... --out DIR'"
        message = "contains no curves over the number of references"
        raise DataError(message, code="wrong-format", path=path, hint=hint)
    check_version(version, CURVES_SCHEMA_VERSION, path)
    return validated(ReferenceCurves, raw, path, code="wrong-format")
