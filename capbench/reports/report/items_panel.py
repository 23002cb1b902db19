"""Where metric and people part: the captions behind the numbers, for the page's script to list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capbench import plugins
from capbench.analyses.explained_captions import Explainer
from capbench.analyses.item_profiles import disagreement, human_percentiles, percentiles
from capbench.datasets.protocol import base_name
from capbench.reports.report.elements import Html, tag, wide
from capbench.reports.report.explanations import Explained
from capbench.reports.report.numbers import signature_of
from capbench.reports.report.overview import copy_buttons
from capbench.reports.report.sources import ReportSource
from capbench.studies.item_scores import ItemScores
from capbench.studies.results import StudyResult

__all__ = ["MOST_ITEMS", "MOST_REFERENCES", "items_section", "panels"]

MOST_ITEMS = 24_000
"""Captions in one page; each data set has an equal part of them."""
MOST_REFERENCES = 5
"""References of a caption in the page."""


def panels(sources: Sequence[ReportSource], why: Explained | None = None) -> list[dict[str, Any]]:
    """One entry for each human side of each study: lists side by side, percentiles in tenths.

    Args:
        sources: the studies.
        why: the page's explanations.
    """
    why = why or Explained(explainers=tuple(source.explainers for source in sources))
    tables = [
        (study, source.result, place, table)
        for study, source in enumerate(sources)
        for place, table in enumerate(source.items)
        if len(table) and table.scores
    ]
    most = max(MOST_ITEMS // max(len(tables), 1), 1)
    several = len(sources) > 1
    listed = []
    for study, result, place, table in tables:
        pages = {label: of for (at, of_table, label), of in why.places.items() if (at, of_table) == (study, place)}
        explained = _explained(result, why.explainers[study], pages)
        listed.append(_panel(result, table, most, several, explained))
    return listed


def _panel(
    result: StudyResult, table: ItemScores, most: int, several: bool, explained: Mapping[str, _Why]
) -> dict[str, Any]:
    order = np.argsort(-disagreement(table), kind="stable")[:most]
    chosen = np.sort(order).tolist()
    images: dict[str, int] = {}
    lists: dict[int, int] = {}
    metrics = []
    signatures = {cell.column: signature_of(result, cell) for cell in result.cells if cell.protocol in table.protocols}
    at = {point: place for place, point in enumerate(chosen)}
    whys = list(dict.fromkeys(explained.values()))
    for name in (column for column in result.columns if column in table.scores):
        places, scores = table.points(name)
        shares = dict(zip(places.tolist(), np.round(10 * percentiles(scores)).astype(int).tolist(), strict=True))
        values = table.scores[name]
        metrics.append(
            {
                "title": result.columns[name],
                "signature": signatures.get(name, ""),
                "why": whys.index(explained[name]) if name in explained else None,
                "pct": [shares.get(place) for place in chosen],
                "score": [None if values[place] is None else float(f"{values[place]:.4g}") for place in chosen],
            }
        )
    human = np.round(10 * human_percentiles(table)).astype(int)
    title = f"{table.dataset_title}, {table.items.split('/', 1)[-1]}, {table.side}"
    return {
        "title": f"{title} ({result.name})" if several else title,
        "dataset": base_name(table.items.split("/")[0]),
        "pairs": table.kind == "preferences",
        "all": len(table),
        "image": [images.setdefault(table.images[place], len(images)) for place in chosen],
        "images": list(images),
        "caption": [table.captions[place] for place in chosen],
        "other": [table.others[place] for place in chosen] if table.others else [],
        "refs": [lists.setdefault(table.references[place], len(lists)) for place in chosen],
        "refLists": [table.reference_lists[place][:MOST_REFERENCES] for place in lists],
        "refCounts": [len(table.reference_lists[place]) for place in lists],
        "group": [table.groups[place] for place in chosen],
        "system": [table.systems[place] for place in chosen],
        "human": [float(f"{table.human[place]:.4g}") for place in chosen],
        "humanPct": human[chosen].tolist(),
        "ratings": [", ".join(f"{value:g}" for value in table.ratings[place]) for place in chosen],
        "metrics": metrics,
        "whys": [
            {
                "name": why.name,
                "label": why.label,
                "waits": why.waits,
                "pages": {at[point]: page for point, page in why.pages if point in at},
            }
            for why in whys
        ],
    }


@dataclass(frozen=True)
class _Why:
    """What explains some columns: the name that ``capbench explain -m`` takes, what it lacks, and pages by point."""

    name: str
    label: str
    waits: str = ""
    pages: tuple[tuple[int, int], ...] = ()


def _explained(
    result: StudyResult, explainers: Sequence[Explainer], pages: Mapping[str, Mapping[int, int]]
) -> dict[str, _Why]:
    """By column, what explains it; of metrics that nobody readied, that they could."""
    from capbench.metrics.base import Metric

    explained: dict[str, _Why] = {}
    known = plugins.names("capbench.metrics")
    able: dict[str, bool] = {}
    for cell in result.cells:
        name = cell.metric
        if name in known and name not in able:
            able[name] = plugins.load("capbench.metrics", name).explain is not Metric.explain
        if able.get(name):
            explained[cell.column] = _Why(name, cell.label)
    for explainer in explainers:
        of_label = tuple(pages.get(explainer.label, {}).items())
        why = _Why(explainer.name, explainer.label, explainer.waits, of_label)
        explained |= dict.fromkeys(explainer.columns, why)
    return explained


def items_section(
    listed: Sequence[dict[str, Any]], commands: Sequence[str], pictures: int, why: Explained | None = None
) -> Html:
    """The section, with controls and an empty table; or what to do where there are no items.

    Args:
        listed: what :func:`panels` gave.
        commands: commands that would add the items of studies without.
        pictures: how many pictures the page has.
        why: its explanations.
    """
    head = tag("h2", "Where metric and people part")
    lacking = [
        tag("p", "The results of some studies hold numbers alone. This adds their captions: ", tag("code", command))
        for command in commands
    ]
    if not listed:
        return tag("section", head, *lacking, id="apart")
    held = [
        f"{len(panel['caption']):,} of {panel['all']:,} ({panel['title']})"
        for panel in listed
        if len(panel["caption"]) < panel["all"]
    ]
    if len(held) > 3:
        held = [f"{max(len(panel['caption']) for panel in listed):,} of each of {len(held)} lists"]
    notes = [
        "Percentiles make metrics and people comparable: 90 is higher than 90 % of the same list. The list begins with "
        "the greatest distance. Two metrics are set side by side with “beside”.",
        "Of pairs, the preferred caption comes first, people stand at 100, and a metric stands where its difference "
        "(preferred minus other) ranks: below zero it orders the pair against people."
        if any(panel["pairs"] for panel in listed)
        else "",
        f"The page holds those on which metrics and people part most: {'; '.join(held)}." if held else "",
        f"{pictures} pictures, of the captions that come first." if pictures else "No pictures were at hand.",
        *_told(why),
    ]
    controls = [
        _select("panel", "Judgements"),
        _select("first", "metric"),
        _select("second", "beside"),
        _select("direction", "show"),
        _select("part", "group"),
    ]
    heads = ("caption", "people", "metric", "beside", "distance", "details")
    row = tag("tr", *(tag("th", head, scope="col", class_=None if head == "caption" else "n") for head in heads))
    table = tag("table", tag("thead", row), id="items", class_="items")
    return tag(
        "section",
        head,
        tag("p", " ".join(filter(None, notes)), class_="note"),
        *lacking,
        tag("div", *controls, copy_buttons("items"), class_="tools"),
        wide(table, "Table: captions by disagreement"),
        id="apart",
    )


def _told(why: Explained | None) -> list[str]:
    """What is said about explanations: how many there are, for which there was no room, and what they wait for."""
    if why is None:
        return []
    told = []
    if why.pages:
        told.append(
            f"{len(why.pages)} explanations of the captions that come first are linked as “why”."
            + (f" For {why.left_out} more there was no room." if why.left_out else "")
        )
    told += dict.fromkeys(
        f"Explanations of {explainer.label} wait for {explainer.waits}."
        for of_study in why.explainers
        for explainer in of_study
        if explainer.waits
    )
    return told


def _select(name: str, label: str) -> Html:
    return tag(
        "span", tag("label", label, for_=f"items-{name}"), " ", tag("select", id=f"items-{name}"), class_="field"
    )
