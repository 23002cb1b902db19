"""Agreement with human ratings by the layer of word states that a metric uses (ViLBERTScore, Lee et al. 2020, Fig. 3).

The numbers are those of a study whose metrics have a column for each layer, all computed in one scoring of the items.
"""

from __future__ import annotations

from dataclasses import replace

from capbench.core.errors import UsageError
from capbench.studies.plan import Plan
from capbench.studies.results import NUMBER, Number, ProtocolInfo, StudyResult
from capbench.studies.scoring import refuse_means
from capbench.studies.study import BootstrapSettings

Places = dict[str, tuple[str, str, str, int]]
"""Name of a row → label, column without the layer, its title, and the layer."""


class LayerPoint(Number):
    """A metric's agreement with human ratings in one layer."""

    label: str
    column: str  # without the layer (vilbertscore-f)
    title: str
    layer: int  # from 1


class LayerCurves(ProtocolInfo):
    """Agreement by layer under one protocol."""

    capbench: str
    sample: bool
    n: int  # data points (ratings or pairs)
    points: tuple[LayerPoint, ...]  # by column in the requested order, then by layer
    signatures: dict[str, str]

    @property
    def curves(self) -> dict[str, tuple[LayerPoint, ...]]:
        """The points of each column by its title."""
        titles = dict.fromkeys(point.title for point in self.points)
        return {title: tuple(point for point in self.points if point.title == title) for title in titles}

    @property
    def layers(self) -> tuple[int, ...]:
        """All layers, ascending."""
        return tuple(sorted({point.layer for point in self.points}))


def plan_layers(plan: Plan, resamples: int, seed: int) -> tuple[Plan, Places]:
    """A plan whose metrics have columns for all layers; metrics with missing requirements stay as they are."""
    for _, protocol in plan.protocols:
        refuse_means(protocol)
    requests, places = [], Places()
    for request in plan.requests:
        if request.lacks(plan.resources):
            requests.append(request)
            continue
        metric = request.metric
        layers = metric.layers_of(request.given(plan.resources), request.options)  # or those of the option ``layer``
        if not layers:
            message, hint = f"{request.label} does not compute several layers", "Example: -m vilbertscore"
            raise UsageError(message, code="unsupported", value=request.label, hint=hint)
        asked = set(request.columns)
        columns = tuple(c for c in metric.columns if asked & {c, *metric.columns_under(request.options, (c,))})
        options = {**request.options, "layer": layers}
        requests.append(replace(request, columns=metric.columns_under(options, columns), options=options))
        names = {row.key.column: row.name for row in requests[-1].rows}
        for row in replace(request, columns=columns, options={}).rows:
            column = row.key.column
            for layer, name in zip(layers, metric.columns_under(options, (column,)), strict=True):
                places[names[name]] = (request.label, column, row.title, layer)
    bootstrap = BootstrapSettings(resamples=resamples, seed=seed)
    study = replace(plan.study, bootstrap=bootstrap, human_ceiling=False, answers=False, practices=False)
    rows = tuple(row for request in requests for row in request.rows)
    return replace(plan, study=study, requests=tuple(requests), rows=rows, published=None), places


def layer_curves(result: StudyResult, places: Places) -> list[LayerCurves]:
    """The curves of each protocol with numbers."""
    curves = []
    for info in result.protocols:
        cells = {cell.column: cell for cell in result.cells if cell.protocol == info.id and not cell.group}
        points = [
            LayerPoint(label=label, column=column, title=title, layer=layer, **cell.model_dump(include=NUMBER))
            for name, (label, column, title, layer) in places.items()
            if (cell := cells.get(name)) is not None and cell.value is not None
        ]
        if points:
            curves.append(
                LayerCurves(
                    **dict(info),
                    capbench=result.capbench,
                    sample=result.sample,
                    n=next(iter(cells.values())).n,
                    points=tuple(points),
                    signatures=result.signatures[info.id.rpartition("/")[0]],
                )
            )
    return curves
