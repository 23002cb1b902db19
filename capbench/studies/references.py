"""Agreement with human ratings by the number of references (Jiang et al. 2019, Figure 5; Wang et al. 2021, Figure 4).

A *draw* is a random order of each image's references; with k references, a caption is scored against the first k of
that order: the sets within a draw are nested, which keeps a curve free of the noise between unrelated sets. Protocols
with sampled references use the same orders, so the curve at 5 references is the number of ``random-5-refs``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from capbench import __version__
from capbench.core.errors import MetricError, ProtocolError, UsageError
from capbench.core.plugins import stdout_to_stderr
from capbench.core.progress import Progress
from capbench.core.records import Item, ScoreTable
from capbench.core.typed_json import Strict, Tidy, read_versioned
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.datasets.reference_draws import reference_orders
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.scoring import complete, score
from capbench.studies.evaluate import check_defined, evaluate, over_draws
from capbench.studies.results import Cell
from capbench.studies.scoring import ProgressFactory, Scorable, no_progress, refuse_means
from capbench.studies.study import CurveTask

CURVES_SCHEMA_VERSION = 1
_COUNTS = (0, 1, 2, 5, 10, 20, 50)  # by default, unless there are at most 10


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


class ReferenceResult(Tidy):
    """Curves of one or more protocols; metrics and protocols that were not computed, by title with the reason."""

    curves: tuple[ReferenceCurves, ...]
    missing: dict[str, str]
    name: str = ""  # of the study file

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


@stdout_to_stderr()
def reference_curves(
    scorable: Scorable,
    protocol: Protocol,
    task: CurveTask | None = None,
    *,
    sample: bool = False,
    progress: ProgressFactory = no_progress,
) -> ReferenceCurves:
    """A protocol's statistic with several numbers of references.

    Metrics that can sweep extract their statistics once; the others score every set separately. A point has no value if
    the statistic is undefined on one of its draws.
    """
    started, task = time.perf_counter(), task or CurveTask()
    _check(protocol, scorable)
    (judgements,) = scorable.draws
    sizes = np.array([len(item.references) for item in judgements.items])
    free = {request.label: _free(request) for request in scorable.requests}
    counts = _counts(task.counts, int(sizes.max()), protocol, free)
    orders = tuple(reference_orders(judgements.items, task.seed, task.draws))
    sweep = ReferenceSweep(judgements.items, orders, tuple(count for count in counts if count))
    notes, signatures, found = list(judgements.notes), dict[str, str](), dict[tuple[str, str, int], list[Cell]]()
    for request in scorable.requests:
        metric = request.make(complete(scorable.resources))
        for count, table in _tables(scorable, request, metric, sweep, 0 in counts, progress):
            rows = [row for row in request.rows if row.key in table.values]
            for cell in evaluate(protocol, scorable.draws, [table], rows)[0]:
                found.setdefault((cell.column, cell.group, count), []).append(cell)
        signatures[request.label] = metric.signature()
        before = metric.corpus_id()
        metric.prepare(judgements.documents or judgements.items)
        if metric.corpus_id() != before:  # the items are a part of a data set
            notes.append(f"{request.label}: document frequencies are those of {scorable.dataset.title} alone")
    points, undefined, groups = [], list[Cell](), dict.fromkeys(group for _, group, _ in found)
    names = [row.name for request in scorable.requests for row in request.rows]
    for place in [(name, group, count) for name in names for group in groups for count in counts]:
        if not (cells := found.get(place)):
            continue
        mean, (_, group, count) = over_draws(cells), place
        if mean.value is None:
            undefined.append(mean)
            where = f"{f' on {group}' if group else ''} with {count} reference{'s' * (count != 1)}"
            notes.append(f"{mean.title}{where}: {mean.undefined}")
            continue
        point = mean.model_dump(include={"metric", "column", "title", "group", "sd", "n"})
        values = tuple(cell.number for cell in cells)
        points.append(CurvePoint(**point, count=count, mean=mean.value, values=values))
    if not points:
        check_defined(undefined)
    for count in counts:
        if short := int((sizes < count).sum()):
            notes.append(f"at {count} references, {short:,} of {len(sizes):,} items have fewer and keep all they have")
    without = [row.title for request in free.values() for row in request.rows]
    if counts[0] == 0 and len(without) < len(names):
        notes.append(f"without references, only {', '.join(without)} can be computed")
    return ReferenceCurves(
        capbench=__version__,
        protocol=str(protocol),
        dataset_title=scorable.dataset.title,
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


def _check(protocol: Protocol, scorable: Scorable) -> None:
    refuse_means(protocol)
    judgements, code, problem = scorable.draws[0], "unsupported", ""
    if protocol.items.seed is not None or len(scorable.draws) > 1:
        code, problem = "conflict", "samples references itself"
    elif judgements.reverse is not None:
        problem = "rates captions against each other, so their number is fixed"
    elif not any(item.references for item in judgements.items):
        code, problem = "missing-references", "has no references to vary"
    if problem:
        hint = "Choose another protocol or other items, see 'capbench data info --protocols'"
        raise ProtocolError(f"{protocol} {problem}", code=code, value=str(protocol), hint=hint)


def _counts(
    counts: Sequence[int] | None, most: int, protocol: Protocol, free: Mapping[str, MetricRequest]
) -> tuple[int, ...]:
    """The numbers of references, without 0 if no metric works without any."""
    if counts is None:
        counts = (*(count for count in (range(most) if most <= 10 else _COUNTS) if count < most), most)
    if max(counts) > most:
        message = f"no item of {protocol} has {max(counts)} references"
        raise UsageError(message, code="out-of-range", value=max(counts), hint=f"The maximum is {most}")
    bound = [label for label, request in free.items() if not request.columns]
    if bound and not any(counts):
        message = f"{bound[0]} requires references, and 0 is the only requested number"
        hint = "Add 1 to the numbers of references"
        raise UsageError(message, code="missing-references", value=bound[0], hint=hint)
    return tuple(count for count in counts if count or len(bound) < len(free))


def _tables(
    scorable: Scorable,
    request: MetricRequest,
    metric: Metric,
    sweep: ReferenceSweep,
    bare: bool,
    progress: ProgressFactory,
) -> Iterator[tuple[int, ScoreTable]]:
    """Number of references and scores, draw by draw; one draw for no references or all of them."""
    items, counts, free, dataset = sweep.items, sweep.counts, _free(request), scorable.draws[0].dataset
    metric.prepare(items)
    most = max(len(item.references) for item in items)
    sets = [(draw, count) for draw in range(len(sweep.orders)) for count in counts if draw == 0 or count < most]

    def scored(request: MetricRequest, items: tuple[Item, ...], step: Progress) -> ScoreTable:
        return score(items, [request], scorable.resources, dataset=dataset, cache=scorable.cache, progress=step)

    if bare and free.columns:
        with progress(f"{request.label} without references", len(items)) as step:
            yield 0, scored(free, tuple(replace(item, references=()) for item in items), step)
    if not counts:
        return
    with progress(request.label, len(items) * len(sweep.orders)) as step:
        arrays = metric.sweep(sweep, step)
        for draw, array in enumerate(arrays or ()):
            if array.shape[:2] != (len(counts), len(items)):
                message = f"{metric.name} returned a sweep of shape {array.shape} for {len(items)} items"
                raise MetricError(message, code="wrong-shape", value=array.shape)
            for count, statistics in zip(counts, array, strict=True):
                if (draw, count) in sets:
                    scores = metric.scores(np.ascontiguousarray(statistics))
                    values = {key: scores[key.column] for key in request.score_columns}
                    yield count, ScoreTable(dataset, items, values, {}, {request.label: ""})
    if arrays is None:
        with progress(request.label, len(items) * len(sets)) as step:
            for draw, count in sets:
                yield count, scored(request, sweep.subset(draw, count), step)


def _free(request: MetricRequest) -> MetricRequest:
    free = request.metric.reference_free()
    return replace(request, columns=tuple(column for column in request.columns if column in free))


def load_curves(path: str | os.PathLike[str]) -> ReferenceCurves:
    """Read the curves that ``capbench correlate --references-curve --json`` or ``--out`` wrote."""
    hint = "Write one with 'capbench correlate --references-curve ... --out DIR'"
    return read_versioned(ReferenceCurves, path, CURVES_SCHEMA_VERSION, "a file of curves", hint)
