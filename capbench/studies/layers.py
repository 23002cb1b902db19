"""Agreement with human ratings by the layer of word states that a metric uses (ViLBERTScore, Lee et al. 2020, Fig. 3).

The numbers are those of a study whose metrics have a column for each layer, all computed in one scoring of the items.
"""

from __future__ import annotations

from dataclasses import replace

from capbench.core.errors import UsageError
from capbench.studies.plan import Plan
from capbench.studies.results import Point, StudyResult
from capbench.studies.scoring import refuse_means
from capbench.studies.study import BootstrapSettings

Places = dict[str, tuple[str, str, int]]
"""Name of a row → name and title of the row without the layer, and the layer."""


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
            for layer, name in zip(layers, metric.columns_under(options, (row.key.column,)), strict=True):
                places[names[name]] = (row.name, row.title, layer)
    bootstrap = BootstrapSettings(resamples=resamples, seed=seed)
    study = replace(plan.study, bootstrap=bootstrap, human_ceiling=False, answers=False, practices=False)
    rows = tuple(row for request in requests for row in request.rows)
    return replace(plan, study=study, requests=tuple(requests), rows=rows, published=None), places


def with_layers(result: StudyResult, places: Places) -> StudyResult:
    """The result of such a plan with the points of its curves."""
    points = []
    for cell in result.cells:
        if cell.column in places and not cell.group:
            column, title, layer = places[cell.column]
            points.append(Point(**{**vars(cell), "column": column, "title": title}, at=layer))
    return result.model_copy(update={"points": tuple(points)})
