"""Agreement with human ratings by the number of references (Jiang et al. 2019, Figure 5; Wang et al. 2021, Figure 4).

A *draw* is a random order of each image's references; with k references, a caption is scored against the first k of
that order: the sets within a draw are nested, which keeps a curve free of the noise between unrelated sets. Protocols
with sampled references use the same orders, so the curve at 5 references is the number of ``random-5-refs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from capbench.core.errors import MetricError, ProtocolError, UsageError
from capbench.core.plugins import stdout_to_stderr
from capbench.core.records import ScoreTable
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.datasets.reference_draws import reference_orders
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Scores
from capbench.metrics.scoring import complete, score
from capbench.studies.evaluate import evaluate, over_draws
from capbench.studies.results import Cell, Point
from capbench.studies.scoring import ProgressFactory, Scorable, refuse_means
from capbench.studies.study import CurveSettings

_COUNTS = (0, 1, 2, 5, 10, 20, 50)  # by default, unless there are at most 10
_HINT = "Choose another protocol or other items, see 'capbench data info --protocols'"


def curve_protocol(dataset: Dataset, text: str | None) -> Protocol:
    """The protocol that a user names, with all references if only a statistic, or nothing, is named."""
    protocol = dataset.protocol(text)
    names_items = any(piece in dataset.selections for piece in (text or "").split("/"))
    if dataset.most_references and not names_items:
        protocol = replace(protocol, items=dataset.selections[dataset.most_references])
    refuse_means(protocol)
    if protocol.items.seed is not None:
        message = f"{protocol} samples references itself"
        raise ProtocolError(message, code="conflict", value=str(protocol), hint=_HINT)
    return protocol


def reference_sweep(scorable: Scorable, settings: CurveSettings) -> ReferenceSweep:
    """The orders and numbers of references, from 0. Raises an error if there is nothing to vary, or not so many."""
    (judgements,), name = scorable.draws, f"{scorable.dataset.name}/{scorable.selection.name}"
    most = max(len(item.references) for item in judgements.items)
    if judgements.reverse is not None or not most:
        fixed = "rates captions against each other, so their number is fixed"
        code, problem = ("unsupported", fixed) if most else ("missing-references", "has no references to vary")
        raise ProtocolError(f"{name} {problem}", code=code, value=name, hint=_HINT)
    for request in scorable.requests:
        if request.needs(Scores):
            message = f"{request.label}: a score file has no scores for other numbers of references"
            raise UsageError(message, code="conflict", value=request.label, hint="Omit it")
    counts = settings.counts or (*(count for count in (range(most) if most <= 10 else _COUNTS) if count < most), most)
    if counts[-1] > most:
        message = f"no item of {name} has {counts[-1]} references"
        raise UsageError(message, code="out-of-range", value=counts[-1], hint=f"The maximum is {most}")
    if not any(counts) and not any(map(_free, scorable.requests)):
        message, hint = "no metric can be computed without references", "Add 1 to the numbers of references"
        raise UsageError(message, code="missing-references", value=0, hint=hint)
    return ReferenceSweep(
        judgements.items, tuple(reference_orders(judgements.items, settings.seed, settings.draws)), counts
    )


@stdout_to_stderr()
def reference_curves(
    scorable: Scorable, protocols: Sequence[Protocol], sweep: ReferenceSweep, progress: ProgressFactory
) -> tuple[list[Point], list[str]]:
    """The points of protocols over the same items, and notes on them.

    Metrics that can sweep extract their statistics once; the others score every set separately. A point has no value if
    the statistic is undefined on one of its draws.
    """
    (judgements,), found, notes = scorable.draws, dict[tuple[str, str, str, int], list[Cell]](), list[str]()
    for request in scorable.requests:
        metric = request.make(complete(scorable.resources))
        metric.prepare(sweep.items)
        before = metric.corpus_id()
        for count, table in _tables(scorable, request, metric, sweep, progress):
            for protocol in protocols:
                for cell in evaluate(protocol, scorable.draws, [table], request.rows)[0]:
                    found.setdefault((cell.protocol, cell.column, cell.group, count), []).append(cell)
        metric.prepare(judgements.documents or sweep.items)
        if metric.corpus_id() != before:  # the items are a part of a data set
            notes.append(f"{request.label}: document frequencies are those of {scorable.dataset.title} alone")
    for count in sweep.counts:
        if short := sum(len(item.references) < count for item in sweep.items):
            notes.append(
                f"at {count} references, {short:,} of {len(sweep.items):,} items have fewer and keep all they have"
            )
    points = []
    for (*_, count), cells in found.items():
        values = tuple(cell.value for cell in cells if cell.value is not None)
        points.append(Point(**vars(over_draws(cells)), at=count, values=values))
    return points, notes


def _tables(
    scorable: Scorable, request: MetricRequest, metric: Metric, sweep: ReferenceSweep, progress: ProgressFactory
) -> Iterator[tuple[int, ScoreTable]]:
    """Number of references and scores, draw by draw; one draw for no references or all of them."""
    items, dataset, counts = sweep.items, scorable.draws[0].dataset, tuple(filter(None, sweep.counts))
    most = max(len(item.references) for item in items)
    sets = [(draw, count) for draw in range(len(sweep.orders)) for count in counts if draw == 0 or count < most]
    with progress(request.label, len(items) * len(sweep.orders)) as step:
        arrays = metric.sweep(replace(sweep, counts=counts), step) if counts else None
        for draw, array in enumerate(arrays or ()):
            if array.shape[:2] != (len(counts), len(items)):
                message = f"{metric.name} returned a sweep of shape {array.shape} for {len(items)} items"
                raise MetricError(message, code="wrong-shape", value=array.shape)
            for count, statistics in zip(counts, array, strict=True):
                if (draw, count) in sets:
                    scores = metric.scores(np.ascontiguousarray(statistics))
                    values = {key: scores[key.column] for key in request.score_columns}
                    yield count, ScoreTable(dataset, items, values, {}, {request.label: ""})
    sets = [] if arrays is not None else sets
    free = _free(request)
    if 0 in sweep.counts and free:
        sets.insert(0, (0, 0))
    with progress(request.label, len(items) * len(sets)) as step:
        for draw, count in sets:
            columns = tuple(column for column in request.columns if count or column in free)
            of_set, requests = sweep.subset(draw, count), [replace(request, columns=columns)]
            yield (
                count,
                score(of_set, requests, scorable.resources, dataset=dataset, cache=scorable.cache, progress=step),
            )


def _free(request: MetricRequest) -> frozenset[str]:
    return request.metric.reference_free().intersection(request.columns)
