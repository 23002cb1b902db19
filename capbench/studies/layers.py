"""Agreement with human ratings by the layer of word states that a metric uses (ViLBERTScore, Lee et al. 2020, Fig. 3).

All layers of a network are computed in one scoring of the items: the metric lists the layers of its weights
(:meth:`capbench.metrics.base.Metric.layers_of`) and has a column for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from capbench import __version__
from capbench.core.errors import UsageError
from capbench.core.records import ScoreColumn
from capbench.core.typed_json import Strict
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.studies.evaluate import check_defined, evaluate
from capbench.studies.judged import ProgressFactory, judge, no_progress
from capbench.studies.results import BootstrapInfo
from capbench.studies.study import BootstrapSettings
from capbench.studies.uncertainty import assess


class LayerPoint(Strict):
    """A metric's agreement with human ratings in one layer.

    Attributes:
        label: the metric's label.
        column: its column, without the layer (``vilbertscore-f``).
        title: title of the column in tables.
        layer: number of the layer, from 1.
        value: the protocol's statistic; an accuracy is a share in [0, 1].
        low: lower end of its interval, None without one.
        high: its upper end.
    """

    label: str
    column: str
    title: str
    layer: int
    value: float
    low: float | None = None
    high: float | None = None


class LayerCurves(Strict):
    """Result of :func:`layer_curves` under one protocol.

    Attributes:
        capbench: version of the program.
        protocol: ``dataset/items/statistic``.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
        dataset_title: the data set's name in tables.
        statistic: short name of the statistic (``τ-b``, ``accuracy``).
        kind: ``correlation`` or ``accuracy``.
        sample: True if the data was the embedded synthetic sample.
        n: data points (ratings or pairs).
        n_items: scored items.
        points: all numbers, by column in the requested order, then by layer.
        intervals: settings of the intervals, None without intervals.
        signatures: one line by label.
        notes: notes for the reader, one line each.
    """

    capbench: str
    protocol: str
    version: str = ""
    dataset_title: str
    statistic: str
    kind: Literal["correlation", "accuracy"]
    sample: bool = False
    n: int
    n_items: int
    points: tuple[LayerPoint, ...]
    intervals: BootstrapInfo | None = None
    signatures: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def curves(self) -> dict[str, tuple[LayerPoint, ...]]:
        """The points of each column by its title."""
        by_title: dict[str, list[LayerPoint]] = {}
        for point in self.points:
            by_title.setdefault(point.title, []).append(point)
        return {title: tuple(points) for title, points in by_title.items()}

    @property
    def layers(self) -> tuple[int, ...]:
        """All layers, ascending."""
        return tuple(sorted({point.layer for point in self.points}))


@dataclass(frozen=True)
class LayerRequest:
    """A metric that is requested in several layers.

    Attributes:
        request: the request, with a column for each layer.
        places: label and column of each score → column without the layer, its title, and the layer.
    """

    request: MetricRequest
    places: dict[ScoreColumn, tuple[str, str, int]]


def with_all_layers(request: MetricRequest, resources: Resources) -> LayerRequest:
    """A request for every layer of the weights, or for those that the metric's option ``layer`` names.

    Args:
        request: a metric with all of its requirements met.
        resources: features, weights and images for the metric; its weights are read.

    Raises:
        UsageError: the metric does not compute several layers at once.
        ModelError: the weights cannot be read.
    """
    metric = request.metric
    layers = metric.layers_of(request.given(resources), request.options)
    if not layers:
        raise UsageError(
            f"{request.label} does not compute several layers",
            code="unsupported",
            value=request.label,
            hint="Example: -m vilbertscore",
        )
    asked = set(request.columns)
    columns = tuple(c for c in metric.columns if asked & {c, *metric.columns_under(request.options, (c,))})
    options = {**request.options, "layer": layers}
    places = {}
    for row in replace(request, columns=columns, options={}).rows:
        column = row.key.column
        for layer, name in zip(layers, metric.columns_under(options, (column,)), strict=True):
            places[ScoreColumn(request.label, name)] = (column, row.title, layer)
    every = replace(request, columns=metric.columns_under(options, columns), options=options)
    return LayerRequest(every, places)


def layer_curves(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[LayerRequest],
    *,
    resamples: int = 1000,
    seed: int = 0,
    resources: Resources | None = None,
    cache: bool = True,
    sample: bool = False,
    progress: ProgressFactory = no_progress,
) -> LayerCurves:
    """Score all layers at once, and compute a protocol's statistic with its interval for each.

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation or an accuracy as its statistic.
        requests: from :func:`with_all_layers`.
        resamples: bootstrap resamples of images, at least 100.
        seed: seed of the resamples.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        sample: True if the data is the embedded sample.
        progress: makes progress bars.

    Raises:
        UsageError: the protocol's statistic is a plain mean.
        DataError, MetricError, StatisticError, …: loading or scoring failed, or a statistic is undefined.
    """
    kind = protocol.statistic.kind
    if kind == "mean":
        raise UsageError(
            f"{protocol} has no human judgements to compare with",
            code="unsupported",
            value=str(protocol),
            hint="Choose another protocol",
        )
    layered_requests = [layered.request for layered in requests]
    judged = judge(dataset, protocol.items, layered_requests, resources, cache=cache).require_all()
    scored = judged.score(progress).require_all()
    rows = [row for request in layered_requests for row in request.rows]
    cells = [cell for cell in evaluate(protocol, scored.draws, scored.tables, rows)[0] if not cell.group]
    check_defined(cells)
    settings = BootstrapSettings(resamples=resamples, seed=seed)
    with progress("intervals", 1) as step:
        assessed = assess(
            protocol,
            scored.draws,
            scored.tables,
            rows,
            cells,
            bootstrap=settings,
            tests=None,
            ceiling=False,
            groups=False,
            progress=step,
        )
    by_row = {cell.column: cell for cell in assessed.cells}
    names = {row.key: row.name for row in rows}
    points = []
    for key, (column, title, layer) in [place for layered in requests for place in layered.places.items()]:
        cell = by_row[names[key]]
        points.append(
            LayerPoint(
                label=key.label,
                column=column,
                title=title,
                layer=layer,
                value=cell.number,
                low=cell.low,
                high=cell.high,
            )
        )
    return LayerCurves(
        capbench=__version__,
        protocol=str(replace(protocol, version="")),
        version=protocol.version,
        dataset_title=dataset.title,
        statistic=protocol.statistic.label,
        kind=kind,
        sample=sample,
        n=cells[0].n,
        n_items=len(scored.draws[0].items),
        points=tuple(points),
        intervals=assessed.bootstrap,
        signatures=scored.signatures,
        notes=(
            *dict.fromkeys(note for judgements in scored.draws for note in judgements.notes),
            *assessed.notes,
            *scored.cautions,
        ),
    )
