"""Largest disagreements between metrics and human ratings: captions with thumbnails, as data."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core import plugins
from capbench.core.errors import DataError
from capbench.datasets.protocol import base_name
from capbench.features.images import decode
from capbench.metrics.abilities import Explains
from capbench.reports.page.elements import Html, ReportSource, joined, tag, wide
from capbench.reports.page.overview import best_first, copy_buttons, signature_of
from capbench.studies.item_scores import ItemScores, disagreement, human_percentiles, percentiles
from capbench.studies.results import StudyResult
from capbench.studies.scoring import ProgressFactory, no_progress

# Thumbnails of the captions that are listed first.

MAX_PICTURES = 200
"""Maximum number of pictures in a page."""
MAX_THUMBNAIL_BYTES = 10_000
"""Maximum size of a thumbnail's file."""
_SIDES = (224, 160, 112, 64)  # pixels of the longer side; the first that fits is used


def images_listed_first(tables: Sequence[ItemScores], number: int = MAX_PICTURES) -> list[str]:
    """The images of the captions with the largest disagreements, from the metrics' lists in turn."""
    lists: list[list[str]] = []
    for table in tables:
        human = human_percentiles(table)
        for name in table.scores:
            places, scores = table.points(name)
            distance = np.abs(percentiles(scores) - human[places])
            order = places[np.argsort(-distance, kind="stable")[: 2 * number]]
            lists.append([table.images[place] for place in order.tolist()])
    chosen: dict[str, None] = {}
    for turn in range(max(map(len, lists), default=0)):
        for images in lists:
            if turn < len(images) and len(chosen) < number:
                chosen[images[turn]] = None
    return list(chosen)


def thumbnails(
    images: Sequence[str], paths: Mapping[str, Path], progress: ProgressFactory = no_progress
) -> tuple[dict[str, str], list[str]]:
    """Data URLs of small JPEG files by image, and the errors of pictures that cannot be read."""
    urls: dict[str, str] = {}
    problems: list[str] = []
    there = [image for image in images if image in paths]
    with progress("pictures", len(there)) as step:
        for image in there:
            try:
                urls[image] = "data:image/jpeg;base64," + base64.b64encode(_small(paths[image])).decode()
            except DataError as error:
                problems.append(str(error))
            step(1)
    return urls, problems


def _small(path: Path) -> bytes:
    """A JPEG file of the largest size that fits."""
    from PIL import Image

    picture = Image.fromarray(decode(path))
    data = b""
    for side in _SIDES:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=65, optimize=True)
        data = stream.getvalue()
        if len(data) <= MAX_THUMBNAIL_BYTES:
            break
    return data


MAX_ITEMS = 24_000
"""Maximum number of captions in a page; each list has an equal share."""
MAX_REFERENCES = 5
"""Maximum number of references of a caption in the page."""


def panels(sources: Sequence[ReportSource]) -> list[dict[str, Any]]:
    """One entry for each human side of each study: parallel lists, percentiles in tenths."""
    tables = [(source.result, table) for source in sources for table in source.items if len(table) and table.scores]
    most = max(MAX_ITEMS // max(len(tables), 1), 1)
    return [_panel(result, table, most, several=len(sources) > 1) for result, table in tables]


def _panel(result: StudyResult, table: ItemScores, most: int, *, several: bool) -> dict[str, Any]:
    order = np.argsort(-disagreement(table), kind="stable")[:most]
    chosen = np.sort(order).tolist()
    images: dict[str, int] = {}
    lists: dict[int, int] = {}
    metrics = []
    signatures = {cell.column: signature_of(result, cell) for cell in result.cells if cell.protocol in table.protocols}
    of_columns = {cell.column: cell.metric for cell in result.cells}
    for name in best_first(result, next(iter(table.protocols), "")):
        if name not in table.scores:
            continue
        places, scores = table.points(name)
        shares = dict(zip(places.tolist(), np.round(10 * percentiles(scores)).astype(int).tolist(), strict=True))
        values, metric = table.scores[name], of_columns.get(name, "")
        known = metric in plugins.names("capbench.metrics")
        explains = known and issubclass(plugins.load("capbench.metrics", metric), Explains)
        metrics.append(
            {
                "title": result.columns[name],
                "signature": signatures.get(name, ""),
                "explained": metric if explains else "",
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
        "refLists": [table.reference_lists[place][:MAX_REFERENCES] for place in lists],
        "refCounts": [len(table.reference_lists[place]) for place in lists],
        "group": [table.groups[place] for place in chosen],
        "system": [table.systems[place] for place in chosen],
        "human": [float(f"{table.human[place]:.4g}") for place in chosen],
        "humanPct": human[chosen].tolist(),
        "ratings": [", ".join(f"{value:g}" for value in table.ratings[place]) for place in chosen],
        "metrics": metrics,
    }


def items_section(listed: Sequence[dict[str, Any]], commands: Sequence[str], pictures: int) -> Html:
    """The section with controls and an empty table, or with instructions if there are no items."""
    told = "Some studies have numbers only. This command adds their captions: "
    missing = [tag("p", told, tag("code", command)) for command in commands]
    if not listed:
        return joined(missing)
    held = [
        f"{len(panel['caption']):,} of {panel['all']:,} ({panel['title']})"
        for panel in listed
        if len(panel["caption"]) < panel["all"]
    ]
    if len(held) > 3:
        held = [f"{max(len(panel['caption']) for panel in listed):,} of each of {len(held)} lists"]
    notes = [
        "Percentiles make metrics and human ratings comparable: 90 is higher than 90 % of the same list. The list "
        "begins with the largest difference. “compare with” adds a second metric.",
        "In pairs, the preferred caption is first and has the human percentile 100. A metric has the percentile of its "
        "difference (preferred minus other): below zero it contradicts the human raters."
        if any(panel["pairs"] for panel in listed)
        else "",
        f"The page contains the largest disagreements: {'; '.join(held)}." if held else "",
        f"{pictures} pictures, of the captions listed first." if pictures else "No pictures were available.",
    ]
    controls = [
        _select("panel", "Judgements"),
        _select("first", "metric"),
        _select("second", "compare with"),
        _select("direction", "show"),
        _select("part", "group"),
    ]
    heads = ("caption", "human rating", "metric", "compared metric", "difference", "details")
    row = tag("tr", *(tag("th", head, scope="col", class_=None if head == "caption" else "n") for head in heads))
    table = tag("table", tag("thead", row), id="items", class_="items")
    return joined(
        [
            tag("p", " ".join(filter(None, notes)), class_="note"),
            *missing,
            tag("div", *controls, copy_buttons("items"), class_="tools"),
            wide(table, "Table: captions by disagreement"),
        ]
    )


def _select(name: str, label: str) -> Html:
    return tag(
        "span", tag("label", label, for_=f"items-{name}"), " ", tag("select", id=f"items-{name}"), class_="field"
    )
