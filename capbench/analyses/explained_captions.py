"""Explanations of captions on which a metric and people part: which captions, and what the metric says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from capbench.analyses.item_profiles import human_percentiles, percentiles
from capbench.errors import CapbenchError, FeatureError
from capbench.explanations import Explanation, Subject
from capbench.features.store import open_store
from capbench.metrics.base import Metric, Resources
from capbench.metrics.requests import MetricRequest
from capbench.models.ensembles import network_files
from capbench.records import Item
from capbench.studies.item_scores import ItemScores
from capbench.studies.results import StudyResult

__all__ = ["CaptionToExplain", "Explainer", "captions_to_explain", "explain_captions", "explainers"]


@dataclass(frozen=True, eq=False)
class Explainer:
    """A label of a study whose metric explains itself.

    Attributes:
        label: the label.
        name: the metric's name, as ``capbench explain -m`` takes it.
        columns: names of its columns in the study.
        metric: makes the explanations; None if something is lacking.
        waits: what is lacking, as it follows "waits for"; ``""`` if nothing.
        images: whether an image can be explained.
    """

    label: str
    name: str
    columns: tuple[str, ...]
    metric: Metric | None = None
    waits: str = ""
    images: Callable[[str], bool] = field(default=lambda _: True, repr=False)


@dataclass(frozen=True)
class CaptionToExplain:
    """A point of a study's items that is to be explained.

    Attributes:
        explainer: place of its explainer in the list that was given.
        table: place of its table.
        point: its place in the table.
    """

    explainer: int
    table: int
    point: int


def explainers(result: StudyResult, requests: Sequence[MetricRequest], resources: Resources) -> tuple[Explainer, ...]:
    """Those of a study's metrics that explain themselves, each ready to, or with what it lacks.

    An explanation has to be of the very scores: features, weights and options that give another signature than the
    study's are refused, as what is lacking.

    Args:
        result: the study's numbers.
        requests: its metrics; those without explanations are passed over.
        resources: what is given to them.
    """
    able = [request for request in requests if request.metric.explain is not Metric.explain]
    return tuple(entry for request in able if (entry := _explainer(result, request, resources)).columns)


def _explainer(result: StudyResult, request: MetricRequest, resources: Resources) -> Explainer:
    columns = tuple(row.name for row in request.rows if row.name in result.columns)
    told = Explainer(request.label, request.metric.name, columns)
    try:
        lacking = request.lacks(resources)
        if lacking:
            return _waiting(told, lacking)
        metric = request.make(resources)
        model = metric.resources.model
        networks = network_files(model) if model is not None and not request.metric.explains_ensembles else ()
        if len(networks) > 1:
            one = f"--model {request.label}={networks[0]}"
            return _waiting(told, f"a single network: an ensemble of {len(networks)} is given ({one})")
        signature = metric.signature()
    except CapbenchError as error:
        return _waiting(told, str(error))
    known = {of_items[told.label] for of_items in result.signatures.values() if told.label in of_items}
    if known and signature not in known:
        return _waiting(told, f"what gave these scores: {_difference(signature, sorted(known)[0])}")
    store = metric.resources.features
    if store is None:
        return Explainer(told.label, told.name, columns, metric)
    with open_store(store) as features:
        there = frozenset(features.ids)
    return Explainer(told.label, told.name, columns, metric, images=there.__contains__)


def _waiting(told: Explainer, reason: str) -> Explainer:
    return Explainer(told.label, told.name, told.columns, waits=reason)


def _difference(given: str, known: str) -> str:
    """The first part in which two signatures differ, in words."""
    ours, theirs = given.split("|"), known.split("|")
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return f"they have {other}, and {one} was given"
    return "their signature has other parts than that of what was given"


def captions_to_explain(
    tables: Sequence[ItemScores], of_tables: Sequence[Sequence[int]], known: Sequence[Explainer], number: int
) -> Iterator[CaptionToExplain]:
    """The points on which each column and people part most, by turns: the first of every list, then the second.

    Args:
        tables: the items.
        of_tables: for each table the places of its explainers in ``known``.
        known: the explainers; those that wait have no points.
        number: points of each of an explainer's columns in each table.

    Yields:
        Each point of a table and an explainer once.
    """
    lists = [
        [CaptionToExplain(place, at, point) for point in _points(table, name, known[place], number)]
        for at, table in enumerate(tables)
        for place in of_tables[at]
        if known[place].metric is not None
        for name in known[place].columns
        if name in table.scores
    ]
    by_turns = (points[turn] for turn in range(number) for points in lists if turn < len(points))
    yield from dict.fromkeys(by_turns)


def _points(table: ItemScores, name: str, explainer: Explainer, number: int) -> list[int]:
    """The points of one column, the greatest distance first, of images that can be explained."""
    places, scores = table.points(name)
    distance = np.abs(percentiles(scores) - human_percentiles(table)[places])
    ordered = places[np.argsort(-distance, kind="stable")].tolist()
    able = (place for place in ordered if explainer.images(table.images[place]))
    return list(islice(able, number))


def explain_captions(
    explainer: Explainer, table: ItemScores, point: int, pictures: Mapping[str, Path]
) -> tuple[Explanation | None, str]:
    """What a metric says of one point: its caption, and of a pair both captions.

    Args:
        explainer: one with a metric.
        table: the items.
        point: place in the table.
        pictures: files of images, as far as they are there.

    Returns:
        The explanation; or None, and why there is none.
    """
    assert explainer.metric is not None
    image = table.images[point]
    references = tuple(table.reference_lists[table.references[point]])
    texts = [table.captions[point], *([table.others[point]] if table.others else [])]
    humans = (None, None) if table.others else (table.human[point],)
    items = tuple(Item(image, text, references) for text in texts)
    try:
        explanation = explainer.metric.explain(Subject(image, items, humans, pictures.get(image)))
    except FeatureError as error:
        return None, str(error)
    return explanation, "" if explanation is not None else f"{explainer.name} offers no explanation of {image}"
